"""What was said of a deployment, against what its own server or load generator says of it."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmroof.analysis.contradiction import Contradiction
from pytest_llmroof.analysis.devices import devices
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.devicenames import kinship
from pytest_llmroof.roofline.models.names import precision_hint
from pytest_llmroof.roofline.models.precisions import bits_of, cache_name, quantisation_name, quantised
from pytest_llmroof.telemetry.told import Told, told

_ONE_SERVER = "that the telemetry is of this server"


def ranks(facts: WindowFacts) -> Iterator[Contradiction]:
    """More ranks that have series of their own than the deployment has."""
    deployment = facts.deployment
    for one in told(facts.window):
        for kind, seen, has in (
            ("tensor", one.tensor_ranks, deployment.tensor_parallel),
            ("pipeline", one.pipeline_ranks, deployment.pipeline_parallel),
        ):
            key = f"{kind}_parallel"
            if seen is not None and seen > has:
                yield Contradiction(
                    f"{one.by} has series of {seen} {kind} ranks, the deployment has {_of(facts, key)}",
                    f"`{key}:` ({seen} would fit), and {_ONE_SERVER}",
                    per_gpu=True,
                )

def degrees(facts: WindowFacts) -> Iterator[Contradiction]:
    """Another split over GPUs than the server says it has."""
    deployment = facts.deployment
    for one in told(facts.window):
        replicas = None if one.each or facts.window.engines else one.data_parallel
        for key, says, has in (
            ("tensor_parallel", one.tensor_parallel, deployment.tensor_parallel),
            ("pipeline_parallel", one.pipeline_parallel, deployment.pipeline_parallel),
            ("data_parallel", replicas, deployment.replicas),
        ):
            if says is not None and says != has:
                yield Contradiction(
                    f"{one.by} says {key} {says}, the deployment has {_of(facts, key)}",
                    f"`{key}:` (left out, it is what the telemetry says), and {_ONE_SERVER}",
                    per_gpu=True,
                )
        gpus = deployment.gpus_per_replica if one.each else deployment.gpus
        if one.gpus is not None and one.gpus > gpus:
            yield Contradiction(
                f"{one.by} says {one.gpus} GPUs, the deployment has {gpus}: {_of(facts, 'tensor_parallel')}, "
                f"pipeline_parallel {deployment.pipeline_parallel}",
                f"`tensor_parallel:` and `pipeline_parallel:`, and {_ONE_SERVER}",
                per_gpu=True,
            )


def experts(facts: WindowFacts) -> Iterator[Contradiction]:
    """Experts that are spread over the GPUs where the deployment splits each of them, or the other way round."""
    deployment = facts.deployment
    for one in told(facts.window):
        spread = spread_experts(one, deployment)
        if spread is not None and spread != deployment.expert_parallel:
            says = one.expert_parallel or one.expert_ranks
            yield Contradiction(
                f"{one.by} tells of {says} expert rank{'' if says == 1 else 's'}, the deployment has "
                f"{_of(facts, 'expert_parallel')}",
                f"`expert_parallel:` ({str(spread).lower()} would fit), and {_ONE_SERVER}",
            )


def precisions(facts: WindowFacts) -> Iterator[Contradiction]:
    """Weights or a cache of another width than the server says that it runs."""
    deployment = facts.deployment
    if deployment.model is None:
        return
    for one in told(facts.window):
        if (weights := _other_weights(one, deployment)) is not None:
            yield Contradiction(
                f"{one.by} says {weights}, the deployment has {_of(facts, 'weights')}",
                "`weights:` (left out, they are what the telemetry says, where its word tells; `weight_bytes:` in a "
                f"model mapping settles any quantisation), and {_ONE_SERVER}",
            )
        cache = cache_name(one.cache_dtype) if one.cache_dtype else None
        if cache is not None and bits_of(cache) != bits_of(deployment.kv_cache):
            yield Contradiction(
                f"{one.by} says that its cache is {one.cache_dtype}, the deployment has {_of(facts, 'kv_cache')}",
                f"`kv_cache:` (left out, it is what the telemetry says), and {_ONE_SERVER}",
            )


def all_gpus_told(facts: WindowFacts) -> bool:
    """Whether a source tells of as many GPUs in all as the deployment has."""
    return any(one.gpus == facts.deployment.gpus for one in told(facts.window) if not one.each)


def fact_notes(facts: WindowFacts) -> Iterator[str]:
    """What only hints at something else than was given, and so is said with every verdict."""
    deployment, model, gpu = facts.deployment, facts.deployment.model, facts.deployment.accelerator
    given = {key for key, how in deployment.provenance.items() if how == "given"}
    if model is not None and "weights" in given and bits_of(deployment.weights) >= 16:
        for served in facts.window.model_names:
            if (hint := precision_hint(served)) is not None:
                yield f"the served name says {hint}, weights {deployment.weights} are given: {served}"
    auto = {one.by for one in told(facts.window) if one.cache_dtype == "auto"}
    if auto and model is not None and "kv_cache" in given and bits_of(deployment.kv_cache) < 16:
        yield (
            f"{', '.join(sorted(auto))} says that the cache has the precision of its checkpoint (auto), kv_cache "
            f"{deployment.kv_cache} is given"
        )
    if gpu is None or gpu.confidence == "given" or deployment.provenance.get("gpu") == "telemetry":
        return
    for device in devices(facts):
        if kinship(device, gpu) == "untold":
            yield f"the telemetry's device is {device}, which the catalogue does not know: it is taken to be {gpu.name}"


def spread_experts(one: Told, deployment: Deployment, *, ranks: bool = True) -> bool | None:
    """Whether a source says that experts are spread over all GPUs (``ranks``: by their ranks, too); None: it does not.

    Some are spread over a part of the GPUs, each split over the others: that is neither.
    """
    if deployment.model is None or not deployment.model.experts:
        return None
    seen = one.expert_ranks if ranks and (one.expert_ranks or 1) > 1 else None
    degree = one.expert_parallel or seen
    if degree is None or deployment.gpus == 1:
        return None
    if degree == deployment.tensor_parallel * deployment.replicas:
        return True
    return False if degree == 1 else None


def _other_weights(one: Told, deployment: Deployment) -> str | None:
    """What a source says of the weights, where it is not what the deployment has."""
    if one.weights is None or not quantised(one.weights):
        return None
    assert deployment.model is not None
    if deployment.model.weight_bytes("bf16") == deployment.model.weight_bytes("fp8"):
        return None  # their size was given
    name = quantisation_name(one.weights)
    bits = bits_of(deployment.weights)
    return f"quantisation {one.weights}" if (bits != bits_of(name) if name is not None else bits >= 16) else None


def _of(facts: WindowFacts, key: str) -> str:
    """A fact of the deployment as sentences have it: ``tensor_parallel 1 (assumed)``."""
    deployment = facts.deployment
    value = deployment.replicas if key == "data_parallel" else getattr(deployment, key)
    shown = str(value).lower() if isinstance(value, bool) else value
    return f"{key} {shown} ({deployment.provenance.get(key, 'given')})"
