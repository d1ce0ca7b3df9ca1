"""One completion: its request in the dialect that a server takes, and what came of it, piece by piece."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pytest_llmroof.probe.asking import Caller, Failed
from pytest_llmroof.probe.sse import Events, TooLong

_monotonic = time.monotonic

Prompt = str | list[int]

#: What a request asks for beside the standard's plain fields, by the name under which a server may refuse it.
EXTRAS: Final = ("continuous_usage_stats", "stream_options", "min_tokens", "ignore_eos", "temperature")
#: The field for the number of output tokens: the standard's, and what its newer version has in its place for chat.
Limit = Literal["max_tokens", "max_completion_tokens"]
_PATHS: Final = {"completions": "completions", "chat": "chat/completions"}
#: Keys of a delta that hold output, whatever kind of it.
_OUTPUT: Final = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "audio")
_ENDED_WELL: Final = ("stop", "length", "tool_calls", "function_call", "content_filter", "eos_token", "eos")


@dataclass(frozen=True)
class Dialect:
    """How a server is spoken to: which API, prompts as token ids (out of ``ids``) or text, and the fields it takes."""

    api: Literal["completions", "chat"] = "completions"
    ids: tuple[int, int] | None = None
    extras: frozenset[str] = frozenset(EXTRAS)
    limit: Limit = "max_tokens"

    @property
    def path(self) -> str:
        """Where completions are asked for, below the base."""
        return _PATHS[self.api]

    def body(self, model: str, prompt: Prompt, tokens: int) -> bytes:
        """A request for exactly so many tokens, as far as the server lets itself be told."""
        fields: dict[str, Any] = {"model": model, self.limit: tokens, "stream": True}
        if self.api == "chat":
            fields["messages"] = [{"role": "user", "content": prompt}]
        else:
            fields["prompt"] = prompt
        if "temperature" in self.extras:
            fields["temperature"] = 0
        if "ignore_eos" in self.extras:
            fields["ignore_eos"] = True
        if "min_tokens" in self.extras:
            fields["min_tokens"] = tokens
        if "stream_options" in self.extras:
            options = fields["stream_options"] = {"include_usage": True}
            if "continuous_usage_stats" in self.extras:
                options["continuous_usage_stats"] = True
        return json.dumps(fields).encode()


@dataclass
class Answer:
    """What became of one request. Times are seconds after ``sent``, which is on the monotonic clock.

    ``times`` are those of the pieces that held output, ``tokens`` how many tokens each held where the server told.
    The counts are the server's, None where it sent none. ``asked`` is how many output tokens it was asked for, and
    ``by_length`` whether it ended by that length. ``wait_seconds`` is how long the client itself held it back.
    """

    sent: float
    times: list[float] = field(default_factory=list)
    tokens: list[int | None] = field(default_factory=list)
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    failure: Failed | None = None
    wait_seconds: float = 0.0
    asked: int | None = None
    by_length: bool = False

    @property
    def counted(self) -> int:
        """Output tokens: as the server counts them, as its pieces tell, as an end by length says, else the fewest."""
        if self.output_tokens is not None:
            return self.output_tokens
        fewest = sum(1 if count is None else count for count in self.tokens)
        return max(fewest, self.asked or 0) if None in self.tokens and self.by_length else fewest

    @property
    def most(self) -> int:
        """The most output tokens that may have come: as many as were asked for, where nothing tells the number."""
        open_ = self.output_tokens is None and None in self.tokens
        return max(self.counted, self.asked or 0) if open_ else self.counted


def complete(caller: Caller, dialect: Dialect, body: bytes, tokens: int) -> Answer:
    """Send one request and read what streams back. A failure is kept in the answer."""
    answer = Answer(_monotonic(), asked=tokens)
    try:
        response = caller.send(dialect.path, body)
        with response:
            _check_type(caller, response.headers)
            stream = _Stream(answer, tokens)
            while chunk := caller.read(response):
                at = _monotonic() - answer.sent
                for data in _events(stream.events, chunk):
                    stream.take(data, at)
                if stream.done:
                    caller.finish(response)
                    break
            stream.end()
    except Failed as failure:
        answer.failure = failure
    return answer


def _check_type(caller: Caller, headers: Mapping[str, str]) -> None:
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        known = {"application/json": "one JSON document", "text/html": "HTML"}.get(kind, "something else")
        raise Failed(
            f"{caller.base.shown} answered with {known}, not with a stream of events",
            "name an OpenAI-compatible endpoint that streams: url='http://HOST:PORT/v1'",
        )


def _events(events: Events, chunk: bytes) -> list[str]:
    try:
        return list(events.feed(chunk))
    except TooLong:
        raise Failed("the stream held an event without an end") from None


class _Stream:
    """Reads the events of one stream into an answer."""

    def __init__(self, answer: Answer, asked: int) -> None:
        self.answer = answer
        self.events = Events()
        self.done = False
        self._asked, self._most = asked, 4 * asked + 256
        self._finish: str | None = None
        self._counted = 0
        self._continuous: bool | None = None
        # When events came that may hold a token without any text (llama.cpp's end of a stream, a part of a character).
        self._silent: list[float] = []

    def take(self, data: str, at: float) -> None:
        """One event's data, which came ``at`` seconds after sending."""
        if self.done:
            return
        if data.strip() == "[DONE]":
            self.done = True
            return
        event = _object(data)
        if event.get("error") or event.get("object") == "error":
            raise _reported(event)
        used = _usage(event)
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
        if choice is not None:
            self._piece(choice, used.get("completion_tokens"), at)
        self._count(used or _timings(event))

    def end(self) -> None:
        """What is wrong with the stream as a whole. Failed where anything is."""
        answer = self.answer
        if not self.done and self.events.unfinished.strip() == "[DONE]":
            self.done = True
        if self._finish is not None and self._finish not in _ENDED_WELL:
            raise Failed("the server ended the request without finishing it (abort or error)")
        if not self.done and self._finish is None:
            raise Failed(
                "the stream was cut off before its end"
                if answer.times
                else "the stream ended before a token came"
            )
        answer.by_length = self._finish == "length"
        if not answer.times:
            self._without_text()

    def _without_text(self) -> None:
        """Tokens that no event showed: by the server's count, else as an end by length says. Failed where none came."""
        told = self.answer.output_tokens
        tokens = (self._asked if self.answer.by_length else 0) if told is None else told
        if not (tokens and self._silent):
            raise Failed("the stream held no token")
        self.answer.times = self._silent[:tokens]
        self.answer.tokens = [1] if tokens == 1 else [None] * len(self.answer.times)

    def _piece(self, choice: Mapping[str, Any], counted: int | None, at: float) -> None:
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self._finish = finish
        if self._continuous is None:
            # Usage in the first chunk is a running count; later alone it is the total.
            self._continuous = counted is not None
        tokens = _token_ids(choice)
        if tokens is None and self._continuous and counted is not None:
            tokens, self._counted = max(0, counted - self._counted), max(counted, self._counted)
        if tokens is None and not _holds_output(choice):
            if isinstance(finish, str) or not _is_role(choice):
                self._silent.append(at)
            return
        if tokens == 0:
            return
        self.answer.times.append(at)
        self.answer.tokens.append(tokens)
        if len(self.answer.times) > self._most:
            raise Failed("the stream went on far beyond the tokens that were asked for")

    def _count(self, used: Mapping[str, int]) -> None:
        answer = self.answer
        answer.prompt_tokens = used.get("prompt_tokens", answer.prompt_tokens)
        answer.output_tokens = used.get("completion_tokens", answer.output_tokens)
        if (answer.output_tokens or 0) > self._most:
            # Times per token, and all rates, would be as wrong as the count.
            raise Failed("the server counted far more output tokens than were asked for")
        answer.cached_tokens = used.get("cached_tokens", answer.cached_tokens)


