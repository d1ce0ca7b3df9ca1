"""A server that streams completions, and pytest run beside it."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import runs
from completions import Server, serving


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(run_folders_are_removed: None) -> None:
    """Of every run here."""


@pytest.fixture
def serve() -> Iterator[Callable[[Server], Server]]:
    """Starts servers that end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda server: stack.enter_context(serving(server))


@dataclass(frozen=True)
class Run(runs.Run):
    """One run of tests that probe."""

    @property
    def windows(self) -> dict[str, dict[str, Any]]:
        """The report's windows by name."""
        return {window["id"].partition("::")[2]: window for window in self.report["windows"]}

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

    def run(self, *options: str) -> Run:
        return Run(*runs.strictly(self.pytester, *options))


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)
