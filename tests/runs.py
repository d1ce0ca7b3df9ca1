"""pytest run inside a test, with everything strict, and what it reported."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Runs inside this process forget what they import: what is slow, or cannot be imported twice, is imported before.
import jinja2  # noqa: F401
import jsonschema  # noqa: F401
import junit_xml  # noqa: F401
import msgspec  # noqa: F401
import numpy  # noqa: F401
import pytest
import requests  # noqa: F401

import pytest_llmroof

for _module in pkgutil.walk_packages(pytest_llmroof.__path__, "pytest_llmroof."):
    importlib.import_module(_module.name)

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


def run(pytester: pytest.Pytester, *options: str, apart: bool = False) -> pytest.RunResult:
    """Run pytest in the folder of a test; ``apart``: in a process of its own, which has to import everything."""
    start = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
    return start("-p", "no:cacheprovider", *options)


def strictly(
    pytester: pytest.Pytester, *options: str, apart: bool = False, plugins: Sequence[object] = ()
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
