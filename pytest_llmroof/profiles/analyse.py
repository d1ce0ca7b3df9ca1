"""From timelines to figures: of the whole recording and of its typical steps, of one rank or of several together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.figures import Shares, StepFigures, TimelineFigures, WaitingCause
from pytest_llmroof.profiles.gaps import CAUSES, Gaps, find_gaps, host_time
from pytest_llmroof.profiles.intervals import Union, union
from pytest_llmroof.profiles.kernel_time import class_shares, collective, unnamed_kernel
from pytest_llmroof.profiles.kernels import modern_attention
from pytest_llmroof.profiles.ranks import waiting_alone, waiting_of
from pytest_llmroof.profiles.soundness import abstain_from, distortions_of, refuse_capture
from pytest_llmroof.profiles.steps import LEAST, DeviceSteps, device_steps
from pytest_llmroof.profiles.timeline import GRAPH, KERNEL, Int64, Phase, Timeline
from pytest_llmroof.profiles.transport import Communication, communication_rows, match, of_one_rank, unnamed_rows

Float64 = NDArray[np.float64]

_ROUNDING_NS: Final = 1
"""A gap of one nanosecond comes of a start and a duration that were rounded apart."""


def analyse(timeline: Timeline) -> TimelineFigures:
    """The figures of one timeline. Raises SourceError where it tells nothing about serving."""
    return analyse_ranks((timeline,))[0]


def analyse_ranks(timelines: Sequence[Timeline]) -> tuple[TimelineFigures, ...]:
    """The figures of timelines of one window, in order; those of ranks that can be matched explain each other."""
    for timeline in timelines:
        refuse_capture(timeline)
    views = [_view(timeline) for timeline in timelines]
    rows = [view.communication.rows for view in views]
    matched = match(timelines, rows) if all(len(own) for own in rows) else None
    if matched is None:
        return tuple(_figures(view, _waiting_alone(view), None, 1) for view in views)
    least = matched.durations.min(axis=0)
    found = []
    waiting = waiting_of(timelines, [view.gaps for view in views], matched)
    for rank, view in enumerate(views):
        transport = view.communication.transport.copy()
        place = np.searchsorted(view.communication.rows, matched.rows[rank])
        transport[place] = least
        told = replace(view, communication=replace(view.communication, transport=transport))
        found.append(_figures(told, waiting[rank].cause, waiting[rank].late, len(timelines)))
    return tuple(found)


@dataclass(frozen=True)
class _View:
    """A timeline with what all its figures start from."""

    timeline: Timeline
    busy: Union
    gaps: Gaps
    steps: DeviceSteps | None
    communication: Communication


def _view(timeline: Timeline) -> _View:
    work = timeline.work
    busy = union(work.start, work.end)
    if not len(busy.start):
        raise SourceError(f"{timeline.location} holds no GPU activity that took any time")
    found = find_gaps(timeline, busy)
    steps = device_steps(timeline, found.holes)
    rows = communication_rows(timeline)
    return _View(timeline, busy, found, steps, of_one_rank(timeline, rows, _load(steps, work.start[rows])))


def _load(steps: DeviceSteps | None, at: Int64) -> Int64:
    """How many tokens the step at a time held: collectives of the same kernel are of the same size in such steps."""
    if steps is None:
        return np.zeros(len(at), dtype=np.int64)
    tokens = [-1 if one is None else (one.prefill_tokens or 0) + (one.decode_tokens or 0) for one in steps.told]
    of = np.maximum(np.searchsorted(steps.start, at, side="right") - 1, 0)
    return np.array(tokens, dtype=np.int64)[of]


def _waiting_alone(view: _View) -> WaitingCause | None:
    told = view.communication
    return waiting_alone(view.timeline, told.rows, told.durations - told.moving)


def _figures(view: _View, waiting: WaitingCause | None, late: float | None, ranks: int) -> TimelineFigures:
    timeline, work = view.timeline, view.timeline.work
    whole, steps = _measured(view)
    length = view.gaps.end - view.gaps.start
    kernels = work.kind == KERNEL
    ran = (work.end - work.start).astype(np.float64)
    computed = kernels | (work.kind == GRAPH)
    figures = TimelineFigures(
        location=timeline.location,
        whole=whole,
        steps=steps,
        steps_by=view.steps.by if view.steps is not None and steps else None,
        classes=class_shares(timeline, ran),
        kernels=int(kernels.sum()),
        copies=int((~computed).sum()),
        graph_replays=int((work.kind == GRAPH).sum()),
        graph_launched=_ratio(float(ran[timeline.graph_launched() & computed].sum()), float(ran[computed].sum())),
        gaps_ns=np.sort(length[(length > _ROUNDING_NS) & ~view.gaps.hole]),
        host=host_time(timeline, view.gaps),
        modern_attention=modern_attention([timeline.names[name] for name in np.unique(work.name[kernels]).tolist()]),
        unnamed_kernel=unnamed_kernel(timeline, ran),
        collective=collective(timeline, view.communication.rows, ran),
        trimmed_seconds=view.gaps.holes.total / 1e9,
        device_name=timeline.device_name,
        device=timeline.device,
        rank=timeline.rank,
        world_size=timeline.world_size,
        ranks=ranks,
        started=_started(timeline),
        waiting_cause=waiting,
        late=late,
        notes=timeline.notes,
    )
    marked = replace(figures, distortions=distortions_of(timeline, view.gaps, view.steps, view.communication, figures))
    return replace(marked, abstain=abstain_from(timeline, marked))


def _started(timeline: Timeline) -> float | None:
    zero = timeline.zero_unix_ns
    return None if zero is None else (zero + int(timeline.work.start[0])) / 1e9


def _measured(view: _View) -> tuple[Shares, dict[Phase | None, StepFigures]]:
    """The shares of the whole recording and of its steps. (What they are measured by is large, and goes with this.)"""
    covers = _covers(view)
    return _shares(covers, view.busy.start[:1], view.busy.end[-1:]), _steps(view, covers)


def _covers(view: _View) -> Mapping[str, Union | None]:
    """What each share is measured by."""
    timeline, work = view.timeline, view.timeline.work
    told = view.communication
    opaque = bool((work.kind == GRAPH).any()) and timeline.world_size != 1
    start, end = work.start[told.rows], work.end[told.rows]
    computed = moved = view.busy
    if len(told.rows):
        other = np.ones(len(work), dtype=np.bool_)
        other[told.rows] = False
        # The transfer comes last: before it, the kernel waits.
        starts, ends = np.append(work.start[other], end - told.moving), np.append(work.end[other], end)
        starts.sort()
        ends.sort()
        moved = union(starts, ends)
        del starts, ends
        computed = union(work.start[other], work.end[other])
    communication = union(start, end)
    most, named = communication, computed
    if len(unnamed := unnamed_rows(timeline)):
        rows = np.union1d(told.rows, unnamed)
        most = union(work.start[rows], work.end[rows])
        others = np.ones(len(work), dtype=np.bool_)
        others[rows] = False
        named = union(work.start[others], work.end[others])
    return {
        "busy": view.busy,
        "computed": None if opaque else computed,
        "communication": None if opaque else communication,
        "communication most": None if opaque else most,
        "computed by name": None if opaque else named,
        "computed or moving": None if opaque or not told.told else moved,
        **{cause: view.gaps.by_cause(place) for place, cause in enumerate(CAUSES)},
    }


def _shares(covers: Mapping[str, Union | None], start: Int64, until: Int64, end: Int64 | None = None) -> Shares:
    """The shares of all windows ``[start, until)`` together; ``end`` is where each step's work ends in its window."""
    total = int((until - start).sum())

    def part(name: str, to: Int64 = until) -> float | None:
        cover = covers[name]
        return None if cover is None else int(cover.within(start, to).sum()) / total

    busy, communication, computed = part("busy") or 0.0, part("communication"), part("computed")
    exposed = None if computed is None else max(busy - computed, 0.0)
    most, named = part("communication most"), part("computed by name")
    moved = part("computed or moving")
    transport = None if moved is None or computed is None else max(moved - computed, 0.0)
    idle = 1.0 - busy
    within = None
    if end is not None:
        within = (int((end - start).sum()) / total) - (part("busy", end) or 0.0)
    return Shares(
        seconds=total / len(start) / 1e9,
        busy=busy,
        idle=idle,
        communication=communication,
        exposed=exposed,
        transport=transport,
        waiting=None if transport is None or exposed is None else max(exposed - transport, 0.0),
        hidden=None if communication is None or exposed is None else max(communication - exposed, 0.0),
        **{cause: part(cause) or 0.0 for cause in CAUSES},
        idle_within=within,
        idle_between=None if within is None else max(idle - within, 0.0),
        unnamed=0.0 if most is None or communication is None else max(most - communication, 0.0),
        unnamed_exposed=0.0 if named is None or computed is None else max(computed - named, 0.0),
    )


