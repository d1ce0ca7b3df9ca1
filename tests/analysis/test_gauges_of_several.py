"""One gauge of several engines on one clock, and when requests were seen in any of them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_windows import engine, window

from pytest_llmroof.analysis.busytime import busy_time
from pytest_llmroof.analysis.residency import gauge
from pytest_llmroof.telemetry.window import Series, Window


def of(*series: Series) -> Window:
    """One engine for each series of running requests."""
    return replace(window(engine()), engines=tuple(replace(engine(), gauges={"running": one}) for one in series))


def test_each_engine_keeps_its_value_until_its_next_sample() -> None:
    one, other = Series((0.0, 10.0, 20.0), (1.0, 2.0, 3.0)), Series((5.0, 10.0, 12.0), (10.0, 20.0, 30.0))
    # From 5 s on both are known: 1 + 10 at 5, 2 + 20 at 10, 2 + 30 at 12, 3 + 30 at 20.
    assert gauge(of(one, other), "running", sum) == Series((5.0, 10.0, 12.0, 20.0), (11.0, 22.0, 32.0, 33.0))
    assert gauge(of(one, other), "running", max) == Series((5.0, 10.0, 12.0, 20.0), (10.0, 20.0, 30.0, 30.0))


SAMPLES = st.dictionaries(st.integers(0, 12), st.integers(0, 5), min_size=1, max_size=6).map(
    lambda found: Series(tuple(map(float, sorted(found))), tuple(float(found[time]) for time in sorted(found)))
)


@given(st.lists(SAMPLES, min_size=2, max_size=4))
def test_every_moment_has_the_last_sample_of_each(series: list[Series]) -> None:
    together = gauge(of(*series), "running", sum)
    assert together is not None
    for time, value in zip(together.times, together.values, strict=True):
        assert value == sum(one.values[bisect_right(one.times, time) - 1] for one in series)
    begun = max(one.times[0] for one in series)
    assert set(together.times) == {time for one in series for time in one.times if time >= begun} | (
        set() if any(one.times != series[0].times for one in series) else set(series[0].times)
    )


@pytest.mark.parametrize(("seen", "low", "high"), [
    # Counters move from 10 s to 30 s. Requests at 10 s but not at 0 s, and none at 30 s: they came at 0 s at the
    # earliest (30 s of work until 30 s), and ended at 20 s at the earliest (10 s).
    ({0.0: 0.0, 10.0: 1.0, 20.0: 1.0, 30.0: 0.0, 40.0: 0.0}, 10.0, 30.0),
    # Requests from the first sample to the one where the counters moved last: all the 30 s.
    ({0.0: 1.0, 10.0: 1.0, 20.0: 1.0, 30.0: 1.0, 40.0: 0.0}, 30.0, 30.0),
    # Never seen at a sample: 20 s at the most, and what moved the counters may have been at work just around 20 s.
    ({0.0: 0.0, 10.0: 0.0, 20.0: 0.0, 30.0: 0.0, 40.0: 0.0}, 0.0, 20.0),
])  # fmt: skip
def test_an_engine_was_at_work_where_requests_were_seen(seen: dict[float, float], low: float, high: float) -> None:
    progress = Series((0.0, 10.0, 20.0, 30.0, 40.0), (0.0, 0.0, 1.0, 2.0, 2.0))
    made = replace(of(Series(tuple(seen), tuple(seen.values()))), progress=progress)
    busy = busy_time(made, None)
    assert busy is not None
    assert (busy.seconds.low, busy.seconds.high) == (low, high)
