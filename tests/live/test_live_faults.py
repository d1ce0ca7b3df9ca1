"""Everything that can go wrong with a server that is measured: its own clear text, never a pass, never a hang."""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from exporters import Exporter, Process
from loopback import always, respond

Lasting = Callable[[Callable[[], bool]], None]


def _endless(handler: BaseHTTPRequestHandler, exporter: Exporter) -> None:
    handler.send_response(200)
    handler.end_headers()
    while not exporter.closing.wait(0.01):
        handler.wfile.write(b"# still more\n")
        handler.wfile.flush()


def _endless_head(handler: BaseHTTPRequestHandler, exporter: Exporter) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not exporter.closing.wait(0.1):
        handler.wfile.write(b"X-More: 1\r\n"[: 1 + exporter.count() % 2])
        handler.wfile.flush()


def _silent(handler: BaseHTTPRequestHandler, exporter: Exporter) -> None:
    exporter.closing.wait(30)


def _broken(handler: BaseHTTPRequestHandler, exporter: Exporter) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nvllm:running 1\n")


FAULTS: dict[str, tuple[Callable[[BaseHTTPRequestHandler, Exporter], None], str]] = {
    "401": (lambda handler, _: respond(handler, b"hunter2", 401), "{url} asks for credentials (401)"),
    "403": (lambda handler, _: respond(handler, b"", 403), "{url} refuses these credentials (403)"),
    "404": (lambda handler, _: respond(handler, b"", 404), "{url} has no such page (404); engines serve metrics at"),
    "500": (lambda handler, _: respond(handler, b"", 500), "{url} failed (500)"),
    "503": (lambda handler, _: respond(handler, b"", 503), "{url} is not ready (503)"),
    "moved": (
        lambda handler, _: respond(handler, b"", 302, Location="http://127.0.0.2:1/metrics?key=hunter2"),
        "{url} redirects to another server, http://127.0.0.2:1/metrics;",
    ),
    "circle": (lambda handler, _: respond(handler, b"", 302, Location="circle"), "{url} redirects in a circle"),
    "html": (lambda handler, _: respond(handler, b"<!DOCTYPE html><p>hunter2"), "{url} is HTML, not metrics"),
    "json": (lambda handler, _: respond(handler, b'{"hunter2": 1}'), "{url} is JSON, not metrics"),
    "empty": (lambda handler, _: respond(handler, b""), "{url} answered an empty page"),
    "silent": (_silent, "no answer within 1 s at {url}"),
    "endless": (_endless, "{url} did not finish its answer within 1 s"),
    "endless-head": (_endless_head, "{url} did not finish its answer within 1 s"),
    "broken": (_broken, "the connection broke before the answer was complete at {url}"),
    "other": (lambda handler, _: respond(handler, b"node_load1 0.5\n"), "metrics of no serving engine"),
    "malformed": (lambda handler, _: respond(handler, b"vllm:running 1\nvllm:waiting{a= 2\n"), ":"),
}  # fmt: skip


def test_each_fault_has_its_text(project: Any, server: Exporter) -> None:
    windows = []
    for name, (answer, _text) in FAULTS.items():
        server.answers[f"/{name}"] = lambda handler, answer=answer: answer(handler, server)  # type: ignore[misc]  # a default is not inferred
        timeout = "1s" if name in ("silent", "endless", "endless-head") else "60s"
        windows.append(
            f"{name}:\n  phase: decode\n  telemetry: {{url: '{server.address}/{name}', timeout: {timeout}}}\n"
            "  duration: 0.1s\n  interval: 0.05s\n  gates: [ttft.p99 <= 2s]"
        )
    project.gates("\n".join(windows))
    run = project.run("--llmroof-unmeasured-exit=75")
    assert run.rc == 75
    assert set(run.verdicts) == {"no data"}
    for name, (_answer, text) in FAULTS.items():
        assert text.format(url=f"{server.address}/{name}") in run.reason(f"llmroof.yaml::{name}"), name
    assert "hunter2" not in run.text
    assert "live/127.0.0.1-" in run.reason("llmroof.yaml::malformed")