def _steps(view: _View, covers: Mapping[str, Union | None]) -> dict[Phase | None, StepFigures]:
    steps = view.steps
    if steps is None or not len(steps):
        return {}
    every = np.arange(len(steps))
    # The first one holds the start of the recording; what follows the last one is not known.
    measured = every[1:-1] if len(steps) > LEAST else every[1:] if len(steps) == LEAST else every
    whole = len(steps) > LEAST
    phases = {step.phase for step in steps.told if step is not None and step.phase is not None}
    found: dict[Phase | None, StepFigures] = {}
    for phase in (None, *(phase for phase in get_args(Phase) if phase in phases)):
        some = [i for i in measured.tolist() if phase is None or getattr(steps.told[i], "phase", None) == phase]
        if some:
            found[phase] = _typical(steps, np.array(some, dtype=np.int64), whole, phase, covers)
    return found


def _typical(
    steps: DeviceSteps, some: Int64, whole: bool, phase: Phase | None, covers: Mapping[str, Union | None]
) -> StepFigures:
    """Of steps of a kind, the middle half by duration, so that their shares still add up."""
    until = steps.until if whole else steps.end
    lasts = until[some] - steps.start[some]
    order = some[np.argsort(lasts, kind="stable")]
    cut = len(order) // 4
    middle = order[cut : len(order) - cut]
    told = [step for step in (steps.told[i] for i in middle) if step is not None]

    def median(name: str) -> float | None:
        values = [getattr(step, name) for step in told if getattr(step, name) is not None]
        return float(np.median(values)) if values else None

    return StepFigures(
        phase=phase,
        count=len(some),
        median_seconds=float(np.median(lasts)) / 1e9,
        shares=_shares(covers, steps.start[middle], until[middle], steps.end[middle] if whole else None),
        spread=_spread(covers, steps.start[middle], until[middle]),
        prefill_requests=median("prefill_requests"),
        prefill_tokens=median("prefill_tokens"),
        decode_requests=median("decode_requests"),
        decode_tokens=median("decode_tokens"),
    )


def _spread(covers: Mapping[str, Union | None], start: Int64, until: Int64) -> dict[str, tuple[float, float]]:
    """The least and the largest share of single steps."""

    def parts(name: str) -> Float64 | None:
        cover = covers[name]
        return None if cover is None else cover.within(start, until) / (until - start)

    busy, computed, named = parts("busy"), parts("computed"), parts("computed by name")
    host, in_flight = parts("host_bound"), parts("launch_in_flight")
    shares = {
        "busy": busy,
        "communication": parts("communication"),
        "communication most": parts("communication most"),
        "exposed": None if busy is None or computed is None else np.maximum(busy - computed, 0.0),
        "exposed most": None if busy is None or named is None else np.maximum(busy - named, 0.0),
        "host": None if host is None or in_flight is None else host + in_flight,
    }
    return {name: (float(each.min()), float(each.max())) for name, each in shares.items() if each is not None}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
