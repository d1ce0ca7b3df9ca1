"""What a step costs: FLOPs, bytes and the floor that the roofline sets, for any model and parallelism.

All of it is of one replica (tensor times pipeline parallel GPUs), summed over its GPUs: what each tensor-parallel rank
holds for itself (norms, routers, key-value heads beyond their number) counts once per rank. Where GPUs are not alike
(pipeline stages, heads or experts that ranks cannot share evenly) the busiest one sets the floor, and the one that
holds most the memory.
"""

from __future__ import annotations

import math
from typing import cast

from pytest_llmroof.roofline.deployment import ELEMENT_BYTES, Deployment
from pytest_llmroof.roofline.model import Model
from pytest_llmroof.roofline.models.costed import Costed, WeightPart
from pytest_llmroof.roofline.models.precisions import own_precision
from pytest_llmroof.roofline.split import expert_ranks, joined, largest_share, skew
from pytest_llmroof.roofline.step import Busiest, Floor, MemoryFit, Step, StepCost

#: What engines leave for weights and cache of the memory (vLLM's ``gpu_memory_utilization`` by default).
MEMORY_UTILISATION = 0.9


def step_cost(deployment: Deployment, step: Step) -> StepCost:
    """What one forward pass of one replica needs. The deployment must name its model.

    Weights are read once, whatever the step holds. Under expert parallelism the experts of the replica's GPUs serve
    the tokens of all data-parallel ranks, which are taken to hold as many as this one.
    """
    stages = [
        _traffic(stage, deployment.weights, deployment, step)
        for stage in _model(deployment).stages(deployment.pipeline_parallel)
    ]
    if deployment.draft is not None and step.draft_tokens and step.sequences > 0:
        # A draft follows the logits: it runs beside the last stage.
        stages[-1] = _with_draft(stages[-1], costed(deployment.draft), deployment, step)
    return joined(stages)


def floor(deployment: Deployment, cost: StepCost) -> Floor | None:
    """The least time of a step on its replica's GPUs, from datasheet peaks; None where a peak is not known."""
    peak, bandwidth = deployment.peak_flops_per_second, deployment.bandwidth_bytes_per_second
    if cost.busiest is None or peak is None or bandwidth is None:
        return _floor(deployment, cost, cost.gpus)
    weights, kv = cost.busiest.weight_bytes / bandwidth, cost.busiest.kv_bytes / bandwidth
    return Floor(cost.busiest.flops / peak, weights + kv, weights, kv)


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

    None without a model or an accelerator whose memory is known. The fullest GPU decides both. ``utilisation`` is the
    share of the memory that the engine uses.
    """
    memory = deployment.accelerator.memory_bytes if deployment.accelerator else None
    if deployment.model is None or memory is None:
        return None
    stages = costed(deployment.model).stages(deployment.pipeline_parallel)
    loads = [_memory(stage, deployment.weights, deployment, context) for stage in stages]
    if deployment.draft is not None:
        beside = _memory(costed(deployment.draft), own_precision(deployment.draft), deployment, context)
        loads[-1] = cast(_Memory, tuple(map(sum, zip(loads[-1], beside, strict=True))))
    fits = [max(0.0, memory * utilisation - held) / cache for held, cache, _ in loads if cache]
    most, whole = max(held for held, _, _ in loads), sum(size for _, _, size in loads)
    return MemoryFit(most, memory, min(fits, default=None), whole)


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
    """What the GPUs of a stage do in a step: their sum, and the one that does most."""
    parts = model.parts(weights) if step.tokens else ()
    read = [_read(part, deployment, step) for part in parts]
    kv_bytes, most_kv = _kv_bytes(model, deployment, step)
    flops = _flops(model, step)
    return StepCost(
        flops=flops,
        model_flops=2 * model.matmul_parameters * step.tokens,
        weight_bytes=sum(expected for expected, _, _ in read),
        weight_bytes_low=sum(least for _, least, _ in read),
        kv_bytes=kv_bytes,
        gpus=deployment.tensor_parallel,
        busiest=Busiest(
            (flops + _surplus(model, deployment, step)) / deployment.tensor_parallel,
            sum(most for _, _, most in read),
            most_kv,
        ),
    )


def _with_draft(target: StepCost, draft: Costed, deployment: Deployment, step: Step) -> StepCost:
    """Each draft token is one more pass: of the draft's weights and cache, over one token of every sequence."""
    each = _traffic(draft, own_precision(draft), deployment, Step(sequences=step.sequences, context=step.context))
    busiest = None
    if target.busiest is not None and each.busiest is not None:
        busiest = Busiest(
            target.busiest.flops + step.draft_tokens * each.busiest.flops,
            target.busiest.weight_bytes + step.draft_tokens * each.busiest.weight_bytes,
            target.busiest.kv_bytes + step.draft_tokens * each.busiest.kv_bytes,
        )
    return StepCost(
        flops=target.flops + step.draft_tokens * each.flops,
        model_flops=target.model_flops,
        weight_bytes=target.weight_bytes + step.draft_tokens * each.weight_bytes,
        weight_bytes_low=target.weight_bytes_low + step.draft_tokens * each.weight_bytes_low,
        kv_bytes=target.kv_bytes + step.draft_tokens * each.kv_bytes,
        gpus=target.gpus,
        busiest=busiest,
    )


