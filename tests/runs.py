"""pytest run inside a test, with everything strict, and what it reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

# Runs inside this process forget what they import: what is slow or cannot be imported twice is imported before.
import pytest_llmroof.account
import pytest_llmroof.command_line
import pytest_llmroof.fixture_windows
import pytest_llmroof.handle
import pytest_llmroof.live
import pytest_llmroof.markers
import pytest_llmroof.probing
import pytest_llmroof.report.json_report
import pytest_llmroof.report.text  # noqa: F401

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


def strictly(
    pytester: pytest.Pytester, *options: str, apart: bool, plugins: Sequence[object] = ()
) -> tuple[int, str, dict[str, Any]]:
    """Run pytest in the folder of a test; ``apart``: in a process of its own. A run without a report has no windows.

    ``plugins`` are more of them, for a run in this process.
    """
    report = pytester.path / "report.json"
    report.unlink(missing_ok=True)
    given = (*STRICT, "--llmroof-report=report.json", *options)
    if apart:
        result = pytester.runpytest_subprocess(*given)
    else:
        result = pytester.runpytest_inprocess(*given, plugins=list(plugins))
    document = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"windows": []}
    return int(result.ret), result.stdout.str() + result.stderr.str(), document
