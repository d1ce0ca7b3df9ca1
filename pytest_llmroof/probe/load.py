"""The load itself: a closed loop of threads, each with one request under way, begun at one moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.garbage import without_collections
from pytest_llmroof.probe.asking import Caller, Deadline, Failed
from pytest_llmroof.probe.completion import Answer, complete
from pytest_llmroof.probe.target import Target
from pytest_llmroof.telemetry.endpoint import Endpoint

_monotonic = time.monotonic
_time = time.time
_process_time = time.process_time

#: How long threads wait for each other to be connected, before they begin without the slowest.
_GATHER_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Load:
    """What came of a load: its answers, in the order of their prompts, and what the client itself needed.

    ``started`` is Unix seconds, and ``began`` the same moment on the monotonic clock; ``cpu_share`` is this process'
    processor time over the load's duration.
    """

    answers: tuple[Answer, ...]
    started: float
    began: float
    seconds: float
    cpu_share: float


def drive(
    base: Endpoint, target: Target, bodies: Sequence[bytes], tokens: int, concurrency: int, deadline: Deadline
) -> Load:
    """Send all requests, ``concurrency`` at a time. Failures are answers; nothing lasts longer than the deadline."""
    run = _Run(base, target, bodies, tokens, concurrency, deadline)
    with without_collections(), ThreadPoolExecutor(concurrency, "llmroof-probe") as threads:
        running = [threads.submit(run.work) for _ in range(concurrency)]
        try:
            for each in running:
                each.result()
        except BaseException:  # an interrupt, too: the other threads end with it
            run.stop()
            raise
    return run.load()


class _Run:
    def __init__(
        self, base: Endpoint, target: Target, bodies: Sequence[bytes], tokens: int, concurrency: int, deadline: Deadline
    ) -> None:
        self._base, self._target, self._bodies, self._tokens = base, target, bodies, tokens
        self._deadline = deadline
        self._answers: list[Answer | None] = [None] * len(bodies)
        self._next = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._callers: list[Caller] = []
        self._barrier = threading.Barrier(concurrency, action=self._begin)
        self._began = self._processor = 0.0
        self._started = 0.0
        self._begin()

    def work(self) -> None:
        """One thread: connect, wait for the others, then one request after the other."""
        with Caller(self._base, self._deadline) as caller:
            with self._lock:
                self._callers.append(caller)
            with suppress(Failed):
                # So that no request's time holds the making of a connection; whether it fails, the request will tell.
                caller.json("models")
            with suppress(threading.BrokenBarrierError):
                self._barrier.wait(min(_GATHER_SECONDS, self._deadline.left + 0.001))
            due = _monotonic()
            while (index := self._take()) is not None:
                answer = self._answered(caller, self._bodies[index])
                answer.wait_seconds = max(0.0, answer.sent - due)
                self._answers[index] = answer
                if answer.failure is not None and answer.failure.retry_after_seconds:
                    self._stopping.wait(min(answer.failure.retry_after_seconds, self._deadline.left))
                due = _monotonic()

    def stop(self) -> None:
        """Break off what is under way, and send nothing more."""
        self._stopping.set()
        self._barrier.abort()
        with self._lock:
            for caller in self._callers:
                caller.hang_up()

    def load(self) -> Load:
        """What came of it."""
        answers = tuple(answer or Answer(self._began, failure=self._deadline.failure) for answer in self._answers)
        ends = [answer.sent + (answer.times[-1] if answer.times else 0.0) for answer in answers]
        seconds = max(max(ends, default=self._began) - self._began, 0.0)
        busy = _process_time() - self._processor
        elapsed = _monotonic() - self._began
        return Load(answers, self._started, self._began, seconds, busy / elapsed if elapsed > 0 else 0.0)

    def _begin(self) -> None:
        self._began, self._started, self._processor = _monotonic(), _time(), _process_time()

    def _take(self) -> int | None:
        with self._lock:
            if self._next >= len(self._bodies) or self._stopping.is_set() or not self._deadline.left:
                return None
            self._next += 1
            return self._next - 1

    def _answered(self, caller: Caller, body: bytes) -> Answer:
        sent = _monotonic()
        try:
            return complete(caller, self._target.dialect, body, self._tokens)
        except Exception as error:  # one that nobody foresaw
            # Nothing of an error that nobody foresaw is repeated: it may hold a header.
            return Answer(sent, failure=Failed(f"the request failed ({type(error).__name__})"))
