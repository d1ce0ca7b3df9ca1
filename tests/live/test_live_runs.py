"""Runs with live windows that do not go to plan: time-outs, Ctrl-C, dying workers; and what a terminal shows."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from reportschema import valid


def window(url: str, duration: str, name: str = "decode") -> str:
    return (
        f"{name}:\n  phase: decode\n  telemetry: {url}\n  duration: {duration}\n  interval: 0.1s\n"
        "  gates: [decode.mbu >= 30%, ttft.p99 <= 2s]"
    )


_begun: list[subprocess.Popen[str]] = []


def begun(command: list[str], **options: Any) -> subprocess.Popen[str]:
    """A run of pytest beside this one, which ends with its test whatever becomes of that."""
    _begun.append(subprocess.Popen(command, **options))
    return _begun[-1]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    while _begun:
        process = _begun.pop()
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_time_out_of_all_tests_does_not_cut_windows(project: Any, server: Any) -> None:
    project.gates(window(server.url, "1.2s"))
    run = project.run("-o", "timeout=0.5", apart=True)
    assert run.verdicts == ["pass", "pass"]


IMPATIENT = """
import pytest

def pytest_collection_modifyitems(items):
    items[0].add_marker(pytest.mark.timeout(0.5))
"""


def test_a_window_that_timed_out_is_not_measured_again(project: Any, server: Any) -> None:
    project.gates(window(server.url, "60s"))
    project.pytester.makeconftest(IMPATIENT)
    run = project.run("--showlocals", apart=True)
    assert run.rc == 1
    assert "Timeout" in run.text
    assert "NOT MEASURED: the window was interrupted before its end" in run.one_line
    assert server.count() < 15


def test_ctrl_c_in_a_window_leaves_a_report(project: Any, server: Any) -> None:
    project.gates(window(server.url, "0.2s", "first") + "\n" + window(f"{server.url}?2nd", "60s", "second"))
    process = begun(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--llmroof-report=report.json"],
        cwd=project.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    with server.changed:
        begun_too = server.changed.wait_for(lambda: any("2nd" in path for path, _ in server.asked), timeout=120)
    assert begun_too
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    report = valid(json.loads((project.path / "report.json").read_text()))
    words = {window["name"]: [gate["verdict"] for gate in window["gates"]] for window in report["windows"]}
    assert words == {"first": ["pass", "pass"], "second": ["not run", "not run"]}
    assert report["summary"]["not run"] == 2
    assert "NOT RUN" in text


@pytest.mark.parametrize("answers", [0, 1], ids=["the first scrape", "a scrape between"])
def test_ctrl_c_waits_for_no_server(project: Any, server: Any, answers: int) -> None:
    """A server that keeps its answer for as long as its time-out allows holds up no exit."""
    from loopback import respond

    def answer(handler: Any) -> None:
        if server.count() > answers:
            server.closing.wait(120)
        else:
            respond(handler, server.process.page())

    server.answer = answer
    project.gates(window(f"{{url: '{server.url}', timeout: 100s}}", "90s"))
    process = begun(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=project.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    server.wait_for(answers + 1)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 2, text
    assert "NOT RUN" in text


KILLER = """
import os
from pathlib import Path
import pytest_llmroof.live as live

whole = live.take

