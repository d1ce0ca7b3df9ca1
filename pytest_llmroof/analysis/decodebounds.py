"""Figures of a decode step that are known between bounds: without its context, beside prefill, by expected experts."""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_llmroof.advice import AnyAdvice, behind
from pytest_llmroof.analysis.facts import DecodeFacts, WindowFacts
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.analysis.sources import Roofs, cannot
from pytest_llmroof.analysis.thresholds import remedy, threshold
from pytest_llmroof.analysis.tokens import observations, total
from pytest_llmroof.analysis.vendors import profile_wanted, vendor_of
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.roof import achievable, typical
from pytest_llmroof.roofline.step import StepCost
from pytest_llmroof.units import format_quantity


def no_context(facts: WindowFacts) -> tuple[str, AnyAdvice]:
    """Why the context of a sequence is not known, and what would tell it."""
    if facts.decode is not None and facts.decode.only_longest is not None:
        known = cannot(facts.window, "decode.context")
        return facts.decode.only_longest, (known.remedy if known else None) or remedy("counter")
    if observations(facts.window, "generation_length") is None and facts.prompt_tokens is None:
        return "the context of a sequence is not measurable here", remedy("counter")
    return (
        "the context of a sequence is not known: most of the outputs belong to requests that reach beyond the window",
        remedy("whole_requests"),
    )


def lacks_context(facts: WindowFacts) -> bool:
    """Whether the cache that decode steps read is not known, though the model's cache has a size."""
    model = facts.deployment.model
    decode = facts.decode
    if decode is None or model is None or (decode.context is not None and decode.only_longest is None):
        return False
    return model.kv_bytes_per_token(facts.deployment.kv_cache) > 0


def as_lower_bound(measured: Measurement, undecided: str, settle: AnyAdvice) -> Measurement:
    """The measurement as one whose low end alone is known to be near: its interval decides, or nothing does."""
    bounded = measured.bounded
    return replace(
        measured,
        bounded=Bounded(bounded.low, bounded.low, bounded.high),
        judged_by="bounds",
        undecided=undecided,
        settle=settle,
        method=f"{measured.method}; {undecided}",
    )


def only_what_fits(facts: WindowFacts, measured: Measurement) -> Measurement:
    """A utilisation whose value is above what hardware can do, its low end being below: the low end alone is certain.

    Experts that a step reads are expected under even routing. Where that would take more than all of the bandwidth, the
    routing is skewed, or an input is wrong in a way that skew could hide.
    """
    if measured.judged_by == "bounds" or measured.value <= 1 + threshold("impossible"):
        return measured
    return as_lower_bound(
        measured,
        f"its means (of experts under even routing, of lengths) would take {measured.value * 100:.0f} % of the "
        "roof: what was read is less, but not known, or tensor_parallel, weights or gpu are not what runs",
        behind("check these, then ", profile_wanted(vendor_of(facts))),
    )


def between_if_interleaved(
    facts: WindowFacts, decode: DecodeFacts, against: Roofs, measured: Measurement, least_seconds: float
) -> Measurement:
    """In a mixed window the step time contains prefill: utilisation lies between counting it all and none of it.

    ``least_seconds`` is the metric's numerator over its peak: the utilisation of a step that took one second.
    """
    most = decode.interleaved.high
    if most <= 0:
        return measured
    rest = decode.step_seconds.low - _longest_interleaved(facts, decode, against)
    ceiling = max(1.0, measured.bounded.high)
    high = min(ceiling, least_seconds / rest) if rest > 0 else ceiling
    low = measured.bounded.low
    widest = max(measured.bounded.high, high)
    if most <= threshold("interleaved") * decode.step_seconds.value:
        return replace(measured, bounded=Bounded(measured.bounded.value, low, widest))
    share = format_quantity(most, "seconds")
    if not decode.interleaved.exact:
        share = f"up to {share}"
    step = format_quantity(decode.step_seconds.value, "seconds")
    return replace(
        measured,
        bounded=Bounded(low, low, max(low, widest)),
        judged_by="bounds",
        undecided=f"prefill is interleaved ({share} of each step of {step}), so decode is known between bounds",
        settle=remedy("decode_window"),
    )


def _longest_interleaved(facts: WindowFacts, decode: DecodeFacts, against: Roofs) -> float:
    """The longest that prefill may have taken of a mean step.

    No less than kernels need for it, and half as fast as they can be; no longer than requests say that theirs took.
    """
    compute = facts.deployment.compute
    eta = achievable(against.accelerator, compute) or typical(_kind(compute))
    least = decode.interleaved.high / eta
    longest = least / threshold("prefill_of_kernels")
    told = total(facts.window, "prefill_time")
    return max(least, min(longest, told / decode.steps)) if told and decode.steps else longest


def _kind(compute: str) -> str:
    """The precision whose typical kernel efficiency stands for one that has none of its own."""
    try:
        typical(compute)
    except KeyError:
        return "bf16"
    return compute


def most_bytes(facts: WindowFacts, decode: DecodeFacts, high: StepCost, against: Roofs) -> float:
    """The most that the step can read: where the context is not known, all of the memory."""
    if decode.context is not None:
        return high.bytes
    memory = against.accelerator.memory_bytes
    holds_cache = against.model.kv_bytes_per_token(facts.deployment.kv_cache) > 0
    if not holds_cache:
        return high.bytes
    return max(high.bytes, memory * high.gpus) if memory is not None else math.inf
