"""Reports that follow their schema and say what no run says: rendered all the same, without a figure that is none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from reports import ordinary

from pytest_llmroof.report import checklist, junit
from pytest_llmroof.report.html import render
from pytest_llmroof.report.schema import problem_of

Report = dict[str, Any]


def without_limit(report: Report) -> None:
    for gate in (gate for window in report["windows"] for gate in window["gates"]):
        gate["limit_written"] = None


def without_peak(report: Report) -> None:
    for window in report["windows"]:
        if window["gpu"]:
            window["gpu"]["peaks"] = {**window["gpu"]["peaks"], "fp8": None, "bf16": None}


def of_any_share(report: Report) -> None:
    for window in report["windows"]:
        for part in window["attribution"] or ():
            part["share"] = 1e308


@pytest.mark.parametrize("damage", [without_limit, without_peak, of_any_share])
def test_a_damaged_report_is_rendered(damage: Callable[[Report], None]) -> None:
    whole = ordinary()
    damaged = copy.deepcopy(whole)
    damage(damaged)
    assert damaged != whole
    assert problem_of(damaged) is None
    for rendered in (checklist.rendered, junit.rendered, render):
        assert len(rendered(damaged)) > len(rendered(whole)) / 2
