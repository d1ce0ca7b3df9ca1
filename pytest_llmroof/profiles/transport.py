"""How long each collective really took to transfer, and how long it only waited for other ranks.

A collective's kernel runs from its own rank's arrival until the transfer is over: on the rank that came last it lasts
as long as the transfer. With several ranks that is the least duration of the same collective; with one, the tenth
percentile of the same kernel and size stands for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pytest_llmroof.profiles.kernels import OTHER, collective_kind, communication_classes, kernel_classes
from pytest_llmroof.profiles.timeline import KERNEL, Bool, Int64, Timeline

LEAST_ALIKE: Final = 5
"""Collectives of a kind from which a low percentile means something."""
PERCENTILE: Final = 10.0
_UNTOLD: Final = 0.1
"""Transport is told while collectives without a figure take no more than this part of their time."""
_AGREE: Final = 0.1
"""Ends of one collective on two clocks differ by less than this part of the time between two collectives."""
_NUMBERED, _IN_ORDER = "numbered", "in order"
_TOGETHER_NS: Final = 5_000
"""One collective ends on all ranks of a machine within this."""

_PIPELINE: Final = "send and receive"


@dataclass(frozen=True)
class Communication:
    """The communication of one timeline: rows of its work, how long each lasted and how long its transfer took, in ns.

    A transport of -1 cannot be told.
    """

    rows: Int64
    durations: Int64
    transport: Int64

    @property
    def told(self) -> bool:
        """Whether there is a figure for nearly all of it."""
        return float(self.durations[self.transport < 0].sum()) <= _UNTOLD * float(self.durations.sum())

    @property
    def moving(self) -> Int64:
        """The transport of each; what cannot be told counts as transport."""
        return np.where(self.transport < 0, self.durations, self.transport)


@dataclass(frozen=True)
class Matched:
    """The same collectives on several ranks, in order: the rows of them and their durations, a rank a line."""

    rows: Int64
    durations: Int64

    @property
    def late(self) -> Int64:
        """The line of the rank that came last to each collective: its own kernel is the shortest."""
        result: Int64 = np.argmin(self.durations, axis=0)
        return result

    @property
    def waits(self) -> Int64:
        """How long each rank waited in each collective, in ns."""
        result: Int64 = self.durations - self.durations.min(axis=0)
        return result


def communication_rows(timeline: Timeline) -> Int64:
    """Which work is communication."""
    return _rows_of(timeline, communication_classes())


def unnamed_rows(timeline: Timeline) -> Int64:
    """Which work may be communication for all that its name tells; none where one GPU is the world."""
    return _rows_of(timeline, frozenset({OTHER}) if timeline.world_size != 1 else frozenset())


def _rows_of(timeline: Timeline, classes: frozenset[str]) -> Int64:
    """Which work is of kernels of some classes."""
    named = np.array([title in classes for title in kernel_classes(timeline.names)], dtype=np.bool_)
    work = timeline.work
    return np.flatnonzero((work.kind == KERNEL) & named[work.name]) if len(named) else np.zeros(0, dtype=np.int64)


def of_pipeline(timeline: Timeline, rows: Int64) -> Bool:
    """Which collectives are a send or receive between two ranks, as between stages of a pipeline."""
    names, of = np.unique(timeline.work.name[rows], return_inverse=True)
    named = np.array([collective_kind(timeline.names[name]) == _PIPELINE for name in names], dtype=np.bool_)
    found: Bool = named[of]
    return found


def of_one_rank(timeline: Timeline, rows: Int64, told: Int64) -> Communication:
    """By the tenth percentile of the same kernel and size. ``told`` separates further, by steps of different load."""
    work = timeline.work
    durations = work.end[rows] - work.start[rows]
    transport = np.full(len(rows), -1, dtype=np.int64)
    for alike in _groups(work.name[rows], work.size[rows], told):
        if len(alike) >= LEAST_ALIKE:
            typical = int(np.percentile(durations[alike], PERCENTILE))
            transport[alike] = np.minimum(durations[alike], typical)
    return Communication(rows, durations, transport)


def _groups(*columns: NDArray[np.integer[Any]]) -> list[Int64]:
    """The places of equal rows, a group at a time."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        # Numbered anew each time, so that no product grows too large.
        key = np.unique(key * max(len(values), 1) + place, return_inverse=True)[1]
    order = np.argsort(key, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(key[order])) + 1)


