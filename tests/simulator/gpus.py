"""Accelerators by their vendors' datasheets, and what kernels were published to reach of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """SI units; dense bf16. ``link`` is one direction of a GPU's links to its peers, bytes per second.

    ``clock`` (Hz) is the one at which the peaks hold: FLOPs of a multiprocessor and cycle x multiprocessors x clock.
    ``flops_8bit`` is the dense peak of 8-bit floats, None where there are no such units, and ``reach_8bit`` what GEMMs
    reach of it.
    ``reach_memory`` and ``reach_compute`` are the least and greatest fraction of a peak that weight streaming and large
    GEMMs were measured to reach over several frameworks: a healthy engine lies somewhere between.
    """

    name: str
    product: str
    bandwidth: float
    flops: float
    memory: float
    link: float
    reach_memory: tuple[float, float]
    reach_compute: tuple[float, float]
    clock: float
    flops_8bit: float | None = None
    reach_8bit: tuple[float, float] = (0.0, 0.0)
    pcie: bool = False


H100 = Gpu(
    "h100", "NVIDIA H100 80GB HBM3", 3.35e12, 989e12, 80e9, 450e9, (0.843, 0.888), (0.736, 0.806), 1.83e9,
    1979e12, (0.497, 0.613),
)  # fmt: skip
H200 = Gpu(
    "h200", "NVIDIA H200", 4.8e12, 989e12, 141e9, 450e9, (0.840, 0.843), (0.702, 0.790), 1.83e9,
    1979e12, (0.547, 0.622),
)  # fmt: skip
A100 = Gpu(
    "a100-80gb", "NVIDIA A100-SXM4-80GB", 2.039e12, 312e12, 80e9, 300e9, (0.752, 0.819), (0.783, 0.902), 1.41e9
)  # fmt: skip
L40S = Gpu(
    "l40s", "NVIDIA L40S", 864e9, 362e12, 48e9, 32e9, (0.855, 0.897), (0.519, 0.638), 2.49e9,
    733e12, (0.288, 0.502), pcie=True,
)  # fmt: skip

GPUS = (H100, H200, A100, L40S)
