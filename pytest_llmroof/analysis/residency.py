"""Gauges over time: several engines on one clock, the part of it under load, and the cache's blocks as a context."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from pytest_llmroof.analysis.busytime import load_span
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.window import Engine, Series, Window


def gauge(window: Window, name: str, combine: Callable[[Sequence[float]], float]) -> Series | None:
    """One gauge of all engines at every sample's time, combined (summed, or the largest); None unless all have it."""
    if len(window.engines) > 1 and any(name in engine.unusable for engine in window.engines):
        return None
    series = [engine.gauges[name] for engine in window.engines if name in engine.gauges and engine.gauges[name].times]
    if not series:
        return None
    if all(one.times == series[0].times for one in series):
        together = zip(*(one.values for one in series), strict=True)
        return Series(series[0].times, tuple(combine(values) for values in together))
    begun = max(one.times[0] for one in series)
    times = tuple(sorted({time for one in series for time in one.times if time >= begun}))
    together = zip(*(_held(one, times) for one in series), strict=True)
    return Series(times, tuple(combine(values) for values in together))


def under_load(window: Window, series: Series) -> Series:
    """The samples inside the load: between the first and last movement of the counters, else those that saw requests.

    Two scrapes around an idle engine hold none: what a gauge says there is not about the load.
    """
    span = load_span(window)
    if span is not None:
        inside = [(time, value) for time, value in _pairs(series) if span[0] <= time <= span[1]]
    else:
        present = requests(window)
        if present is None:
            return series
        inside = [(time, value) for time, value in _pairs(series) if _at(present, time) > 0]
    return Series(tuple(time for time, _ in inside), tuple(value for _, value in inside))


def requests(window: Window) -> Series | None:
    """Requests in all engines, running and waiting, at every sample; None where no gauge tells."""
    running, waiting = gauge(window, "running", sum), gauge(window, "waiting", sum)
    if running is None or waiting is None:
        return running or waiting
    return Series(running.times, tuple(value + _at(waiting, time) for time, value in _pairs(running)))


def widest_gap(series: Series, span: tuple[float, float]) -> float:
    """The longest time between two samples inside a span, or from its edges to the nearest sample."""
    return max(later - earlier for earlier, later in pairwise((span[0], *series.times, span[1])))


def context_from_blocks(window: Window, hit_rate: float | None) -> Bounded | None:
    """Tokens of cache per running request, half a block off the end of each; None where blocks do not tell it.

    Only without prefix hits (shared blocks count once) and for a cache of one group without a sliding window.
    """
    if hit_rate is not None and hit_rate >= threshold("cached_blocks"):
        return None
    samples: list[float] = []
    for engine in window.engines:
        samples.extend(_contexts(engine))
    if not samples:
        return None
    return Bounded(sum(samples) / len(samples), min(samples), max(samples))


def _contexts(engine: Engine) -> list[float]:
    """Context at every sample of one engine that saw running requests."""
    usage, running = engine.gauges.get("kv_usage"), engine.gauges.get("running")
    blocks, size = (_number(engine.facts.get(fact)) for fact in ("num_gpu_blocks", "block_size"))
    if usage is None or running is None or not blocks or not size:
        return []
    if engine.facts.get("sliding_window", "None") != "None":
        return []
    return [
        max(0.0, share * blocks * size / _at(running, time) - size / 2)
        for time, share in _pairs(usage)
        if share > 0 and _at(running, time) > 0
    ]


def _at(series: Series, time: float) -> float:
    """A series' value at a time: that of its last sample until then."""
    return series.values[max(0, bisect_right(series.times, time) - 1)]


def _held(series: Series, times: Sequence[float]) -> list[float]:
    """A series' value at every one of these times, as `_at` has it: a fleet has too many to look each of them up."""
    held: list[float] = []
    ends = [*(bisect_left(times, later) for later in series.times[1:]), len(times)]
    for value, end in zip(series.values, ends, strict=True):
        held += [value] * (end - len(held))
    return held


def _pairs(series: Series) -> list[tuple[float, float]]:
    return list(zip(series.times, series.values, strict=True))


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
