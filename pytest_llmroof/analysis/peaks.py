"""What a gauge's own samples say that one clock of several engines hides: every sample, and every pause between two."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

from pytest_llmroof.analysis.residency import under_load, widest_gap
from pytest_llmroof.telemetry.window import Engine, Series, Window


def own_samples(engine: Engine, name: str) -> Series | None:
    """A gauge as the engine was sampled itself; None where it has none."""
    series = engine.sampled.get(name) or engine.gauges.get(name)
    return series if series is not None and series.times else None


def peaks(window: Window, name: str, *, adds: bool) -> Series:
    """At every time at which any engine was sampled: the sum over all engines, else the largest sample of that time.

    No sample is lost between those of another engine: one that is too large shows in the largest of these.
    """
    series = [(engine, own) for engine in window.engines if (own := own_samples(engine, name)) is not None]
    if len(series) == 1:
        return series[0][1]
    if adds:
        return _sums(series)
    largest: dict[float, float] = {}
    for _, own in series:
        for time, value in zip(own.times, own.values, strict=True):
            largest[time] = max(value, largest.get(time, value))
    times = sorted(largest)
    return Series(tuple(times), tuple(largest[time] for time in times))


def judged(window: Window, found: Series) -> Series:
    """The samples that a maximum is about: those inside the load, and those of a part that a restart cut off."""
    inside = dict(_pairs(under_load(window, found)))
    spans = [engine.seen for engine in window.engines if engine.seen is not None and engine.sampled]
    if spans:
        first, last = min(first for first, _ in spans), max(last for _, last in spans)
        inside |= {time: value for time, value in _pairs(found) if not first <= time <= last}
    times = sorted(inside)
    return Series(tuple(times), tuple(inside[time] for time in times))


def widest_pause(window: Window, name: str, span: tuple[float, float]) -> tuple[float, str]:
    """The longest time in a span for which one of the engines has no sample while it was there, and whose it is."""
    widest = (0.0, "")
    for engine in window.engines:
        own = own_samples(engine, name)
        if own is None:
            continue
        first, last = span
        if engine.seen is not None:
            first = max(first, min(engine.seen[0], own.times[0]))
            last = min(last, max(engine.seen[1], own.times[-1]))
        if first < last:
            gap = widest_gap(own.between(first, last), (first, last))
            widest = max(widest, (gap, engine.identity), key=lambda each: each[0])
    return widest


def _sums(series: list[tuple[Engine, Series]]) -> Series:
    """The sum over the engines at every sample of any of them, by one pass over all that changes it."""
    changes = sorted(change for engine, own in series for change in _changes(engine, own))
    times, values, total = [], [], 0.0
    for time, together in groupby(changes, key=lambda change: change[0]):
        sampled = False
        for _, change, of_sample in together:
            total += change
            sampled |= of_sample
        if sampled:
            times.append(time)
            values.append(total)
    return Series(tuple(times), tuple(values))


def _changes(engine: Engine, own: Series) -> Iterator[tuple[float, float, bool]]:
    """When an engine's part of a sum changes, by how much, and whether a sample was taken then.

    An engine that came or left has a part for two of its usual pauses beyond its samples: others are sampled later.
    """
    pause = 2 * (own.times[-1] - own.times[0]) / max(1, len(own.times) - 1) if engine.seen is not None else math.inf
    held = own.values[0]
    yield own.times[0] - pause, held, False
    for time, value in _pairs(own):
        yield time, value - held, True
        held = value
    yield own.times[-1] + pause, -held, False


def _pairs(series: Series) -> Iterator[tuple[float, float]]:
    return zip(series.times, series.values, strict=True)
