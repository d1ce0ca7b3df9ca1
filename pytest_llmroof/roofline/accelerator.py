"""One accelerator: what its datasheet promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

#: Precisions a peak can be stated for, widest first. Peaks are dense (never sparse).
PRECISIONS: Final = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")

Confidence = Literal["good", "fair", "poor", "given"]


@dataclass(frozen=True)
class Accelerator:
    """An accelerator's roofs. What is not known is None or absent, never guessed.

    ``peaks`` maps a precision to dense FLOP/s (OP/s for int8). ``link_bytes_per_second`` is the total of both
    directions. ``device_names`` are the exact strings that drivers and exporters print for it. ``also`` names boards
    that share its short name but differ in memory or bandwidth, for the scope line.
    """

    name: str
    product: str
    peaks: Mapping[str, float]
    memory_bandwidth_bytes_per_second: float | None
    memory_bytes: float | None
    link_bytes_per_second: float | None = None
    vendor: str | None = None
    architecture: str | None = None
    device_names: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    source: str = ""
    confidence: Confidence = "given"
    conflicts: str = ""
    l2_bytes: float | None = None
    achievable: Mapping[str, float] = field(default_factory=dict)
    """Measured fraction of a peak that real kernels reach: by precision, and ``memory`` for weight streaming."""
    pcie_bytes_per_second: float | None = None
    """The host interface, total of both directions like the link."""
    clock_hertz: float | None = None
    """The clock of the multiprocessors at which the stated peaks hold; boost clocks may be above it."""

    def peak(self, precision: str) -> float | None:
        """Dense peak in FLOP/s at a precision, None where it is not known."""
        return self.peaks.get(precision)

    def ridge(self, precision: str) -> float | None:
        """Critical arithmetic intensity in FLOP/byte: peak over bandwidth (Williams, Waterman, Patterson 2009)."""
        peak = self.peak(precision)
        if peak is None or self.memory_bandwidth_bytes_per_second is None:
            return None
        return peak / self.memory_bandwidth_bytes_per_second
