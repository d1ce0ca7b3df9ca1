"""The logarithmic axes of a chart, and how their marks are written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis from ``low`` to ``high``, drawn from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value is drawn."""
        return self.start + math.log10(value / self.low) / math.log10(self.high / self.low) * (self.end - self.start)

    def decades(self) -> Iterator[float]:
        """Powers of ten on the axis."""
        for exponent in range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1):
            yield 10.0**exponent


def thousands(value: float) -> str:
    """``100``, ``10k``."""
    return f"{value:g}" if value < 1000 else f"{value / 1000:g}k"


def rate(value: float) -> str:
    """``100 T``: FLOP/s of a tick."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor * 0.999:
            return f"{value / factor:g} {prefix}"
    return f"{value:g}"
