"""A run on GitHub: what is appended to the step's summary, and what is annotated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PASSES, FAILS = "decode.mbu >= 30%", "decode.mbu >= 75%"


@pytest.fixture
def summary(project: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = Path(project.path) / "step-summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path))
    return path


def annotated(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("::")]


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "workers"])
def test_a_report_option_brings_summary_and_annotations_once(project: Any, summary: Path, workers: list[str]) -> None:
    project.gates(PASSES, f"{{gate: {FAILS}, id: REL-7}}")
    assert project.run("--llmroof-report=r.json", *workers).ret == 1
    text = summary.read_text()
    assert text.count("# Release checklist") == 1
    assert "- [ ] REL-7 decode MBU >= 75 % (measured 41.3 %)" in text


def test_the_annotation_stands_at_the_gates_line(project: Any, summary: Path) -> None:
    file = project.gates(PASSES, f"{{gate: {FAILS}, id: REL-7}}")
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "REL-7" in text)
    result = project.run("--llmroof-report=r.json", "-q")
    (command,) = annotated(result)
    where = f"::error file=llmroof.yaml,line={line},title=REL-7 decode.mbu::"
    assert command.startswith(f"{where}found 41.3 %25, expected ")


def test_a_gate_option_does_so_too_also_where_all_passes_quietly(project: Any, summary: Path) -> None:
    gates = ("--llmroof-telemetry=before.prom", "--llmroof-telemetry=after.prom", "--llmroof-gate=itl.mean <= 50ms")
    result = project.run(*gates, "-q", "--llmroof-gpu=h100")
    assert result.ret == 0
    assert annotated(result) == []
    assert "**Passed: the only gate holds**" in summary.read_text()


def test_without_such_an_option_nothing_is_written(project: Any, summary: Path) -> None:
    project.gates(FAILS)
    result = project.run()
    assert result.ret == 1
    assert annotated(result) == []
    assert not summary.exists()


def test_any_option_that_concerns_gates_is_enough(project: Any, summary: Path) -> None:
    project.gates(FAILS)
    assert len(annotated(project.run("--llmroof-gpu=h100"))) == 1
    assert "**Blocked: " in summary.read_text()


def test_elsewhere_nothing_is_written(project: Any, summary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    project.gates(FAILS)
    assert annotated(project.run("--llmroof-report=r.json")) == []
    assert not summary.exists()


def test_a_summary_that_cannot_be_written_fails_nothing(
    project: Any, summary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary / "x" / "y"))
    project.gates(PASSES)
    result = project.run("--llmroof-report=r.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["llmroof: GITHUB_STEP_SUMMARY could not be written: *"])
