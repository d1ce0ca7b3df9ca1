"""All the work of a window: FLOPs and bytes over all replicas, each with what is not known of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pytest_llmroof.analysis.facts import DecodeFacts, WindowFacts
from pytest_llmroof.analysis.floors import decode_costs, decode_step
from pytest_llmroof.analysis.sources import convention
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.cost import model_flops, step_cost
from pytest_llmroof.roofline.step import StepCost

_ENDS: Final = ("value", "low", "high")


@dataclass(frozen=True)
class Work:
    """FLOPs (exact), FLOPs as MFU counts them, and bytes, summed over all replicas.

    Low ends leave out what may not have been computed in the window: prompts in flight at its edges, experts that
    skewed routing does not reach. ``bytes`` reads the weights once per step, whatever the step holds.
    """

    flops: Bounded
    model_flops: Bounded
    bytes: Bounded
    convention: str
    in_cache: bool


def window_work(facts: WindowFacts) -> Work | None:
    """The work, None where nothing was counted. The deployment must name its model."""
    decode, prefill = facts.decode, facts.prefill
    if decode is None and prefill is None:
        return None
    flops = counted = moved = Bounded.exactly(0.0)
    exact: StepCost | None = None
    if decode is not None:
        costs = decode_costs(facts.deployment, decode)
        exact = costs["value"]
        flops = plus(flops, _decode_flops(decode, costs))
        moved = plus(moved, _decode_bytes(decode, costs))
        counted = plus(counted, _counted_decodes(facts))
    if prefill is not None:
        cost = step_cost(facts.deployment, prefill.step)
        exact = exact if exact is not None and facts.phase == "decode" else cost
        each = cost.flops / prefill.step.tokens
        flops = plus(flops, prefill.tokens.scaled(each))
        own = prefill.tokens.map(lambda tokens: model_flops(facts.deployment, tokens, prefill.step))
        counted = plus(counted, own)
        steps = max(0.0, prefill.steps.value - (decode.steps if decode is not None else 0.0))
        fewest = max(0.0, prefill.steps.low - (decode.steps if decode is not None else 0.0))
        most = max(0.0, prefill.steps.high - (decode.steps if decode is not None else 0.0))
        weights = Bounded(steps * cost.weight_bytes, fewest * cost.weight_bytes_low, most * cost.weight_bytes)
        moved = plus(plus(moved, weights), prefill.tokens.scaled(cost.kv_bytes / prefill.step.tokens))
    if exact is None:
        raise AssertionError("one of both was there")
    return Work(flops, counted, moved, convention(facts, exact), _in_cache(facts, exact))


def plus(one: Bounded, other: Bounded) -> Bounded:
    """The sum of two bounded numbers."""
    return Bounded(one.value + other.value, one.low + other.low, one.high + other.high)


def _counted_decodes(facts: WindowFacts) -> Bounded:
    """FLOPs of the tokens that decode steps emitted; drafts that were not accepted count for nothing."""
    decode = facts.decode
    if decode is None:
        return Bounded.exactly(0.0)
    step = replace(decode_step(decode), draft_tokens=0.0)
    tokens = decode.batch.value * decode.tokens_per_step * decode.steps
    return Bounded.exactly(model_flops(facts.deployment, tokens, step))


def _decode_flops(decode: DecodeFacts, costs: dict[str, StepCost]) -> Bounded:
    """FLOPs of all decoded sequences: their number is counted, whatever the batch they came in."""
    outputs = decode.steps * decode.batch.value
    each = {end: cost.flops / getattr(decode.batch, end) for end, cost in costs.items()}
    return Bounded.spanning(*(outputs * each[end] for end in ("value", "low", "high")))


def _decode_bytes(decode: DecodeFacts, costs: dict[str, StepCost]) -> Bounded:
    """Weights of all steps (the larger the batch, the fewer) and the cache of all sequences."""
    outputs = decode.steps * decode.batch.value
    cache = Bounded.spanning(*(outputs * costs[end].kv_bytes / getattr(decode.batch, end) for end in _ENDS))
    weights = Bounded.spanning(
        costs["value"].weight_bytes * decode.steps,
        costs["low"].weight_bytes_low * outputs / decode.batch.high,
        costs["high"].weight_bytes * outputs / decode.batch.low,
    )
    return plus(weights, cache)


def _in_cache(facts: WindowFacts, cost: StepCost) -> bool:
    l2 = facts.deployment.accelerator.l2_bytes if facts.deployment.accelerator is not None else None
    return l2 is not None and cost.bytes / cost.gpus < threshold("l2_multiple") * l2
