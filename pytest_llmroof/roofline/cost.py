"""What a step costs: FLOPs, bytes and the floor that the roofline sets, for any model and parallelism.

All of it is of one replica (tensor times pipeline parallel GPUs), summed over its GPUs: what each tensor-parallel rank
holds for itself (norms, routers, key-value heads beyond their number) counts once per rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from pytest_llmroof.roofline.deployment import ELEMENT_BYTES, Deployment
from pytest_llmroof.roofline.model import Model
from pytest_llmroof.roofline.models.costed import Costed, WeightPart
from pytest_llmroof.roofline.models.precisions import own_precision
from pytest_llmroof.roofline.step import Floor, MemoryFit, Prefill, Step, StepCost

#: What engines leave for weights and cache of the memory (vLLM's ``gpu_memory_utilization`` by default).
MEMORY_UTILISATION = 0.9


def step_cost(deployment: Deployment, step: Step) -> StepCost:
    """What one forward pass of one replica needs. The deployment must name its model.

    Weights are read once, whatever the step holds. Under expert parallelism the experts of the replica's GPUs serve
    the tokens of all data-parallel ranks, which are taken to hold as many as this one.
    """
    model = _model(deployment)
    traffic = _traffic(model, deployment.weights, deployment, step)
    passes = step.draft_tokens if step.sequences > 0 else 0.0
    if deployment.draft is None or not passes:
        return traffic
    return _with_draft(traffic, costed(deployment.draft), deployment, step)


def floor(deployment: Deployment, cost: StepCost) -> Floor | None:
    """The least time of a step on its replica's GPUs, from datasheet peaks; None where a peak is not known."""
    return _floor(deployment, cost, cost.gpus)


def latency_floor(deployment: Deployment, cost: StepCost) -> Floor | None:
    """The least time of a step that has the pipeline to itself: its stages work one after the other."""
    return _floor(deployment, cost, deployment.tensor_parallel)


def model_flops(deployment: Deployment, tokens: float, step: Step | None = None) -> float:
    """FLOPs that MFU counts for ``tokens`` tokens, by the deployment's convention.

    ``model``: 2 P_a each. ``exact``: the FLOPs of the target model in ``step`` (causal attention, logits only where
    computed), in the proportion of ``tokens`` to those the step computes. Drafts count for nothing.
    """
    model = _model(deployment)
    if deployment.flops == "model":
        return 2 * model.matmul_parameters * tokens
    if step is None:
        raise ValueError("the exact convention counts a step: which one?")
    return _flops(model, step) * (tokens / step.tokens) if step.tokens else 0.0


def memory_fit(
    deployment: Deployment, context: float | None = None, *, utilisation: float = MEMORY_UTILISATION
) -> MemoryFit | None:
    """Whether the weights (a draft's too) fit a GPU, and how many sequences of ``context`` tokens fit beside them.

    None without a model or an accelerator whose memory is known. Pipeline stages are taken to be even. ``utilisation``
    is the share of the memory that the engine uses.
    """
    memory = deployment.accelerator.memory_bytes if deployment.accelerator else None
    if deployment.model is None or memory is None:
        return None
    gpus, model = deployment.gpus_per_replica, costed(deployment.model)
    held = _held(model, deployment.weights, deployment)
    if deployment.draft is not None:
        held += _held(costed(deployment.draft), own_precision(deployment.draft), deployment)
    sequence = _cache(model, deployment, context) if context is not None else 0.0
    if deployment.draft is not None and context is not None:
        sequence += _cache(costed(deployment.draft), deployment, context)
    free = max(0.0, gpus * memory * utilisation - held)
    return MemoryFit(held / gpus, memory, free / sequence if sequence else None)


def distinct_experts(experts: float, active: float, tokens: float) -> float:
    """Experts that ``tokens`` tokens reach under even routing: E (1 - (1 - k/E)^n); a step holds a token at least."""
    return experts * (1 - math.pow(1 - active / experts, max(1.0, tokens)))


def costed(model: Model) -> Costed:
    """The model in the terms of costs. TypeError for one that answers only what reports ask."""
    # Asked of a step's every cost: one attribute stands for the whole protocol, which is slow to check.
    if not hasattr(model, "parts"):
        raise TypeError(f"{model.name} cannot say what a step of it reads and computes: it has no `parts` and `mixers`")
    return cast(Costed, model)


def _model(deployment: Deployment) -> Costed:
    if deployment.model is None:
        raise ValueError("a step's cost needs a model, and the deployment names none")
    return costed(deployment.model)


def _traffic(model: Costed, weights: str, deployment: Deployment, step: Step) -> StepCost:
    parts = model.parts(weights) if step.tokens else ()
    read = [_read(part, deployment, step) for part in parts]
    return StepCost(
        flops=_flops(model, step),
        model_flops=2 * model.matmul_parameters * step.tokens,
        weight_bytes=sum(expected for expected, _ in read),
        weight_bytes_low=sum(least for _, least in read),
        kv_bytes=_kv_bytes(model, deployment, step),
        gpus=deployment.gpus_per_replica,
    )


