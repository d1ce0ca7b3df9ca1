"""All the work of a window: FLOPs and bytes over all replicas, each with what is not known of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pytest_llmroof.analysis.facts import DecodeFacts, WindowFacts
from pytest_llmroof.analysis.floors import decode_costs, decode_step
from pytest_llmroof.analysis.sources import convention
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.analysis.tokens import count_tokens
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.cost import model_flops, step_cost
from pytest_llmroof.roofline.step import Step, StepCost

_ENDS: Final = ("value", "low", "high")


@dataclass(frozen=True)
class Work:
    """FLOPs (exact), FLOPs as MFU counts them, and bytes, summed over all replicas.

    Low ends leave out what may not have been computed in the window: prompts in flight at its edges, experts that
    skewed routing does not reach. ``bytes`` reads the weights once per step, whatever the step holds;
    unless ``steps_known`` it leaves out decode steps, of which only the tokens were counted.
    """

    flops: Bounded
    model_flops: Bounded
    bytes: Bounded
    convention: str
    in_cache: bool
    steps_known: bool


def window_work(facts: WindowFacts) -> Work | None:
    """The work, None where nothing was counted. The deployment must name its model."""
    parts = [part for part in (_decoded(facts), _uncounted_steps(facts), _prefilled(facts)) if part is not None]
    if facts.idle or not parts:
        return None
    whole = parts[0]
    for part in parts[1:]:
        whole = _Part(
            plus(whole.flops, part.flops), plus(whole.counted, part.counted), plus(whole.bytes, part.bytes), part.cost
        )
    # The step that stands for the window in words: the decode step in a decode window, else the one with prompts.
    cost = parts[0].cost if facts.phase == "decode" else parts[-1].cost
    in_cache = _in_cache(facts, cost)
    known = facts.decode is not None or not count_tokens(facts.window).decoded
    return Work(whole.flops, whole.counted, whole.bytes, convention(facts, cost), in_cache, known)


@dataclass(frozen=True)
class _Part:
    """One kind of work: exact FLOPs, FLOPs as MFU counts them, bytes, and the cost of its mean step."""

    flops: Bounded
    counted: Bounded
    bytes: Bounded
    cost: StepCost


def _decoded(facts: WindowFacts) -> _Part | None:
    """Decode steps, with the weights of every step."""
    if facts.decode is None:
        return None
    costs = decode_costs(facts.deployment, facts.decode)
    return _Part(
        _decode_flops(facts.decode, costs),
        _counted_decodes(facts, facts.decode),
        _decode_bytes(facts.decode, costs),
        costs["value"],
    )


def _uncounted_steps(facts: WindowFacts) -> _Part | None:
    """Decoded tokens of which nothing tells steps or contexts: their matrix products, and no bytes."""
    decoded = count_tokens(facts.window).decoded if facts.decode is None else None
    if not decoded:
        return None
    step = Step(sequences=1.0)
    cost = step_cost(facts.deployment, step)
    counted = model_flops(facts.deployment, decoded, step)
    return _Part(Bounded.exactly(decoded * cost.flops), Bounded.exactly(counted), Bounded.exactly(0.0), cost)


def _prefilled(facts: WindowFacts) -> _Part | None:
    """Prompt tokens, with the weights of those steps that decode steps do not read already."""
    prefill = facts.prefill
    if prefill is None:
        return None
    cost = step_cost(facts.deployment, prefill.step)
    shared = facts.decode.steps if facts.decode is not None else 0.0
    steps = Bounded(*(max(0.0, getattr(prefill.steps, end) - shared) for end in _ENDS))
    weights = Bounded(
        steps.value * cost.weight_bytes, steps.low * cost.weight_bytes_low, steps.high * cost.weight_bytes
    )  # fmt: skip
    return _Part(
        prefill.tokens.scaled(cost.flops / prefill.step.tokens),
        prefill.tokens.map(lambda tokens: model_flops(facts.deployment, tokens, prefill.step)),
        plus(weights, prefill.tokens.scaled(cost.kv_bytes / prefill.step.tokens)),
        cost,
    )


def plus(one: Bounded, other: Bounded) -> Bounded:
    """The sum of two bounded numbers."""
    return Bounded(one.value + other.value, one.low + other.low, one.high + other.high)


def _counted_decodes(facts: WindowFacts, decode: DecodeFacts) -> Bounded:
    """FLOPs of the tokens that decode steps emitted; drafts that were not accepted count for nothing."""
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
