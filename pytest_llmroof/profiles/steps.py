"""Where steps begin and end on the device: by annotations, else by graph replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pytest_llmroof.profiles.intervals import Union
from pytest_llmroof.profiles.kernels import kernel_class
from pytest_llmroof.profiles.timeline import KERNEL, Int64, Step, Timeline

LEAST: Final = 3
"""Steps from which typical ones can be told; the first of them is left out."""


@dataclass(frozen=True)
class DeviceSteps:
    """Steps in the order of their work on the device: each runs from ``start`` to ``end`` (its last work), and lasts
    until the next one starts (``until``; the last one's end). ``told`` is what its annotation says.

    ``by`` names what told them apart.
    """

    start: Int64
    end: Int64
    until: Int64
    told: tuple[Step | None, ...]
    by: str

    def __len__(self) -> int:
        return len(self.start)


def device_steps(timeline: Timeline, holes: Union) -> DeviceSteps | None:
    """The steps of a timeline, without holes of its recording; None where nothing tells them apart."""
    kinds = (
        (_detailed(timeline.steps), "step annotations"),
        (_named(timeline.steps, "execute_new_"), "step annotations"),
        (_named(timeline.steps, "ProfilerStep"), "ProfilerStep ranges"),
    )
    for steps, by in kinds:
        host, device = _outermost(steps, "host"), _outermost(steps, "device")
        found = _by_launches(timeline, host) if host else None
        if found is None and device:
            found = [(step.start, step.end, step) for step in device]
        ordered = _ordered(found, by, holes) if found else None
        if ordered is not None:
            return ordered
    replays = _by_graphs(timeline)
    return _ordered(replays, "graph replays", holes) if len(replays) >= LEAST else None


def _detailed(steps: Sequence[Step]) -> list[Step]:
    """An engine's own steps, without those that held no request."""
    return [step for step in steps if step.phase is not None]


def _named(steps: Sequence[Step], prefix: str) -> list[Step]:
    """Steps whose annotation tells no phase."""
    return [step for step in steps if step.name.startswith(prefix)]


def _outermost(steps: Sequence[Step], on: str) -> list[Step]:
    """Steps of one clock; of nested ones the outer. (On the device, one step may be annotated on several streams.)"""
    kept: list[Step] = []
    for step in steps:
        if step.on != on:
            continue
        if kept and step.start < kept[-1].end:
            if step.end > kept[-1].end and step.name == kept[-1].name:
                last = kept.pop()
                kept.append(Step(**{**last.__dict__, "end": step.end}))
            continue
        kept.append(step)
    return kept


def _by_launches(timeline: Timeline, steps: Sequence[Step]) -> list[tuple[int, int, Step | None]] | None:
    """Steps by the work that the host launched during each; None where hardly any launch is known."""
    work = timeline.work
    known = work.launch >= 0
    if 2 * int(known.sum()) < len(work):
        return None
    begins = np.array([step.start for step in steps], dtype=np.int64)
    ends = np.array([step.end for step in steps], dtype=np.int64)
    launched = timeline.launches.start[work.launch[known]]
    of = np.searchsorted(begins, launched, side="right") - 1
    inside = (of >= 0) & (launched < ends[of])
    rows, of = np.flatnonzero(known)[inside], of[inside]
    first = np.full(len(steps), np.iinfo(np.int64).max)
    last = np.full(len(steps), np.iinfo(np.int64).min)
    np.minimum.at(first, of, work.start[rows])
    np.maximum.at(last, of, work.end[rows])
    return [(int(first[i]), int(last[i]), steps[i]) for i in range(len(steps)) if last[i] > first[i]] or None


def _by_graphs(timeline: Timeline) -> list[tuple[int, int, Step | None]]:
    """A step for each replay, where whole steps are replayed: attention that runs outside of graphs says otherwise."""
    work, replayed = timeline.work, timeline.graph_launched()
    outside = set(work.name[~replayed & (work.kind == KERNEL)].tolist())
    if any(kernel_class(timeline.names[name]) == "attention" for name in outside):
        return []
    rows = np.flatnonzero(replayed & (work.launch >= 0))
    if not len(rows):
        return []
    launches, of = np.unique(work.launch[rows], return_inverse=True)
    first = np.full(len(launches), np.iinfo(np.int64).max)
    last = np.full(len(launches), np.iinfo(np.int64).min)
    np.minimum.at(first, of, work.start[rows])
    np.maximum.at(last, of, work.end[rows])
    return [(int(start), int(end), None) for start, end in zip(first, last, strict=True)]


def _ordered(found: list[tuple[int, int, Step | None]], by: str, holes: Union) -> DeviceSteps | None:
    parts = ((*_without(start, end, holes), step) for start, end, step in found)
    found = sorted((part for part in parts if part[1] > part[0]), key=lambda one: one[:2])
    if not found:
        return None
    start = np.array([one[0] for one in found], dtype=np.int64)
    end = np.array([one[1] for one in found], dtype=np.int64)
    until = np.append(start[1:], np.maximum(end[-1:], start[-1:]))
    # A hole between two steps belongs to neither.
    after = np.searchsorted(holes.start, end)
    for index in np.flatnonzero(after < len(holes.start)):
        until[index] = min(until[index], max(end[index], holes.start[after[index]]))
    # Of steps that start at one moment only the last one lasts.
    lasting = np.flatnonzero(until > start)
    told = tuple(found[index][2] for index in lasting)
    return DeviceSteps(start[lasting], np.minimum(end, until)[lasting], until[lasting], told, by)


def _without(start: int, end: int, holes: Union) -> tuple[int, int]:
    """The longest part of a step that is free of holes."""
    if not len(holes.start):
        return start, end
    inside = (holes.start < end) & (holes.end > start)
    begins = [start, *holes.end[inside].tolist()]
    ends = [*holes.start[inside].tolist(), end]
    return max(zip(begins, ends, strict=True), key=lambda part: part[1] - part[0])
