"""The roofline: what an accelerator allows at an arithmetic intensity, and what real kernels reach of it.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from __future__ import annotations

from pytest_llmroof.data import load
from pytest_llmroof.errors import UnknownFigureError
from pytest_llmroof.roofline.accelerator import Accelerator


def attainable(accelerator: Accelerator, precision: str, intensity: float) -> float:
    """FLOP/s under the roof at ``intensity`` FLOP/byte: min(F, I W). ValueError where F or W is not known."""
    peak, bandwidth = accelerator.peak(precision), accelerator.memory_bandwidth_bytes_per_second
    if peak is None:
        raise UnknownFigureError(f"the {precision} peak of {accelerator.product} is not known")
    if bandwidth is None:
        raise UnknownFigureError(f"the memory bandwidth of {accelerator.product} is not known")
    return min(peak, intensity * bandwidth)


def achievable(accelerator: Accelerator, kind: str) -> float | None:
    """Measured fraction of a peak that kernels reach; ``kind`` is ``memory`` or a precision. None: not measured."""
    return accelerator.achievable.get(kind)


def typical(kind: str) -> float:
    """What kernels typically reach, for estimates on accelerators without a measured fraction. KeyError: no kind."""
    figures: dict[str, float] = load("ceilings.yaml")["typical"]
    return figures[kind]
