"""Where the time went: a decode step and a prefill window, from the roofline, estimates and what was observed.

Non-communication work is floor + kernel ceiling + slow kernels (+ clock); beside it stand exposed communication and
idle time. What engine telemetry alone cannot tell apart stays "not attributed".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, Literal

from pytest_llmroof.analysis.attribution import Attribution, Cause
from pytest_llmroof.analysis.communication import CommunicationEstimate, communicates, estimate, mean_estimate
from pytest_llmroof.analysis.constants import reach, threshold
from pytest_llmroof.analysis.decodebounds import lacks_context
from pytest_llmroof.analysis.facts import DecodeFacts, WindowFacts
from pytest_llmroof.analysis.floors import decode_costs
from pytest_llmroof.analysis.interleaved import prompts_in
from pytest_llmroof.analysis.measurement import Impossible, Outcomes
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.shares import Part, fitted
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.step import Floor

ROOFLINE: Final = "roofline"


def attribute(facts: WindowFacts, outcomes: Outcomes, observed: Observed | None = None) -> Attribution | None:
    """The split of the window's own phase: a decode step (mixed windows too), or the busy time of a prefill window.

    None where the measured time is impossible, too: it has nothing to split. A profile's own step still has.
    """
    phase = "prefill" if facts.phase == "prefill" else "decode"
    measured = ("prefill.mfu", "prefill.mbu") if phase == "prefill" else ("decode.step_time", "decode.mbu")
    if any(isinstance(outcomes.get(name), Impossible) for name in measured):
        return _attribute_profile(facts, observed)
    if facts.phase == "prefill":
        return attribute_prefill(facts, observed) or _attribute_profile(facts, observed)
    return attribute_decode(facts, observed) or _attribute_profile(facts, observed)


def _attribute_profile(facts: WindowFacts, observed: Observed | None) -> Attribution | None:
    """The profile's own step, where no other can be split: what was lost of it, and work whose floor is not known.

    Where its steps cannot be told apart, its whole recording.
    """
    if observed is None or observed.by != "profile":
        return None
    of: Literal["decode step", "prefill", "recording"] = "prefill" if facts.phase == "prefill" else "decode step"
    total = observed.step_seconds
    if not total:
        of, total = "recording", observed.recorded_seconds
    if not total:
        return None
    work = Part("not attributed", 0.0, False, f"{observed.source}: the GPU's own work, whose floor nothing here tells")
    return Attribution(of, total, fitted(total, observed_parts(total, 0.0, observed), work))


def attribute_decode(facts: WindowFacts, observed: Observed | None = None) -> Attribution | None:
    """The mean decode step. None where nothing is known of it, or where its floor does not fit into it."""
    decode = facts.decode
    if decode is None or (decode.floor is None and observed is None):
        return None
    total = decode.step_seconds.value
    if total <= 0 or _lowest_floor(decode) > total * (1 + threshold("impossible_excess")):
        return None
    deployment = facts.deployment
    floor = floor_parts(decode.floor) if decode.floor else []
    prompts = prompts_in(facts, decode, observed)
    compute_seconds = prompts.floor.seconds
    if decode.floor and not decode.floor.memory_bound:
        compute_seconds += decode.floor.seconds
    parts = [
        *floor,
        prompts.floor,
        *observed_parts(prompts.own_seconds, _computing(deployment, compute_seconds), observed),
        *(ceiling_parts(deployment, [*floor, prompts.floor]) if floor else ()),
        *communication_parts(mean_estimate(deployment, step_kinds(facts, decode)), observed),
        *_unknown_cache(facts, decode),
        prompts.rest,
    ]
    return Attribution("decode step", total, fitted(total, parts, rest_part(deployment, observed, bool(floor))))


def attribute_prefill(facts: WindowFacts, observed: Observed | None = None) -> Attribution | None:
    """The busy time of a prefill-only window; None for other windows, where prefill's own time is not known."""
    if facts.phase != "prefill" or facts.busy is None or not facts.prefill_floor_seconds:
        return None
    if facts.prefill is not None and not facts.prefill.hits_told:
        return None  # of prompts that a cache may have held there is no floor
    total, prefill = facts.busy.seconds.value, facts.prefill_floor_seconds
    decode = max(0.0, (facts.joint_floor_seconds or prefill) - prefill)
    if total <= 0 or prefill > total * (1 + threshold("impossible_excess")):
        return None
    compute = computes(facts)
    floor = [
        Part("compute floor" if compute else "memory floor: weights", prefill, False, ROOFLINE),
        Part("memory floor: weights", decode, False, f"{ROOFLINE}: the decode steps"),
    ]
    parts = [
        *floor,
        *observed_parts(total, _computing(facts.deployment, prefill if compute else 0.0), observed),
        *ceiling_parts(facts.deployment, floor),
        *_prefill_communication(facts, observed),
    ]
    return Attribution("prefill", total, fitted(total, parts, rest_part(facts.deployment, observed, True)))


