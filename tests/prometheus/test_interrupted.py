"""Whoever is interrupted while a Prometheus server is asked: no header in the locals that pytest may print."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from scripted import Answer, Asked, Script, scripted

from pytest_llmroof.asked import ask
from pytest_llmroof.blocks import AskedFraming
from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec

SECRET = "s3cr3t-token-of-a-tenant"


class Interrupted(BaseException):
    """What a signal raises in the main thread, as Ctrl-C and pytest-timeout do."""


@pytest.fixture
def interrupting() -> Iterator[Script]:
    """A server that interrupts whoever waits for its first answer, and then does not answer until the test's end."""
    ended = threading.Event()

    def answer(_asked: Asked) -> Answer:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        ended.wait(30)
        return 404, "text/plain", b"gone"

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with scripted() as script:
            script.answer = answer
            try:
                yield script
            finally:
                ended.set()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("asking", [ask, lambda spec: AskedFraming(spec).close()], ids=["a window", "a block"])
def test_an_interruption_shows_no_header(interrupting: Script, asking: Callable[[WindowSpec], object]) -> None:
    options = {
        "prometheus": interrupting.url, "headers": {"X-Scope-OrgID": SECRET}, "timeout": 20.0, "end": "now",
    }  # fmt: skip
    source = TelemetrySource("prometheus", "http://prometheus.test", options=options)
    spec = WindowSpec(id="w", name="w", base=Path(), telemetry=(source,), duration_seconds=60.0)
    with pytest.raises(Interrupted) as caught:
        asking(spec)
    frames = [frame for frame, _line in traceback.walk_tb(caught.tb)][1:]  # this test's own holds the options
    assert interrupting.asked[0].headers["X-Scope-OrgID"] == SECRET
    assert any(frame.f_code.co_filename.endswith("threads.py") for frame in frames)
    for frame in frames:
        assert SECRET not in repr(frame.f_locals), frame.f_code.co_qualname
