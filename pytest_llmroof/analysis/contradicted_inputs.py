"""What was said of a deployment, against what its telemetry shows of it, and against itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pytest_llmroof.analysis.contradiction import Contradiction, said
from pytest_llmroof.analysis.devices import devices
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.fitting import parallelism_that_fits, precision_that_fits, product_that_fits
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.roofline.catalogue import accelerator_for_device
from pytest_llmroof.roofline.cost import memory_fit
from pytest_llmroof.roofline.deployment import Deployment, element_bytes
from pytest_llmroof.roofline.devicenames import kinship
from pytest_llmroof.roofline.model import Model
from pytest_llmroof.roofline.models import Architecture
from pytest_llmroof.roofline.models import served_model as named_model
from pytest_llmroof.roofline.models.names import precision_hint
from pytest_llmroof.roofline.split import refusal
from pytest_llmroof.units import format_quantity

#: Weights of these many bytes an element or more are not quantised.
_SIXTEEN_BIT: Final = 2.0


def served_precision(facts: WindowFacts) -> Iterator[Contradiction]:
    """A served name that names a quantisation, against 16-bit weights that nobody gave."""
    deployment = facts.deployment
    provenance = deployment.provenance.get("weights", "assumed")
    if element_bytes(deployment.weights) < _SIXTEEN_BIT or provenance == "given" or deployment.model is None:
        return
    for served in facts.window.model_names:
        if (hint := precision_hint(served)) is not None:
            yield Contradiction(
                f"the served name says {hint}, weights {deployment.weights} ({provenance}): {served}",
                "the weights' precision first: give `weights:` (or `weight_bytes:` in a model mapping), "
                "or the served checkpoint's own config.json",
            )


def served_model(facts: WindowFacts) -> Iterator[Contradiction]:
    """A served name that is exactly one model of the catalogue, and another was given."""
    deployment = facts.deployment
    if deployment.model is None or deployment.provenance.get("model") == "telemetry":
        return
    for name in facts.window.model_names:
        served = named_model(name)
        if served is None or not (differing := _differences(deployment.model, served)):
            continue
        shown, given = (", ".join(figures) for figures in zip(*differing, strict=True))
        yield Contradiction(
            f"the served model is {name} ({shown}), the model given {deployment.model.name} ({given})",
            f"`model:` ({served.name} is what the telemetry shows), and that the telemetry is of this server",
        )


def _differences(given: Model, served: Architecture) -> list[tuple[str, str]]:
    """Where two models differ, each pair the served one's figure and the given one's; parameters first.

    Models of the catalogue are compared exactly: those that count alike (base and instruct) are one. A config.json may
    have a longer vocabulary than the model it is named after, and figures given by hand are rounded.
    """
    read = isinstance(given, Architecture)
    alike = threshold("same_config" if read else "same_model")
    if isinstance(given, Architecture) and given.catalogue:
        alike = 0.0
    both = (served, given)
    sizes = [f"{each.parameters / 1e9:.4g}e9 parameters" for each in both]
    caches = [f"{format_quantity(each.kv_bytes_per_token('bf16'), 'bytes')} of cache a token" for each in both]
    others = [(f"{served.layers} layers", f"{given.layers} layers"), (caches[0], caches[1])]
    found = [pair for pair in others if read and pair[0] != pair[1]]
    if found or abs(given.parameters / served.parameters - 1) > alike:
        return [(sizes[0], sizes[1]), *found]
    return []


def memory(facts: WindowFacts) -> Iterator[Contradiction]:
    """Weights that do not fit into the memory that the deployment has."""
    deployment = facts.deployment
    fit, gpu = memory_fit(deployment), deployment.accelerator
    if fit is None or fit.weights_fit or gpu is None:
        return
    whole = format_quantity(fit.replica_bytes, "bytes")
    each = "" if deployment.gpus_per_replica == 1 else f" ({format_quantity(fit.weight_bytes, 'bytes')} on each GPU)"
    product = product_that_fits(gpu, memory_bytes=fit.weight_bytes)
    ways = (parallelism_that_fits(deployment), precision_that_fits(deployment), product and f"gpu: {product}")
    would = [way for way in ways if way]
    yield Contradiction(
        f"weights {whole} do not fit{each}: {_size(deployment)} with {format_quantity(fit.memory_bytes, 'bytes')} each",
        f"{said(deployment, 'tensor_parallel', 'weights', 'model', 'gpu')}"
        + (f"; what would fit: {', or '.join(would)}" if would else ""),
        implied=fit.weight_bytes / fit.memory_bytes,
    )


def split(facts: WindowFacts) -> Iterator[Contradiction]:
    """A split that the engine of the telemetry does not make."""
    deployment, window = facts.deployment, facts.window
    problem = refusal(deployment, window.kind)
    if problem is not None and deployment.model is not None:
        yield Contradiction(
            f"{window.engine_title} does not start with tensor_parallel {deployment.tensor_parallel} for "
            f"{deployment.model.name}: {problem}",
            said(deployment, "tensor_parallel", "model"),
            per_gpu=True,
        )


def replicas(facts: WindowFacts) -> Iterator[Contradiction]:
    """Another number of replicas than was given."""
    deployment, seen = facts.deployment, facts.window.replicas_at_once
    if deployment.provenance.get("data_parallel") != "given" or deployment.data_parallel in (None, seen) or not seen:
        return
    names = ", ".join(engine.identity for engine in facts.window.engines[:8])
    yield Contradiction(
        f"data_parallel is {deployment.data_parallel}, but replicas in the telemetry are {seen} ({names})",
        "`data_parallel:` (left out, it is the replicas seen), and that the telemetry covers every replica",
        per_gpu=True,
        counts=("output.", "input.", "requests_per_second", "running.", "waiting.", "kv_cache.", "preemptions"),
    )


def device(facts: WindowFacts) -> Iterator[Contradiction]:
    """A device that names itself differently from the accelerator given."""
    gpu = facts.deployment.accelerator
    if gpu is None or facts.deployment.provenance.get("gpu", "given") == "telemetry" or gpu.confidence == "given":
        return
    for device in devices(facts):
        if kinship(device, gpu) != "other":
            continue
        seen = accelerator_for_device(device)
        called, fits = (f"{device} ({seen.name})", f"{seen.name} is what the telemetry shows") if seen else (
            device, "the catalogue has none of that name: describe it as a mapping, with its own peaks and bandwidth"
        )  # fmt: skip
        yield Contradiction(
            f"the telemetry's device is {called}, the gpu given {gpu.name}",
            f"`gpu:` ({fits}), and that the telemetry is of this machine",
            per_gpu=True,
            counts=("hfu", "hardware."),
        )


def _size(deployment: Deployment) -> str:
    gpu = deployment.accelerator
    return f"{deployment.gpus_per_replica} x {gpu.name if gpu is not None else 'GPU'}"
