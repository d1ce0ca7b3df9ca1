"""A pytest plugin for the run under coverage: which test runs which line, and how much CPU each test takes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_COSTS: dict[str, float] = {}
_FAILED: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Lines from here on are this test's."""
    current = coverage.Coverage.current()
    if current is None:
        raise pytest.UsageError("run it under coverage")
    current.switch_context(item.nodeid)
    began = time.process_time()
    result = yield
    _COSTS[item.nodeid] = time.process_time() - began
    return result


@pytest.hookimpl
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test that fails without any mutant cannot tell one: it may be held to a speed that coverage takes."""
    if report.failed:
        _FAILED.add(report.nodeid)


@pytest.hookimpl
def pytest_sessionfinish() -> None:
    """Keep what each test cost that passed, beside the lines."""
    kept = {name: cost for name, cost in _COSTS.items() if name not in _FAILED}
    Path(os.environ["MUTANTS_COSTS"]).write_text(json.dumps(kept), encoding="utf-8")
