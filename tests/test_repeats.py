"""Several windows of one kind: their median, and their noise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.repeats import Medians

RATE = "output.tokens_per_second"


def windows(values: Sequence[float]) -> Medians:
    return Medians([
        {RATE: Measurement(RATE, Bounded.exactly(value), "tokens/s", "source", "method")} for value in values
    ])  # fmt: skip


@pytest.mark.parametrize(("limit", "word", "approximate"), [
    (98.0, "pass", True), (97.5, "pass", True), (99.0, "fail", True), (96.0, "pass", False), (100.0, "fail", False),
])  # fmt: skip
def test_a_limit_inside_the_noise_of_the_windows_is_approximate(limit: float, word: str, approximate: bool) -> None:
    # Runs of 96.8 to 99.1, median 98, standard deviation 0.936: 98 +- 2.776 x 0.936 / sqrt(5) = 96.84 .. 99.16.
    medians = windows([97.185, 96.759, 98.4, 99.1, 98.0])
    measured = medians[RATE]
    assert isinstance(measured, Measurement)
    assert (measured.value, measured.low, measured.high) == pytest.approx((98.0, 96.84, 99.16), abs=0.01)
    verdict = judge(parse_gate(f"{RATE} >= {limit}"), measured)
    assert (verdict.word, verdict.approximate) == (word, approximate)


def test_windows_that_agree_are_as_exact_as_each() -> None:
    measured = windows([98.0, 98.0, 98.0])[RATE]
    assert isinstance(measured, Measurement)
    assert measured.bounded.exact
