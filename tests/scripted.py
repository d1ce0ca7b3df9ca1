"""A server that speaks Prometheus' API from a script: what it is asked is kept, what it answers is made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from loopback import serving

#: Status, content type and body.
Answer = tuple[int, str, bytes]


def success(data: object, **more: object) -> Answer:
    return 200, "application/json", json.dumps({"status": "success", "data": data, **more}).encode()


def failure(status: int, kind: str, error: str) -> Answer:
    return status, "application/json", json.dumps({"status": "error", "errorType": kind, "error": error}).encode()


def matrix(*series: tuple[dict[str, str], list[list[Any]]], **more: object) -> Answer:
    result = [{"metric": labels, "values": values} for labels, values in series]
    return success({"resultType": "matrix", "result": result}, **more)


def vector(*series: tuple[dict[str, str], str], **more: object) -> Answer:
    result = [{"metric": labels, "value": [1000.0, value]} for labels, value in series]
    return success({"resultType": "vector", "result": result}, **more)


@dataclass(frozen=True)
class Asked:
    """One request: ``method``, ``path`` behind the prefix, its fields and headers."""

    method: str
    path: str
    fields: dict[str, str]
    headers: dict[str, str]


@dataclass
class Script:
    """``answer`` gives what a request is answered with; ``asked`` holds every request so far.

    ``retry_after`` goes with every answer that is no success.
    """

    url: str
    answer: Callable[[Asked], Answer]
    asked: list[Asked] = field(default_factory=list)
    retry_after: str | None = None


TOKENS = {"__name__": "vllm:generation_tokens_total", "instance": "a:8000", "model_name": "m", "engine": "0"}


def small_fleet(asked: Asked) -> Answer:
    """One server, scraped at 940, 955, ... 1000, that generates 10 tokens a second."""
    query = asked.fields.get("query", "")
    if asked.path.endswith("/values"):
        return success(["vllm:generation_tokens_total"])
    if "DCGM_FI" in query:
        return vector()
    if query.startswith("count_over_time"):
        return vector((TOKENS, "5"))
    samples = [[time, str((time - 900) * 10)] for time in (940, 955, 970, 985, 1000)]
    return matrix((TOKENS, samples))


@contextmanager
def scripted() -> Iterator[Script]:
    """The server, on loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            fields = {name: values[0] for name, values in parse_qs(f"{parts.query}&{body}").items()}
            asked = Asked(self.command, parts.path, fields, dict(self.headers.items()))
            found.asked.append(asked)
            status, content, answer = found.answer(asked)
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", "https://login.invalid/sso?state=secret")
            if status != 200 and found.retry_after is not None:
                self.send_header("Retry-After", found.retry_after)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = _handle

    with serving(Handler) as port:
        found = Script(f"http://127.0.0.1:{port}", small_fleet)
        yield found
