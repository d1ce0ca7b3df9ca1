"""Percentiles of a histogram: the figure that dashboards print, and the interval that the buckets really prove."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_llmroof.analysis.binomial import needed, rank_shares
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.window import Histogram


@dataclass(frozen=True)
class Quantile:
    """One percentile of a histogram.

    ``beyond`` says that the percentile itself lies in the ``+Inf`` bucket: only its lower bound is known. ``needed``
    is the number of independent observations that would bound it from above, None where there are enough.
    ``edges`` are the bounds of the bucket that holds it: a limit on one of them can be decided.
    """

    bounded: Bounded
    beyond: bool
    edges: tuple[float, float]
    needed: int | None = None
    failed: bool = False
    """Whether it lies among requests that failed, which count as slower than any."""


def quantile(
    histogram: Histogram, share: float, independent: float | None = None, failed: float = 0.0, requests: float = 0.0
) -> Quantile | None:
    """The ``share``-quantile, None of an empty histogram.

    The value is interpolated inside its bucket as Prometheus does; the interval runs from the lower edge of the bucket
    at the lower binomial rank to the upper edge of the bucket at the upper one. ``independent`` is the number of
    independent observations, where it is less than the count (inter-token latencies of one step are alike).

    Of ``requests`` so many ``failed``: those of them that the histogram holds may be in any of its buckets.
    """
    if histogram.count <= 0:
        return None
    count = max(histogram.count, requests) if failed else histogram.count
    sound = count - failed
    misplaced = max(0.0, histogram.count - sound)
    effective = count if independent is None else min(count, independent)
    low_share, high_share = rank_shares(effective, share)
    index = _bucket(histogram, share * count)
    low_edge, high_edge = edges(histogram, index)
    value = _interpolated(histogram, index, min(share * count, histogram.count))
    low = edges(histogram, _bucket(histogram, low_share * count))[0] if low_share else _least(histogram)
    unbounded = math.isinf(high_share) or (failed and high_share * count > sound)
    high = math.inf if unbounded else edges(histogram, _bucket(histogram, high_share * count + misplaced))[1]
    return Quantile(
        bounded=Bounded(value, min(low, value), max(high, value)),
        beyond=math.isinf(high_edge),
        edges=(low_edge, high_edge),
        needed=needed(share) if math.isinf(high_share) else None,
        failed=bool(failed) and math.ceil(share * count) > sound,
    )


def maximum(histogram: Histogram) -> Bounded | None:
    """Where the largest observation lies: in the last bucket that is not empty, and not below the mean.

    Its value is the low end, the least that it can be.
    """
    filled = [index for index, count in enumerate(histogram.counts) if count > 0]
    if not filled:
        return None
    low, high = edges(histogram, filled[-1])
    mean = histogram.mean
    if mean is not None and low < mean <= high:
        low = mean
    return Bounded(low, low, high)


def without_zeros(histogram: Histogram, zeros: float) -> Histogram:
    """The histogram without observations of zero, which lie in its first bucket and add nothing to its sum."""
    first = max(0.0, histogram.counts[0] - zeros)
    return Histogram(histogram.bounds, (first, *histogram.counts[1:]), histogram.total)


def edges(histogram: Histogram, index: int) -> tuple[float, float]:
    """The lower and upper bound of a bucket. Latencies and lengths are never negative: the first starts at zero."""
    upper = histogram.bounds[index]
    lower = histogram.bounds[index - 1] if index else min(0.0, upper)
    return lower, upper


def _bucket(histogram: Histogram, rank: float) -> int:
    """The index of the bucket that holds an observation's rank (a fraction of a rank belongs to the one above)."""
    seen = 0.0
    last = 0
    for index, count in enumerate(histogram.counts):
        if count <= 0:
            continue
        seen += count
        last = index
        if rank <= seen * (1 + 1e-12):
            break
    return last


def _interpolated(histogram: Histogram, index: int, rank: float) -> float:
    """Linear inside the bucket; the lower edge in the last one, which has no upper."""
    low, high = edges(histogram, index)
    if math.isinf(high):
        return low
    below = sum(histogram.counts[:index])
    return low + (high - low) * min(1.0, (rank - below) / histogram.counts[index])


def _least(histogram: Histogram) -> float:
    """The lower edge of the first bucket that is not empty."""
    return edges(histogram, _bucket(histogram, 0.0))[0]
