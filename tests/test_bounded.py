"""Numbers between bounds, and nearest names."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.bounded import Bounded
from pytest_llmroof.near import did_you_mean, nearest

finite = st.floats(min_value=1e-6, max_value=1e6)


def test_bounds_must_be_in_order() -> None:
    with pytest.raises(ValueError, match="out of order"):
        Bounded(1.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="not a number"):
        Bounded(math.nan, 0.0, 1.0)


@given(finite, st.lists(finite))
def test_spanning_holds_everything(value: float, others: list[float]) -> None:
    bounded = Bounded.spanning(value, *others)
    assert all(bounded.low <= other <= bounded.high for other in [value, *others])
    assert bounded.exact == (set(others) <= {value})


@given(finite, finite, finite)
def test_a_falling_function_keeps_the_order(a: float, b: float, c: float) -> None:
    low, value, high = sorted([a, b, c])
    mapped = Bounded(value, low, high).map(lambda x: 1 / x)
    assert mapped.low == 1 / high
    assert mapped.high == 1 / low


def test_scaled() -> None:
    assert Bounded(2.0, 1.0, math.inf).scaled(2.0) == Bounded(4.0, 2.0, math.inf)


def test_nearest_names() -> None:
    assert nearest("tp-size", ["tensor_parallel", "pipeline_parallel"]) == ["tensor_parallel"]
    assert nearest("tp", ["tpu"]) == ["tpu"]  # what it means is no valid name here
    assert nearest("decode.mbu2", ["decode.mbu", "prefill.mfu"]) == ["decode.mbu"]
    assert did_you_mean("H10O", ["h100", "h200"]).startswith(" (did you mean 'h100'")
    assert did_you_mean("zzz", ["h100"]) == ""
