"""The series of one histogram on a page, gathered and checked."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from pytest_llmroof.telemetry.engines import Target
from pytest_llmroof.telemetry.exposition import Sample


@dataclass(frozen=True)
class Buckets:
    """A histogram's running total: ``counts`` are cumulative, the last bound is inf."""

    bounds: tuple[float, ...]
    counts: array[float]
    total: float

    @property
    def count(self) -> float:
        """Observations so far."""
        return self.counts[-1]


#: A page is not written at one instant: its lines may be apart by an observation, and by this share of them.
_TORN = 0.01


class Unusable(Exception):
    """Why a histogram cannot be used, in words that follow its name."""


class GatheredHistogram:
    """Gathers one histogram's series; those that differ in other labels than ``le`` add up."""

    def __init__(self, name: str, scale: float) -> None:
        self.name = name
        self.scale = scale
        self.cumulative: dict[float, float] = {}
        self.series: dict[float, int] = {}
        self.sum: float | None = None
        self.count: float | None = None
        self.negative = False

    @property
    def fed(self) -> bool:
        """Whether anything was observed."""
        return bool(self.count) or any(self.cumulative.values())

    def part(self, share: float) -> GatheredHistogram:
        """A share of it: as many times fewer observations."""
        if share == 1:
            return self
        shared = GatheredHistogram(self.name, self.scale)
        shared.cumulative = {bound: count * share for bound, count in self.cumulative.items()}
        shared.series = dict(self.series)
        shared.negative = self.negative
        shared.sum = None if self.sum is None else self.sum * share
        shared.count = None if self.count is None else self.count * share
        return shared

    def add(self, target: Target, sample: Sample) -> None:
        """One more series of it: a bucket, the sum or the count."""
        self.negative |= sample.value < 0
        if target.part == "sum":
            self.sum = (self.sum or 0.0) + sample.value * self.scale
        elif target.part == "count":
            self.count = (self.count or 0.0) + sample.value
        else:
            bound = _bound(sample.labels.get("le", "")) * self.scale
            self.cumulative[bound] = self.cumulative.get(bound, 0.0) + sample.value
            self.series[bound] = self.series.get(bound, 0) + 1

    def buckets(self) -> Buckets:
        """What was gathered, checked. A histogram with nothing but sum and count has one bucket, up to inf."""
        if self.sum is None or not math.isfinite(self.sum):
            raise Unusable("has no sum")
        cumulative = dict(self.cumulative)
        if math.inf not in cumulative:
            # Thinned out by a relabelling rule: the count is what the last bucket would say.
            if self.count is None:
                raise Unusable("has no +Inf bucket and no count")
            cumulative[math.inf] = self.count
        if any(math.isnan(bound) for bound in cumulative):
            raise Unusable("has a bucket without a bound")
        if len(set(self.series.values())) > 1:
            raise Unusable("has series with different buckets")
        bounds = tuple(sorted(cumulative))
        counts = array("d", (cumulative[bound] for bound in bounds))
        if not all(math.isfinite(count) for count in counts):
            raise Unusable("has a bucket that is not a number")
        if counts[0] < 0 or any(low > high for low, high in pairwise(counts)):
            raise Unusable("has buckets that are not cumulative")
        if self.count is not None and abs(self.count - counts[-1]) > 1 + _TORN * counts[-1]:
            raise Unusable(f"counts {self.count:.15g} observations, and {counts[-1]:.15g} in its buckets")
        if self.negative:
            raise Unusable("has less than nothing in one of its series")
        return Buckets(bounds, counts, self.sum)


@lru_cache(1024)
def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
