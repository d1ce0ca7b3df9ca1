"""A metrics server that answers as a test tells it to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

import pytest
from exporters import Exporter, serving
from loopback import Answer, always, respond
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


@dataclass
class MetricsServer(Exporter):
    """An exporter whose counter moves with every scrape. ``/until?N`` is a load that lasts for N scrapes more."""

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.running = Gauge("vllm:num_requests_running", "running", ["engine"], registry=self.registry).labels("0")
        self.tokens = Counter("vllm:generation_tokens", "tokens", ["engine"], registry=self.registry).labels("0")
        self.answers["/until"] = self.load

    def page(self) -> bytes:
        self.tokens.inc()
        return generate_latest(self.registry)

    def load(self, handler: BaseHTTPRequestHandler) -> None:
        self.running.set(24)
        self.tokens.inc(100)
        self.wait_for(self.count() + int(handler.path.partition("?")[2]))
        self.running.set(0)
        respond(handler, b"done")


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with serving(MetricsServer()) as running:
        yield running


@pytest.fixture
def start_server() -> Iterator[Callable[[], MetricsServer]]:
    """Starts further servers."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(serving(MetricsServer()))


@pytest.fixture
def respond_with() -> Callable[..., Answer]:
    """An answer that is always the same."""
    return always


@pytest.fixture
def refused(unheard: str) -> str:
    """The URL of metrics where nobody listens."""
    return f"{unheard}/metrics"