def dying(spec, folder, *more):
    try:
        os.close(os.open("dead", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return whole(spec, folder, *more)
    os._exit(1)

live.take = dying
"""


def test_a_worker_that_dies_in_a_window_leaves_it_to_the_next(project: Any, server: Any) -> None:
    project.gates(window(server.url, "0.4s"))
    project.pytester.makeconftest(KILLER)
    run = project.run("-n2", apart=True)  # what conftest.py puts into a module would stay there
    assert sorted(run.verdicts) == ["not run", "pass"]
    assert 2 <= server.count() <= 2 + max(each["duration_seconds"] or 0 for each in run.report["windows"]) / 0.1


NOTED = """
import os
from pathlib import Path
import pytest_llmroof.live as live

whole = live.take

def noted(spec, folder, *more):
    Path("pid.part").write_text(str(os.getpid()))
    os.replace("pid.part", "pid")
    return whole(spec, folder, *more)

live.take = noted
"""


def test_a_worker_that_is_killed_between_two_scrapes(project: Any, server: Any) -> None:
    """At the second scrape: the window is begun and not over, whichever scrape that is."""
    from loopback import respond

    killed: list[int] = []

    def answer(handler: Any) -> None:
        if server.count() == 2:
            killed.append(int((project.path / "pid").read_text()))
            os.kill(killed[0], signal.SIGKILL)
        respond(handler, server.process.page())

    server.answer = answer
    project.gates(window(server.url, "0.4s"))
    project.pytester.makeconftest(NOTED)
    run = project.run("-n2", apart=True)  # likewise
    assert run.rc == 1
    assert len(killed) == 1
    (document,) = valid(run.report)["windows"]
    lost, judged = sorted(document["gates"], key=lambda gate: gate["verdict"])
    assert (lost["verdict"], lost["reason"]) == ("not run", "the worker that ran it crashed")
    assert judged["verdict"] == "pass"


def on_terminal(project: Any, environment: dict[str, str]) -> str:
    """What pytest writes to a terminal."""
    ours, theirs = pty.openpty()
    process = begun(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"], cwd=project.path, stdout=theirs, stderr=theirs,
        stdin=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    text = b"".join(parts).decode()
    assert process.wait(timeout=300) == 0, text
    return text


def test_a_terminal_shows_how_far_a_long_window_is(project: Any, server: Any) -> None:
    project.gates(window(server.url, "3s"))
    shown = on_terminal(project, {})
    seconds = re.findall(r"decode: measuring, (\d) of 3 s", shown)
    assert seconds[:3] == ["0", "1", "2"]
    # Each is written over: the cursor is saved before and back after it.
    assert shown.count("\x1b7") == shown.count("\x1b8") > len(seconds)


def test_a_log_does_not(project: Any, server: Any) -> None:
    project.gates(window(server.url, "3s"))
    assert "measuring" not in on_terminal(project, {"CI": "true"})


SECRETS = ("s3cr3t-header", "s3cr3t-token", "s3cr3t-user", "s3cr3t-query", "s3cr3t-netrc", "s3cr3t-variable")

LEAKY = """
import os, pytest
URL = os.environ["SERVER"]
MARK = pytest.mark.llmroof(
    gpu="h100", model="llama-3.1-70b", deployment={"tensor_parallel": 4}, interval="0.05s", phase="decode",
    telemetry={"url": URL, "headers": {"X-Team": "Bearer ${VARIABLE}"}},
)

@MARK
def test_block(llmroof, llmroof_factory):
    with llmroof.window() as window:
        pass
    window.check("decode.mbu >= 99%")

@MARK
def test_dies(llmroof):
    with llmroof.window() as window:
        raise ValueError(window)

@MARK
@pytest.mark.llmroof_gate("decode.mbu >= 99%")
def test_body(): pass

@MARK
def test_open(llmroof):
    with llmroof.window() as window: window["ttft.p99"]
"""


@pytest.mark.parametrize("fault", [None, 401, 500])
def test_secrets_appear_nowhere(
    project: Any, server: Any, monkeypatch: pytest.MonkeyPatch, fault: int | None, tmp_path: Any
) -> None:
    """Planted in every place that may hold one; then everything that a run prints or leaves behind is searched."""
    from loopback import always

    header, token, user, query, netrc, variable = SECRETS
    home = tmp_path / "secrets"
    home.mkdir()
    (home / "token").write_text(token)
    (home / "netrc").write_text(f"machine localhost login net password {netrc}\n")
    (home / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    monkeypatch.setenv("VARIABLE", variable)
    monkeypatch.setenv("TOKEN_FILE", str(home / "token"))
    with_user = server.url.replace("http://", f"http://me:{user}@")
    monkeypatch.setenv("SERVER", f"{with_user}?key={query}")
    monkeypatch.setenv("HEADER", header)
    if fault:
        server.answer = always(f"{header} {token}".encode(), fault)
    sources = [
        '{url: "${SERVER}", headers: {Authorization: "Bearer ${HEADER}", X-Other: "${VARIABLE}"}}',
        f'{{url: "{server.address}/by-token?x={query}", token_file: "${{TOKEN_FILE}}"}}',
        f'"http://localhost:{server.port}/by-netrc?{query}"',
    ]
    project.gates("\n".join(
        f"w{number}:\n  phase: decode\n  telemetry: {source}\n  duration: 0.2s\n  interval: 0.05s\n"
        "  gates: [decode.mbu >= 99%]"
        for number, source in enumerate(sources)
    ))  # fmt: skip
    (project.path / "test_leaky.py").write_text(LEAKY)
    run = project.run(
        "--showlocals", "--tb=long", "-vv", "-rA", "--full-trace", "--llmroof-record=kept", "--junitxml=junit.xml",
        f"--llmroof-telemetry={with_user}?key={query}", "--llmroof-gate=decode.mbu >= 99%", "--llmroof-duration=0.2s",
        "-o", "log_cli=true", "--log-cli-level=DEBUG",
    )  # fmt: skip
    assert run.rc == 1
    assert len(run.verdicts) == 6
    sent = "\n".join(f"{path} {headers}" for path, headers in server.asked)
    assert all(secret in sent for secret in (header, token, query, variable))
    written = [path for path in project.path.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    left = [path for path in written if path.name != "llmroof.yaml"]
    assert any(path.suffix == ".prom" for path in left) is (fault is None)
    for secret in SECRETS:
        assert secret not in run.text, secret
        for path in left:
            assert secret not in path.read_text(encoding="utf-8", errors="replace"), (secret, path)
            assert secret not in path.name
