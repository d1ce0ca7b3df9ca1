"""The closed loop: how many requests are under way, and how it ends."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from completions import Server, silent, too_often

from pytest_llmroof.probe.asking import Deadline
from pytest_llmroof.probe.completion import Dialect
from pytest_llmroof.probe.load import Load, drive
from pytest_llmroof.probe.target import Target
from pytest_llmroof.telemetry.endpoint import endpoint_of

Serve = Callable[[Server], Server]
DIALECT = Dialect(ids=(1_000, 20_000))


def load(server: Server, requests: int, concurrency: int, seconds: float = 30.0) -> Load:
    target = Target(server.models[0], DIALECT)
    bodies = [DIALECT.body(target.model, [2_000 + number] * 40, 5) for number in range(requests)]
    return drive(endpoint_of(server.url), target, bodies, 5, concurrency, Deadline.after(seconds))


def test_so_many_are_under_way_and_every_one_is_sent_once(serve: Serve) -> None:
    server = serve(Server())
    result = load(server, 9, 3)
    assert server.most == 3
    assert sorted(body["prompt"][0] for body in server.asked) == list(range(2_000, 2_009))
    assert all(answer.failure is None for answer in result.answers)
    assert all(answer.sent >= result.began for answer in result.answers)
    assert result.seconds == max(answer.sent + answer.times[-1] for answer in result.answers) - result.began
    # Three waves, each of 5 ms and four times 2 ms at the least.
    assert result.seconds >= 3 * 0.013 - 0.003
    assert abs(result.started - time.time()) < 60
    assert gc.isenabled()


def test_connections_are_made_before_the_first_request(serve: Serve) -> None:
    server = serve(Server())
    load(server, 4, 4)
    paths = [path for path, _ in server.seen]
    assert paths == ["/v1/models"] * 4 + ["/v1/completions"] * 4


def test_what_was_not_sent_before_the_deadline_has_failed_as_well(serve: Serve) -> None:
    server = serve(Server(fault=silent))
    result = load(server, 5, 2, seconds=2.0)
    reasons = {answer.failure.reason for answer in result.answers if answer.failure is not None}
    assert len([answer for answer in result.answers if answer.failure is not None]) == 5
    assert reasons == {"the probe's time of 2 s was over"}
    assert len(server.asked) == 2


def test_a_pause_that_the_server_asks_for_is_kept(serve: Serve) -> None:
    server = serve(Server(faults=[too_often(1)]))
    result = load(server, 2, 1)
    first, second = result.answers
    assert first.failure is not None
    assert second.failure is None
    assert second.sent - first.sent >= 1.0


def test_an_interruption_hangs_up_at_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(Server(fault=silent))
    original = Future.result

    def interrupted(self: Future[None], timeout: float | None = None) -> None:
        deadline = time.monotonic() + 30
        while len(server.asked) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        monkeypatch.setattr(Future, "result", original)
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        load(server, 6, 2, seconds=300.0)
    assert time.monotonic() - began < 60
    assert len(server.asked) == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("llmroof-probe")]
    assert gc.isenabled()


def test_an_error_that_nobody_foresaw_is_a_failure_without_its_text(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("sk-secret")

    monkeypatch.setattr("pytest_llmroof.probe.load.complete", broken)
    result = load(serve(Server()), 1, 1)
    assert result.answers[0].failure is not None
    assert result.answers[0].failure.reason == "the request failed (RuntimeError)"