def match(timelines: Sequence[Timeline], rows: Sequence[Int64]) -> Matched | None:
    """The collectives that all ranks took part in; None where they cannot be told to be the same ones."""
    ranks = [timeline.rank for timeline in timelines]
    if len(timelines) < 2 or None in ranks or len(set(ranks)) < len(ranks):
        return None
    begun = _common_start(timelines, rows)
    keyed = [_keys(timeline, _since(timeline, own, begun)) for timeline, own in zip(timelines, rows, strict=True)]
    common = set(keyed[0]).intersection(*keyed[1:])
    if begun is None and len({len(own) for own in rows}) > 1:  # only numbers tell which of them are missing
        common = {key for key in common if key[0] == _NUMBERED}
    if not common:
        return None
    ordered = sorted(common, key=lambda key: keyed[0][key])
    table = np.array([[keys[key] for key in ordered] for keys in keyed], dtype=np.int64)
    durations = np.stack([one.work.end[row] - one.work.start[row] for one, row in zip(timelines, table, strict=True)])
    matched = Matched(table, durations)
    return matched if _agree(timelines, matched, ordered) else None


def _since(timeline: Timeline, rows: Int64, begun: int | None) -> Int64:
    """The collectives that every rank can have recorded. Numbers tell that by themselves, whatever the clocks say."""
    if begun is None:
        return rows
    late = timeline.work.end[rows] + (timeline.zero_unix_ns or 0) >= begun
    return rows[late | np.isin(rows, timeline.collectives.work)]


def _common_start(timelines: Sequence[Timeline], rows: Sequence[Int64]) -> int | None:
    """When, in Unix ns, the first collective ended that every rank recorded; None without a clock to tell by."""
    firsts = [
        int(timeline.work.end[own[0]]) + timeline.zero_unix_ns
        for timeline, own in zip(timelines, rows, strict=True)
        if len(own) and timeline.zero_unix_ns is not None
    ]
    return max(firsts) - _TOGETHER_NS if len(firsts) == len(timelines) else None


def _keys(timeline: Timeline, rows: Int64) -> dict[tuple[object, ...], int]:
    """Each collective's identity on all ranks -> its row: by its number in its group, else by its order in its kind."""
    work = timeline.work
    numbered = dict(zip(timeline.collectives.work.tolist(), range(len(timeline.collectives.work)), strict=True))
    counts: dict[tuple[int, int], int] = {}
    keys: dict[tuple[object, ...], int] = {}
    for row in rows.tolist():
        place = numbered.get(row)
        if place is not None:
            group = timeline.names[int(timeline.collectives.group[place])]
            keys[_NUMBERED, group, int(timeline.collectives.sequence[place])] = row
            continue
        kind = (int(work.name[row]), int(work.size[row]))
        order = counts[kind] = counts.get(kind, -1) + 1
        keys[_IN_ORDER, timeline.names[kind[0]], kind[1], order] = row
    return keys


def _agree(timelines: Sequence[Timeline], matched: Matched, keys: Sequence[tuple[object, ...]]) -> bool:
    """Whether what is called one collective ends on all ranks together, where their clocks can be compared."""
    zeros = [timeline.zero_unix_ns for timeline in timelines]
    if any(zero is None for zero in zeros):
        return True
    ends = np.stack(
        [one.work.end[rows] + (zero or 0) - (zeros[0] or 0)
         for one, rows, zero in zip(timelines, matched.rows, zeros, strict=True)]
    )  # fmt: skip
    apart = (ends - ends[0]).astype(np.float64)
    if all(key[0] == _NUMBERED for key in keys):
        # Clocks of several machines differ by a constant. Where only the order tells, such a difference could as well
        # be another collective of the same kind.
        apart -= np.median(apart, axis=1, keepdims=True)
    spread = np.abs(apart).mean(axis=1)
    between = float(np.median(np.diff(np.sort(ends[0])))) if ends.shape[1] > 1 else np.inf
    return bool((spread <= max(_AGREE * between, _TOGETHER_NS)).all())
