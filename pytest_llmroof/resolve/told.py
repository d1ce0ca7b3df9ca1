"""What a window's sources say of the deployment themselves, taken over where nobody gave it and all of them agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pytest_llmroof.analysis.contradicted_facts import spread_experts
from pytest_llmroof.roofline.deployment import Deployment, Provenance
from pytest_llmroof.roofline.models.precisions import precision_name, quantisation_name, quantised
from pytest_llmroof.telemetry.told import Told, told
from pytest_llmroof.telemetry.window import Window

_Fact = TypeVar("_Fact")


def facts_told(deployment: Deployment, window: Window) -> dict[str, Any]:
    """Fields of a deployment that nobody gave, as the telemetry says them."""
    sources = told(window)
    ways: Mapping[str, Callable[[Told], object]] = {
        "tensor_parallel": lambda one: one.tensor_parallel,
        "pipeline_parallel": lambda one: one.pipeline_parallel,
        "weights": lambda one: quantisation_name(one.weights) if one.weights else None,
    }
    found = {key: _agreed(map(way, sources)) for key, way in ways.items() if _assumed(deployment.provenance, key)}
    if window.engines:
        seen: int | None = window.replicas_at_once
    else:
        seen = _agreed(one.data_parallel for one in sources)
    if deployment.data_parallel is None:
        found["data_parallel"] = seen
    return {key: value for key, value in found.items() if value is not None}


def experts_told(deployment: Deployment, window: Window) -> dict[str, Any]:
    """Whether experts are spread over the GPUs, of a deployment whose other facts are known."""
    if not _assumed(deployment.provenance, "expert_parallel"):
        return {}
    spread = _agreed(spread_experts(one, deployment, ranks=False) for one in told(window))
    return {} if spread is None else {"expert_parallel": spread}


def cache_in_use(window: Window) -> str | None:
    """What all sources say of their cache: a precision's word, ``auto``, or None where it is neither.

    A quantised checkpoint may have a precision of its own for the cache, so that ``auto`` does not tell it.
    """
    sources = told(window)
    words = {one.cache_dtype for one in sources if one.each or one.cache_dtype is not None}
    word = words.pop() if len(words) == 1 else None
    if word == "auto":
        return None if any(one.weights is not None and quantised(one.weights) for one in sources) else word
    return word if word is not None and precision_name(word) is not None else None


def _assumed(provenance: Mapping[str, Provenance], key: str) -> bool:
    return provenance.get(key, "assumed") == "assumed"


def _agreed(values: Iterable[_Fact | None]) -> _Fact | None:
    """What those say that say anything; None where nobody does, or they differ."""
    said = {value for value in values if value is not None}
    return said.pop() if len(said) == 1 else None
