"""Why the device was idle: each gap's cause, from when the work that ended it was submitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from pytest_llmroof.profiles.figures import HostTime
from pytest_llmroof.profiles.intervals import Union, gaps, union
from pytest_llmroof.profiles.timeline import Bool, Int64, Timeline, UInt8

Cause = Literal["host_bound", "launch_in_flight", "back_to_back", "queued", "unknown"]
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)
HOST_BOUND, LAUNCH_IN_FLIGHT, BACK_TO_BACK, QUEUED, UNKNOWN_CAUSE = range(len(CAUSES))

BACK_TO_BACK_NS: Final = 5_000
"""What a device takes from one kernel to the next that is already there: 1 to 5 microseconds."""

HOLE_NS: Final = 1_000_000
"""Submitted work that starts later than this although nothing runs was not alone: the rest is not in the trace."""


@dataclass(frozen=True)
class Gaps:
    """The idle gaps between the first and the last work, each with its cause (a place in CAUSES).

    ``hole`` are those in which something ran or blocked that the timeline does not show.
    """

    start: Int64
    end: Int64
    cause: UInt8
    hole: Bool

    def by_cause(self, cause: int) -> Union:
        """The gaps of one cause."""
        some = self.cause == cause
        return Union(self.start[some], self.end[some])

    @property
    def holes(self) -> Union:
        """The gaps that are holes of the recording."""
        return Union(self.start[self.hole], self.end[self.hole])


def find_gaps(timeline: Timeline, busy: Union) -> Gaps:
    """Every gap of the device's busy time."""
    idle = gaps(busy)
    work, launches = timeline.work, timeline.launches
    row = np.searchsorted(work.start, idle.end)  # the first work that starts where the gap ends
    launch = work.launch[row]
    known = launch >= 0
    # Work that is not the first of its launch (a graph's later kernels) was submitted with the first.
    inside = known & ~_first_of_launch(work.launch)[row]
    begun = launches.start[launch] if len(launches) else idle.start
    ended = launches.end[launch] if len(launches) else idle.start
    cause = np.full(len(row), UNKNOWN_CAUSE, dtype=np.uint8)
    earlier = known & (inside | (ended <= idle.start))
    length = idle.end - idle.start
    cause[earlier & (length <= BACK_TO_BACK_NS)] = BACK_TO_BACK
    cause[earlier & (length > BACK_TO_BACK_NS)] = QUEUED
    cause[known & ~earlier & (begun < idle.start)] = LAUNCH_IN_FLIGHT
    cause[known & ~earlier & (begun >= idle.start)] = HOST_BOUND
    late = idle.end - np.maximum(ended, idle.start)
    hole = known & ~inside & (late >= HOLE_NS) & (2 * late >= length)
    return Gaps(idle.start, idle.end, cause, hole)


def host_time(timeline: Timeline, found: Gaps) -> HostTime | None:
    """What the host did in the host-bound gaps; None where there are none, or its calls were not recorded."""
    host = found.by_cause(HOST_BOUND)
    if not len(host.start) or not len(timeline.host):
        return None
    waits = union(timeline.syncs.start, timeline.syncs.end)
    calls = union(timeline.host.start, timeline.host.end)
    waiting = int(waits.within(host.start, host.end).sum()) / host.total
    calling = max(int(calls.within(host.start, host.end).sum()) / host.total, waiting) - waiting
    return HostTime(waiting, calling, 1 - waiting - calling)


def _first_of_launch(launch: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Bool:
    rows = np.full(int(launch.max()) + 2, len(launch), dtype=np.int64)  # of -1 it is the last one
    rows[launch[::-1]] = np.arange(len(launch) - 1, -1, -1)  # what is written last is the first
    first: Bool = rows[launch] == np.arange(len(launch))
    return first
