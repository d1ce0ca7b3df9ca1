"""Measurements of prefill and of the whole window: utilisation over the time that the engine was at work."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pytest_llmroof.analysis.busytime import is_bound
from pytest_llmroof.analysis.decodebounds import lacks_context, no_context, only_what_fits
from pytest_llmroof.analysis.facts import PrefillFacts, WindowFacts
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.prompts import prompt_step
from pytest_llmroof.analysis.residency import gauge, under_load
from pytest_llmroof.analysis.sources import (
    NO_CLOCK,
    Roofs,
    clock_error,
    convention,
    fits_cache,
    in_cache,
    not_exported,
    over_duration,
    roofs,
    source,
    sources,
)
from pytest_llmroof.analysis.thresholds import remedy, threshold
from pytest_llmroof.analysis.tokens import observations, total
from pytest_llmroof.analysis.uncounted import at_least, uncounted
from pytest_llmroof.analysis.work import Work, window_work
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.cost import model_flops, step_cost
from pytest_llmroof.roofline.roof import achievable
from pytest_llmroof.roofline.step import Step
from pytest_llmroof.units import Unit, format_quantity, grouped


@dataclass(frozen=True)
class TimeBase:
    """The time that a replica's prefill is measured over. ``decides``: whether its interval has two known ends."""

    seconds: Bounded
    basis: str
    decides: bool
    undecided: str | None = None
    settle: str | None = None


def prefill_metric(facts: WindowFacts, metric: str) -> Outcome:
    """One ``prefill.*`` metric."""
    if facts.contradiction and facts.phase == "prefill":
        return NoData(metric, facts.contradiction, remedy("phase"))
    if facts.computed_prompt_tokens is None:
        return not_exported(facts, metric, "count of prompt tokens", "counter")
    if facts.prefill is None:
        return NoData(metric, "no prompt token was computed in this window", remedy("prefill_window"))
    if metric == "prefill.tokens_per_second":
        return _prompt_rate(facts, facts.prefill)
    against = roofs(metric, facts.deployment)
    return against if isinstance(against, NoData) else _PREFILL[metric](facts, facts.prefill, against)


def window_metric(facts: WindowFacts, metric: str) -> Outcome:
    """``window.mfu``, ``window.mbu`` or ``roofline.efficiency``."""
    against = roofs(metric, facts.deployment)
    if isinstance(against, NoData):
        return against
    if (work := window_work(facts)) is None:
        return not_exported(facts, metric, "count of tokens", "counter")
    measured = _WINDOW[metric](facts, against, work)
    if not isinstance(measured, Measurement):
        return measured
    if (left_out := uncounted(facts)) is not None:
        return at_least(measured, f"{left_out} are not counted here, and so not in it", remedy("counter"))
    if metric == "window.mfu":
        return measured
    measured = only_what_fits(facts, measured)
    if not lacks_context(facts):
        return measured
    reason, settle = no_context(facts)
    return at_least(measured, f"{reason}, and so no cache is counted", settle)


def _prompt_rate(facts: WindowFacts, prefill: PrefillFacts) -> Outcome:
    metric = "prefill.tokens_per_second"
    if facts.busy is None or not facts.busy.seconds.high:
        return NoData(metric, "nothing tells how long the engine was at work", remedy("clock"))
    bound = is_bound(facts.busy)
    base = _apart(facts) or TimeBase(
        facts.busy.seconds, facts.busy.basis, not bound, _BOUND if bound else None, remedy("record")
    )
    how = f"computed prompt tokens over busy time ({base.basis})"
    return _over(facts, metric, prefill.tokens, base, "tokens/s", how, "prompt_tokens_computed", "prompt_tokens")


def _mfu(facts: WindowFacts, prefill: PrefillFacts, against: Roofs) -> Outcome:
    base = _time_base(facts)
    if base is None:
        return NoData("prefill.mfu", "nothing tells how long the engine was at work", remedy("clock"))
    cost = step_cost(facts.deployment, prefill.step)
    flops = prefill.tokens.map(lambda tokens: model_flops(facts.deployment, tokens, prefill.step))
    share = flops.scaled(1 / (against.peak * facts.deployment.gpus))
    how = f"FLOPs of computed prompt tokens over the peak and {base.basis}; {convention(facts, cost)}"
    reach = achievable(against.accelerator, facts.deployment.compute)
    return _utilisation(facts, "prefill.mfu", share, base, how, reach)


def _mbu(facts: WindowFacts, prefill: PrefillFacts, against: Roofs) -> Outcome:
    base = _time_base(facts)
    if base is None:
        return NoData("prefill.mbu", "nothing tells how long the engine was at work", remedy("clock"))
    if fits_cache(against, step_cost(facts.deployment, prefill.step)):
        return in_cache("prefill.mbu", against)
    bounds = prefill.steps
    ends = [_bytes_moved(facts, prefill, steps) for steps in (bounds.value, bounds.low, bounds.high)]
    share = Bounded.spanning(*ends).scaled(1 / (against.bandwidth * facts.deployment.gpus))
    steps = f"{grouped(prefill.steps.value)} steps with prompts" + (", estimated," if prefill.estimated else "")
    how = f"weights of {steps} and cache read and written, over the bandwidth and {base.basis}"
    return _utilisation(facts, "prefill.mbu", share, base, how, achievable(against.accelerator, "memory"))


