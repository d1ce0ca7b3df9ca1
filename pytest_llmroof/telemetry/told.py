"""What the sources of a window say of the deployment themselves: an engine's page, a load generator's file.

Facts are texts under canonical names (``Engine.facts``, ``Client.facts``), as data/engines.yaml and
data/benchmarks.yaml map them:

tensor_parallel, pipeline_parallel, data_parallel, expert_parallel   degrees
attention_data_parallel   whether attention is data-parallel inside of the tensor ranks, which data_parallel divides
gpus                      GPUs of what tells it
tensor_ranks, pipeline_ranks, expert_ranks   ranks that have series, which are no more than there are
weights                   the word for how the weights are quantised
cache_dtype               the word for the precision of the cache
device                    what a driver calls the accelerator
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.telemetry.facttext import DEVICE
from pytest_llmroof.telemetry.runs import same_load
from pytest_llmroof.telemetry.window import Window
from pytest_llmroof.units import whole_of

_MOST: Final = 1 << 12


@dataclass(frozen=True)
class Told:
    """What one source says. ``by`` names it in sentences; ``each`` says that it tells of one replica, else of all."""

    by: str
    each: bool
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    expert_parallel: int | None = None
    gpus: int | None = None
    tensor_ranks: int | None = None
    pipeline_ranks: int | None = None
    expert_ranks: int | None = None
    weights: str | None = None
    cache_dtype: str | None = None
    device: str | None = None


def told(window: Window) -> tuple[Told, ...]:
    """What every source of a window says, each once; nothing of a benchmark that is of another load."""
    found = [_told(window.engine_title, engine.facts, each=True) for engine in window.engines]
    client = window.client
    if client is not None and (not window.engines or same_load(window, client) is not False):
        found.append(_told(f"{client.title} ({client.location})", client.facts, each=False))
    return tuple(dict.fromkeys(found))


def devices_told(window: Window) -> tuple[str, ...]:
    """The devices that engines and load generators name."""
    return tuple(dict.fromkeys(one.device for one in told(window) if one.device))


def _told(by: str, facts: Mapping[str, str], *, each: bool) -> Told:
    tensor, replicas = _degree(facts, "tensor_parallel"), _degree(facts, "data_parallel")
    if tensor is not None and replicas is not None and facts.get("attention_data_parallel", "").casefold() == "true":
        tensor = tensor // replicas if tensor % replicas == 0 else None
    return Told(
        by=by,
        each=each,
        tensor_parallel=tensor,
        pipeline_parallel=_degree(facts, "pipeline_parallel"),
        data_parallel=replicas,
        expert_parallel=_degree(facts, "expert_parallel"),
        gpus=_degree(facts, "gpus"),
        tensor_ranks=_degree(facts, "tensor_ranks"),
        pipeline_ranks=_degree(facts, "pipeline_ranks"),
        expert_ranks=_degree(facts, "expert_ranks"),
        weights=facts.get("weights"),
        cache_dtype=facts.get("cache_dtype"),
        device=facts.get(DEVICE),
    )


def _degree(facts: Mapping[str, str], name: str) -> int | None:
    """A whole number of one or more; one that no cluster has is none."""
    degree = whole_of(facts.get(name, ""))
    return degree if degree is not None and 1 <= degree <= _MOST else None
