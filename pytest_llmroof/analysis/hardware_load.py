"""When a window was certainly under load: the stretches that a counter's averages must lie in to speak of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

from pytest_llmroof.analysis.busytime import load_span
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.residency import requests
from pytest_llmroof.analysis.tokens import requests_at
from pytest_llmroof.telemetry.window import Engine, Series, Window

Stretch = tuple[float, float]


def stretches(window: Window, *, of_every_replica: bool = False) -> tuple[Stretch, ...] | None:
    """Stretches (seconds of the window's clock) in which requests were there all the time; None: nothing tells of any.

    An empty tuple means that something tells of load, but of no stretch that was certainly full of it.
    ``of_every_replica`` asks that every replica had requests: a GPU without any says nothing of the engine.
    """
    if window.started is None:
        return None
    if not window.engines:
        return _of_client(window)
    if window.progress is None or len(window.progress.times) < 3:
        return _framed(window, of_every_replica)
    present = _present(window, of_every_replica)
    return tuple(_joined(_intervals(window.progress, present)))


def span(window: Window) -> Stretch | None:
    """The window itself; None without a clock."""
    if window.started is None or not window.duration_seconds:
        return None
    return window.started, window.started + window.duration_seconds


def beyond_samples(facts: WindowFacts, seen: Stretch) -> float:
    """Seconds of the window outside of ``seen`` in which there may have been load: none where all of it lies inside."""
    whole, load = span(facts.window), load_span(facts.window)
    if whole is None:
        return 0.0
    begun, ended = load or whole
    if facts.loaded:  # prompts may be computed for long before a counter moves
        begun, ended = min(begun, facts.loaded[0][0]), max(ended, facts.loaded[-1][1])
    return max(0.0, seen[0] - begun) + max(0.0, ended - seen[1])


def _of_client(window: Window) -> tuple[Stretch, ...] | None:
    """The benchmark's own time, where a load generator tells it."""
    client = window.client
    if client is None:
        return None
    begun = client.started if client.started is not None else window.started
    seconds = client.duration_seconds or window.duration_seconds
    return ((begun, begun + seconds),) if begun is not None and seconds else ()


def _framed(window: Window, of_every_replica: bool) -> tuple[Stretch, ...]:
    """Two scrapes: the whole window where requests were in the engine at both."""
    whole = span(window)
    engines: Iterable[Window] = (window.only(one) for one in window.engines) if of_every_replica else (window,)
    there = all(requests_at(one, 0) and requests_at(one, -1) for one in engines)
    return (whole,) if whole is not None and there and not window.since_start else ()


def _present(window: Window, of_every_replica: bool) -> Series | None:
    """At every sample 1 where requests were there, else 0; None where no gauge tells."""
    if not of_every_replica or len(window.engines) == 1:
        found = requests(window)
        return None if found is None else Series(found.times, tuple(float(value > 0) for value in found.values))
    each = [requests(_alone(window, engine)) for engine in window.engines]
    known = [one for one in each if one is not None]
    if len(known) < len(each):
        return None
    times = tuple(sorted({time for one in known for time in one.times}))
    return Series(times, tuple(float(all(_value_at(one, time) > 0 for one in known)) for time in times))


def _alone(window: Window, engine: Engine) -> Window:
    return Window(window.kind, (engine,), window.sources)


def _intervals(progress: Series, present: Series | None) -> Iterator[Stretch]:
    """Intervals between two samples that were full of load.

    Where gauges tell: with requests at both ends. Else those in which the counters moved, as they did before and after:
    in the first and the last one that moved the load began or ended.
    """
    moved = [later > earlier for earlier, later in pairwise(progress.values)]
    for index, (begun, ended) in enumerate(pairwise(progress.times)):
        if present is not None:
            full = _value_at(present, begun) > 0 and _value_at(present, ended) > 0
        else:
            full = 0 < index < len(moved) - 1 and all(moved[index - 1 : index + 2])
        if full:
            yield begun, ended


def _joined(intervals: Iterable[Stretch]) -> list[Stretch]:
    joined: list[Stretch] = []
    for begun, ended in intervals:
        if joined and joined[-1][1] >= begun:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ended))
        else:
            joined.append((begun, ended))
    return joined


def _value_at(series: Series, time: float) -> float:
    """The value of the last sample until then; 0 before the first."""
    index = bisect_right(series.times, time)
    return series.values[index - 1] if index else 0.0
