"""One gauge of several engines on one clock, and when requests were seen in any of them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_windows import deployment, engine, window

from pytest_llmroof.analysis.busytime import busy_time
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.analysis.peaks import peaks
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


TICKS = tuple(float(15 * index) for index in range(37))  # 0 to 540 s, every 15 s


def fleet(*sampled: Series, name: str = "kv_usage", seen: tuple[float, float] | None = (0.0, 540.0)) -> Window:
    """Replicas that were sampled so, each with its latest sample at every tick, while the counters moved."""
    made = tuple(
        replace(
            engine(identity=f"replica {number}", itl=0.02, outputs=1000.0, steps=500.0, requests=10.0, present=None),
            gauges={name: Series(TICKS, tuple(own.values[max(0, bisect_right(own.times, at) - 1)] for at in TICKS))},
            sampled={name: own},
            names={name: f"vllm:{name}"},
            seen=seen,
        )
        for number, own in enumerate(sampled)
    )
    progress = Series(TICKS, TICKS)
    return replace(window(*made, seconds=540.0, progress=progress), samples=len(TICKS))


def largest(made: Window, metric: str) -> Measurement:
    found = measure(gather(made, deployment(model=None, gpu=None)))[metric]
    assert isinstance(found, Measurement)
    return found


STEADY = Series(TICKS, (0.4,) * 37)
#: 5 ms before even ticks and after odd ones: just before each odd sample comes the tick that would show it, and by the
#: next tick another one is there. Every second sample of the middle is 0.99.
JITTERED = Series(
    tuple(at + (0.005 if index % 2 else -0.005) for index, at in enumerate(TICKS)),
    tuple(0.99 if index % 2 and 8 <= index <= 28 else 0.4 for index in range(37)),
)


def test_no_sample_is_lost_between_those_of_another_replica() -> None:
    made = fleet(STEADY, JITTERED)
    assert max(made.engines[1].gauges["kv_usage"].values) == 0.4
    found = largest(made, "kv_cache.usage.max")
    assert (found.value, found.undecided) == (0.99, None)
    assert largest(made.only(made.engines[1]), "kv_cache.usage.max").value == 0.99
    assert largest(made.only(made.engines[0]), "kv_cache.usage.max").value == 0.4


def test_a_sum_is_taken_at_every_sample_of_any_replica() -> None:
    waiting = Series(JITTERED.times, tuple(50.0 if value > 0.9 else 0.0 for value in JITTERED.values))
    found = largest(fleet(Series(TICKS, (3.0,) * 37), waiting, name="waiting"), "waiting.max")
    # 3 at the one and 50 at the other.
    assert (found.value, found.undecided) == (53.0, None)


def test_the_gap_of_the_worst_replica_counts() -> None:
    # Of 37 samples those from 195 to 435 s are missing: 450 - 180 = 270 s of 540, where a tenth is allowed.
    kept = [index for index, at in enumerate(TICKS) if not 195 <= at <= 435]
    gone = Series(tuple(TICKS[index] for index in kept), (0.4,) * len(kept))
    made = fleet(STEADY, gone)
    for one in (made, made.only(made.engines[1])):
        found = largest(one, "kv_cache.usage.max")
        assert found.undecided is not None
        assert "a gap of 270 s in 540 s" in found.undecided
        assert found.bounded.high == 1.0
        mean = measure(gather(one, deployment(model=None, gpu=None)))["kv_cache.usage.mean"]
        assert isinstance(mean, NoData)
    assert "at replica 1" in (largest(made, "kv_cache.usage.max").undecided or "")
    assert largest(made.only(made.engines[0]), "kv_cache.usage.max").undecided is None


def test_pages_of_two_servers_are_held_to_the_same_gap() -> None:
    kept = [index for index, at in enumerate(TICKS) if not 195 <= at <= 435]
    made = fleet(STEADY, STEADY)
    gone = Series(tuple(TICKS[index] + 1 for index in kept), (0.4,) * len(kept))
    engines = [replace(one, sampled={}, seen=None) for one in made.engines]
    made = replace(made, engines=(engines[0], replace(engines[1], gauges={"kv_usage": gone})))
    assert "a gap of 270 s in 540 s at replica 1" in (largest(made, "kv_cache.usage.max").undecided or "")


def test_what_a_replica_showed_after_its_restart_is_a_breach_too() -> None:
    # Its counters are used until 285 s, where it restarted; its cache is full from then on.
    hot = Series(TICKS, tuple(0.99 if at > 285 else 0.4 for at in TICKS))
    made = fleet(STEADY, hot)
    made = replace(made, engines=(made.engines[0], replace(made.engines[1], seen=(0.0, 285.0))))
    alone = replace(made.only(made.engines[1]), progress=Series(TICKS[:20], TICKS[:20]))
    assert alone.duration_seconds == 285.0
    assert max(alone.engines[0].gauges["kv_usage"].values) == 0.4
    for one in (made, alone):
        assert largest(one, "kv_cache.usage.max").value == 0.99


def test_who_left_has_no_part_in_the_sum() -> None:
    # 10 until 240 s at the first and from 300 s at the second, each for two pauses (30 s) more: never 20 at once.
    early = Series(TICKS[:17], (10.0,) * 17)
    late = Series(TICKS[21:], (10.0,) * 16)
    made = fleet(early, late, name="running")
    spans = ((0.0, 240.0), (315.0, 540.0))
    made = replace(made, engines=tuple(replace(e, seen=s) for e, s in zip(made.engines, spans, strict=True)))
    assert max(peaks(made, "running", adds=True).values) == 10.0


@given(st.lists(SAMPLES, min_size=2, max_size=4))
def test_sums_are_of_the_last_sample_of_each(series: list[Series]) -> None:
    found = peaks(of(*series), "running", adds=True)
    assert set(found.times) == {time for one in series for time in one.times}
    for time, value in zip(found.times, found.values, strict=True):
        assert value == sum(one.values[max(0, bisect_right(one.times, time) - 1)] for one in series)