def _read(part: WeightPart, deployment: Deployment, step: Step) -> tuple[float, float, float]:
    """Bytes that a step reads of a part: by the stage's GPUs as expected, by them at least under skewed routing, and by
    the rank that holds most of it.
    """
    if part.access == "lookup":
        rows = part.bytes / part.rows * step.tokens
        return rows, rows, rows / deployment.tensor_parallel
    whole = part.bytes * part.copies(deployment.tensor_parallel)
    if part.access != "expert":
        share = _head_share(step) if part.access == "head" else 1.0
        return whole * share, whole * share, part.bytes * share * _rank_share(part, deployment)
    ranks = deployment.replicas if deployment.expert_parallel else 1
    reached = distinct_experts(part.experts, part.active, step.tokens * ranks) / part.experts
    least = whole * part.active / part.experts / ranks
    return whole * reached / ranks, least, part.bytes * reached * _rank_share(part, deployment)


def _rank_share(part: WeightPart, deployment: Deployment) -> float:
    """The share of a part on the rank that holds most of it."""
    ranks = expert_ranks(deployment) if part.access == "expert" else 1
    if ranks > 1:
        # A number of experts that nobody told is one: then they are taken to be spread evenly.
        return largest_share(part.experts if part.experts > 1 else math.inf, ranks)
    return largest_share(part.ways, deployment.tensor_parallel)


def _head_share(step: Step) -> float:
    """How much of the head a step reads: all where it makes logits; chunks that end no prompt make none."""
    if step.sequences > 0:
        return 1.0
    return min(1.0, sum(chunk.sequences * chunk.logits for chunk in step.prefills))


def _flops(model: Costed, step: Step) -> float:
    decoded = step.sequences * (1 + step.draft_tokens)
    chunks = sum(chunk.sequences * chunk.tokens for chunk in step.prefills)
    logits = sum(chunk.sequences * chunk.logits for chunk in step.prefills)
    matrices = model.body_parameters * (decoded + chunks) + model.head_parameters * (decoded + logits)
    return 2 * matrices + _scores(model, step)


def _surplus(model: Costed, deployment: Deployment, step: Step) -> float:
    """FLOPs of the rank with most heads and experts beyond an even share, times the number of ranks."""
    ranks, spread = deployment.tensor_parallel, expert_ranks(deployment)
    if ranks == spread == 1:
        return 0.0
    surplus = 0.0
    for product in model.products:
        over = skew(product.experts, spread) if product.experts > 1 and spread > 1 else skew(product.ways, ranks)
        surplus += 2 * product.parameters * step.tokens * (over - 1)
    heads = skew(model.attention_heads or math.inf, ranks)
    return surplus + (_scores(model, step) * (heads - 1) if heads > 1 else 0.0)


def _scores(model: Costed, step: Step) -> float:
    """FLOPs of attention scores and weighted sums, and of recurrent states."""
    new = 1 + step.draft_tokens
    return sum(
        step.sequences * mixer.decode_flops(step.context, new)
        + sum(chunk.sequences * mixer.prompt_flops(chunk.cached, chunk.tokens) for chunk in step.prefills)
        for mixer in model.mixers
    )


def _kv_bytes(model: Costed, deployment: Deployment, step: Step) -> tuple[float, float]:
    """Reads of what stands in the cache and writes of every new token; a chunk's own tokens are not read back.

    Of all ranks, and of the one that holds most.
    """
    element, total, most = ELEMENT_BYTES[deployment.kv_cache], 0.0, 0.0
    for mixer in model.mixers:
        moved = step.sequences * (
            mixer.read_bytes(step.context, element) + mixer.written_bytes(1 + step.draft_tokens, element)
        )
        for chunk in step.prefills:
            moved += chunk.sequences * (
                mixer.read_bytes(chunk.cached, element) + mixer.written_bytes(chunk.tokens, element)
            )
        total += moved * max(1.0, deployment.tensor_parallel / mixer.ways)
        most += moved * largest_share(mixer.ways, deployment.tensor_parallel)
    return total, most


def _floor(deployment: Deployment, cost: StepCost, gpus: int) -> Floor | None:
    peak, bandwidth = deployment.peak_flops_per_second, deployment.bandwidth_bytes_per_second
    if peak is None or bandwidth is None:
        return None
    weights, kv = cost.weight_bytes / (bandwidth * gpus), cost.kv_bytes / (bandwidth * gpus)
    return Floor(cost.flops / (peak * gpus), weights + kv, weights, kv)


#: Of the GPU of a stage that holds most: weights, and cache of a sequence; weights of the whole stage. Bytes.
_Memory = tuple[float, float, float]


def _memory(model: Costed, weights: str, deployment: Deployment, context: float | None) -> _Memory:
    """What a stage keeps in memory. Without a context no cache."""
    element, ranks = ELEMENT_BYTES[deployment.kv_cache], deployment.tensor_parallel
    held = whole = 0.0
    for part in model.parts(weights):
        held += part.bytes * _rank_share(part, deployment)
        spread = deployment.replicas if part.access == "expert" and deployment.expert_parallel else 1
        whole += part.bytes * part.copies(ranks) / spread
    if context is None:
        return held, 0.0, whole
    cache = sum(mixer.held_bytes(context, element) * largest_share(mixer.ways, ranks) for mixer in model.mixers)
    return held, cache, whole