def gates(url: str, duration: str = "1s", *more: str) -> str:
    lines = [f"  {line}" for line in more]
    return "\n".join([
        "decode:", "  phase: decode", f"  telemetry: {url}", f"  duration: {duration}", "  interval: 0.05s", *lines,
        "  gates: [decode.mbu >= 30%]",
    ])  # fmt: skip


def after(server: Exporter, scrapes: int, then: Callable[[BaseHTTPRequestHandler], None]) -> None:
    """Another answer once the page was asked for so often."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if server.count() > scrapes:
            then(handler)
        else:
            respond(handler, server.process.page())

    server.answer = answer


def test_a_server_that_is_gone_half_way(project: Any, server: Exporter, lasting: Lasting) -> None:
    after(server, 4, always(b"", 500))
    lasting(lambda: server.count() > 4)
    project.gates(gates(server.url))
    run = project.run()
    assert run.verdicts == ["no data"]
    reason = run.reason("llmroof.yaml::decode")
    assert reason.startswith(f"{server.url} did not answer to the window's end: its last answer came ")
    assert re.search(rf"s into [\d.]+ s \({re.escape(server.url)} failed \(500\)\)", reason)


def test_one_of_two_servers_is_gone(
    project: Any, server: Exporter, start_server: Callable[[], Exporter], lasting: Lasting
) -> None:
    other = start_server()
    after(other, 4, always(b"", 500))
    lasting(lambda: other.count() > 4)
    project.gates(gates(f"[{server.url}, {other.url}]"))
    run = project.run()
    assert run.verdicts == ["no data"]
    assert run.reason("llmroof.yaml::decode").startswith(f"{other.url} did not answer")


def test_a_scrape_that_fails_is_said_and_no_zero(project: Any, server: Exporter, lasting: Lasting) -> None:
    def sometimes(handler: BaseHTTPRequestHandler) -> None:
        respond(handler, b"", 500) if server.count() in (5, 6) else respond(handler, server.process.page())

    server.answer = sometimes
    lasting(lambda: server.count() >= 8)
    project.gates(gates(server.url))
    run = project.run()
    assert run.verdicts == ["pass"]
    assert f"2 scrapes failed ({server.url} failed (500))" in run.window["notes"]


def test_a_scrape_that_matters_is_tried_again(project: Any, server: Exporter) -> None:
    def first_fails(handler: BaseHTTPRequestHandler) -> None:
        respond(handler, b"", 503) if server.count() == 1 else respond(handler, server.process.page())

    server.answer = first_fails
    project.gates(gates(server.url, "0.3s"))
    assert project.run().verdicts == ["pass"]


@pytest.mark.parametrize("started", [None, 0.0])
def test_a_restart_half_way_leaves_the_longer_part(
    project: Any, server: Exporter, started: float | None, lasting: Lasting
) -> None:
    """With and without a process's start on the page; what one life counted never mixes with another's."""
    server.process = Process(steps=200, started=started)
    lives: dict[str, Process] = {}

    def restarted(handler: BaseHTTPRequestHandler) -> None:
        lives.setdefault("new", Process(started=time.time() if started is None else started))
        respond(handler, lives["new"].page())

    after(server, 5, restarted)
    lasting(lambda: server.count() >= 15)
    project.gates(gates(server.url, "1.5s"))
    run = project.run()
    assert run.verdicts == ["pass"]
    (note,) = (note for note in run.window["notes"] if "restart" in note)
    assert "the server restarted once inside the window" in note
    (kept, whole) = re.findall(r"is used, ([\d.]+) of ([\d.]+) s", note)[0]
    assert run.window["duration_seconds"] == pytest.approx(float(kept), abs=0.051)
    assert float(kept) < float(whole)


@pytest.mark.parametrize("starts", [(1_000_000.0, 2_000_000.0), (0.0, 0.0)])
def test_two_servers_behind_one_address(
    project: Any, server: Exporter, starts: tuple[float, float], lasting: Lasting
) -> None:
    """By turns, as a balancer does it; also where neither page tells when its process started."""
    lives = [Process(steps=5000, started=starts[0]), Process(steps=50, started=starts[1])]
    server.answer = lambda handler: respond(handler, lives[server.count() % 2].page())
    lasting(lambda: server.count() >= 6)
    project.gates(gates(server.url, "0.5s"))
    run = project.run()
    assert run.verdicts == ["no data"]
    assert "scrape pods, or ask Prometheus" in run.reason("llmroof.yaml::decode")


def test_a_name_of_several_addresses_is_several_servers(
    project: Any, server: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def two(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "pods.test":
            return resolve(host, port, *args, **kwargs)
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("127.0.0.1", server.port)), (*kind, ("127.0.0.2", server.port))]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    project.gates(gates(f"http://pods.test:{server.port}/metrics", "0.5s"))
    run = project.run("--llmroof-record=kept")
    # The second one is not there: a fleet of which a part is missing is not measured.
    assert run.verdicts == ["no data"]
    where = f"http://pods.test:{server.port}/metrics at 127.0.0.2"
    assert run.reason("llmroof.yaml::decode").startswith(f"connection refused at {where}")
    assert list(Path(project.path / "kept/llmroof").iterdir()) == []


def test_a_full_disk_is_no_data(project: Any, server: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pytest_llmroof.telemetry.recording.Recording.keep", full)
    monkeypatch.setenv("SERVER", server.url)
    project.gates(gates(server.url, "0.2s"))
    (project.path / "test_it.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.llmroof(telemetry=os.environ['SERVER'])\n@pytest.mark.llmroof_gate('ttft.p99 <= 2s')\n"
        "def test_it(): pass\n"
    )
    run = project.run()
    assert run.verdicts == ["no data", "no data"]
    assert run.one_line.count("the recording can't be written: No space left on device") >= 2


def _reset(handler: BaseHTTPRequestHandler) -> None:
    """Hang up as a server does whose process died: the client sees a reset."""
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.connection.close()


def _until_given_up(handler: BaseHTTPRequestHandler) -> None:
    handler.rfile.read(1)


PASSING: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {
    "reset": _reset,
    "502": always(b"", 502),
    "503": always(b"", 503),
    "504": always(b"", 504),
    "429": always(b"", 429, Retry_After="1"),
    "silent": _until_given_up,
}


@pytest.mark.parametrize("fault", PASSING)
def test_first_and_last_scrape_are_tried_again(project: Any, server: Exporter, fault: str) -> None:
    """The first scrape fails once, as does the last: no other is taken in a window shorter than the interval."""
    failed: list[int] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if server.count() in (1, 3):
            failed.append(server.count())
            PASSING[fault](handler)
        else:
            respond(handler, server.process.page())

    server.answer = answer
    url = f"{{url: '{server.url}', timeout: {'2s' if fault == 'silent' else '60s'}}}"
    project.gates(gates(url, "0.5s").replace("0.05s", "30s"))
    run = project.run()
    assert run.verdicts == ["pass"]
    assert failed == [1, 3]
    assert server.count() == 4


def test_a_server_that_asks_to_wait_longer_than_the_time_out(project: Any, server: Exporter) -> None:
    server.answer = always(b"", 429, Retry_After="60")
    project.gates(gates(f"{{url: '{server.url}', timeout: 2s}}"))
    run = project.run()
    assert run.reason("llmroof.yaml::decode") .startswith(f"{server.url} refuses as it is asked too often (429)")
    assert server.count() == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_will_not_change_is_asked_once(project: Any, server: Exporter, status: int) -> None:
    server.answer = always(b"", status, Retry_After="0")
    project.gates(gates(server.url))
    assert project.run().verdicts == ["no data"]
    assert server.count() == 1
