"""One request at a time, against a server that misbehaves on purpose."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from completions import (
    Fault,
    Server,
    cut_after,
    endless,
    failing,
    moved_to,
    silent,
    streaming,
    too_often,
)

from pytest_llmroof.probe import completion
from pytest_llmroof.probe.asking import Caller, Deadline, Failed
from pytest_llmroof.probe.completion import Answer, Dialect, complete
from pytest_llmroof.telemetry.endpoint import endpoint_of

Serve = Callable[[Server], Server]
IDS = [5_000 + number for number in range(64)]
FULL = Dialect(ids=(1_000, 20_000))
REPORTED = "the server reported an error within the stream"
NO_STREAM = "not with a stream of events"


def ask(server: Server, dialect: Dialect = FULL, tokens: int = 6, seconds: float = 30.0, **options: Any) -> Answer:
    with Caller(endpoint_of(server.url, **options), Deadline.after(seconds)) as caller:
        prompt = IDS if dialect.ids else "a b c"
        return complete(caller, dialect, dialect.body(server.models[0], prompt, tokens), tokens)


def refused(server: Server, fault: Fault, **options: Any) -> Failed:
    server.fault = fault
    failure = ask(server, **options).failure
    assert failure is not None
    return failure


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve(Server())


def text(value: str, finish: str | None = None, **more: object) -> dict[str, Any]:
    return {"choices": [{"text": value, "finish_reason": finish}], **more}


def delta(finish: str | None = None, **held: object) -> dict[str, Any]:
    return {"choices": [{"delta": held, "finish_reason": finish}]}


def used(prompt: int, output: int) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": output}}


def test_every_piece_has_its_time_and_its_tokens(server: Server) -> None:
    answer = ask(server)
    assert answer.failure is None
    assert answer.tokens == [1] * 6
    assert (answer.prompt_tokens, answer.output_tokens, answer.counted) == (64, 6, 6)
    # It waits 5 ms before the first token and 2 ms before each other one: none can come earlier.
    assert answer.times[0] >= 0.005
    assert answer.times[-1] >= 0.005 + 5 * 0.002
    assert answer.times == sorted(answer.times)
    (body,) = server.asked
    assert body["prompt"] == IDS
    assert {key: body[key] for key in ("max_tokens", "min_tokens", "ignore_eos", "temperature", "stream")} == {
        "max_tokens": 6, "min_tokens": 6, "ignore_eos": True, "temperature": 0, "stream": True,
    }  # fmt: skip
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_several_tokens_in_a_piece_are_told_by_the_running_count(server: Server) -> None:
    server.tokens_per_piece = 4
    answer = ask(server, tokens=10)
    assert answer.tokens == [4, 4, 2]
    assert answer.counted == 10


def test_several_tokens_in_a_piece_are_told_by_their_ids(server: Server) -> None:
    server.fault = streaming(
        {"choices": [{"text": "ab", "token_ids": [1, 2]}]},
        {"choices": [{"text": "", "token_ids": []}]},
        {"choices": [{"text": "", "token_ids": [3, 4, 5], "finish_reason": "length"}]},
    )
    answer = ask(server)
    assert (answer.failure, answer.tokens, answer.counted) == (None, [2, 3], 5)


def test_without_running_counts_pieces_are_times_and_the_total_counts(server: Server) -> None:
    server.continuous, server.tokens_per_piece = False, 3
    answer = ask(server, tokens=9)
    assert answer.tokens == [None, None, None]
    assert answer.counted == 9
    server.usage = False
    answer = ask(server, tokens=9)
    # Nothing counts, but it ended by length: the 9 tokens that were asked for came, in 3 pieces.
    assert (answer.prompt_tokens, answer.output_tokens, len(answer.times)) == (None, None, 3)
    assert (answer.counted, answer.most) == (9, 9)


@pytest.mark.parametrize(
    ("events", "counted", "most"),
    [
        ((text("a b"), text("c d", "stop")), 2, 6),  # two pieces of one token or of several, six at the most
        ((text("a b"), text("c d"), b"[DONE]"), 2, 6),  # without any reason of its end
        ((text("a b"), text("c d", "stop", **used(64, 4))), 4, 4),
        ((text("a b"), text("c d", "length", **used(64, 4))), 4, 4),  # the server's own limit: usage says more
        ((text("a b"), text("c d", "length")), 6, 6),
        ((text(""), text("", "length")), 6, 6),
        (({"choices": [{"text": "ab", "token_ids": [1, 2], "finish_reason": "length"}]},), 2, 2),
        ((*[text("a")] * 8, text("", "length")), 8, 8),  # never fewer than its pieces
    ],
)
def test_usage_ids_and_an_end_by_length_tell_how_many_tokens(
    server: Server, events: tuple[object, ...], counted: int, most: int
) -> None:
    server.fault = streaming(*events)
    answer = ask(server, tokens=6)
    assert (answer.failure, answer.counted, answer.most) == (None, counted, most)


def test_the_role_is_no_token_and_reasoning_is(server: Server) -> None:
    server.continuous, server.reasoning = False, 2
    answer = ask(server, Dialect(api="chat"), tokens=5)
    assert answer.failure is None
    assert len(answer.times) == 5  # the chunk with the role came first, 5 ms before them
    assert answer.times[0] >= 0.005
    assert server.asked[0]["messages"] == [{"role": "user", "content": "a b c"}]


def test_what_holds_output_and_what_does_not(server: Server) -> None:
    server.fault = streaming(
        delta(role="assistant", content=""),
        delta(content=None, reasoning="hm"),
        delta(),
        {"choices": []},
        delta(tool_calls=[{"function": {"arguments": "{"}}]),
        delta(content="", reasoning_content="", tool_calls=[]),
        delta("tool_calls", content="x"),
        b"[DONE]",
    )
    answer = ask(server, Dialect(api="chat"))
    assert (answer.failure, len(answer.times), answer.counted) == (None, 3, 3)


def test_a_total_beside_the_last_piece_is_no_running_count(server: Server) -> None:
    server.fault = streaming(text("a"), text("b"), text("", "stop", **used(64, 2)))
    answer = ask(server)
    assert (answer.failure, answer.tokens, answer.counted) == (None, [None, None], 2)


WITHOUT_TEXT = text("", None), text("", "length", **used(64, 1))


@pytest.mark.parametrize(
    ("events", "tokens", "counted"),
    [
        ((text("", "length", **used(64, 1)), b"[DONE]"), [1], 1),  # llama.cpp: one event holds token, end and usage
        (WITHOUT_TEXT, [1], 1),  # vLLM: half a character, then the end
        ((text("", "length"), {"choices": [], **used(64, 1)}, b"[DONE]"), [1], 1),
        ((text("", "length"), b"[DONE]"), [1], 1),  # nothing counts, but it ended by the length that was asked for
        ((text("", "length", timings={"predicted_n": 1, "prompt_n": 60, "cache_n": 4}), b"[DONE]"), [1], 1),
        ((text(""), text(""), text("", "length"), {"choices": [], **used(64, 3)}, b"[DONE]"), [None] * 3, 3),
    ],
)
def test_a_token_may_have_no_text(server: Server, events: tuple[object, ...], tokens: list[Any], counted: int) -> None:
    server.fault = streaming(*events)
    answer = ask(server, tokens=1)
    assert (answer.failure, answer.tokens, answer.counted) == (None, tokens, counted)
    assert answer.times == sorted(answer.times)


class Clock:
    """The client's clock. It stands, and is moved on once the client has looked at it for what came last."""

    def __init__(self) -> None:
        self.now, self.looks, self._looked = 0.0, 0, threading.Condition()

    def __call__(self) -> float:
        with self._looked:
            self.looks += 1
            self._looked.notify_all()
            return self.now

    def after(self, seconds: float, send: Callable[[object], None], event: object) -> None:
        """Send an event so much later than the one before, until it was read."""
        with self._looked:
            self.now += seconds
            before = self.looks
        send(event)
        with self._looked:
            assert self._looked.wait_for(lambda: self.looks > before, timeout=120)


