"""Effects of the remedies of C, D and F: less communication, less idle time, faster kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pytest_llmroof.analysis.attribute import step_kinds
from pytest_llmroof.analysis.attribution import Cause
from pytest_llmroof.analysis.communication import CommunicationEstimate, mean_estimate, on_nvlink
from pytest_llmroof.analysis.constants import communication_constant
from pytest_llmroof.analysis.situation import Effect, Situation
from pytest_llmroof.roofline.cost import memory_fit
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.units import format_quantity, grouped

_IDLE: Final[tuple[Cause, Cause]] = ("idle: within steps", "idle: between steps")


def inside_nvlink(situation: Situation) -> Effect | None:
    """T without the transport, up to T with what transport takes inside one NVLink domain."""
    there = on_nvlink(situation.deployment)
    estimated = _estimate(situation, there) if there is not None else None
    if estimated is None or not estimated.messages or estimated.seconds >= situation.transport:
        return None
    fill = {
        "ranks": str(situation.deployment.tensor_parallel),
        "communication_after": format_quantity(estimated.seconds, "seconds"),
    }
    high = situation.total - situation.transport + estimated.seconds
    # Of a transport that is itself an upper bound at least the estimate stays.
    return situation.timed(high if situation.bound else high - estimated.seconds, high, fill=fill)


def lower_degree(situation: Situation) -> Effect | None:
    """F t / t' with its kernel ceiling + x(t') / x(t) transport + idle, at the degree that fits and gains most."""
    degree = situation.deployment.tensor_parallel
    found = []
    for lower in (degree // 2, degree // 4, degree // 8):
        if lower >= 1 and degree % lower == 0:
            effect = _at_degree(situation, lower)
            if effect is not None and effect.gain is not None:
                found.append(effect)
    return max(found, key=lambda effect: effect.gain or 0.0, default=None)


def pipeline_across_nodes(situation: Situation) -> Effect | None:
    """TP as wide as a node, the rest as pipeline stages: only hidden states cross the network."""
    deployment = situation.deployment
    degree, node = deployment.tensor_parallel, deployment.gpus_per_node
    if degree <= node or degree % node:
        return None
    stages = deployment.pipeline_parallel * degree // node
    changed = replace(deployment, tensor_parallel=node, pipeline_parallel=stages)
    fill = {"degree_after": str(node), "stages": str(stages)}
    return _with_communication(situation, changed, fill)


def expert_parallelism(situation: Situation) -> Effect | None:
    """Experts spread over the GPUs of several nodes: dispatch and combine in place of one all-reduce per layer."""
    deployment = situation.deployment
    if deployment.tensor_parallel <= deployment.gpus_per_node:
        return None
    return _with_communication(situation, replace(deployment, expert_parallel=True), {})


def fused_all_reduce(situation: Situation) -> Effect | None:
    """Count * alpha + size / beta: from one exchange per all-reduce to the library's latency."""
    there = on_nvlink(situation.deployment)
    if there is None or situation.deployment.interconnect != "nvlink":
        return None
    best, worst = _estimate(situation, there), _estimate(situation, there, one_shot=False)
    if best is None or worst is None or not best.messages or best.seconds >= situation.transport:
        return None
    if best.message_bytes >= communication_constant("one_shot_bytes"):
        return None
    rest = situation.total - situation.transport
    fill = {"message": format_quantity(best.message_bytes, "bytes"), "messages": grouped(best.messages)}
    return situation.timed(rest + best.seconds, rest + min(worst.seconds, situation.transport), fill=fill)


def no_idle_within(situation: Situation) -> Effect | None:
    """T without the gaps inside steps; at most without all idle time, where a source does not tell which it is."""
    if _idle_unsplit(situation):
        return _without(replace(situation, bound="gaps within steps"), situation.seconds(*_IDLE))
    return _without(situation, situation.seconds("idle: within steps"))


def no_idle_between(situation: Situation) -> Effect | None:
    """T without the gaps between steps; at most without all idle time, where a source does not tell which it is."""
    if _idle_unsplit(situation):
        return _without(replace(situation, bound="gaps between steps"), situation.seconds(*_IDLE))
    return _without(situation, situation.seconds("idle: between steps"))


def _idle_unsplit(situation: Situation) -> bool:
    """Whether idle time was seen by GPU counters alone, which are means over many steps."""
    return situation.observed is not None and situation.observed.by == "gpu counters" and situation.bound is None


def no_waiting(situation: Situation) -> Effect | None:
    """T without waiting for a late rank or another stage."""
    observed = situation.observed
    late = observed.late_rank if observed is not None else None
    waiting = situation.seconds("exposed communication: waiting")
    effect = _without(situation, waiting)
    fill = {"late": "A late rank" if late is None else f"Rank {late}", "waiting": format_quantity(waiting, "seconds")}
    return replace(effect, fill=fill) if effect is not None else None


def no_slow_kernels(situation: Situation) -> Effect | None:
    """T without what kernels take beyond what they could."""
    return _without(situation, situation.seconds("slow kernels"))


def _without(situation: Situation, seconds: float) -> Effect | None:
    if not seconds:
        return None
    after = situation.total - seconds
    return situation.timed(after, after)


def _at_degree(situation: Situation, degree: int) -> Effect | None:
    deployment = situation.deployment
    changed = replace(deployment, tensor_parallel=degree)
    step = situation.step()
    fit = memory_fit(changed, step.context if step else None)
    if fit is None or not fit.weights_fit:
        return None
    if step is not None and fit.sequences is not None and fit.sequences < step.sequences:
        return None
    before, after = situation.decode_floor(deployment), situation.decode_floor(changed)
    if before is None or after is None:
        return None
    saved = situation.transport - _transport(situation, changed)
    low, high = situation.after(situation.scaled_floor(before[1], after[1]), less=saved, with_ceiling=True)
    fill = {
        "degree_before": str(deployment.tensor_parallel),
        "degree_after": str(degree),
        "weights": format_quantity(fit.weight_bytes, "bytes"),
    }
    return situation.timed(low, high, fill=fill)


def _with_communication(situation: Situation, changed: Deployment, fill: dict[str, str]) -> Effect | None:
    """T with the transport of another layout on as many GPUs: the floor stays."""
    if not situation.transport:
        return None
    after = situation.total - situation.transport + _transport(situation, changed)
    return situation.timed(after, after, fill=fill)


def _transport(situation: Situation, changed: Deployment) -> float:
    """Transport after a change: today's in the proportion of both estimates, which share their errors."""
    now, then = _estimate(situation, situation.deployment), _estimate(situation, changed)
    if now is None or not now.seconds:
        return situation.transport
    return situation.transport * (then.seconds if then else 0.0) / now.seconds


def _estimate(situation: Situation, deployment: Deployment, *, one_shot: bool = True) -> CommunicationEstimate | None:
    decode = situation.decode
    if decode is None:
        return None
    return mean_estimate(deployment, step_kinds(situation.facts, decode), one_shot=one_shot)
