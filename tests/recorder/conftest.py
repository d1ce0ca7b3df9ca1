"""A metrics server that answers as a test tells it to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class MetricsServer:
    """A vLLM-like exporter on 127.0.0.1. ``answer`` replaces its page; requests are counted and can be waited for."""

    port: int = 0
    answer: Answer | None = None
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.running = Gauge("vllm:num_requests_running", "running", ["engine"], registry=self.registry).labels("0")
        self.tokens = Counter("vllm:generation_tokens", "tokens", ["engine"], registry=self.registry).labels("0")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    @property
    def scrapes(self) -> int:
        return sum(path.startswith("/metrics") for path, _ in self.requests)

    def wait_for_scrapes(self, count: int) -> None:
        """Until this many came in all; fails after half a minute."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.scrapes >= count, timeout=30)

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        with self.changed:
            self.requests.append((handler.path, dict(handler.headers.items())))
            self.changed.notify_all()
        if path == "/until":  # A load that lasts for so many scrapes more.
            self.running.set(24)
            self.tokens.inc(100)
            self.wait_for_scrapes(self.scrapes + int(query))
            self.running.set(0)
            respond(handler, b"done")
        elif self.answer is not None:
            self.answer(handler)
        else:
            self.tokens.inc()
            respond(handler, generate_latest(self.registry))


def respond(
    handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, content_type: str = "text/plain", **headers: str
) -> None:
    """A whole answer."""
    handler.send_response(status)
    handler.send_header("Content-Type", content_type)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@contextlib.contextmanager
def serving(server: MetricsServer) -> Iterator[MetricsServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(ConnectionError):  # a client may hang up on an answer that is too long
                server.handle(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", server.port), Handler)
    server.port = http.server_port
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        http.shutdown()
        thread.join()
        http.server_close()


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path_factory.getbasetemp() / "no-netrc"))


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

    def make(body: bytes, status: int = 200, content_type: str = "text/plain", **headers: str) -> Answer:
        return lambda handler: respond(handler, body, status, content_type, **headers)

    return make


@pytest.fixture
def refused() -> Iterator[str]:
    """The URL of a port where nobody listens, and nobody else can begin to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/metrics"
