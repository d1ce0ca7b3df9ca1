"""A slice of the measured diagnosis (benchmarks/diagnosis.py has all of it): windows of every planted cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from simulator.assessed import EVIDENCE
from simulator.draw import draw
from simulator.judged import Found, column, errors, excused, ruled_out, unfounded
from simulator.measured import Outcome, measured
from simulator.plan import Planted

#: Of each cause so many windows, the first ones.
EACH = 2
POINTS = 0.03


def seeds() -> Iterator[int]:
    """Numbers of windows, ``EACH`` for every planted cause."""
    left = dict.fromkeys(
        (
            "A",
            "B",
            "C",
            "D",
            "E cache",
            "E slots",
            "E compute",
            "F",
            "G",
            "none",
            "CD",
            "CF",
            "DF",
            "late work",
            "late host",
            "clock thermal",
            "clock power",
            "hidden",
        ),
        EACH,
    )
    number = 0
    while any(left.values()):
        planted: Planted = draw(number).plan.planted
        if left[planted]:
            left[planted] -= 1
            yield number
        number += 1


@pytest.mark.parametrize("seed", [*seeds()])
def test_a_planted_cause_is_named_or_left_open_and_never_denied(seed: int) -> None:
    one = measured(seed)
    truth = one.expected
    for kind in EVIDENCE:
        found = one.found[kind]
        assert found.failure is None
        assert not found.impossible
        assert not unfounded(found.candidates, truth.lost_by(kind)), (kind, found.candidates, truth.lost)
        assert not unfounded(found.of_first_token, truth.lost_first), (kind, found.of_first_token, truth.lost_first)
        if truth.letter is not None:
            assert not ruled_out(found, truth.letter), (kind, found)
    if truth.letter is not None and truth.told_by_profile:
        assert one.found["profile"].scenario == truth.letter
    if truth.letter is not None and truth.told_by_counters:
        assert one.found["dcgm"].scenario == truth.letter
    assert one.found["dcgm"].clock or not truth.heat
    off = errors_of(one)
    assert max(off.values(), default=0.0) <= POINTS, off


def errors_of(one: Outcome) -> dict[str, float]:
    """By how much the split with a profile is off, beyond what it says is not known."""
    truth, found = one.expected, one.found["profile"]
    if truth.shares is None or not truth.told_by_profile:
        return {}
    return {part: abs(excused(found, part, error)) for part, error in errors(found, truth.shares).items()}


def test_windows_repeat_themselves() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def found(*candidates: str) -> Found:
    name = " or ".join(candidates[:2]) or None
    return Found(name, candidates, "low", "", (), None, (1.0, 1.0), 0.0, False, (), None)


def test_a_verdict_finds_its_column() -> None:
    assert column(found("C"), "C") == "C"
    assert column(found("C", "D", "F"), "F") == "several, right"
    assert column(found("C", "D"), "F") == "several, wrong"
    assert column(found("C", "D"), None) == "several"
    assert column(found(), "F") == "none"
    assert ruled_out(found("C", "D"), "F")
    assert not ruled_out(found(), "F")
    assert unfounded(("F",), {"F": 0.02}) == ("F",)
    assert unfounded(("F", "D"), {"F": 0.02}) == ()
    assert unfounded(("A",), {"F": 0.02}) == ()


def test_what_is_said_not_to_be_known_excuses_as_much_and_no_more() -> None:
    """4 points too little communication, of which 3 may be in the remainder; the rest may be 3 points too large."""
    told = Found("C", ("C",), "high", "", (), {"not attributed": 0.03}, (1.0, 1.0), 0.0, False, (), None)
    assert excused(told, "communication", -0.04) == pytest.approx(-0.01)
    assert excused(told, "communication", 0.04) == pytest.approx(0.04)
    assert excused(told, "beyond the floor", 0.02) == 0.0
    assert excused(told, "floor", -0.02) == pytest.approx(-0.02)
    assert excused(replace(told, open_floor=0.015), "floor", -0.02) == pytest.approx(-0.005)
