"""Queries that fail for a moment are asked again, within the time-out; what will not change is asked once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from scripted import Answer, Asked, Script, failure, scripted, small_fleet

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry import promapi
from pytest_llmroof.telemetry.fleetsource import prometheus_window
from pytest_llmroof.telemetry.patience import Unavailable, pause_before, retry_after
from pytest_llmroof.telemetry.window import Window

#: What a small fleet takes when nothing fails.
QUERIES = 5


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as found:
        yield found


def read(script: Script, timeout: float = 30.0) -> Window:
    source = {"prometheus": script.url, "duration": 60.0, "end": "1000", "timeout": timeout}
    return prometheus_window(source, duration_seconds=None)


class Failing:
    """Answers every query rightly, but the third one ``times`` times with a failure."""

    def __init__(self, script: Script, bad: Answer, times: int) -> None:
        self.bad, self.left = bad, times
        self.script = script
        script.answer = self

    def __call__(self, asked: Asked) -> Answer:
        if len(self.script.asked) >= 3 and self.left:
            self.left -= 1
            return self.bad
        return small_fleet(asked)


@pytest.mark.parametrize("bad", [
    (502, "text/html", b"<h1>Bad Gateway</h1>"),
    (503, "text/plain", b"Service Unavailable"),
    (504, "text/html", b"<h1>Gateway Time-out</h1>"),
    (429, "text/plain", b"too many requests"),
    failure(503, "unavailable", "the service is shutting down"),
    failure(429, "too_many_requests", "the request has been rejected: limit of 5 queries per second"),
])  # fmt: skip
def test_a_query_that_fails_twice_does_not_lose_the_window(script: Script, bad: Answer) -> None:
    Failing(script, bad, 2)
    assert read(script).counter("generation_tokens") == 600
    assert len(script.asked) == QUERIES + 2


@pytest.mark.parametrize("bad", [
    (400, "text/plain", b"no"), (401, "text/plain", b"no"), (403, "text/plain", b"no"), (404, "text/plain", b"no"),
    (422, "text/plain", b"no"), (500, "text/plain", b"no"),
    failure(503, "timeout", "query timed out in expression evaluation"),
    failure(503, "execution", "query processing would load too many samples into memory in query execution"),
])  # fmt: skip
def test_what_will_not_change_is_asked_once(script: Script, bad: Answer) -> None:
    script.retry_after = "0"
    script.answer = lambda asked: bad
    with pytest.raises(SourceError):
        read(script)
    assert len(script.asked) == 1


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, which take no time here: by this clock the tries take none either."""
    waited: list[float] = []
    monkeypatch.setattr(promapi, "_monotonic", lambda: sum(waited))
    monkeypatch.setattr(promapi, "_sleep", waited.append)
    return waited


def test_it_waits_as_long_as_the_server_asks(script: Script, pauses: list[float]) -> None:
    script.retry_after = "7"
    Failing(script, (429, "text/plain", b""), 1)
    read(script)
    assert pauses == [7.0]
    assert len(script.asked) == QUERIES + 1


def test_it_never_waits_beyond_the_time_out(script: Script, pauses: list[float]) -> None:
    """A server that asks for a minute, where half of one is left, is not waited for at all."""
    script.retry_after = "60"
    Failing(script, (503, "text/plain", b""), 9)
    with pytest.raises(SourceError, match="is not ready, or took too long"):
        read(script, timeout=30)
    assert pauses == []
    assert len(script.asked) == 3


def test_it_gives_up(script: Script, pauses: list[float]) -> None:
    """0.2 and 0.5 s after the first tries; 1 s more would be beyond the time-out of 1.5 s."""
    script.answer = lambda asked: (503, "text/plain", b"")
    with pytest.raises(SourceError, match="is not ready, or took too long"):
        read(script, timeout=1.5)
    assert pauses == [0.2, 0.5]
    assert len(script.asked) == 3


def test_pauses() -> None:
    passing, other = Unavailable("", passing=True), Unavailable("")
    assert [pause_before(passing, tries, 0.0, 60.0) for tries in range(1, 6)] == [0.2, 0.5, 1.0, 2.0, None]
    assert [pause_before(other, tries, 0.0, 60.0) for tries in range(1, 4)] == [0.2, 0.5, None]
    assert pause_before(Unavailable("", passing=True, after_seconds=7), 1, 1.0, 10.0) == 7
    assert pause_before(Unavailable("", passing=True, after_seconds=9), 1, 1.0, 10.0) is None
    assert pause_before(Unavailable("", timed_out=True), 1, 0.0, 60.0) is None
    assert pause_before(SourceError(""), 1, 0.0, 60.0) is None


def test_how_long_a_server_asks_to_wait() -> None:
    now = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
    assert retry_after({"Retry-After": " 12 "}) == 12
    assert retry_after({"Retry-After": "Mon, 30 Nov 2026 12:00:30 GMT"}, now) == 30
    assert retry_after({"Retry-After": "Mon, 30 Nov 2026 11:00:00 GMT"}, now) == 0
    for text in ("", "soon", "-3", "1e3"):
        assert retry_after({"Retry-After": text}) is None
    assert retry_after({"Retry-After": "9" * 5000}) is None
    assert json.dumps(retry_after({})) == "null"
