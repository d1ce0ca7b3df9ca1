"""Which kernels took a timeline's time: by class, what its communication does, and what no name tells."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pytest_llmroof.profiles.kernel_names import short_name
from pytest_llmroof.profiles.kernels import collective_kind, kernel_classes
from pytest_llmroof.profiles.timeline import GRAPH, KERNEL, Int64, Timeline
from pytest_llmroof.profiles.transport import unnamed_rows

Float64 = NDArray[np.float64]

_LONGEST_NAME: Final = 60


def collective(timeline: Timeline, rows: Int64, ran: Float64) -> str | None:
    """What most of the communication does."""
    kinds: dict[str, float] = {}
    by_name = np.bincount(timeline.work.name[rows], weights=ran[rows], minlength=len(timeline.names))
    for place in np.flatnonzero(by_name).tolist():
        kind = collective_kind(timeline.names[place])
        kinds[kind] = kinds.get(kind, 0.0) + float(by_name[place])
    return max(kinds, key=lambda kind: kinds[kind], default=None)


def class_shares(timeline: Timeline, ran: Float64) -> dict[str, float]:
    """The share of each class in the summed time of kernels and copies, the largest first."""
    work = timeline.work
    total = float(ran.sum())
    kernel, graph = work.kind == KERNEL, work.kind == GRAPH
    by_name = np.bincount(work.name[kernel], weights=ran[kernel], minlength=len(timeline.names))
    shares: dict[str, float] = {}
    for title, time in zip(kernel_classes(timeline.names), by_name.tolist(), strict=True):
        if time:
            shares[title] = shares.get(title, 0.0) + time / total
    for title, kind in (("graph replays", graph), ("copies", ~(kernel | graph))):
        if time := float(ran[kind].sum()):
            shares[title] = time / total
    return dict(sorted(shares.items(), key=lambda one: -one[1]))


def unnamed_kernel(timeline: Timeline, ran: Float64) -> str | None:
    """The kernel that took most of the time whose class is not known: whoever wrote it knows what it does."""
    rows = unnamed_rows(timeline)
    if not len(rows):
        return None
    by_name = np.bincount(timeline.work.name[rows], weights=ran[rows], minlength=len(timeline.names))
    return short_name(timeline.names[int(by_name.argmax())])[:_LONGEST_NAME]
