"""Measurements of the decode step: bandwidth and FLOP utilisation, intensity, floor, step time, batch and context."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pytest_llmroof.advice import AnyAdvice, behind
from pytest_llmroof.analysis.decodebounds import (
    as_lower_bound,
    between_if_interleaved,
    lacks_context,
    most_bytes,
    no_context,
    only_what_fits,
)
from pytest_llmroof.analysis.facts import DecodeFacts, WindowFacts
from pytest_llmroof.analysis.floors import decode_costs, decode_step
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.sources import (
    Roofs,
    cannot,
    convention,
    fits_cache,
    in_cache,
    not_exported,
    roofs,
    sources,
)
from pytest_llmroof.analysis.thresholds import remedy, threshold
from pytest_llmroof.analysis.tokens import observations
from pytest_llmroof.analysis.vendors import profile_wanted, vendor_of
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.cost import floor, model_flops, step_cost
from pytest_llmroof.roofline.roof import achievable
from pytest_llmroof.roofline.step import StepCost
from pytest_llmroof.units import Unit, format_quantity


def decode_metric(facts: WindowFacts, metric: str) -> Outcome:
    """One ``decode.*`` metric."""
    if facts.contradiction and facts.phase == "decode":
        return NoData(metric, facts.contradiction, remedy("phase"))
    if facts.decode is None:
        return _no_decode(facts, metric)
    plain = _PLAIN.get(metric)
    if plain is not None:
        return plain(facts, facts.decode, metric)
    against = roofs(metric, facts.deployment)
    if isinstance(against, NoData):
        return against
    return _AGAINST_ROOFS[metric](facts, facts.decode, against)


def _no_decode(facts: WindowFacts, metric: str) -> NoData:
    if observations(facts.window, "itl") is None:
        return not_exported(facts, metric, "histogram of inter-token latencies", "latency")
    if any(engine.unusable.keys() & {"draft_steps", "accepted_tokens"} for engine in facts.window.engines):
        return not_exported(facts, metric, "count of drafts, and so of the tokens in each output,", "latency")
    return NoData(metric, "no token was decoded in this window: every request had one output token", remedy("load"))


def _step_time(facts: WindowFacts, decode: DecodeFacts, metric: str) -> Outcome:
    how = f"time of a decode step of one replica: {decode.basis.partition(';')[0]}"
    stages = facts.deployment.pipeline_parallel
    if stages > 1:
        how += f", over the microbatches under way in {stages} pipeline stages"
    return _measured(facts, decode, metric, decode.step_seconds, "seconds", how)


def _batch(facts: WindowFacts, decode: DecodeFacts, metric: str) -> Outcome:
    how = f"sequences in a decode step of one replica, mean: {decode.basis.partition('; ')[2]}"
    return _measured(facts, decode, metric, decode.batch, "count", how)


def _context(facts: WindowFacts, decode: DecodeFacts, metric: str) -> Outcome:
    if decode.context is None or decode.only_longest is not None:
        if cannot(facts.window, metric) is not None:
            return not_exported(facts, metric, "lengths of prompts and outputs", "counter")
        return NoData(metric, *no_context(facts))
    how = "mean prompt, cached tokens included, + mean output (1 + CV²) / 2; CV of output lengths from their histogram"
    if decode.apart:
        how = "tokens before each output token, while all of the client's sequences decode, mean"
    return _measured(facts, decode, metric, decode.context, "tokens", how, "prompt_length", "generation_length")


def _mbu(facts: WindowFacts, decode: DecodeFacts, against: Roofs) -> Outcome:
    metric = "decode.mbu"
    costs = decode_costs(facts.deployment, decode)
    if fits_cache(against, costs["value"]):
        return in_cache(metric, against)
    moved = against.bandwidth * costs["value"].gpus
    step = decode.step_seconds
    value = costs["value"].bytes / (moved * step.value)
    low = costs["low"].bytes_low / (moved * step.high)
    most = most_bytes(facts, decode, costs["high"], against)
    high = most / (moved * step.low)
    settle = _settle(facts, decode, costs)
    how = (
        f"bytes of a mean decode step ({_bytes_in_words(costs['value'])}) over {costs['value'].gpus} x "
        f"{format_quantity(against.bandwidth, 'bytes/s')} and the step time; {decode.basis}"
    )
    measured = _measured(facts, decode, metric, Bounded(value, min(low, value), max(high, value)), "fraction", how)
    measured = replace(measured, achievable=achievable(against.accelerator, "memory"), settle=settle)
    if decode.context is None:
        reason, settle = no_context(facts)
        measured = as_lower_bound(measured, f"{reason}: between the weights alone and a full cache", settle)
    elif decode.only_longest is not None:
        measured = as_lower_bound(measured, *no_context(facts))
    measured = only_what_fits(facts, measured)
    return between_if_interleaved(facts, decode, against, measured, most / moved)


def _mfu(facts: WindowFacts, decode: DecodeFacts, against: Roofs) -> Outcome:
    def flops(end: str) -> float:
        step = replace(decode_step(decode, end), draft_tokens=0.0)  # drafts count for nothing in MFU
        return model_flops(facts.deployment, step.sequences * decode.tokens_per_step, step)

    peak = against.peak * facts.deployment.gpus_per_replica
    step = decode.step_seconds
    bounded = Bounded(
        flops("value") / (peak * step.value), flops("low") / (peak * step.high), flops("high") / (peak * step.low)
    )
    exact = step_cost(facts.deployment, replace(decode_step(decode), draft_tokens=0.0))
    how = f"FLOPs of the tokens that a mean decode step emits over its peak; {convention(facts, exact)}; {decode.basis}"
    measured = _measured(facts, decode, "decode.mfu", bounded, "fraction", how)
    measured = replace(measured, achievable=achievable(against.accelerator, facts.deployment.compute))
    return between_if_interleaved(facts, decode, against, measured, flops("high") / peak)


def _intensity(facts: WindowFacts, decode: DecodeFacts, against: Roofs) -> Outcome:
    costs = decode_costs(facts.deployment, decode)
    ends = [cost.flops / size for cost in costs.values() if (size := cost.bytes)]
    least = costs["value"].flops / costs["value"].bytes_low
    bounded = Bounded.spanning(costs["value"].intensity, *ends, least)
    ridge = against.accelerator.ridge(facts.deployment.compute) or math.nan
    how = f"all FLOPs over all bytes of a mean decode step; the {facts.deployment.compute} ridge is {ridge:.1f} FLOP/B"
    measured = _measured(facts, decode, "decode.intensity", bounded, "FLOP/byte", how)
    if not lacks_context(facts):
        return measured
    most = costs["value"].flops / max(costs["value"].bytes, most_bytes(facts, decode, costs["high"], against))
    return as_lower_bound(replace(measured, bounded=Bounded(most, most, bounded.high)), *no_context(facts))


def _floor(facts: WindowFacts, decode: DecodeFacts, against: Roofs) -> Outcome:
    costs = decode_costs(facts.deployment, decode)
    seconds = [_seconds(facts, cost) for cost in (costs["value"], costs["low"].least(), costs["high"])]
    bounded = Bounded.spanning(seconds[0], *seconds[1:])
    side = "memory" if decode.floor is not None and decode.floor.memory_bound else "compute"
    how = f"least time of a mean decode step by the datasheet of {against.accelerator.product}: {side} binds"
    measured = _measured(facts, decode, "decode.floor", bounded, "seconds", how)
    if not lacks_context(facts):
        if measured.value > decode.step_seconds.high * (1 + threshold("impossible")):
            reason = "even routing to experts would take longer than the step took: what was read is less"
            return as_lower_bound(measured, reason, profile_wanted(vendor_of(facts)))
        return measured
    full = most_bytes(facts, decode, costs["high"], against) / (against.bandwidth * costs["high"].gpus)
    spanning = replace(measured, bounded=Bounded(bounded.low, bounded.low, max(bounded.high, full)))
    return as_lower_bound(spanning, *no_context(facts))


_PLAIN: Final[dict[str, Callable[[WindowFacts, DecodeFacts, str], Outcome]]] = {
    "decode.step_time": _step_time,
    "decode.batch": _batch,
    "decode.context": _context,
}
_AGAINST_ROOFS: Final[dict[str, Callable[[WindowFacts, DecodeFacts, Roofs], Outcome]]] = {
    "decode.mbu": _mbu,
    "decode.mfu": _mfu,
    "decode.intensity": _intensity,
    "decode.floor": _floor,
}


def _bytes_in_words(cost: StepCost) -> str:
    whole = format_quantity(cost.bytes, "bytes", 4)
    if not cost.kv_bytes:
        return f"{whole}: weights once, no cache counted, since its size is not given"
    return f"{whole}: weights once, {format_quantity(cost.kv_bytes, 'bytes')} of cache"


def _seconds(facts: WindowFacts, cost: StepCost) -> float:
    found = floor(facts.deployment, cost)
    if found is None:
        raise AssertionError("both roofs are known")
    return found.seconds


def _settle(facts: WindowFacts, decode: DecodeFacts, costs: dict[str, StepCost]) -> AnyAdvice | None:
    """What would narrow the interval of ``decode.mbu``: the widest of its parts, in words."""
    cost = costs["value"]
    if not cost.bytes:
        return None
    experts = (cost.weight_bytes - cost.weight_bytes_low) / cost.bytes
    cache = (costs["high"].kv_bytes - costs["low"].kv_bytes) / cost.bytes
    time = (decode.step_seconds.high - decode.step_seconds.low) / decode.step_seconds.value
    if max(experts, cache, time) < 1e-9:
        return None
    if not facts.window.engines:
        return remedy("server")
    if time >= max(experts, cache):
        return behind("samples of the load, which tell how many microbatches are under way: ", remedy("record"))
    if experts >= cache:
        lead = "a profile, which tells how evenly tokens are routed to experts: "
        return behind(lead, profile_wanted(vendor_of(facts)))
    return remedy("one_length")


def _measured(
    facts: WindowFacts, decode: DecodeFacts, metric: str, bounded: Bounded, unit: Unit, how: str, *quantities: str
) -> Measurement:
    return Measurement(
        metric=metric,
        bounded=bounded,
        unit=unit,
        source=sources(facts.window, *(quantities or decode.quantities)),
        method=how,
        samples=round(decode.steps),
    )