def _with_draft(target: StepCost, draft: Costed, deployment: Deployment, step: Step) -> StepCost:
    """Each draft token is one more pass: of the draft's weights and cache, over one token of every sequence."""
    each = _traffic(draft, own_precision(draft), deployment, Step(sequences=step.sequences, context=step.context))
    return StepCost(
        flops=target.flops + step.draft_tokens * each.flops,
        model_flops=target.model_flops,
        weight_bytes=target.weight_bytes + step.draft_tokens * each.weight_bytes,
        weight_bytes_low=target.weight_bytes_low + step.draft_tokens * each.weight_bytes_low,
        kv_bytes=target.kv_bytes + step.draft_tokens * each.kv_bytes,
        gpus=target.gpus,
    )


def _read(part: WeightPart, deployment: Deployment, step: Step) -> tuple[float, float]:
    """Bytes that a step reads of a part over the replica's GPUs: expected, and the least under skewed routing."""
    if part.access == "lookup":
        rows = part.bytes / part.rows * step.tokens
        return rows, rows
    whole = part.bytes * part.copies(deployment.tensor_parallel)
    if part.access == "head":
        share = whole * _head_share(step)
        return share, share
    if part.access == "always":
        return whole, whole
    ranks = deployment.replicas if deployment.expert_parallel else 1
    reached = distinct_experts(part.experts, part.active, step.tokens * ranks)
    return whole * reached / part.experts / ranks, whole * part.active / part.experts / ranks


def _head_share(step: Step) -> float:
    """How much of the head a step reads: all where it makes logits; chunks that end no prompt make none."""
    if step.sequences > 0:
        return 1.0
    return min(1.0, sum(chunk.sequences * chunk.logits for chunk in step.prefills))


def _flops(model: Costed, step: Step) -> float:
    decoded = step.sequences * (1 + step.draft_tokens)
    scores = step.sequences * sum(mixer.decode_flops(step.context, 1 + step.draft_tokens) for mixer in model.mixers)
    chunks = sum(_chunk_flops(model, chunk) for chunk in step.prefills)
    return 2 * (model.body_parameters + model.head_parameters) * decoded + scores + chunks


def _chunk_flops(model: Costed, chunk: Prefill) -> float:
    scores = sum(mixer.prompt_flops(chunk.cached, chunk.tokens) for mixer in model.mixers)
    matrices = 2 * model.body_parameters * chunk.tokens + 2 * model.head_parameters * chunk.logits
    return chunk.sequences * (matrices + scores)


def _kv_bytes(model: Costed, deployment: Deployment, step: Step) -> float:
    """Reads of what stands in the cache and writes of every new token; a chunk's own tokens are not read back."""
    element, total = ELEMENT_BYTES[deployment.kv_cache], 0.0
    for mixer in model.mixers:
        moved = step.sequences * (
            mixer.read_bytes(step.context, element) + mixer.written_bytes(1 + step.draft_tokens, element)
        )
        for chunk in step.prefills:
            moved += chunk.sequences * (
                mixer.read_bytes(chunk.cached, element) + mixer.written_bytes(chunk.tokens, element)
            )
        total += moved * max(1.0, deployment.tensor_parallel / mixer.ways)
    return total


def _floor(deployment: Deployment, cost: StepCost, gpus: int) -> Floor | None:
    peak, bandwidth = deployment.peak_flops_per_second, deployment.bandwidth_bytes_per_second
    if peak is None or bandwidth is None:
        return None
    weights, kv = cost.weight_bytes / (bandwidth * gpus), cost.kv_bytes / (bandwidth * gpus)
    return Floor(cost.flops / (peak * gpus), weights + kv, weights, kv)


def _held(model: Costed, weights: str, deployment: Deployment) -> float:
    """Weights that the replica's GPUs hold together. With pipeline stages a tied table stands at both ends."""
    parts: Sequence[WeightPart] = model.parts(weights)
    tied = deployment.pipeline_parallel > 1 and not any(part.access == "lookup" for part in parts)
    total = 0.0
    for part in parts:
        size = part.bytes * part.copies(deployment.tensor_parallel)
        if part.access == "expert" and deployment.expert_parallel:
            size /= deployment.replicas
        total += 2 * size if tied and part.access == "head" else size
    return total


def _cache(model: Costed, deployment: Deployment, context: float) -> float:
    """Cache of a sequence over the replica's GPUs."""
    element = ELEMENT_BYTES[deployment.kv_cache]
    return sum(
        mixer.held_bytes(context, element) * max(1.0, deployment.tensor_parallel / mixer.ways) for mixer in model.mixers
    )