def timed(server: Server, monkeypatch: pytest.MonkeyPatch, *events: tuple[float, object]) -> list[float]:
    """The times of an answer whose events come so much after each other."""
    clock = Clock()
    monkeypatch.setattr(completion, "_monotonic", clock)

    def fault(handler: Any, body: dict[str, Any]) -> None:
        handler.begin()
        for seconds, event in events:
            clock.after(seconds, handler.event, event)
        handler.done()

    server.fault = fault
    answer = ask(server, tokens=2)
    assert answer.failure is None
    return answer.times


def test_a_piece_s_time_is_when_it_came(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    end = {"choices": [], **used(64, 2)}
    assert timed(server, monkeypatch, (5.0, text("a")), (2.0, text("b", "length")), (9.0, end)) == [5.0, 7.0]


def test_the_first_event_without_text_is_the_token_s(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed(server, monkeypatch, (1.0, WITHOUT_TEXT[0]), (50.0, WITHOUT_TEXT[1])) == [1.0]


def test_a_chat_s_role_is_no_token_where_none_has_text(server: Server) -> None:
    server.continuous, server.silent, server.first_seconds = False, True, 0.05
    answer = ask(server, Dialect(api="chat"), tokens=1)
    assert (answer.failure, answer.tokens, answer.counted) == (None, [1], 1)
    assert answer.times[0] >= 0.05  # the role came before it


def test_a_count_far_beyond_what_was_asked_for_is_not_believed(server: Server) -> None:
    events = (text("a"), text("b"), text("", "length", **used(64, 10**9)), b"[DONE]")
    assert refused(server, streaming(*events)).reason == "the server counted far more output tokens than were asked for"


def test_llama_cpp_s_timings_count_where_usage_does_not(server: Server) -> None:
    more = {"timings": {"predicted_n": 2, "prompt_n": 60, "cache_n": 4, "predicted_ms": 1.5}}
    server.fault = streaming(text("a"), text("b"), text("", "length", **more), b"[DONE]")
    answer = ask(server)
    assert (answer.tokens, answer.output_tokens, answer.prompt_tokens, answer.cached_tokens) == ([None] * 2, 2, 64, 4)
    server.fault = streaming(text("a"), text("b", "length", timings={"predicted_n": True}, **used(9, 2)), b"[DONE]")
    assert (ask(server).prompt_tokens, ask(server).counted) == (9, 2)


def test_events_may_be_cut_anywhere_and_end_in_cr_lf(server: Server) -> None:
    stream = b": hello\r\ndata: " + json.dumps(text("é")).encode() + b"\r\n\r\ndata: [DONE]\r\n\r\n"
    server.fault = streaming(*(stream[place : place + 1] for place in range(len(stream))), raw=True)
    assert ask(server).counted == 1


def test_a_last_line_without_a_line_end_still_ends_the_stream(server: Server) -> None:
    server.fault = streaming(b"data: " + json.dumps(text("a")).encode() + b"\n\ndata: [DONE]", raw=True)
    assert ask(server).failure is None


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (cut_after(0), "the connection broke before the answer was complete at http://127.0.0.1:*/v1"),
        (cut_after(3), "the connection broke before the answer was complete at http://127.0.0.1:*/v1"),
        (streaming(text("a"), text("b")), "the stream was cut off before its end"),
        (streaming(), "the stream ended before a token came"),
        (streaming({"choices": []}, {"choices": []}, b"[DONE]"), "the stream held no token"),
        (streaming(delta("stop", role="assistant", content="")), "the stream held no token"),
        (streaming(text("", "stop", **used(64, 0))), "the stream held no token"),
        (streaming(text("", "length", **used(64, 0))), "the stream held no token"),
        (streaming(text("a"), {"error": {"message": "sk-1", "code": 500}}), f"{REPORTED} (500)"),
        (streaming(text("a"), {"error": "sk-1"}), REPORTED),
        (streaming({"object": "error", "message": "sk-1", "code": 400}), f"{REPORTED} (400)"),
        (streaming(text("a"), text("", "abort")), "the server ended the request without finishing it (abort or error)"),
        (streaming(b"{nonsense"), "the stream held an event that is no JSON"),
        (streaming(b"[1]"), "the stream held an event that is no JSON object"),
        (streaming(b"[" * 100_000), "the stream held an event that is no JSON"),
        (streaming(text("a"), content_type="application/json"), f"* answered with one JSON document, {NO_STREAM}"),
        (streaming(text("a"), content_type="text/html"), f"* answered with HTML, {NO_STREAM}"),
        (streaming(text("a"), content_type="image/png"), f"* answered with something else, {NO_STREAM}"),
        (endless, "the stream went on far beyond the tokens that were asked for"),
        (too_often(7), "* refused as it is asked too often (429)"),
        (failing(500), "* failed (500)"),
        (failing(503), "* is not ready (503)"),
        (failing(400), "* refused the request (400)"),
        (failing(418), "* answered with status 418"),
    ],
)  # fmt: skip
def test_what_fails_says_why(server: Server, fault: Fault, reason: str) -> None:
    failure = refused(server, fault)
    head, _, tail = reason.partition("*")
    assert failure.reason.startswith(head)
    assert failure.reason.endswith(tail.rpartition("*")[2])
    assert "sk-1" not in failure.reason


