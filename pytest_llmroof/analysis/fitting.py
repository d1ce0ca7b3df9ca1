"""What would fit instead: the parallelism, the precision or the product that resolves a contradiction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerators
from pytest_llmroof.roofline.cost import costed, memory_fit
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.split import uneven
from pytest_llmroof.units import format_quantity


def parallelism_that_fits(deployment: Deployment) -> str | None:
    """The least tensor parallelism with which the weights fit: ``tensor_parallel: 2 (70.6 GB on each)``."""
    for degree in (2, 4, 8, 16, 32):
        if degree <= deployment.tensor_parallel or refused(deployment, degree):
            continue
        fit = memory_fit(replace(deployment, tensor_parallel=degree))
        if fit is not None and fit.weights_fit:
            return f"tensor_parallel: {degree} ({format_quantity(fit.weight_bytes, 'bytes')} on each)"
    return None


def refused(deployment: Deployment, degree: int) -> bool:
    """Whether the model cannot be shared evenly by so many ranks."""
    return deployment.model is not None and uneven(costed(deployment.model), degree) is not None


def precision_that_fits(deployment: Deployment) -> str | None:
    """The widest narrower precision with which the weights fit: ``weights: fp8 (70.6 GB)``."""
    current = memory_fit(deployment)
    for precision in ("bf16", "fp8", "int4"):
        fit = memory_fit(replace(deployment, weights=precision))
        if fit is not None and current is not None and fit.weights_fit and fit.weight_bytes < current.weight_bytes:
            return f"weights: {precision} ({format_quantity(fit.weight_bytes, 'bytes')})"
    return None


def product_that_fits(
    gpu: Accelerator, memory_bytes: float | None = None, bandwidth_factor: float | None = None
) -> str | None:
    """The smallest product of the same vendor with enough memory, or so many times this one's bandwidth."""
    if memory_bytes is not None:
        return _least_of([(one.memory_bytes, name) for name, one in _same_vendor(gpu)], memory_bytes)
    own = gpu.memory_bandwidth_bytes_per_second
    if bandwidth_factor is None or own is None:
        return None
    fast = [(one.memory_bandwidth_bytes_per_second, name) for name, one in _same_vendor(gpu)]
    return _least_of(fast, own * bandwidth_factor)


def _least_of(products: Iterable[tuple[float | None, str]], least: float) -> str | None:
    """The product with the smallest figure that is enough; None where no known one is."""
    enough = [(figure, name) for figure, name in products if figure is not None and figure >= least]
    return min(enough)[1] if enough else None


def _same_vendor(gpu: Accelerator) -> list[tuple[str, Accelerator]]:
    """Products of the catalogue by the same maker; of any where the maker is not known."""
    return [(name, one) for name, one in accelerators().items() if gpu.vendor in (None, one.vendor)]
