"""Percentiles of single values: exact ones, with the interval that their number proves; and of a share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_llmroof.analysis.binomial import CONFIDENCE, binomial_cdf, needed, ranks
from pytest_llmroof.bounded import Bounded


@dataclass(frozen=True)
class OrderStatistic:
    """A percentile of values. ``failed`` says that it lies among the failed, which count as slower than any value.

    ``needed`` is the number of values that would bound it from above, None where there are enough.
    """

    bounded: Bounded
    failed: bool
    needed: int | None


def percentile(values: Sequence[float], share: float) -> float:
    """The percentile of sorted values, linear between the two nearest, as NumPy does by default."""
    place = share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def order_statistic(
    values: Sequence[float], share: float, failed: int = 0, independent: float | None = None
) -> OrderStatistic:
    """The percentile of the values, and between which of them it lies with 95 % confidence (binomial ranks).

    ``failed`` more are slower than all. ``independent`` is how many of the values are, where they are fewer.
    """
    ordered = sorted(values)
    count = len(ordered) + failed
    effective = count if independent is None else max(1, min(count, math.floor(independent)))
    low_rank, high_rank = ranks(effective, share)
    stretch = count / effective
    value = percentile(ordered, share)
    low = _at(ordered, math.floor(low_rank * stretch)) if low_rank else 0.0
    high = _at(ordered, math.ceil(high_rank * stretch)) if high_rank <= effective else math.inf
    among = math.ceil(share * count) > len(ordered)
    return OrderStatistic(
        Bounded(value, min(low, value), math.inf if among else max(high, value)),
        failed=among,
        needed=needed(share) if high_rank > effective else None,
    )


def share_interval(successes: int, trials: int) -> Bounded:
    """A share with its exact binomial interval (Clopper and Pearson 1934), 95 %."""
    tail = (1 - CONFIDENCE) / 2
    # The least share under which so many successes or more are not too unlikely; the largest for so many or fewer.
    low = _root(lambda p: 1 - binomial_cdf(successes - 1, trials, p) >= tail) if successes else 0.0
    high = _root(lambda p: binomial_cdf(successes, trials, p) <= tail) if successes < trials else 1.0
    value = successes / trials
    return Bounded(value, min(low, value), max(high, value))


def _root(holds: Callable[[float], bool]) -> float:
    """Where a test that fails at 0 and holds at 1 begins to hold."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return (low + high) / 2


def _at(ordered: Sequence[float], rank: int) -> float:
    """The value at a rank, counted from 1; unbounded among the failed."""
    return ordered[max(1, rank) - 1] if rank <= len(ordered) else math.inf
