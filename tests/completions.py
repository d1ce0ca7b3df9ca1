"""An OpenAI-compatible server that streams, and misbehaves on purpose; its /metrics move with what it served."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import loopback
from loopback import respond
from prometheus_client import Histogram, generate_latest
from vllm_registry import Metrics

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

PATHS = {"/v1/completions": "completions", "/v1/chat/completions": "chat"}

#: Answers a completion instead of the server: the handler, the request's body.
Fault = Callable[["Handler", dict[str, Any]], None]


class Counts(Metrics):
    """vLLM's metrics of what this server has served."""

    def __init__(self) -> None:
        super().__init__(MODEL, BOUNDS)
        self.lock = threading.Lock()
        self.length = self.labelled(
            Histogram, "vllm:request_generation_tokens", buckets=(1, 2, 5, 10, 20, 50, 100, 500)
        )
        self.prompt_length = self.labelled(Histogram, "vllm:request_prompt_tokens", buckets=(10, 100, 1000, 10000))


@dataclass
class Server:
    """What it serves and how. ``faults`` answer completions in turn, None being a good answer; ``asked`` are bodies."""

    port: int = 0
    models: tuple[str, ...] = (MODEL,)
    longest: int | None = 32_768
    #: Fields that it refuses with 400; ``ids``: prompts of token ids.
    refuses: frozenset[str] = frozenset()
    #: Token ids from here on are beyond its vocabulary: it refuses them as vLLM does, within a stream that began.
    vocabulary: int = 200_000
    apis: tuple[str, ...] = ("completions", "chat")
    metrics: bool = True
    tokenizes: bool = True
    usage: bool = True
    continuous: bool = True
    stops_at: int | None = None
    tokens_per_piece: int = 1
    first_seconds: float = 0.005
    step_seconds: float = 0.002
    extra_prompt_tokens: int = 0
    cached_tokens: int | None = None
    reasoning: int = 0
    #: Its tokens have no text.
    silent: bool = False
    #: Closes every connection after a stream, though its answer said that it keeps it.
    closes: bool = False
    key: str | None = None
    certificate: Path | None = None
    warm: int = 0
    faults: list[Fault | None] = field(default_factory=list)
    trial_faults: list[Fault] = field(default_factory=list)
    fault: Fault | None = None
    counts: Counts = field(default_factory=Counts)
    asked: list[dict[str, Any]] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    under_way: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.address}/v1"

    @property
    def metrics_url(self) -> str:
        return f"{self.address}/metrics"

    @property
    def load(self) -> list[dict[str, Any]]:
        """The bodies of requests for more than was asked to find out what the server takes."""
        return [body for body in self.asked if prompt_tokens(body) != 32]


def prompt_tokens(body: dict[str, Any]) -> int:
    """Tokens of a request's prompt: ids as they are, and every word one and a half."""
    prompt = body.get("prompt", body.get("messages"))
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], dict):
        return words(str(prompt[0]["content"])) + 7  # what a chat template adds
    return len(prompt) if isinstance(prompt, list) else words(str(prompt))


