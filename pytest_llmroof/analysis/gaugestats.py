"""Gauges: mean, largest and last value, as far as samples inside the load can tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.analysis.busytime import load_span
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.metrics import METRICS
from pytest_llmroof.analysis.peaks import judged, peaks, widest_pause
from pytest_llmroof.analysis.residency import gauge, under_load, widest_gap
from pytest_llmroof.analysis.sources import not_exported, source
from pytest_llmroof.analysis.thresholds import remedy, threshold
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.window import Series
from pytest_llmroof.units import format_quantity

#: Metric -> canonical gauge, and what no sample can exceed.
GAUGES: Final = {
    "kv_cache.usage": ("kv_usage", 1.0), "running": ("running", math.inf), "waiting": ("waiting", math.inf),
}  # fmt: skip


def gauge_statistic(facts: WindowFacts, base: str, statistic: str) -> Outcome:
    """``mean``, ``max`` or ``last`` of a gauge over the window's samples; several replicas are one whole."""
    quantity, ceiling = GAUGES[base]
    metric = f"{base}.{statistic}"
    series = gauge(facts.window, quantity, _combination(base, statistic))
    if series is None:
        return _stated(facts, metric, quantity, statistic, ceiling) or not_exported(
            facts, metric, METRICS[base].meaning, "counter"
        )
    inside = under_load(facts.window, series)
    if statistic == "max":
        return _largest(facts, metric, quantity, series, inside, ceiling)
    if not inside.times:
        return NoData(metric, f"{_samples(series)}, none of them inside the load", _more(facts))
    if statistic == "last":
        return _measured(facts, metric, quantity, inside, inside.values[-1], "last sample inside the load")
    if not _dense(facts, quantity, inside):
        few = f"too few for a mean (at least {threshold('gauge_samples'):.0f})"
        reason = _gap(facts, quantity, inside) or few
        return NoData(metric, f"{_samples(inside)} inside the load: {reason}", _more(facts))
    mean = sum(inside.values) / len(inside.values)
    return _measured(facts, metric, quantity, inside, mean, "mean of the samples inside the load")


def _stated(facts: WindowFacts, metric: str, quantity: str, statistic: str, ceiling: float) -> Outcome | None:
    """Of samples of which only the largest is known: the least that the largest was, and nothing else."""
    seen = [engine.largest[quantity] for engine in facts.window.engines if quantity in engine.largest]
    if not seen:
        return None
    why = "the source holds the largest of its samples, not the samples, and some of them lie outside the load"
    if statistic != "max":
        return NoData(metric, why, remedy("record"))
    return Measurement(
        metric=metric,
        bounded=Bounded(max(seen), max(seen), max(ceiling, *seen)),
        unit=METRICS[metric.rpartition(".")[0]].unit,
        source=source(facts.window, quantity),
        method="largest sample of a replica: a lower bound, since nothing is known between the samples",
        judged_by="bounds",
        undecided=why,
        settle=remedy("record"),
    )


def _largest(
    facts: WindowFacts, metric: str, quantity: str, series: Series, inside: Series, ceiling: float
) -> Measurement:
    """The largest sample: evidence for the whole load where samples are dense, else only a lower bound."""
    every = peaks(facts.window, quantity, adds=quantity != "kv_usage")
    if _dense(facts, quantity, inside):
        most = max((*inside.values, *judged(facts.window, every).values))
        return _measured(facts, metric, quantity, inside, most, "largest sample inside the load")
    seen = max((*series.values, *every.values))
    return Measurement(
        metric=metric,
        bounded=Bounded(seen, seen, max(seen, ceiling)),
        unit=METRICS[metric.rpartition(".")[0]].unit,
        source=source(facts.window, quantity),
        method="largest sample: a lower bound, since nothing is known between the samples",
        samples=len(inside.times),
        judged_by="bounds",
        undecided=(
            f"{_samples(series)}, {len(inside.times) or 'none'} of them inside the load, say nothing of what lay "
            f"between: a maximum needs at least {threshold('gauge_samples'):.0f}, at most a tenth of the window apart"
            + (f", and there is {gap}" if (gap := _gap(facts, quantity, inside)) else "")
        ),
        settle=_more(facts),
    )


def _measured(
    facts: WindowFacts, metric: str, quantity: str, inside: Series, value: float, how: str
) -> Measurement:  # fmt: skip
    replicas = sum(quantity in engine.gauges for engine in facts.window.engines)
    whole = "" if replicas < 2 else f" ({'summed' if quantity != 'kv_usage' else 'over all'}, {replicas} replicas)"
    return Measurement(
        metric=metric,
        bounded=Bounded.exactly(value),
        unit=METRICS[metric.rpartition(".")[0]].unit,
        source=source(facts.window, quantity),
        method=how + whole,
        samples=len(inside.times),
    )


def _dense(facts: WindowFacts, quantity: str, inside: Series) -> bool:
    """Whether the samples are many and close enough, of each engine, to speak for what lies between them."""
    if len(inside.times) < threshold("gauge_samples"):
        return False
    gap, duration, _ = _widest(facts, quantity, inside)
    # The time of a sample is known to within its scrapes only: a tenth sampled ten times must not hang on jitter.
    return gap <= threshold("gauge_gap") * duration * (1 + 1e-9) + facts.window.clock_error_seconds


def _widest(facts: WindowFacts, quantity: str, inside: Series) -> tuple[float, float, str]:
    """The widest gap between samples, the window's length (seconds), and the engine among several that has it."""
    span = load_span(facts.window) or (inside.times[0], inside.times[-1])
    gap, whose = widest_gap(inside, span), ""
    if len(facts.window.engines) > 1:
        gap, whose = max((gap, whose), widest_pause(facts.window, quantity, span), key=lambda each: each[0])
    return gap, facts.duration_seconds or span[1] - span[0], whose


def _gap(facts: WindowFacts, quantity: str, inside: Series) -> str | None:
    """The gap that spoils samples which are many enough; None where they are too few."""
    if len(inside.times) < threshold("gauge_samples"):
        return None
    gap, duration, whose = _widest(facts, quantity, inside)
    of_one = f" at {whose}" if whose else ""
    return f"a gap of {format_quantity(gap, 'seconds')} in {format_quantity(duration, 'seconds')}{of_one}"


def _combination(base: str, statistic: str) -> Callable[[Sequence[float]], float]:
    """How the replicas' gauges combine: requests add up; of cache usage, a share, the largest or the mean is asked."""
    if base != "kv_cache.usage":
        return sum
    return max if statistic == "max" else lambda values: sum(values) / len(values)


def _samples(series: Series) -> str:
    count = len(series.times)
    return f"{count} sample{'' if count == 1 else 's'}"


def _more(facts: WindowFacts) -> AnyAdvice:
    """How to get more samples of the gauges."""
    asked = any(one.kind == "prometheus" for one in facts.window.sources)
    return remedy("scrape_more" if asked else "record")
