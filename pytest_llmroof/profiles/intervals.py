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
        lengths = np.zeros(len(self.start) + 1, dtype=np.int64)
        np.subtract(self.end, self.start, out=lengths[1:])
        np.cumsum(lengths[1:], out=lengths[1:])
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
    if not _rising(start):
        # Sorted apart: where the next start is later than as many ends, everything before has ended.
        start, end = np.sort(start), np.sort(end)
    elif not _rising(end):
        end = np.maximum.accumulate(end)
    # Long recordings hold millions: masks take an eighth of what places would.
    apart = np.ones(len(start) + 1, dtype=np.bool_)
    np.greater(start[1:], end[:-1], out=apart[1:-1])
    return Union(start[apart[:-1]], end[apart[1:]])


def _rising(column: Int64) -> bool:
    return bool((column[1:] >= column[:-1]).all())


def gaps(covered: Union) -> Intervals:
    """The time between the intervals of a union."""
    return Intervals(covered.end[:-1], covered.start[1:])
