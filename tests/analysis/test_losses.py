"""Which scenario lost time speaks for: the largest share, by more where it rests on an estimate."""

from __future__ import annotations

import pytest

from pytest_llmroof.analysis.losses import Losses, Pool, candidates

#: What telemetry alone leaves of a step: it belongs to one of these.
REST = frozenset("CDF")


def lost(communication: float, rest: float, *, estimated: bool) -> Losses:
    return Losses({"C": communication}, (Pool(rest, frozenset("DF")),), frozenset("C") if estimated else frozenset())


@pytest.mark.parametrize(("communication", "rest", "estimated", "named"), [
    (0.24, 0.15, False, ("C",)),            # seen: 0.24 is more than 1.3 x 0.15 = 0.195
    (0.24, 0.15, True, ("C", "D", "F")),    # reckoned: less than 2 x 0.15; exchanges of 0.13 would leave 0.26
    (0.31, 0.15, True, ("C",)),             # more than 0.30
    (0.24, 0.19, False, ("C", "D", "F")),   # 0.247
    (0.24, 0.05, True, ("C",)),
])  # fmt: skip
def test_an_estimate_leads_by_more(
    communication: float, rest: float, estimated: bool, named: tuple[str, ...]
) -> None:  # fmt: skip
    assert candidates(lost(communication, rest, estimated=estimated)) == named


def test_what_may_be_the_estimated_ones_own_counts_against_the_others_too() -> None:
    # 0.31 reckoned for exchanges and 0.186 left to anyone: the host may have 0.186, more than half of 0.31.
    assert candidates(Losses({"C": 0.31}, (Pool(0.186, REST),), frozenset("C"))) == ("C", "D", "F")
    assert candidates(Losses({"C": 0.31}, (Pool(0.186, REST),))) == ("C",)


def test_nothing_worth_naming_is_nobodys() -> None:
    assert candidates(lost(0.05, 0.05, estimated=True)) == ()
    assert candidates(Losses()) == ()
