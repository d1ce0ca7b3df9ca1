"""Getting to know a server: which model it serves, and which requests it takes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, Literal

from pytest_llmroof.errors import SourceError
from pytest_llmroof.probe.asking import Caller, Failed
from pytest_llmroof.probe.completion import EXTRAS, Answer, Dialect, Limit, Prompt, complete
from pytest_llmroof.probe.plan import Plan
from pytest_llmroof.probe.prompts import RANGES, Counter, fitted, of_ids, of_words, tokenizer

#: Length of the prompts that only find out what a server takes.
_TRIAL_TOKENS: Final = 32
#: A tokenizer may add some of its own, at the beginning of a text.
_MORE_TOKENS: Final = 2
_PATIENCE: Final = 3
_APIS: Final[tuple[tuple[Literal["completions", "chat"], Limit], ...]] = (
    ("completions", "max_tokens"), ("chat", "max_tokens"), ("chat", "max_completion_tokens"),
)  # fmt: skip
#: What a server answers that has no such API, and that takes no such request.
_NOT_THERE: Final = (404, 405, 501)
_REFUSING: Final = (400, 415, 422, 500)
_sleep = time.sleep


@dataclass(frozen=True)
class Target:
    """A server that is known: the model's served name, how it is spoken to, and what to say of that."""

    model: str
    dialect: Dialect
    notes: tuple[str, ...] = ()


def find_target(caller: Caller, plan: Plan, served_model_name: str | None) -> Target:
    """Ask for the models, then with ever plainer requests until one is taken. SourceError where none is."""
    model, longest = _model(caller, served_model_name)
    asked = plan.prompt_tokens + plan.output_tokens
    if longest is not None and asked > longest:
        raise SourceError(
            f"{model} takes {longest} tokens at the most (max_model_len), and a request would need {asked}: "
            f"{plan.prompt_tokens} of prompt and {plan.output_tokens} of output",
            "ask for fewer prompt_tokens or output_tokens, or serve the model with a longer context",
        )
    dialect = _dialect(caller, model, plan.seed)
    return Target(model, dialect, tuple(_notes(dialect)))


def _model(caller: Caller, wanted: str | None) -> tuple[str, int | None]:
    """The model's served name and the longest sequence it takes, where the server tells."""
    try:
        listed = caller.json("models")
    except Failed as failure:
        if failure.status in _NOT_THERE and wanted:
            return wanted, None  # It lists none: the name that was given has to do.
        raise failure.as_source_error from None
    entries = listed.get("data") if isinstance(listed, dict) else None
    rows = entries if isinstance(entries, list) else []
    models = {str(one["id"]): one for one in rows if isinstance(one, dict) and one.get("id")}
    if wanted is not None:
        if wanted not in models:
            raise SourceError(f"{caller.base.shown} serves no model {wanted!r}", f"it serves {_named(models)}")
        return wanted, _longest(models[wanted])
    if not models:
        raise SourceError(f"{caller.base.shown} lists no model", "name it: served_model_name=...")
    if len(models) > 1:
        raise SourceError(
            f"{caller.base.shown} serves several models ({_named(models)})", "name one: served_model_name=..."
        )
    (model,) = models
    return model, _longest(models[model])


def _named(models: dict[str, Any]) -> str:
    names = list(models)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (", ".join(repr(name) for name in names[:5]) + more) or "none"


