"""A number that is known between two bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bounded:
    """A value with the interval ``[low, high]`` it lies in. ``high`` may be infinite, where no bound is known."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if math.isnan(self.value) or math.isnan(self.low) or math.isnan(self.high):
            raise ValueError(f"not a number in {self!r}")
        if not self.low <= self.value <= self.high:
            raise ValueError(f"bounds out of order in {self!r}")

    @classmethod
    def exactly(cls, value: float) -> Bounded:
        """A number without uncertainty."""
        return cls(value, value, value)

    @classmethod
    def spanning(cls, value: float, *others: float) -> Bounded:
        """The least interval around ``value`` that holds ``others`` too."""
        return cls(value, min(value, *others), max(value, *others)) if others else cls.exactly(value)

    @property
    def exact(self) -> bool:
        """Whether there is no uncertainty."""
        return self.low == self.high

    @property
    def only_low(self) -> bool:
        """Whether nothing but a lower bound is known, which the value is."""
        return math.isinf(self.high) and self.value == self.low

    def scaled(self, factor: float) -> Bounded:
        """Multiplied by a non-negative number."""
        return Bounded(self.value * factor, self.low * factor, self.high * factor)

    def map(self, function: Callable[[float], float]) -> Bounded:
        """Through a monotonic function, rising or falling."""
        return Bounded.spanning(function(self.value), function(self.low), function(self.high))
