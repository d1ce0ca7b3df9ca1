"""Why ranks waited for each other: a straggler that its host or its work held up, or a stage of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pytest_llmroof.profiles.figures import WaitingCause
from pytest_llmroof.profiles.gaps import BACK_TO_BACK, Gaps
from pytest_llmroof.profiles.intervals import Union
from pytest_llmroof.profiles.timeline import Bool, Int64, Timeline
from pytest_llmroof.profiles.transport import Matched, of_pipeline

_MOST: Final = 0.5


@dataclass(frozen=True)
class Waiting:
    """Why one rank waited (None: it hardly did), and the fraction of all its group's waiting that was for it."""

    cause: WaitingCause | None
    late: float | None


def waiting_of(timelines: Sequence[Timeline], gaps: Sequence[Gaps], matched: Matched) -> tuple[Waiting, ...]:
    """For each rank of a group, from its own gaps. The first collectives hold the start of all, and are left out."""
    skip = 1 if matched.rows.shape[1] > 1 else 0
    waits, late, rows = matched.waits[:, skip:], matched.late[skip:], matched.rows[:, skip:]
    idle = np.zeros(rows.shape, dtype=np.int64)
    if skip:  # since the collective before
        for rank, (timeline, own) in enumerate(zip(timelines, gaps, strict=True)):
            before = timeline.work.end[matched.rows[rank, :-1]]
            idle[rank] = _idle(own).within(before, np.maximum(timeline.work.start[rows[rank]], before))
    # How much longer than each rank itself the late one did nothing: the rest of the wait was for its work.
    held_up = np.clip(idle[late, np.arange(len(late))] - idle, 0, waits)
    total = int(waits.sum())
    found = []
    for rank, timeline in enumerate(timelines):
        pipeline = of_pipeline(timeline, rows[rank])
        found.append(
            Waiting(
                _cause(waits[rank], held_up[rank], pipeline),
                int(waits[:, late == rank].sum()) / total if total else None,
            )
        )
    return tuple(found)


def waiting_alone(timeline: Timeline, rows: Int64, waits: Int64) -> WaitingCause | None:
    """What one rank's own recording tells of its waiting: only whether it was for another stage of a pipeline."""
    total = int(waits.sum())
    if not total:
        return None
    return "pipeline bubble" if int(waits[of_pipeline(timeline, rows)].sum()) > _MOST * total else None


def _cause(waits: Int64, held_up: Int64, pipeline: Bool) -> WaitingCause | None:
    total = int(waits.sum())
    if not total:
        return None
    if int(waits[pipeline].sum()) > _MOST * total:
        return "pipeline bubble"
    return "host gaps" if int(held_up.sum()) > _MOST * total else "imbalance"


def _idle(found: Gaps) -> Union:
    """When the device did nothing, but for the moments from one kernel to the next."""
    idle = found.cause != BACK_TO_BACK
    return Union(found.start[idle], found.end[idle])