def excess(facts: WindowFacts, observed: Observed) -> float:
    """By which fraction of the step floor and observed losses exceed it; above 2 % the inputs contradict each other."""
    decode = facts.decode
    if decode is None or decode.step_seconds.value <= 0:
        return 0.0
    return max(0.0, _lowest_floor(decode) / decode.step_seconds.value + observed.total() - 1)


def computes(facts: WindowFacts) -> bool:
    """Whether the compute roof binds prefill (taken to be so where its steps are not known)."""
    return facts.prefill is None or facts.prefill.floor is None or not facts.prefill.floor.memory_bound


def step_kinds(facts: WindowFacts, decode: DecodeFacts) -> list[tuple[float, float]]:
    """The kinds of a replica's steps, for communication: each one's share of all steps and its tokens.

    Steps that only decode, and those that hold prompt tokens beside (drafts included in both).
    """
    tokens = decode.batch.value * (1 + decode.draft_tokens)
    if facts.prefill is None or not decode.steps or not decode.interleaved_seconds:
        return [(1.0, tokens)]
    mixed = min(1.0, facts.prefill.steps.value / decode.steps)
    return [(1 - mixed, tokens), (mixed, tokens + facts.prefill.step.tokens)]


def floor_parts(floor: Floor) -> list[Part]:
    """The floor by its roof: compute, or memory split into weights and KV."""
    if not floor.memory_bound:
        return [Part("compute floor", floor.seconds, False, ROOFLINE)]
    return [
        Part("memory floor: weights", floor.weights_seconds, False, ROOFLINE),
        Part("memory floor: KV", floor.kv_seconds, False, ROOFLINE),
    ]


def ceiling_parts(deployment: Deployment, floors: Iterable[Part]) -> list[Part]:
    """What real kernels cannot reach: floor / eta - floor at each part's roof; a power-limited clock is part of it."""
    accelerator = deployment.accelerator
    if accelerator is None:
        return []
    parts = []
    for floor in floors:
        kind = "memory" if floor.cause.startswith("memory") else deployment.compute
        eta, basis = reach(accelerator, kind)
        what = "memory bandwidth" if kind == "memory" else f"{kind} peak"
        source = f"estimated: kernels reach {eta * 100:.0f} % of the {what} ({basis})"
        parts.append(Part("kernel ceiling", floor.seconds * (1 / eta - 1), False, source))
    # Equal sources merge into one part; the longest ones come first, so that they are named first.
    return sorted(parts, key=lambda part: -part.seconds)


