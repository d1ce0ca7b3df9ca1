"""Finding out what a server serves, and which requests it takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from completions import MODEL, Server, prompt_tokens, too_often

from pytest_llmroof.errors import SourceError
from pytest_llmroof.probe.asking import Caller, Deadline
from pytest_llmroof.probe.completion import EXTRAS
from pytest_llmroof.probe.plan import decode_plan, prefill_plan
from pytest_llmroof.probe.prompts import RANGES, fitted, of_ids, of_words
from pytest_llmroof.probe.target import Target, bodies, find_target
from pytest_llmroof.telemetry.endpoint import endpoint_of

Serve = Callable[[Server], Server]
PLAN = decode_plan(2, 128, 16, 1, seed=1)


def find(server: Server, model: str | None = None, **options: Any) -> Target:
    with Caller(endpoint_of(server.url, **options), Deadline.after(30)) as caller:
        return find_target(caller, PLAN, model)


def refusal(server: Server, model: str | None = None) -> SourceError:
    with pytest.raises(SourceError) as raised:
        find(server, model)
    return raised.value


def test_a_server_that_takes_everything_is_asked_once(serve: Serve) -> None:
    server = serve(Server())
    target = find(server)
    assert (target.model, target.dialect.ids, target.dialect.extras) == (MODEL, RANGES[0], frozenset(EXTRAS))
    assert target.notes == ()
    assert len(server.asked) == 1


@pytest.mark.parametrize("field", ["ignore_eos", "min_tokens", "temperature", "continuous_usage_stats"])
def test_only_what_is_refused_is_left_out(serve: Serve, field: str) -> None:
    server = serve(Server(refuses=frozenset({field})))
    target = find(server)
    assert target.dialect.extras == frozenset(EXTRAS) - {field}
    assert target.dialect.ids == RANGES[0]
    said = [f"the server refuses {field}: outputs may end before their length"]
    assert list(target.notes) == (said if field != "continuous_usage_stats" else [])


def test_without_stream_options_nothing_counts_within_the_stream(serve: Serve) -> None:
    target = find(serve(Server(refuses=frozenset({"stream_options"}))))
    assert target.dialect.extras == {"min_tokens", "ignore_eos", "temperature"}
    assert target.notes == ("the server refuses stream_options: tokens are counted by the pieces of the stream",)


def test_two_refused_fields_are_found_too(serve: Serve) -> None:
    server = serve(Server(refuses=frozenset({"stream_options", "min_tokens"})))
    target = find(server)
    assert target.dialect.extras == {"ignore_eos", "temperature"}
    assert target.dialect.ids == RANGES[0]
    assert len(server.asked) < 20


def test_without_token_ids_prompts_are_text(serve: Serve) -> None:
    target = find(serve(Server(refuses=frozenset({"ids"}))))
    assert (target.dialect.api, target.dialect.ids) == ("completions", None)
    assert target.notes == ("prompts are text that was measured, as the server takes no token ids",)


@pytest.mark.parametrize(("vocabulary", "ids"), [(1_024, (300, 900)), (256, (10, 250)), (8, None)])
def test_token_ids_beyond_the_vocabulary_are_refused_within_the_stream(
    serve: Serve, vocabulary: int, ids: tuple[int, int] | None
) -> None:
    # A real vLLM 0.32.0 answers 200, and then with an error in place of tokens.
    target = find(serve(Server(vocabulary=vocabulary)))
    assert (target.dialect.ids, target.dialect.extras) == (ids, frozenset(EXTRAS))


def test_numbers_that_are_read_as_something_else_are_no_token_ids(serve: Serve) -> None:
    # It counts 72 tokens where 32 were sent: 40 more than any tokenizer adds.
    target = find(serve(Server(extra_prompt_tokens=40)))
    assert target.dialect.ids is None


def test_a_server_with_chat_only(serve: Serve) -> None:
    target = find(serve(Server(apis=("chat",))))
    assert (target.dialect.api, target.dialect.ids) == ("chat", None)
    assert target.notes[0].startswith("asked through chat/completions, as the server has no completions")


def test_a_chat_that_refuses_max_tokens_is_asked_by_its_newer_name(serve: Serve) -> None:
    """As APIs of reasoning models do, which refuse what engines add, too."""
    server = serve(Server(apis=("chat",), refuses=frozenset({"max_tokens", "ignore_eos", "min_tokens", "temperature"})))
    target = find(server)
    assert (target.dialect.api, target.dialect.limit) == ("chat", "max_completion_tokens")
    assert "stream_options" not in target.dialect.extras  # the fewest fields that are taken of each number
    body = json.loads(target.dialect.body(target.model, "a b c", 7))
    assert body["max_completion_tokens"] == 7
    assert "max_tokens" not in body


def test_a_chat_that_refuses_max_tokens_alone_keeps_everything_else(serve: Serve) -> None:
    target = find(serve(Server(apis=("chat",), refuses=frozenset({"max_tokens"}))))
    assert (target.dialect.limit, target.dialect.extras) == ("max_completion_tokens", frozenset(EXTRAS))


def test_max_tokens_is_asked_wherever_it_is_taken(serve: Serve) -> None:
    for server in (serve(Server()), serve(Server(apis=("chat",)))):
        assert find(server).dialect.limit == "max_tokens"


def test_a_server_without_either_says_so(serve: Serve) -> None:
    server = serve(Server(apis=()))
    assert refusal(server).reason == f"{server.url} has no such page, or no such model (404)"


def test_several_models_must_be_named(serve: Serve) -> None:
    server = serve(Server(models=("a", "b")))
    error = refusal(server)
    assert (error.reason, error.remedy) == (
        f"{server.url} serves several models ('a', 'b')", "name one: served_model_name=...",
    )  # fmt: skip
    assert find(server, "b").model == "b"
    assert refusal(server, "c").reason == f"{server.url} serves no model 'c'"
    assert refusal(serve(Server(models=()))).remedy == "name it: served_model_name=..."


def test_a_sequence_that_is_too_long_is_told_before_anything_is_sent(serve: Serve) -> None:
    server = serve(Server(longest=140))
    assert "takes 140 tokens at the most (max_model_len), and a request would need 144" in refusal(server).reason
    assert server.asked == []


def test_credentials_are_asked_for_and_never_shown(serve: Serve) -> None:
    server = serve(Server(key="sk-secret"))
    assert refusal(server).reason == f"{server.url} asks for credentials (401)"
    wrong = {"Authorization": "Bearer sk-wrong"}
    with pytest.raises(SourceError) as raised:
        find(server, headers=wrong)
    assert "sk-" not in str(raised.value)
    assert find(server, headers={"Authorization": "Bearer sk-secret"}).model == MODEL


def test_a_server_that_asks_to_wait_is_waited_for(serve: Serve) -> None:
    server = serve(Server(trial_faults=[too_often(1)]))
    assert find(server).model == MODEL
    assert len(server.asked) == 2


def made(server: Server, target: Target, count: int = 4) -> list[int]:
    """The lengths of so many prompts, as the server counts them."""
    with Caller(endpoint_of(server.url), Deadline.after(30)) as caller:
        return [prompt_tokens(json.loads(body)) for body in bodies(caller, target, PLAN, range(count), 16)]


def test_token_ids_have_exactly_the_length(serve: Serve) -> None:
    server = serve(Server())
    assert made(server, find(server)) == [128] * 4


def test_text_is_measured_by_the_servers_tokenizer(serve: Serve) -> None:
    # 1 + 3 x words // 2: 85 words are 128 tokens.
    server = serve(Server(refuses=frozenset({"ids"})))
    assert made(server, find(server)) == [128] * 4
    assert len(of_words(1, 0, 85).split()) == 85


def test_text_is_measured_by_a_request_where_there_is_no_tokenizer(serve: Serve) -> None:
    server = serve(Server(refuses=frozenset({"ids"}), tokenizes=False))
    target = find(server)
    before = len(server.asked)
    assert made(server, target) == [128] * 4
    assert len(server.asked) - before <= 6  # the first prompt only: others have as many words


def test_a_chat_template_is_counted_in(serve: Serve) -> None:
    server = serve(Server(apis=("chat",)))
    # The template adds 7: 80 words are 121 tokens, and 128 with it.
    assert made(server, find(server)) == [128] * 4


def test_prompts_differ_from_each_other_and_from_run_to_run() -> None:
    first = [of_ids(1, index, 16, RANGES[0]) for index in range(100)]
    assert len({tuple(prompt) for prompt in first}) == 100
    assert first[0] == of_ids(1, 0, 16, RANGES[0])
    assert first[0] != of_ids(2, 0, 16, RANGES[0])
    assert decode_plan(1, 8, 8, 1).seed != decode_plan(1, 8, 8, 1).seed
    assert decode_plan(1, 8, 8, 1).fresh
    assert not replace(PLAN).fresh
    assert prefill_plan(8, 2, 5).concurrency == 2


def test_the_nearest_text_is_taken_where_none_fits() -> None:
    # Three tokens a word: 10 tokens are never reached; 9 and 12 are tried, 9 is nearer.
    text, words, found = fitted(1, 0, 10, 10, lambda text: 3 * len(text.split()))
    assert (len(text.split()), words, found) == (3, 3, 9)
    assert fitted(1, 0, 10, 7, lambda text: None)[1:] == (7, None)
