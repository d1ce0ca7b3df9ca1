"""A thousand endpoints in one live window, and how many of them are asked at the same time."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import many_engines
import pytest
from loopback import respond, serving
from vllm_pages import Load, page

from pytest_llmroof.telemetry import sampling
from pytest_llmroof.telemetry.endpoint import endpoints_of
from pytest_llmroof.telemetry.recording import Page

ENDPOINTS = 1000


@pytest.fixture
def address() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, str(Path(many_engines.__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


def test_a_thousand_endpoints_in_one_window(project: Any, address: str) -> None:
    line = "    - {{url: '{}/replica/{}/metrics', timeout: 60s}}\n"
    urls = "".join(line.format(address, number) for number in range(ENDPOINTS))
    total = sum(range(ENDPOINTS))
    project.gates(
        f"decode:\n  phase: decode\n  telemetry:\n{urls}  duration: 0.2s\n  interval: 60s\n"
        f"  gates: [running.last >= {total}, running.last <= {total}, ttft.mean <= 100ms]"
    )
    run = project.run()
    assert run.verdicts == ["pass", "pass", "pass"], run.text
    assert run.window["facts"]["replicas"] == ENDPOINTS
    # A scrape shows one more load than the one before: each replica counted one, or more where it was asked again.
    assert run.window["facts"]["finished_requests"] >= ENDPOINTS * Load().finished


def test_no_more_are_asked_at_once_than_there_are_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers nobody until as many wait as may, and then everybody: more would have come by then."""
    monkeypatch.setattr(sampling, "MOST_AT_ONCE", 8)
    full = threading.Barrier(8)
    waiting: list[int] = [0, 0]
    lock = threading.Lock()
    body = page(Load(), 0.5, None).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with lock:
                waiting[0] += 1
                waiting[1] = max(waiting)
            full.wait(60)
            with lock:
                waiting[0] -= 1
            respond(self, body)

    with serving(Handler) as port:
        found = endpoints_of([f"http://127.0.0.1:{port}/{number}" for number in range(32)], timeout_seconds=120.0)
        scraped = sampling.Sampler(found, lambda _: None, 1.0).scrape()
    assert all(isinstance(each, Page) for each in scraped)
    assert waiting[1] == 8


def test_half_of_the_files_are_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, expected in ((256, 128), (1 << 20, 256), (resource.RLIM_INFINITY, 256), (1, 1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, allowed=allowed: (allowed, allowed))
        assert sampling._most_at_once() == expected
