"""Gate files and pages in a folder of their own, and pytest run there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import runs
from reportschema import valid

HEAD = """\
gpu: h100
model: llama-3.1-70b
deployment: {tensor_parallel: 4, weights: bf16}
windows:
"""


class Project:
    """A folder with pages of a server that decodes Llama 3.1 70B at 41 % of what memory allows."""

    def __init__(self, pytester: pytest.Pytester, pages: Callable[..., object]) -> None:
        self.pytester = pytester
        self.path = pytester.path
        pages(self.path)
        pytester.makeini("[pytest]\n")

    def gates(self, *gates: str, name: str = "llmroof.yaml", window: str = "decode", phase: str = "decode") -> Path:
        """Add a window with gates, each one line of YAML, to a gate file."""
        file = self.path / name
        file.parent.mkdir(exist_ok=True, parents=True)
        before, after = (Path("../" * (len(Path(name).parts) - 1), page) for page in ("before.prom", "after.prom"))
        lines = [f"  {window}:", f"    phase: {phase}", f"    telemetry: [{before}, {after}]", "    gates:"]
        lines += [f"      - {gate}" for gate in gates]
        head = file.read_text() if file.exists() else HEAD
        file.write_text(head + "\n".join(lines) + "\n")
        return file

    def run(self, *options: str) -> pytest.RunResult:
        """Run pytest here, with everything strict."""
        strict = ("--strict-markers", "--strict-config", "-W", "error")
        return runs.run(self.pytester, *strict, *options)

    def report(self, *options: str) -> dict[str, Any]:
        """Run, and read the report."""
        self.run("--llmroof-report=report.json", *options)
        return valid(json.loads((self.path / "report.json").read_text()))


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    """Every gate of a report and how it came out."""
    return {gate["node_id"]: gate["verdict"] for window in document["windows"] for gate in window["gates"]}


@pytest.fixture
def project(pytester: pytest.Pytester, vllm_pages: Callable[..., object]) -> Project:
    return Project(pytester, vllm_pages)


@pytest.fixture
def verdicts_of() -> Callable[[dict[str, Any]], dict[str, str]]:
    return verdicts