def _intensity(facts: WindowFacts, prefill: PrefillFacts, against: Roofs) -> Outcome:
    ends = [
        step_cost(facts.deployment, _prompts(facts, prefill, steps)).intensity
        for steps in (prefill.steps.value, prefill.steps.low, prefill.steps.high)
    ]
    ridge = against.accelerator.ridge(facts.deployment.compute) or math.nan
    estimated = " (estimated from a token budget)" if prefill.estimated else ""
    return Measurement(
        metric="prefill.intensity",
        bounded=Bounded.spanning(*ends),
        unit="FLOP/byte",
        source=source(facts.window, "prompt_tokens_computed", "prompt_tokens"),
        method=f"all FLOPs over all bytes of a mean step with prompts{estimated}; the ridge is {ridge:.1f} FLOP/B",
        samples=round(prefill.requests),
    )


def _window_mfu(facts: WindowFacts, against: Roofs, work: Work) -> Outcome:
    per_second = over_duration(work.model_flops, facts)
    if per_second is None:
        return NoData("window.mfu", NO_CLOCK, remedy("clock"))
    how = f"FLOPs of all tokens over the whole window, idle included; {work.convention}"
    bounded = per_second.scaled(1 / (against.peak * facts.deployment.gpus))
    return _window(facts, "window.mfu", bounded, how, achievable(against.accelerator, facts.deployment.compute))


def _window_mbu(facts: WindowFacts, against: Roofs, work: Work) -> Outcome:
    if work.in_cache:
        return in_cache("window.mbu", against)
    if not work.steps_known:
        return not_exported(facts, "window.mbu", "time between outputs, and so no steps,", "latency")
    per_second = over_duration(work.bytes, facts)
    if per_second is None:
        return NoData("window.mbu", NO_CLOCK, remedy("clock"))
    how = "weights of all steps and all cache moved over the whole window, idle included"
    bounded = per_second.scaled(1 / (against.bandwidth * facts.deployment.gpus))
    return _window(facts, "window.mbu", bounded, how, achievable(against.accelerator, "memory"))


def _efficiency(facts: WindowFacts, against: Roofs, work: Work) -> Outcome:
    metric = "roofline.efficiency"
    if facts.busy is None or not facts.busy.seconds.high:
        return NoData(metric, "nothing tells how long the engine was at work", remedy("clock"))
    gpus = facts.deployment.gpus
    compute = work.flops.scaled(1 / (against.peak * gpus))
    memory = work.bytes.scaled(1 / (against.bandwidth * gpus))
    most = (facts.prefill_floor_seconds or 0.0) + (facts.decode_floor_seconds or 0.0)
    least = max(compute.value, memory.value)
    seconds = Bounded(least, max(compute.low, memory.low), max(least, compute.high, memory.high, most))
    bound = is_bound(facts.busy)
    base = TimeBase(facts.busy.seconds, facts.busy.basis, not bound, _BOUND if bound else None, remedy("record"))
    how = (
        f"least time of all work ({format_quantity(least, 'seconds')}: the larger of all FLOPs and all bytes) "
        f"over busy time ({facts.busy.basis})"
    )
    return _over(facts, metric, seconds, base, "fraction", how, "itl", "prompt_tokens")


_BOUND: Final = "two scrapes say nothing of idle time between them, so this is a lower bound only"

_PREFILL: Final[dict[str, Callable[[WindowFacts, PrefillFacts, Roofs], Outcome]]] = {
    "prefill.mfu": _mfu,
    "prefill.mbu": _mbu,
    "prefill.intensity": _intensity,
}
_WINDOW: Final[dict[str, Callable[[WindowFacts, Roofs, Work], Outcome]]] = {
    "window.mfu": _window_mfu,
    "window.mbu": _window_mbu,
    "roofline.efficiency": _efficiency,
}


def _time_base(facts: WindowFacts) -> TimeBase | None:
    """What prefill is measured over: busy time in a prefill window, elsewhere an upper bound of prefill's own time."""
    own = _prefill_time(facts)
    busy = facts.busy
    if (apart := _apart(facts)) is not None:
        return apart
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
        return TimeBase(Bounded(longest, 0.0, longest), busy.basis, False, _BOUND, remedy("record"))
    settle = "a longer load, or samples at a shorter interval"
    return TimeBase(busy.seconds, f"busy time ({busy.basis})", True, settle=settle)


def _apart(facts: WindowFacts) -> TimeBase | None:
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
    joint = facts.joint_floor_seconds
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


def _prompts(facts: WindowFacts, prefill: PrefillFacts, steps: float) -> Step:
    return prompt_step(prefill.tokens.value, prefill.requests, facts.prefix_hit_rate or 0.0, steps)


def _bytes_moved(facts: WindowFacts, prefill: PrefillFacts, steps: float) -> float:
    return steps * step_cost(facts.deployment, _prompts(facts, prefill, steps)).bytes


def _utilisation(
    facts: WindowFacts, metric: str, share: Bounded, base: TimeBase, how: str, reach: float | None
) -> Outcome:  # fmt: skip
    measured = _over(facts, metric, share, base, "fraction", how, "prompt_tokens_computed", "prompt_tokens")
    return replace(measured, achievable=reach)


def _over(
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


def _window(facts: WindowFacts, metric: str, bounded: Bounded, how: str, reach: float | None) -> Measurement:
    return Measurement(
        metric=metric,
        bounded=bounded,
        unit="fraction",
        source=sources(facts.window, "prompt_tokens", "generation_tokens"),
        method=how,
        samples=round(facts.finished_requests) if facts.finished_requests else None,
        achievable=reach,
    )
