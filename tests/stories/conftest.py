"""Running pytest as a user would, and reading what it reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import runs
from reportschema import valid


@dataclass(frozen=True)
class Run:
    """One run of pytest: exit code, everything it printed, and the JSON report (None where none was written)."""

    rc: int
    text: str
    report: dict[str, Any] | None

    @property
    def window(self) -> dict[str, Any]:
        """The only window of the report."""
        assert self.report is not None, self.text
        (window,) = self.report["windows"]
        assert isinstance(window, dict)
        return window

    def value(self, metric: str) -> float:
        """The value of a measurement of the only window."""
        value = self.window["measurements"][metric]["value"]
        assert isinstance(value, float | int)
        return value

    @property
    def verdicts(self) -> list[str]:
        """The verdicts of the only window's gates."""
        return [gate["verdict"] for gate in self.window["gates"]]

    @property
    def one_line(self) -> str:
        """Everything printed, on one line, so that wrapped sentences can be searched."""
        return " ".join(self.text.split())


Runner = Callable[..., Run]


@pytest.fixture
def gate(pytester: pytest.Pytester) -> Runner:
    """Write a gate file (None for none), run pytest with options, read the report."""

    def run(gate_file: str | None, *options: str, name: str = "llmroof.yaml", apart: bool = False) -> Run:
        if gate_file is not None:
            (pytester.path / name).write_text(gate_file, encoding="utf-8")
        report = pytester.path / "report.json"
        report.unlink(missing_ok=True)
        result = runs.run(pytester, *options, "--llmroof-report=report.json", apart=apart)
        document = valid(json.loads(report.read_text(encoding="utf-8"))) if report.exists() else None
        return Run(int(result.ret), result.stdout.str() + result.stderr.str(), document)

    return run


@pytest.fixture
def pages(pytester: pytest.Pytester, vllm_pages: Callable[..., tuple[Path, Path]]) -> Callable[..., None]:
    """Write ``before.prom`` and ``after.prom`` of a vLLM server around a load into the run's folder."""

    def write(folder: str = ".", **load: object) -> None:
        vllm_pages(pytester.path / folder, **load)

    return write
