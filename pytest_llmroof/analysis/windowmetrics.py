"""Measurements of the whole window: utilisation by all of its work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pytest_llmroof.analysis.busytime import is_bound
from pytest_llmroof.analysis.decodebounds import as_lower_bound, lacks_context, no_context, only_what_fits
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.sources import NO_CLOCK, Roofs, in_cache, not_exported, over_duration, roofs, sources
from pytest_llmroof.analysis.thresholds import remedy
from pytest_llmroof.analysis.timebase import BOUND, TimeBase, over
from pytest_llmroof.analysis.tokens import HITS, UNTOLD
from pytest_llmroof.analysis.uncounted import at_least, uncounted
from pytest_llmroof.analysis.work import Work, window_work
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.roof import achievable
from pytest_llmroof.units import format_quantity


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
    if facts.prefill is not None and not facts.prefill.hits_told and metric != "window.mbu":
        measured = as_lower_bound(measured, UNTOLD, HITS)
    elif facts.prefill is not None and not facts.prefill.hits_counted and metric != "window.mbu":
        measured = replace(measured, settle=measured.settle or HITS)
    if metric == "window.mfu":
        return measured
    if not work.steps_known:
        untold = "nothing tells the decode steps, and so their weights are not in it"
        return at_least(measured, untold, remedy("latency"))
    measured = only_what_fits(facts, measured)
    if not lacks_context(facts):
        return measured
    reason, settle = no_context(facts)
    return at_least(measured, f"{reason}, and so no cache is counted", settle)


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
    base = TimeBase(facts.busy.seconds, facts.busy.basis, not bound, BOUND if bound else None, remedy("record"))
    how = (
        f"least time of all work ({format_quantity(least, 'seconds')}: the larger of all FLOPs and all bytes) "
        f"over busy time ({facts.busy.basis})"
    )
    return over(facts, metric, seconds, base, "fraction", how, "itl", "prompt_tokens")


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


_WINDOW: Final[dict[str, Callable[[WindowFacts, Roofs, Work], Outcome]]] = {
    "window.mfu": _window_mfu,
    "window.mbu": _window_mbu,
    "roofline.efficiency": _efficiency,
}