def test_retry_after_is_kept_and_bounded(server: Server) -> None:
    assert refused(server, too_often(7)).retry_after_seconds == 7
    assert refused(server, too_often(10_000)).retry_after_seconds == 30


def test_silence_ends_at_the_deadline(server: Server) -> None:
    """The server says nothing until it ends itself: without the deadline this would hang."""
    failure = refused(server, silent, seconds=0.3)
    assert failure.reason == "the probe's time of 0.3 s was over"


@pytest.fixture
def other(serve: Serve) -> Server:
    return serve(Server())


def test_a_redirect_to_another_host_is_not_followed(server: Server, other: Server) -> None:
    failure = refused(server, moved_to(other.address), headers={"Authorization": "Bearer sk-secret"})
    assert failure.reason == f"{server.url} redirects to another server, {other.url}/completions"
    assert other.seen == []
    assert "sk-secret" not in repr(failure)


def test_a_redirect_within_the_server_is_followed_with_everything(server: Server) -> None:
    server.key = "sk-secret"
    server.faults = [moved_to("")]
    answer = ask(server, headers={"Authorization": "Bearer sk-secret"})
    assert answer.failure is None
    assert [path for path, _ in server.seen] == ["/v1/completions"] * 2


def test_a_server_that_is_gone_is_told_from_one_that_fails() -> None:
    caller = Caller(endpoint_of("http://127.0.0.1:9/v1"), Deadline.after(5))
    with caller, pytest.raises(Failed, match=r"connection refused at http://127\.0\.0\.1:9/v1"):
        caller.json("models")


