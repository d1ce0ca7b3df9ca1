"""The check that nothing has become slower: what it holds against its bounds, and when it fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import yaml

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
BOUND = {"measured": 0.5, "noise": 1.2}


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script, whose neighbours are only imported while a test wants it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield import_module("check")
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_every_row_has_a_bound_and_every_bound_a_row(check: ModuleType) -> None:
    bounds = yaml.safe_load((BENCHMARKS / "bounds.yaml").read_text(encoding="utf-8"))["rows"]
    assert list(bounds) == list(check.MEASURED)
    assert all(1 < bound["noise"] <= 1.5 and bound["measured"] > 0 for bound in bounds.values())


@pytest.mark.parametrize(
    ("ratios", "holds", "rounds"),
    [
        ([[0.4, 0.6, 9.0]], True, 1),  # the median is at the bound: one wild turn is no regression
        ([[0.7, 0.7, 0.1], [0.5, 0.5, 0.5]], True, 2),  # a busy moment
        ([[0.7, 0.7, 0.7]] * 3, False, 3),
    ],
)
def test_what_stays_above_its_bound_fails(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, ratios: list[list[float]], holds: bool, rounds: int
) -> None:
    left = iter(ratios)
    monkeypatch.setitem(check.MEASURED, "a row", lambda: iter([(ratio, 1.0) for ratio in next(left)]))
    row = check.checked("a row", BOUND, show=False)
    assert row.holds is holds
    assert len(list(left)) == len(ratios) - rounds
    assert row.limit == "at most 0.600"
