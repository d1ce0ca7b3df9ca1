"""A vLLM server as its exporter shows it: prometheus_client over HTTP, counters that move, faults on demand."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TypeVar

import loopback
from loopback import Answer, respond
from prometheus_client import generate_latest
from vllm_registry import Metrics

MODEL = "meta-llama/Llama-3.1-70B-Instruct"
#: What the engine does while it is busy: tokens come every 26.2 ms, 12 sequences at once, 50 tokens a request.
ITL, BATCH, OUTPUT, PROMPT = 0.0262, 12, 50, 100
SECOND_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Process(Metrics):
    """One life of the server's process: counters since its start. It is busy all the time."""

    def __init__(self, steps: int = 0, started: float | None = None) -> None:
        super().__init__(MODEL, SECOND_BOUNDS, started)
        self.steps = 0
        self._made = time.monotonic()
        self._lock = threading.Lock()
        self._work(steps)

    def page(self) -> bytes:
        """What ``/metrics`` shows now."""
        with self._lock:
            self._work(int((time.monotonic() - self._made) / ITL))
            return generate_latest(self.registry)

    def step(self, seconds: float) -> None:
        """One more step, which took so long."""
        with self._lock:
            self._work(self.steps + 1, seconds)

    def _work(self, until: int, seconds: float = ITL) -> None:
        self.running.set(BATCH)
        for step in range(self.steps + 1, until + 1):
            for _ in range(BATCH):
                self.itl.observe(seconds)
            self.generated.inc(BATCH)
            if step % 4 == 0:  # 12 sequences of some 50 steps: three finish, and three begin, every dozen steps
                self.finished.inc()
                self.prompts.inc(PROMPT)
                self.generated.inc()
                self.ttft.observe(0.05)
                self.e2e.observe(0.05 + ITL * (OUTPUT - 1))
        self.steps = max(self.steps, until)


@dataclass
class Exporter:
    """The server: ``answers`` replace its page by path, ``answer`` for every path; scrapes are counted."""

    port: int = 0
    process: Process = field(default_factory=Process)
    answers: dict[str, Answer] = field(default_factory=dict)
    answer: Answer | None = None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.address}/metrics"

    def count(self, path: str = "/metrics") -> int:
        """How often a page was asked for."""
        return sum(asked.partition("?")[0] == path for asked, _headers in self.asked)

    def wait_for(self, count: int) -> None:
        """Until a page was asked for so often; two minutes without that are a fault, however busy the machine."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.count() >= count, timeout=120)

    def page(self) -> bytes:
        """What it shows where a test does not want another answer."""
        return self.process.page()

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        with self.changed:
            self.asked.append((handler.path, dict(handler.headers.items())))
            self.changed.notify_all()
        answer = self.answers.get(path) or self.answer
        if answer is not None:
            answer(handler)
        else:
            respond(handler, self.page())


Served = TypeVar("Served", bound=Exporter)


@contextlib.contextmanager
def serving(exporter: Served) -> Iterator[Served]:
    """Serve on 127.0.0.1 until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            exporter.handle(self)

    with loopback.serving(Handler, exporter.port) as exporter.port:
        try:
            yield exporter
        finally:
            exporter.closing.set()