def _longest(model: Any) -> int | None:
    found = model.get("max_model_len")
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def _dialect(caller: Caller, model: str, seed: int) -> Dialect:
    """Token ids and every field where the server takes them; else what it takes of the fields, then of the ids."""
    refused: list[Failed] = []
    trials = count(-1, -1)

    def taken(dialect: Dialect) -> bool:
        answer = _trial(caller, model, dialect, seed, next(trials))
        if answer.failure is None:
            # Without a count nothing speaks against it; with one, numbers may have been read as something else.
            found = answer.prompt_tokens
            return dialect.ids is None or found is None or abs(found - _TRIAL_TOKENS) <= _MORE_TOKENS
        if answer.failure.status not in (*_NOT_THERE, *_REFUSING):
            raise answer.failure.as_source_error
        refused.append(answer.failure)
        return False

    full = Dialect(ids=RANGES[0])
    if taken(full):
        return full
    for api, limit in _APIS:
        for extras in _fewer(full.extras):
            plain = Dialect(api=api, extras=extras, limit=limit)
            if taken(plain):
                return next((each for each in _with_ids(plain) if each != full and taken(each)), plain)
            if refused[-1].status in _NOT_THERE:
                break
    raise next((each for each in refused if each.status not in _NOT_THERE), refused[-1]).as_source_error


def _with_ids(plain: Dialect) -> Iterator[Dialect]:
    """The same with token ids, which only the API of plain completions takes."""
    if plain.api == "completions":
        for ids in RANGES:
            yield replace(plain, ids=ids)


def _trial(caller: Caller, model: str, dialect: Dialect, seed: int, index: int) -> Answer:
    prompt = of_ids(seed, index, _TRIAL_TOKENS, dialect.ids) if dialect.ids else of_words(seed, index, _TRIAL_TOKENS)
    for _ in range(_PATIENCE):
        answer = complete(caller, dialect, dialect.body(model, prompt, 1), 1)
        failure = answer.failure
        if failure is None or failure.status != 429 or failure.retry_after_seconds > caller.deadline.left:
            break
        _sleep(failure.retry_after_seconds)
    return answer


def _fewer(extras: frozenset[str]) -> Iterator[frozenset[str]]:
    """All of the fields, all but one, then fewer and fewer."""
    yield extras
    for extra in EXTRAS:
        # Running counts are an option of streaming's options, and go with them.
        yield extras - {extra} - (frozenset(EXTRAS[:1]) if extra == "stream_options" else frozenset())
    for number in range(2, len(EXTRAS) + 1):
        yield extras - frozenset(EXTRAS[:number])


def _notes(dialect: Dialect) -> Iterator[str]:
    if dialect.api == "chat":
        yield "asked through chat/completions, as the server has no completions: its template adds to every prompt"
    if dialect.ids is None:
        yield "prompts are text that was measured, as the server takes no token ids"
    missing = [extra for extra in ("ignore_eos", "min_tokens", "temperature") if extra not in dialect.extras]
    if missing:
        yield f"the server refuses {', '.join(missing)}: outputs may end before their length"
    if "stream_options" not in dialect.extras:
        yield "the server refuses stream_options: tokens are counted by the pieces of the stream"


def bodies(caller: Caller, target: Target, plan: Plan, indices: Iterable[int], tokens: int) -> list[bytes]:
    """Requests for so many output tokens each, with a prompt of its own for every index."""
    dialect = target.dialect
    if dialect.ids is not None:
        prompts: list[Prompt] = [of_ids(plan.seed, index, plan.prompt_tokens, dialect.ids) for index in indices]
    else:
        prompts = list(_texts(caller, target, plan, indices))
    return [dialect.body(target.model, prompt, tokens) for prompt in prompts]


def _texts(caller: Caller, target: Target, plan: Plan, indices: Iterable[int]) -> Iterator[str]:
    """Texts, each measured by the server's tokenizer; else one is measured by what a request with it counts."""
    own = tokenizer(caller, target.model) if target.dialect.api == "completions" else None
    counter: Counter | None = own or (lambda text: _prompt_tokens(caller, target, text))
    words = plan.prompt_tokens
    for index in indices:
        if counter is None:
            yield of_words(plan.seed, index, words)
            continue
        text, words, found = fitted(plan.seed, index, plan.prompt_tokens, words, counter)
        yield text
        if own is None or found is None:
            counter = None  # A request for every prompt would be a load of its own.


def _prompt_tokens(caller: Caller, target: Target, text: str) -> int | None:
    dialect = target.dialect
    return complete(caller, dialect, dialect.body(target.model, text, 1), 1).prompt_tokens
