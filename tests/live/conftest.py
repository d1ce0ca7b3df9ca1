"""A server that is measured while it serves, and pytest run beside it as a user would."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import runs
from engine_process import until
from exporters import Exporter, serving

from pytest_llmroof import progress

HEAD = "gpu: h100\nmodel: llama-3.1-70b\ndeployment: {tensor_parallel: 4, weights: bf16}\n"


@dataclass(frozen=True)
class Run(runs.Run):
    """One run with live windows."""

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

    def most_scrapes(self, interval_seconds: float) -> float:
        """What its windows take: the first and the last, and one each interval between."""
        return sum(2 + float(window["duration_seconds"]) / interval_seconds for window in self.report["windows"])

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

    def run(self, *options: str, apart: bool = False, plugins: Sequence[object] = ()) -> Run:
        """Run pytest here, with everything strict; ``apart``: in a process of its own."""
        return Run(*runs.strictly(self.pytester, *options, apart=apart, plugins=plugins))


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(run_folders_are_removed: None) -> None:
    """Of every run here."""


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], bool]], None]:
    """Lengthens the windows of a run in this process until something holds, where a busy machine takes so long."""

    def until_it_holds(holds: Callable[[], bool]) -> None:
        def sleep(seconds: float) -> None:
            time.sleep(seconds)
            until(holds, "what the window waits for")

        monkeypatch.setattr(progress, "_sleep", sleep)

    return until_it_holds


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
def refused(unheard: str) -> str:
    """The address of a port where nobody listens."""
    return unheard
