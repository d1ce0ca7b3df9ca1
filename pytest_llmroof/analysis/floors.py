"""What a window's work costs on its hardware: the decode step, the prompt steps, and both joined."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from pytest_llmroof.analysis.facts import DecodeFacts, PrefillFacts
from pytest_llmroof.analysis.prompts import in_steps
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.cost import floor, step_cost
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.step import Step, StepCost


@dataclass(frozen=True)
class WorkFloors:
    """Least times of a window's work, summed over all replicas, in seconds."""

    prefill: float
    decode: float
    joint: float


def decode_step(decode: DecodeFacts, end: str = "value") -> Step:
    """The mean decode step, with batch and context at their ``value``, ``low`` or ``high`` end (no context: none)."""
    context: Bounded = decode.context or Bounded.exactly(0.0)
    return Step(
        sequences=getattr(decode.batch, end), context=getattr(context, end), draft_tokens=decode.draft_tokens
    )  # fmt: skip


def decode_costs(deployment: Deployment, decode: DecodeFacts) -> dict[str, StepCost]:
    """The cost of the decode step at the value and at both ends of what is known of it."""
    return {end: step_cost(deployment, decode_step(decode, end)) for end in ("value", "low", "high")}


def with_decode_floors(decode: DecodeFacts, prefill: PrefillFacts | None, deployment: Deployment) -> DecodeFacts:
    """The decode facts with their cost, floor, and what interleaved prefill adds to a mean step."""
    if deployment.model is None:
        return decode
    step = decode_step(decode)
    cost = step_cost(deployment, step)
    own = floor(deployment, cost)
    if own is None:
        return replace(decode, cost=cost)
    priced = replace(decode, cost=cost, floor=own, joint_floor_seconds=own.seconds)
    if prefill is None or not decode.steps:
        return priced

    def added(prompts: Step, steps: float) -> float:
        return min(steps, decode.steps) / decode.steps * (_joint_seconds(step, prompts, deployment) - own.seconds)

    return _with_interleaved(priced, prefill, added, decode.steps)


def with_prompts_apart(decode: DecodeFacts, prefill: PrefillFacts | None, deployment: Deployment) -> DecodeFacts:
    """The same where no step holds both: then each step with prompts adds all of its own floor, weights included."""
    if prefill is None or prefill.floor is None or decode.floor is None or not decode.steps:
        return decode

    def added(prompts: Step, steps: float) -> float:
        alone = floor(deployment, step_cost(deployment, prompts))
        return steps / decode.steps * alone.seconds if alone is not None else 0.0

    return _with_interleaved(decode, prefill, added, math.inf)


def _with_interleaved(
    decode: DecodeFacts, prefill: PrefillFacts, added: Callable[[Step, float], float], most: float
) -> DecodeFacts:
    """With what prompts add to the mean step, ``added`` by their mean step and the number of such steps.

    Where nothing counts these steps, prompts that came together may have shared a few long ones, and prompts that came
    one by one had one each: beside decodes few long ones cost more, in steps of their own many short ones. No more than
    ``most`` of them held any.
    """
    interleaved = added(prefill.step, prefill.steps.value)
    ends = None
    if prefill.estimated:
        numbers = (min(most, max(1.0, number)) for number in (prefill.steps.low, prefill.steps.high))
        several = [interleaved, *(added(in_steps(prefill, number), number) for number in numbers)]
        ends = min(several), max(several)
    own = decode.floor.seconds if decode.floor is not None else 0.0
    return replace(
        decode,
        interleaved_seconds=interleaved,
        interleaved_ends=ends,
        joint_floor_seconds=own + interleaved,
    )


def with_prefill_floors(prefill: PrefillFacts, deployment: Deployment) -> PrefillFacts:
    """The prompt work with the cost and floor of its mean step."""
    if deployment.model is None:
        return prefill
    cost = step_cost(deployment, prefill.step)
    return replace(prefill, cost=cost, floor=floor(deployment, cost))


def work_floors(
    decode: DecodeFacts | None, prefill: PrefillFacts | None, apart: bool = False
) -> WorkFloors | None:  # fmt: skip
    """Floors of all the work, None where model or accelerator are unknown; ``apart``: no step decodes and prefills."""
    if (decode is not None and decode.floor is None) or (prefill is not None and prefill.floor is None):
        return None
    own = prefill.steps.value * prefill.floor.seconds if prefill is not None and prefill.floor else 0.0
    if decode is None or decode.floor is None:
        return WorkFloors(own, 0.0, own)
    alone = decode.steps * decode.floor.seconds
    unmixed = 0.0
    if prefill is not None and prefill.floor is not None:
        shared = 0.0 if apart else decode.steps
        unmixed = max(0.0, prefill.steps.value - shared) * prefill.floor.seconds
    return WorkFloors(own, alone, alone + decode.steps * decode.interleaved_seconds + unmixed)


def _joint_seconds(decode: Step, prompts: Step, deployment: Deployment) -> float:
    joint = floor(deployment, step_cost(deployment, replace(decode, prefills=prompts.prefills)))
    return joint.seconds if joint is not None else 0.0
