"""How ranks and stages share a model: who holds most of it, and what engines refuse to share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_llmroof.data import load
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models.costed import Costed
from pytest_llmroof.roofline.models.mixers import GroupedQueryAttention
from pytest_llmroof.roofline.step import Busiest, StepCost

#: GPUs whose work differs by less than this (rounding) are alike.
_ALIKE = 1e-9


def largest_share(ways: float, ranks: int) -> float:
    """The share of the whole that the rank holds that holds most: heads and experts are dealt out whole."""
    return 1 / ranks if math.isinf(ways) else math.ceil(ways / ranks) / ways


def skew(ways: float, ranks: int) -> float:
    """How many times the mean of all ranks that rank holds; 1 where the split is even, copies among them."""
    return largest_share(ways, ranks) * ranks / max(1.0, ranks / ways)


def expert_ranks(deployment: Deployment) -> int:
    """Over how many GPUs whole experts are spread; 1 without expert parallelism."""
    return deployment.tensor_parallel * deployment.replicas if deployment.expert_parallel else 1


def joined(stages: Sequence[StepCost]) -> StepCost:
    """The cost of a step over all stages; the step is as slow as the busiest GPU, where they are not alike."""
    whole = stages[0]
    for stage in stages[1:]:
        whole = StepCost(
            flops=whole.flops + stage.flops,
            model_flops=whole.model_flops + stage.model_flops,
            weight_bytes=whole.weight_bytes + stage.weight_bytes,
            weight_bytes_low=whole.weight_bytes_low + stage.weight_bytes_low,
            kv_bytes=whole.kv_bytes + stage.kv_bytes,
            gpus=whole.gpus + stage.gpus,
        )
    busiest = _busiest([stage.busiest for stage in stages if stage.busiest is not None])
    return replace(whole, busiest=None if busiest is None or _alike(whole, busiest) else busiest)


def _busiest(loads: Sequence[Busiest]) -> Busiest | None:
    if not loads:
        return None
    mover = max(loads, key=lambda load: load.bytes)
    return replace(mover, flops=max(load.flops for load in loads))


def _alike(cost: StepCost, busiest: Busiest) -> bool:
    most = 1 + _ALIKE
    return busiest.flops * cost.gpus <= cost.flops * most and busiest.bytes * cost.gpus <= cost.bytes * most


def refusal(deployment: Deployment, engine: str) -> str | None:
    """Why an engine cannot have split the model so, as far as that is known: ``its 32 attention heads are ...``.

    An engine that is not known to refuse is taken to deal out whole heads: the rank with most of them counts.
    """
    model = deployment.model
    if engine not in load("parallelism.yaml")["even_heads"] or not isinstance(model, Costed):
        return None
    return uneven(model, deployment.tensor_parallel)


def uneven(model: Costed, ranks: int) -> str | None:
    """Which heads so many tensor-parallel ranks cannot share evenly, in words; None where they can."""
    return next(_uneven(model, ranks), None)


def _uneven(model: Costed, ranks: int) -> Iterator[str]:
    heads = model.attention_heads
    if heads is not None and heads % ranks:
        yield f"its {heads} attention heads are no multiple of {ranks}"
    for mixer in model.mixers:
        if isinstance(mixer, GroupedQueryAttention) and max(mixer.kv_heads, ranks) % min(mixer.kv_heads, ranks):
            yield f"its {mixer.kv_heads} key-value heads can be neither split nor copied evenly"