def _object(data: str) -> Mapping[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise Failed("the stream held an event that is no JSON") from None
    if not isinstance(event, dict):
        raise Failed("the stream held an event that is no JSON object")
    return event


def _reported(event: Mapping[str, Any]) -> Failed:
    """An error inside a stream that began well; of what it says only the number is repeated."""
    error = event.get("error")
    code = error.get("code") if isinstance(error, dict) else event.get("code")
    status = code if isinstance(code, int) and 100 <= code <= 599 else None
    number = f" ({status})" if status else ""
    # Some servers refuse a request this way, whose stream had begun by then (vLLM: token ids beyond its vocabulary).
    return Failed(f"the server reported an error within the stream{number}", "look at the server's log", status=status)


def _usage(event: Mapping[str, Any]) -> dict[str, int]:
    usage = event.get("usage")
    if not isinstance(usage, dict):
        return {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    found = {**usage, "cached_tokens": cached}
    return {
        name: found[name]
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
        if isinstance(found.get(name), int) and not isinstance(found[name], bool) and found[name] >= 0
    }


def _timings(event: Mapping[str, Any]) -> dict[str, int]:
    """What llama.cpp counts beside or instead of usage: output tokens, prompt tokens computed and out of its cache."""
    timings = event.get("timings")
    if not isinstance(timings, dict):
        return {}
    counts = {name: timings.get(name) for name in ("predicted_n", "prompt_n", "cache_n")}
    found = {name: n for name, n in counts.items() if isinstance(n, int) and not isinstance(n, bool) and n >= 0}
    told: dict[str, int] = {}
    if "predicted_n" in found:
        told["completion_tokens"] = found["predicted_n"]
    if "prompt_n" in found and "cache_n" in found:
        told |= {"prompt_tokens": found["prompt_n"] + found["cache_n"], "cached_tokens": found["cache_n"]}
    return told


def _is_role(choice: Mapping[str, Any]) -> bool:
    """Whether a piece only opens a chat message, which comes before any token."""
    delta = choice.get("delta")
    return isinstance(delta, dict) and (bool(delta.get("role")) or not delta)


def _token_ids(choice: Mapping[str, Any]) -> int | None:
    """How many tokens a piece holds, where it lists their ids."""
    ids = choice.get("token_ids")
    return len(ids) if isinstance(ids, list) else None


def _holds_output(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta")
    return bool(choice.get("text")) or (isinstance(delta, dict) and any(delta.get(key) for key in _OUTPUT))
