"""A server that streams completions, and pytest run beside it."""

from __future__ import annotations

import contextlib
import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from completions import Server, serving

# Runs inside this process forget what they import: what is slow or cannot be imported twice is imported before.
import pytest_llmroof.account
import pytest_llmroof.command_line
import pytest_llmroof.markers
import pytest_llmroof.probing
import pytest_llmroof.report.json_report
import pytest_llmroof.report.text  # noqa: F401


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path_factory.getbasetemp() / "no-netrc"))


@pytest.fixture(autouse=True)
def _run_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield
    assert list(folder.glob("pytest-llmroof-*")) == []


@pytest.fixture
def serve() -> Iterator[Callable[[Server], Server]]:
    """Starts servers that end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda server: stack.enter_context(serving(server))


STRICT = ("--strict-markers", "--strict-config", "-W", "error", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Run:
    """One run of pytest: exit code, everything it printed, and the report's windows by name."""

    rc: int
    text: str
    windows: dict[str, dict[str, Any]]

    @property
    def one_line(self) -> str:
        return " ".join(self.text.split())

    def value(self, window: str, metric: str) -> float:
        return float(self.windows[window]["measurements"][metric]["value"])

    def gate(self, window: str) -> dict[str, Any]:
        (gate,) = self.windows[window]["gates"]
        assert isinstance(gate, dict)
        return gate


class Project:
    """A folder with a test that probes."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        pytester.makeini("[pytest]\n")

    def test(self, body: str, server: Server, telemetry: object = None, name: str = "test_it.py") -> None:
        """A file of tests of a model on an H100; ``URL`` is the server's API, ``METRICS`` its metrics."""
        head = (
            "import pytest\n"
            f"URL, METRICS = {server.url!r}, {server.metrics_url!r}\n"
            'pytestmark = pytest.mark.llmroof(gpu="h100", model="llama-3.1-8b", '
            f'deployment={{"tensor_parallel": 1, "weights": "bf16"}}, telemetry={telemetry or server.metrics_url!r})\n'
        )
        (self.path / name).write_text(head + textwrap.dedent(body), encoding="utf-8")

    def run(self, *options: str, apart: bool = False) -> Run:
        report = self.path / "report.json"
        report.unlink(missing_ok=True)
        run = self.pytester.runpytest_subprocess if apart else self.pytester.runpytest_inprocess
        result = run(*STRICT, "--llmroof-report=report.json", *options)
        document = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"windows": []}
        windows = {window["id"].partition("::")[2]: window for window in document["windows"]}
        return Run(int(result.ret), result.stdout.str() + result.stderr.str(), windows)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)