def test_one_connection_serves_many_requests(server: Server) -> None:
    with Caller(endpoint_of(server.url), Deadline.after(30)) as caller:
        for _ in range(5):
            assert complete(caller, FULL, FULL.body(server.models[0], IDS, 3), 3).failure is None
        assert len(caller._watch._sockets) == 1


def test_a_server_may_close_a_connection_that_it_promised_to_keep(server: Server) -> None:
    """llama.cpp closes after every stream; a request that meets the end of its connection goes out again, once."""
    server.closes = True
    with Caller(endpoint_of(server.url), Deadline.after(30)) as caller:
        for _ in range(20):
            answer = complete(caller, FULL, FULL.body(server.models[0], IDS, 2), 2)
            assert (answer.failure, answer.counted) == (None, 2)
    assert len(server.asked) == 20


def test_a_server_that_breaks_every_connection_is_asked_no_third_time(server: Server) -> None:
    def broken(handler: Any, body: dict[str, Any]) -> None:
        handler.close_connection = True

    with Caller(endpoint_of(server.url), Deadline.after(30)) as caller:
        body = FULL.body(server.models[0], IDS, 2)
        assert complete(caller, FULL, body, 2).failure is None
        server.fault = broken
        failure = complete(caller, FULL, body, 2).failure
    assert failure is not None
    assert failure.reason.startswith("the connection broke before the answer was complete")
    assert len(server.asked) == 3


def test_over_tls_whom_to_trust_is_said_as_for_metrics(serve: Serve) -> None:
    certificate = Path(__file__).parents[1] / "data" / "tls" / "engine.invalid.pem"
    server = serve(Server(certificate=certificate))

    def asked(**trust: Any) -> Answer:
        base = endpoint_of(f"https://engine.invalid:{server.port}/v1", **trust)
        with Caller(replace(base, address="127.0.0.1"), Deadline.after(30)) as caller:
            return complete(caller, FULL, FULL.body(server.models[0], IDS, 3), 3)

    failure = asked().failure
    assert failure is not None
    assert failure.reason == f"the certificate is not trusted at https://engine.invalid:{server.port}/v1"
    assert asked(verify=str(certificate)).counted == 3
    assert asked(verify=False).counted == 3  # warnings are errors here