def words(text: str) -> int:
    """This server's tokenizer."""
    return 1 + len(text.split()) * 3 // 2


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: Server

    def do_GET(self) -> None:
        self.served.seen.append((self.path, dict(self.headers.items())))
        if self.path == "/metrics" and self.served.metrics:
            with self.served.counts.lock:
                page = generate_latest(self.served.counts.registry)
            respond(self, page)
        elif not self.allowed():
            self.problem(401)
        elif self.path == "/v1/models":
            more = {"max_model_len": self.served.longest} if self.served.longest else {}
            self.json({"object": "list", "data": [{"id": name, **more} for name in self.served.models]})
        else:
            self.problem(404)

    def do_POST(self) -> None:
        self.served.seen.append((self.path, dict(self.headers.items())))
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            self.problem(401)
        elif self.path == "/tokenize" and self.served.tokenizes:
            count = words(body["prompt"])
            self.json({"count": count, "tokens": list(range(count))})
        elif PATHS.get(self.path) in self.served.apis:
            self.completion(body)
        else:
            self.problem(404)

    def allowed(self) -> bool:
        return self.served.key is None or self.headers.get("Authorization") == f"Bearer {self.served.key}"

    def completion(self, body: dict[str, Any]) -> None:
        server = self.served
        with server.lock:
            server.asked.append(body)
            trial = prompt_tokens(body) == 32 or len(server.load) <= server.warm
            if trial:
                fault = server.trial_faults.pop(0) if server.trial_faults else None
            else:
                fault = server.faults.pop(0) if server.faults else server.fault
        options = body.get("stream_options") or {}
        ids = isinstance(body.get("prompt"), list)
        if (server.refuses & {*body, *options}) or (ids and "ids" in server.refuses):
            self.problem(400)
        elif ids and max(body["prompt"]) >= server.vocabulary:
            streaming({"error": {"message": "Token id is out of vocabulary", "code": 400}}, b"[DONE]")(self, body)
        elif fault is not None:
            fault(self, body)
        else:
            self.stream(body)

    def stream(self, body: dict[str, Any]) -> None:
        """A good answer, counted."""
        server, counts = self.served, self.served.counts
        arrived = time.monotonic()
        with server.lock:
            server.under_way += 1
            server.most = max(server.most, server.under_way)
        with counts.lock:
            counts.running.inc()
        asked = body.get("max_tokens") or body["max_completion_tokens"]
        tokens = min(asked, server.stops_at or asked)
        prompt = prompt_tokens(body) + server.extra_prompt_tokens
        chat = "messages" in body
        options = body.get("stream_options") or {}
        continuous = server.continuous and options.get("continuous_usage_stats") is True
        self.begin()
        if chat:
            first = {"role": "assistant", "content": ""}
            self.event({"choices": [{"delta": first, "finish_reason": None}], **self.used(prompt, 0, continuous)})
        server.closing.wait(server.first_seconds)
        before, sent = 0.0, 0
        while sent < tokens:
            held = min(server.tokens_per_piece, tokens - sent)
            if sent:
                server.closing.wait(server.step_seconds * held)
            sent += held
            now = time.monotonic()
            with counts.lock:
                if before:
                    for _ in range(held):
                        counts.itl.observe((now - before) / held)
                else:
                    counts.ttft.observe(now - arrived)
                    counts.prompts.inc(prompt)
                    server.firsts.append(now - arrived)
                counts.generated.inc(held)
            before = now
            finish = "length" if sent >= tokens else None
            text = "".join(f" t{number}" for number in range(held))
            choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
            if chat:
                choice["delta"] = {"reasoning_content" if sent <= server.reasoning else "content": text}
            else:
                choice["text"] = text
            if server.silent:
                choice["delta" if chat else "text"] = {"content": ""} if chat else ""
            self.event({"choices": [choice], **self.used(prompt, sent, continuous)})
        with counts.lock:
            counts.finished.inc()
            counts.running.dec()
            counts.e2e.observe(before - arrived)
            counts.length.observe(tokens)
            counts.prompt_length.observe(prompt)
        with server.lock:
            server.under_way -= 1
        if server.usage and options.get("include_usage"):
            self.event({"choices": [], **self.used(prompt, tokens, True)})
        self.done()
        self.close_connection = server.closes

    def used(self, prompt: int, output: int, told: bool) -> dict[str, Any]:
        if not (told and self.served.usage):
            return {}
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        if self.served.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.served.cached_tokens}
        return {"usage": usage}

    def begin(self, content_type: str = "text/event-stream; charset=utf-8") -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, data: object) -> None:
        self.write(b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n")

    def write(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def done(self) -> None:
        self.event(b"[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def json(self, document: object) -> None:
        respond(self, json.dumps(document).encode(), content_type="application/json")

    def problem(self, status: int, **headers: str) -> None:
        """An error that repeats the key it was asked with, as some servers do."""
        message = {"error": {"message": f"refused {self.headers.get('Authorization')}", "code": status}}
        respond(self, json.dumps(message).encode(), status, "application/json", **headers)


def too_often(seconds: int) -> Fault:
    """429 with Retry-After."""
    return lambda handler, body: handler.problem(429, Retry_After=str(seconds))


def failing(status: int) -> Fault:
    """An error with a status."""
    return lambda handler, body: handler.problem(status)


def cut_after(pieces: int) -> Fault:
    """A stream whose connection breaks."""

    def fault(handler: Handler, body: dict[str, Any]) -> None:
        handler.begin()
        for _ in range(pieces):
            handler.event({"choices": [{"text": " t", "finish_reason": None}]})
        handler.close_connection = True

    return fault


def streaming(*events: object, content_type: str = "text/event-stream", raw: bool = False) -> Fault:
    """A stream of exactly these events, without an end of its own."""

    def fault(handler: Handler, body: dict[str, Any]) -> None:
        handler.begin(content_type)
        for each in events:
            if raw:
                assert isinstance(each, bytes)
                handler.write(each)
            else:
                handler.event(each)
        handler.wfile.write(b"0\r\n\r\n")

    return fault


def endless(handler: Handler, body: dict[str, Any]) -> None:
    """Tokens without end."""
    handler.begin()
    while not handler.served.closing.is_set():
        handler.event({"choices": [{"text": " t", "finish_reason": None}]})


def silent(handler: Handler, body: dict[str, Any]) -> None:
    """A stream that begins, and never goes on."""
    handler.begin()
    handler.served.closing.wait()


def moved_to(address: str) -> Fault:
    """A redirect."""
    return lambda handler, body: respond(handler, b"", 307, Location=f"{address}{handler.path}")


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve on 127.0.0.1 until the end of the block."""

    class Bound(Handler):
        served = server

    with loopback.serving(Bound, server.port, server.certificate) as server.port:
        try:
            yield server
        finally:
            server.closing.set()
