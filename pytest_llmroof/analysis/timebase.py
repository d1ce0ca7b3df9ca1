"""The time that work is measured over: what prefill can have taken, and how far its ends are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.analysis.busytime import is_bound
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.analysis.residency import gauge, under_load
from pytest_llmroof.analysis.sources import clock_error, source
from pytest_llmroof.analysis.thresholds import remedy, threshold
from pytest_llmroof.analysis.tokens import count_tokens, observations, total
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.units import Unit

BOUND: Final = "two scrapes say nothing of idle time between them, so this is a lower bound only"


@dataclass(frozen=True)
class TimeBase:
    """The time that a replica's prefill is measured over. ``decides``: whether its interval has two known ends."""

    seconds: Bounded
    basis: str
    decides: bool
    undecided: str | None = None
    settle: AnyAdvice | None = None


def time_base(facts: WindowFacts) -> TimeBase | None:
    """What prefill is measured over: busy time in a prefill window, elsewhere an upper bound of prefill's own time."""
    own = _prefill_time(facts)
    busy = facts.busy
    if (timed := apart(facts)) is not None:
        return timed
    if not prefill_only(facts):
        ends = [end for end in (busy.seconds.high if busy else None, own) if end]
        if not ends:
            return None
        why = "prefill and decode share this window, and nothing tells prefill's part of the time"
        longest = min(ends)
        return TimeBase(
            Bounded(longest, 0.0, longest), "the most that prefill can have taken", False, why, remedy("prefill_window")
        )
    if own and _one_at_a_time(facts):
        return TimeBase(Bounded.exactly(own), "prefill time of the requests, served one at a time", True)
    if busy is None or not busy.seconds.high:
        return None
    if is_bound(busy):
        longest = min(busy.seconds.high, own or math.inf)
        return TimeBase(Bounded(longest, 0.0, longest), busy.basis, False, BOUND, remedy("record"))
    settle = "a longer load, or samples at a shorter interval"
    return TimeBase(busy.seconds, f"busy time ({busy.basis})", True, settle=settle)


def apart(facts: WindowFacts) -> TimeBase | None:
    """The time of the steps with prompts, where these run apart and are timed."""
    seconds = facts.window.counter("prefill_step_seconds")
    if not seconds:
        return None
    return TimeBase(Bounded.exactly(seconds / facts.deployment.replicas), "the time of the steps with prompts", True)


def _prefill_time(facts: WindowFacts) -> float | None:
    """Sum of the prefill times of the requests whose first output came; it is observed when a request finishes."""
    seconds, count = total(facts.window, "prefill_time"), observations(facts.window, "prefill_time")
    if facts.deployment.replicas > 1 or not seconds or not count or facts.prefill is None:
        return None
    return seconds * max(1.0, facts.prefill.requests / count)


def prefill_only(facts: WindowFacts) -> bool:
    """Whether prefill's own floor makes (nearly) all of the work's, whatever the outputs' lengths."""
    tokens = count_tokens(facts.window) if facts.decode is None else None
    joint = facts.joint_floor_seconds
    if tokens is not None and (tokens.decoded or 0.0) > (tokens.first or tokens.finished or 0.0) and not joint:
        return False  # tokens were decoded, and nothing tells how long that took
    if not joint or facts.prefill_floor_seconds is None:
        return facts.phase == "prefill"
    return facts.prefill_floor_seconds >= threshold("prefill_only") * joint


def _one_at_a_time(facts: WindowFacts) -> bool:
    """Whether samples saw no more than one request in the engine: then the requests' prefill times do not overlap."""
    running = gauge(facts.window, "running", sum)
    inside = under_load(facts.window, running) if running is not None else None
    if inside is None or len(inside.values) < threshold("gauge_samples") or max(inside.values) > 1:
        return False
    # A request of one token comes and goes within a step, and no sample sees it: their times must not overlap either.
    own, prefill = _prefill_time(facts), facts.prefill
    together = prefill is not None and not prefill.estimated and prefill.requests > prefill.steps.value
    overlap = own is not None and facts.busy is not None and own > facts.busy.seconds.high * (1 + clock_error(facts))
    return not together and not overlap


def over(
    facts: WindowFacts, metric: str, amount: Bounded, base: TimeBase, unit: Unit, how: str, *quantities: str
) -> Measurement:
    """An amount over a time; where only the longest time is known the value is the low end, and bounds decide."""
    seconds = base.seconds
    low = amount.low / seconds.high
    high = amount.high / seconds.low if seconds.low else math.inf
    value = amount.value / seconds.value if base.decides else low
    return Measurement(
        metric=metric,
        bounded=Bounded(value, low, max(value, high)),
        unit=unit,
        source=source(facts.window, *quantities),
        method=how,
        samples=round(facts.prefill.requests) if facts.prefill is not None else None,
        judged_by="value" if base.decides else "bounds",
        undecided=base.undecided,
        settle=base.settle,
    )