def observed_parts(total: float, compute_seconds: float, observed: Observed | None) -> list[Part]:
    """What was observed, as fractions of its own step applied to ``total`` seconds.

    ``compute_seconds`` are those that kernels need for arithmetic at the clock of the peaks.
    """
    if observed is None:
        return []
    parts = [
        _seen("exposed communication: transport", observed.transport, "transport", total, observed),
        _seen("exposed communication: waiting", observed.waiting, "waiting", total, observed),
        _seen("idle: within steps", observed.idle_within, "idle_within", total, observed),
        _seen("idle: between steps", observed.idle_between, "idle_between", total, observed),
    ]
    if observed.clock is not None and 0 < observed.clock < 1:
        # At a lower clock they need 1 / clock as long; the part of it that the clock cost is the difference.
        cause: Cause = "kernel ceiling" if observed.clock_cause == "power" else "clock"
        lost = compute_seconds * (1 / observed.clock - 1)
        parts.append(Part(cause, lost, True, observed.source_of("clock")))
    parts.append(_seen("slow kernels", observed.slow_kernels, "slow_kernels", total, observed))
    return parts


def _computing(deployment: Deployment, floor_seconds: float) -> float:
    """What kernels need for arithmetic with this floor: a low clock slows what they do not reach, too."""
    if deployment.accelerator is None:
        return floor_seconds
    return floor_seconds / reach(deployment.accelerator, deployment.compute)[0]


def communication_parts(estimated: CommunicationEstimate | None, observed: Observed | None) -> list[Part]:
    """The estimate, where communication was not observed."""
    if estimated is None or (observed is not None and (observed.communication_known or observed.rest == "C")):
        return []
    return [Part("exposed communication: transport", estimated.seconds, False, estimated.basis)]


def rest_part(deployment: Deployment, observed: Observed | None, floor_known: bool) -> Part:
    """What the remainder is: slow kernels where communication and idle time are known, else not attributed."""
    unknown = Part("not attributed", 0.0, False, "the remainder")
    if observed is None or not floor_known or not observed.idle_known or observed.slow_kernels is not None:
        return unknown
    if observed.rest == "C":
        return Part("exposed communication: transport", 0.0, True, f"{observed.source_of('rest')}: what is left")
    if communicates(deployment) and not observed.communication_known and observed.rest != "F":
        return unknown
    return Part("slow kernels", 0.0, True, f"{observed.source}: what is left of the work")


def _unknown_cache(facts: WindowFacts, decode: DecodeFacts) -> list[Part]:
    """Where the context is not known, the most that the step reads of the cache: all of the memory but the weights.

    No more than sequences would hold that are all as long as the longest one ever, where that is told.
    """
    gpu, cost = facts.deployment.accelerator, decode.cost
    if gpu is None or cost is None or decode.floor is None or not lacks_context(facts):
        return []
    held, bandwidth = math.inf, gpu.memory_bandwidth_bytes_per_second
    if gpu.memory_bytes is not None:
        held = gpu.memory_bytes * cost.gpus - cost.weight_bytes
    if decode.context is not None:
        held = min(held, decode_costs(facts.deployment, decode)["high"].kv_bytes - cost.kv_bytes)
    seconds = held / (bandwidth * cost.gpus * reach(gpu, "memory")[0]) if bandwidth is not None else math.inf
    why = "what steps read of the cache: no context is known"
    return [Part("not attributed", seconds, False, why, frozenset({"cache reads"}))]


def _seen(cause: Cause, fraction: float | None, name: str, total: float, observed: Observed) -> Part:
    return Part(cause, (fraction or 0.0) * total, True, observed.source_of(name))


def _lowest_floor(decode: DecodeFacts) -> float:
    """The least that the step's floor can be: with skewed experts fewer weights are read."""
    if decode.floor is None:
        return 0.0
    memory = decode.floor.memory_seconds
    if decode.cost is not None and decode.cost.bytes:
        memory *= decode.cost.bytes_low / decode.cost.bytes
    return max(decode.floor.compute_seconds, memory)


def _prefill_communication(facts: WindowFacts, observed: Observed | None) -> list[Part]:
    """The estimate over all steps of one replica."""
    if facts.prefill is None:
        return []
    steps = facts.prefill.steps.value / facts.deployment.replicas
    return [
        Part(part.cause, part.seconds * steps, part.observed, part.source)
        for part in communication_parts(estimate(facts.deployment, facts.prefill.step.tokens), observed)
    ]
