"""A server that is measured while it serves, and pytest run beside it as a user would."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from exporters import Exporter, serving

# Runs inside this process forget what they import: what is slow or cannot be imported twice is imported before.
import pytest_llmroof.account
import pytest_llmroof.command_line
import pytest_llmroof.handle
import pytest_llmroof.live
import pytest_llmroof.markers
import pytest_llmroof.report.json_report
import pytest_llmroof.report.text  # noqa: F401

HEAD = "gpu: h100\nmodel: llama-3.1-70b\ndeployment: {tensor_parallel: 4, weights: bf16}\n"
STRICT = ("--strict-markers", "--strict-config", "-W", "error", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Run:
    """One run of pytest: exit code, everything it printed, and the report."""

    rc: int
    text: str
    report: dict[str, Any]

    @property
    def one_line(self) -> str:
        """Everything printed, so that wrapped sentences can be searched."""
        return " ".join(self.text.split())

    @property
    def windows(self) -> dict[str, dict[str, Any]]:
        return {window["id"]: window for window in self.report["windows"]}

    @property
    def window(self) -> dict[str, Any]:
        (window,) = self.report["windows"]
        assert isinstance(window, dict)
        return window

    @property
    def verdicts(self) -> list[str]:
        return [gate["verdict"] for window in self.report["windows"] for gate in window["gates"]]

    def reason(self, window: str) -> str:
        (gate, *_) = self.windows[window]["gates"]
        return str(gate["reason"])


class Project:
    """A folder with gates on live servers."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        pytester.makeini("[pytest]\n")

    def gates(self, windows: str, head: str = HEAD) -> None:
        """The gate file; ``windows`` are lines of YAML under ``windows:``."""
        text = "\n".join(f"  {line}" for line in windows.strip("\n").splitlines())
        (self.path / "llmroof.yaml").write_text(f"{head}windows:\n{text}\n", encoding="utf-8")

    def run(self, *options: str, apart: bool = False) -> Run:
        """Run pytest here, with everything strict; ``apart``: in a process of its own."""
        report = self.path / "report.json"
        report.unlink(missing_ok=True)
        run = self.pytester.runpytest_subprocess if apart else self.pytester.runpytest_inprocess
        result = run(*STRICT, "--llmroof-report=report.json", *options)
        document = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"windows": []}
        return Run(int(result.ret), result.stdout.str() + result.stderr.str(), document)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path_factory.getbasetemp() / "no-netrc"))


@pytest.fixture(autouse=True)
def _run_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No run leaves its recordings behind in the folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield
    assert list(folder.glob("pytest-llmroof-*")) == []


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)


@pytest.fixture
def server() -> Iterator[Exporter]:
    with serving(Exporter()) as running:
        yield running


@pytest.fixture
def start_server() -> Iterator[Callable[[], Exporter]]:
    """Starts further servers."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(serving(Exporter()))


@pytest.fixture
def refused() -> Iterator[str]:
    """The address of a port where nobody listens, and nobody else can begin to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
