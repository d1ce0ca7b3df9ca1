"""How long an engine was at work in a window: from the samples where its counters moved, else only between bounds."""

from __future__ import annotations

from itertools import pairwise

from pytest_llmroof.analysis.facts import Busy
from pytest_llmroof.analysis.tokens import requests_at, total
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.window import Series, Window


def busy_time(window: Window, least: float | None) -> Busy | None:
    """Busy time of one replica (mean over all); ``least`` is a lower bound from its steps, where there is one.

    The first of these that exists: the engine's own account; first to last movement of the counters in the samples;
    the window, where requests were in the engine at both ends of it; the window or the requests' own prefill and decode
    time, whichever is less, which is a bound only. None where nothing tells.
    """
    if (told := _told(window)) is not None:
        return told
    moved = _movement(window)
    if moved is not None:
        return Busy(moved, "first to last movement of the counters in the samples")
    duration = window.duration_seconds
    if duration and requests_at(window, 0) and requests_at(window, -1):
        return Busy(Bounded.exactly(duration), "the window: requests were in the engine at both ends of it")
    bound, basis = _bound(window)
    if bound is None:
        return None
    return Busy(Bounded(bound, min(bound, least or 0.0), bound), basis)


def _told(window: Window) -> Busy | None:
    """What every engine tells itself: the time of its steps, or for how long it had nothing to do."""
    steps = [engine.counters.get("step_seconds") for engine in window.engines]
    known = [seconds for seconds in steps if seconds]
    if known and len(known) == len(steps):
        return Busy(Bounded.exactly(sum(known) / len(known)), "the engine's own time of its steps")
    duration = window.duration_seconds
    unloaded = [engine.counters.get("unloaded_seconds") for engine in window.engines]
    told = [seconds for seconds in unloaded if seconds is not None]
    if duration is None or not told or len(told) < len(unloaded) or window.since_start:
        return None
    busy = duration - sum(told) / len(told)
    error = window.clock_error_seconds
    if busy <= 0:
        return None
    bounded = Bounded(busy, max(0.0, busy - error), busy + error)
    return Busy(bounded, "the window without the time in which the engine had nothing to run")


def is_bound(busy: Busy) -> bool:
    """Whether only an upper bound of the busy time is known: what is divided by it is a lower bound."""
    return busy.seconds.value == busy.seconds.high and busy.seconds.low < busy.seconds.high


def load_span(window: Window) -> tuple[float, float] | None:
    """First and last sample between which the counters moved, None where no samples tell."""
    if window.progress is None or len(window.progress.times) < 3:
        return None
    moves = _moves(window.progress)
    return (window.progress.times[moves[0]], window.progress.times[moves[-1] + 1]) if moves else None


def _movement(window: Window) -> Bounded | None:
    """From first to last movement: known to one interval at either end, unless requests were there at that sample.

    A prompt is counted at its first output: where requests were there before the counters moved, the work had begun.
    """
    if load_span(window) is None or window.progress is None:
        return None
    times, moves = window.progress.times, _moves(window.progress)
    first, last = moves[0], moves[-1]
    present = _present(window)
    while first > 0 and times[first - 1] in present:
        first -= 1
    longest = times[last + 1] - times[first]
    there = times[first] in present
    before = 0.0 if there else times[first + 1] - times[first]
    earlier = times[first] - times[first - 1] if there and first > 0 else 0.0  # they came since the sample before
    after = 0.0 if times[last + 1] in present else times[last + 1] - times[last]
    shortest = max(0.0, longest - before - after)
    return Bounded((longest + shortest) / 2, shortest, longest + earlier)


def _moves(progress: Series) -> list[int]:
    """Indices i for which the counters moved between samples i and i + 1."""
    return [index for index, (one, other) in enumerate(pairwise(progress.values)) if other > one]


def _present(window: Window) -> frozenset[float]:
    """When a gauge saw requests in an engine."""
    return frozenset(
        at
        for engine in window.engines
        for gauge in ("running", "waiting")
        if gauge in engine.gauges
        for at, value in zip(engine.gauges[gauge].times, engine.gauges[gauge].values, strict=True)
        if value > 0
    )


def _bound(window: Window) -> tuple[float | None, str]:
    """The least upper bound, as a mean over the replicas: no replica works longer than its requests are served."""
    duration = window.duration_seconds
    bounds = [_served(window.only(engine)) for engine in window.engines]
    served = [bound for bound in bounds if bound is not None]
    if not served:
        return duration, "the window: two scrapes say nothing of idle time between them"
    complete = len(served) == len(bounds)
    limited = [bound if duration is None else min(duration, bound) for bound in served]
    if duration is not None and all(bound == duration for bound in limited):
        return duration, "the window: two scrapes say nothing of idle time between them"
    if not complete and duration is None:
        return None, ""
    missing = 0.0 if duration is None else duration * (len(bounds) - len(served))
    return (sum(limited) + missing) / len(bounds), "the requests' own prefill and decode time, which overlap"


def _served(window: Window) -> float | None:
    """Sum of the requests' prefill and decode time in one engine; only those that finished count: none may be left."""
    prefill, decode = total(window, "prefill_time"), total(window, "decode_time")
    if prefill is None and decode is None:
        prefill, decode = window.counter("prefill_seconds"), window.counter("decode_seconds")
    if prefill is not None and decode is not None and requests_at(window, -1) == 0:
        return prefill + decode
    return None
