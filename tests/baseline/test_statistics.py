"""The interval of a ratio of two groups of windows, against tables and arithmetic by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.baseline.statistics import log_spread, ratio_interval, student_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    # Two-sided 5 %, from any table of Student's t.
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (1000, 1.9623)],
)
def test_quantiles_of_the_table(freedom: float, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, abs=1e-4)


def test_one_window_against_three_is_a_prediction() -> None:
    # Logarithms of 0.99, 1 and 1.01 deviate by 1.000 %; sqrt(1 + 1/3) = 1.1547; t(2) = 4.3027: 4.968 %.
    there = [9.9, 10.0, 10.1]
    spread = log_spread(there)
    assert spread == pytest.approx(0.0100005, rel=1e-3)
    found = ratio_interval(1.08, [10.8], there)
    assert found is not None
    assert math.log(found.high / 1.08) == pytest.approx(0.04969, rel=1e-3)
    assert math.log(1.08 / found.low) == pytest.approx(0.04969, rel=1e-3)


def test_welch_on_two_groups() -> None:
    # s1 = 0.02, s2 = 0.01 (of logarithms), n = 3 and 5: 0.0004/3 + 0.0001/5 = 1.5333e-4, its root 0.012383;
    # df = 1.5333e-4^2 / ((1.3333e-4)^2 / 2 + (2e-5)^2 / 4) = 2.6177; t(2.6177) = 3.4606: 0.042853.
    here = [math.exp(one) for one in (-0.02, 0.0, 0.02)]
    step = 0.01 / math.sqrt(2.5)  # five points at -2..2 steps deviate by sqrt(10 / 4) of one
    there = [math.exp(one * step) for one in (-2, -1, 0, 1, 2)]
    assert log_spread(there) == pytest.approx(0.01)
    found = ratio_interval(1.0, here, there)
    assert found is not None
    freedom = 1.53333e-4**2 / (1.33333e-4**2 / 2 + 2e-5**2 / 4)
    assert math.log(found.high) == pytest.approx(student_quantile(freedom) * 0.0123828, rel=1e-4)


def test_no_noise_is_known_of_one_window_each_or_of_zeros() -> None:
    assert ratio_interval(1.0, [1.0], [1.0]) is None
    assert ratio_interval(0.0, [0.0], [1.0, 2.0]) is None
    assert ratio_interval(1.0, [1.0, 2.0], [0.0, 2.0]) is None
    assert log_spread([0.0, 1.0]) is None


@given(
    st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=10),
    st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=10),
    st.floats(1e-3, 1e3),
)
def test_the_interval_holds_the_ratio_and_grows_with_nothing_but_noise(
    here: list[float], there: list[float], ratio: float
) -> None:
    found = ratio_interval(ratio, here, there)
    assert found is not None
    assert found.low <= ratio <= found.high
    # The unit does not matter: seconds or milliseconds.
    scaled = ratio_interval(ratio, [one * 1000 for one in here], [one * 1000 for one in there])
    assert scaled is not None
    assert math.log(scaled.high / ratio) == pytest.approx(math.log(found.high / ratio), rel=1e-6, abs=1e-9)
