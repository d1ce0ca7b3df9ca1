"""From the columns of an export of Nsight Systems to timelines.

What ran on one GPU is one timeline, whichever processes it came from, where the export tells GPUs apart; else each
device of each process is one. The launches, steps and calls of its processes go with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.calls import capturing
from pytest_llmroof.profiles.joining import with_launches
from pytest_llmroof.profiles.nsys_columns import Columns
from pytest_llmroof.profiles.nsys_facts import Annotations, Gpus, process_id
from pytest_llmroof.profiles.nsys_rows import Rows
from pytest_llmroof.profiles.timeline import UNKNOWN, Bool, Int32, Int64, Intervals, Launches, Step, Timeline, Work

CAPTURE: Final = (
    "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node "
    "--capture-range=cudaProfilerApi --capture-range-end=stop ..."
)
_LEAST_SHOWN: Final = 0.5
"""Replays whose work is missing look like idle time: with fewer than these shown, nothing is told."""
_MOST_SHOWN: Final = 0.95
_MANY: Final = 3


@dataclass(frozen=True)
class Context:
    """What an export tells besides work and calls. ``waits`` are told apart only where calls were not recorded."""

    place: str
    gpus: Gpus = field(default_factory=Gpus)
    zero_unix_ns: int | None = None
    annotations: Annotations = field(default_factory=Annotations)
    overhead: Rows = field(default_factory=Rows)
    waits: Rows | None = None
    notes: tuple[str, ...] = ()
    distortions: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Group:
    """What one timeline shows: rows of the work (None: all of them), and places of processes."""

    rows: Int64 | None
    processes: tuple[int, ...]
    device: int
    gpu: int | None


def timelines_of(columns: Columns, context: Context) -> tuple[Timeline, ...]:
    """A timeline for each GPU. Where there are several, they are numbered in the order of their devices."""
    groups = _groups(columns, context.gpus)
    owners = [process for group in groups for process in group.processes]
    overhead, waits = _taken(context.overhead), None if context.waits is None else _taken(context.waits)
    captures = capturing(columns.names)
    found = []
    for rank, group in enumerate(groups):
        alone = all(owners.count(process) == 1 for process in group.processes)
        mine = _of_processes(columns.calls.process, group.processes, len(columns.processes))
        launches, launch = _launches(columns, group, mine, alone)
        host = Intervals(columns.calls.start[mine], columns.calls.end[mine])
        timeline = Timeline(
            location=context.place,
            profiler="Nsight Systems",
            work=_work(columns, group, launch),
            names=columns.names,
            launches=launches,
            syncs=_waits(columns, mine) if waits is None else _some(waits, group),
            host=host,
            overhead=_some(overhead, group),
            steps=_steps(context.annotations, group),
            device=None if group.device == UNKNOWN else group.device,
            device_name=context.gpus.name(group.gpu, group.device),
            process=(process_id(columns.processes[group.processes[0]]) or None) if _one(group) else None,
            rank=rank if len(groups) > 1 else None,
            zero_unix_ns=context.zero_unix_ns,
            capturing=int(captures[columns.calls.name[mine]].sum()) + context.annotations.captures,
            notes=context.notes,
            distortions=(*context.distortions, *_sharing(groups, group)),
        )
        found.append(_with_replays(timeline))
    return tuple(found)


def _groups(columns: Columns, gpus: Gpus) -> list[_Group]:
    work = columns.work
    low = int(work.device.min())
    key = (work.process.astype(np.int64) + 1) * (int(work.device.max()) - low + 1) + (work.device - low)
    of = np.zeros(0, dtype=np.int64)
    first = np.zeros(1, dtype=np.int64)
    if not bool((key == key[0]).all()):
        _, first, of = np.unique(key, return_index=True, return_inverse=True)
    parts: dict[tuple[int, ...], list[int]] = {}
    for place, row in enumerate(first.tolist()):
        process, device = int(work.process[row]), int(work.device[row])
        pid = process_id(columns.processes[process]) if process != UNKNOWN else UNKNOWN
        gpu = gpus.of.get((pid, device))
        parts.setdefault((0, gpu) if gpu is not None else (1, device, process), []).append(place)
    return [
        _Group(
            rows=None if len(parts) == 1 else np.flatnonzero(np.isin(of, places)),
            processes=tuple(sorted({int(work.process[first[place]]) for place in places})),
            device=int(work.device[first[places[0]]]),
            gpu=title[1] if title[0] == 0 else None,
        )
        for title, places in sorted(parts.items())
    ]


def _of_processes(process: Int32, wanted: tuple[int, ...], known: int) -> Bool | slice:
    """Which rows belong to some processes; those of an unknown one belong to all, and all do where nothing tells."""
    if UNKNOWN in wanted or known <= 1:
        return slice(None)
    found: Bool = np.isin(process, [*wanted, UNKNOWN])
    return found


def _launches(columns: Columns, group: _Group, mine: Bool | slice, alone: bool) -> tuple[Launches, Int32]:
    """The calls that submitted the group's work, with those that launched what is not shown, and each work's row of
    them. What a process launched on another device is not this one's.
    """
    calls = columns.calls
    call = columns.work.call if group.rows is None else columns.work.call[group.rows]
    unseen = None
    if alone:
        unseen = np.zeros(len(calls.start), dtype=np.bool_)
        unseen[mine] = calls.launches[mine]
    return with_launches(Launches(calls.start, calls.end, calls.name, calls.thread), call, unseen)


def _work(columns: Columns, group: _Group, launch: Int32) -> Work:
    work, rows = columns.work, slice(None) if group.rows is None else group.rows
    return Work(
        work.start[rows], work.end[rows], work.stream[rows], work.kind[rows], work.name[rows], launch, work.size[rows]
    )


def _waits(columns: Columns, mine: Bool | slice) -> Intervals:
    waits = columns.calls.waits[mine]
    return Intervals(columns.calls.start[mine][waits], columns.calls.end[mine][waits])


def _taken(rows: Rows) -> Mapping[str, Int64]:
    """Intervals by process, sorted."""
    columns = {name: rows.take(name) for name in ("start", "end", "process")}
    order = np.argsort(columns["start"], kind="stable")
    return {name: column[order] for name, column in columns.items()}


def _some(rows: Mapping[str, Int64], group: _Group) -> Intervals:
    mine = np.isin(rows["process"], [*group.processes, UNKNOWN])
    if UNKNOWN in group.processes:
        mine[:] = True
    return Intervals(rows["start"][mine], rows["end"][mine])


def _steps(annotations: Annotations, group: _Group) -> tuple[Step, ...]:
    every = UNKNOWN in group.processes
    found = [step for process, step in annotations.steps if every or process in (*group.processes, UNKNOWN)]
    return tuple(sorted(found, key=lambda step: (step.start, -step.end)))


def _one(group: _Group) -> bool:
    return len(group.processes) == 1 and group.processes[0] != UNKNOWN


def _sharing(groups: list[_Group], group: _Group) -> tuple[str, ...]:
    alike = sum(other.device == group.device and other.gpu is None for other in groups)
    if alike < 2 or group.gpu is not None:
        return ()
    return (f"{alike} processes use a device {group.device}: if it is the same GPU, its idle time is less",)


def _with_replays(timeline: Timeline) -> Timeline:
    """Refuse a timeline in which most graph launches show no work: what they ran would seem idle."""
    names = timeline.launches.name
    for prefix in ("cuda", "cu"):  # the driver's call may stand within the runtime's
        graph = np.array([name.startswith(f"{prefix}GraphLaunch") for name in timeline.names], dtype=np.bool_)
        launched = np.flatnonzero(graph[names])
        if len(launched):
            break
    else:
        return timeline
    shown = int(np.isin(launched, timeline.work.launch).sum())
    missing = len(launched) - shown
    if missing >= _MANY and shown < _LEAST_SHOWN * len(launched):
        raise SourceError(
            f"{timeline.title} shows the work of {shown} of {len(launched)} graph launches: the GPU would seem idle",
            Advice("record the kernels of graphs", CAPTURE),
        )
    if missing >= _MANY and shown < _MOST_SHOWN * len(launched):
        said = f"{missing} of {len(launched)} graph launches show no work, and seem idle"
        return replace(timeline, distortions=(*timeline.distortions, said))
    return timeline
