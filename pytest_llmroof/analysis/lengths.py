"""Lengths of outputs from a histogram: how much they vary, and so how long the context of a decode step is."""

from __future__ import annotations

import math

from pytest_llmroof.analysis.quantiles import edges
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.window import Histogram

#: The coefficient of variation where nothing tells: between all alike and an exponential distribution.
UNKNOWN_CV = Bounded(0.5, 0.0, 1.0)


def coefficient_of_variation(histogram: Histogram | None) -> Bounded:
    """Standard deviation over mean that the buckets and the exact mean allow; the value is the middle."""
    if histogram is None or not histogram.count or not histogram.total:
        return UNKNOWN_CV
    mean = histogram.total / histogram.count
    parts = [(count / histogram.count, *edges(histogram, i)) for i, count in enumerate(histogram.counts) if count > 0]
    if math.isinf(parts[-1][2]) or not _consistent(parts, mean):
        return UNKNOWN_CV
    low, high = (_cv(square, mean) for square in (_least_square(parts, mean), _greatest_square(parts, mean)))
    return Bounded((low + high) / 2, low, max(low, high))


def mean_context(mean_prompt: float, mean_output: float, cv: Bounded) -> Bounded:
    """Context of a decoding sequence, averaged over decode steps: a long output is seen in more of them."""
    return cv.map(lambda c: mean_prompt + mean_output * (1 + c * c) / 2)


def _cv(square: float, mean: float) -> float:
    return math.sqrt(max(0.0, square / mean**2 - 1))


def _consistent(parts: list[tuple[float, float, float]], mean: float) -> bool:
    """Whether the mean can come from these buckets at all (a lost sum would make nonsense of the rest)."""
    low, high = (sum(share * part[side] for share, *part in parts) for side in (0, 1))
    return low * (1 - 1e-9) <= mean <= high * (1 + 1e-9)


def _least_square(parts: list[tuple[float, float, float]], mean: float) -> float:
    """The least mean square: in each bucket all observations alike, as near to one common level as its edges allow."""
    low, high = parts[0][1], parts[-1][2]
    for _ in range(100):
        level = (low + high) / 2
        if sum(share * min(max(level, lower), upper) for share, lower, upper in parts) < mean:
            low = level
        else:
            high = level
    return float(sum(share * min(max(high, lower), upper) ** 2 for share, lower, upper in parts))


def _greatest_square(parts: list[tuple[float, float, float]], mean: float) -> float:
    """The greatest mean square: observations at the edges only, the upper ones in the highest buckets."""
    excess = mean - sum(share * lower for share, lower, _ in parts)
    square = sum(share * lower**2 for share, lower, _ in parts)
    for share, lower, upper in reversed(parts):
        moved = min(excess, share * (upper - lower))
        square += moved * (lower + upper)
        excess -= moved
    return square
