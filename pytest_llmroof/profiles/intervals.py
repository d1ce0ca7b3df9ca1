"""Interval arithmetic on columns of nanoseconds: unions, gaps, and how much of them lies in windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_llmroof.profiles.timeline import Int64, Intervals


@dataclass(frozen=True)
class Union:
    """Disjoint, non-empty intervals, sorted."""

    start: Int64
    end: Int64

    def before(self, at: Int64) -> Int64:
        """How much of the union lies before each point in time."""
        lengths = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.end - self.start)))
        index = np.searchsorted(self.start, at, side="right")
        inside = np.zeros(len(at), dtype=np.int64)
        some = index > 0
        inside[some] = np.maximum(self.end[index[some] - 1] - at[some], 0)
        result: Int64 = lengths[index] - inside
        return result

    def within(self, start: Int64, end: Int64) -> Int64:
        """How much of the union lies in each window ``[start, end)``."""
        return self.before(end) - self.before(start)

    @property
    def total(self) -> int:
        """Its whole length."""
        return int((self.end - self.start).sum())


def union(start: Int64, end: Int64) -> Union:
    """What intervals in any order cover together."""
    real = end > start
    if not real.all():
        start, end = start[real], end[real]
    if not len(start):
        return Union(start, end)
    if bool((start[1:] >= start[:-1]).all()):
        ends = np.maximum.accumulate(end)
    else:
        # Sorted apart: where the next start is later than as many ends, everything before has ended.
        start, ends = np.sort(start), np.sort(end)
    breaks = np.flatnonzero(start[1:] > ends[:-1])
    return Union(np.concatenate((start[:1], start[breaks + 1])), np.concatenate((ends[breaks], ends[-1:])))


def gaps(covered: Union) -> Intervals:
    """The time between the intervals of a union."""
    return Intervals(covered.end[:-1], covered.start[1:])
