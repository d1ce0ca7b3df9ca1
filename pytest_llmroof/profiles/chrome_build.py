"""From the columns of a trace to one timeline for each device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.calls import capturing, launching, waiting
from pytest_llmroof.profiles.columns import Columns
from pytest_llmroof.profiles.joining import call_of, with_launches
from pytest_llmroof.profiles.timeline import (
    UNKNOWN,
    Bool,
    Collectives,
    Int32,
    Int64,
    Intervals,
    Launches,
    Step,
    Timeline,
    Work,
)

_MERGED: Final = 0.02
"""In a trace of one process hardly a number of a launch comes twice."""
_EPOCH_NS: Final = 10**18
"""A clock beyond this counts from 1970: no machine has been up for 30 years."""


@dataclass(frozen=True)
class Header:
    """What a trace says about itself. ``options`` are those of the profiler that slow the host, and are on."""

    devices: Mapping[int, str] = field(default_factory=dict)
    rank: int | None = None
    world_size: int | None = None
    zero_unix_ns: int | None = None
    options: tuple[str, ...] = ()


def timelines_of(
    columns: Columns, header: Header, place: str, notes: tuple[str, ...], distortions: tuple[str, ...] = ()
) -> tuple[Timeline, ...]:
    """A timeline for each device. Raises SourceError where there is no work of any."""
    if not len(columns.work):
        raise SourceError(
            f"{place} holds no GPU activity (no kernels, copies or memsets): it tells nothing about the GPU",
            "profile with the CUDA activity on, while requests are served, and with rights to use the GPU's profiler",
        )
    work = columns.work.taken()
    order = _by_start(work)
    calls = columns.calls.taken()
    _by_start(calls)
    names = tuple(columns.names.place)
    called = Launches(calls["start"], calls["end"], calls["name"], calls["thread"])
    launches = launching(names)[called.name]
    _refuse_merged(called, calls["correlation"], launches, place)
    call = call_of(work["correlation"], calls["correlation"], launches)
    said = (*notes, *_damage(columns, place))
    devices = np.unique(work["device"]).tolist()
    waits = waiting(names)[called.name]
    overhead = columns.overhead.taken()
    _by_start(overhead)
    told = columns.collectives.taken()
    return tuple(
        Timeline(
            location=place,
            profiler="PyTorch profiler",
            work=_work(work, launch, mine),
            names=names,
            launches=own,
            syncs=Intervals(called.start[waits], called.end[waits]),
            host=Intervals(called.start, called.end),
            overhead=Intervals(overhead["start"], overhead["end"]),
            steps=_steps(columns, device, len(devices)),
            collectives=_collectives(told, order, mine),
            device=device if device >= 0 else None,
            device_name=_device_name(header.devices, device),
            rank=header.rank,
            world_size=header.world_size,
            zero_unix_ns=_zero(header, work["start"]),
            options=header.options,
            capturing=int(capturing(names)[called.name].sum()) + columns.captures,
            notes=said,
            distortions=distortions,
        )
        for device in devices
        for mine in (_of_device(work["device"], device),)
        # What was launched on another device is not this one's; where there is one, work that was not seen is its own.
        for own, launch in (with_launches(called, call[mine], launches if isinstance(mine, slice) else None),)
    )


def _refuse_merged(calls: Launches, number: Int64, launches: Bool, place: str) -> None:
    """Raise SourceError where launches of several processes bear the same numbers: nobody knows which work is whose.

    Within a process one launch has two calls at most, one of them (the driver's) inside the other.
    """
    rows = np.flatnonzero(launches & (number > 0))
    order = rows[np.argsort(number[rows], kind="stable")]  # of one number, the earlier one first
    first, second = order[:-1], order[1:]
    shared = number[first] == number[second]
    shared &= (calls.thread[first] != calls.thread[second]) | (calls.start[second] >= calls.end[first])
    if int(shared.sum()) > _MERGED * len(order):
        raise SourceError(
            f"{place} is several traces merged into one: their launches bear the same numbers, so that nobody can tell "
            "which work belongs to which",
            "name the traces of the ranks themselves, each a file of its own",
        )


def _by_start(table: dict[str, Any]) -> Int64 | None:
    """Put a table in the order of its starts, a column at a time. The order, None where it was in it."""
    start = table["start"]
    if bool((start[1:] >= start[:-1]).all()):
        return None
    order = np.argsort(start, kind="stable")
    for name in table:
        table[name] = table[name][order]
    return order


def _of_device(devices: Int64, device: int) -> Bool | slice:
    """Which work is a device's own; where there is one device only, all of it, without a copy."""
    mine: Bool = devices == device
    return slice(None) if mine.all() else mine


def _work(work: Mapping[str, Any], launch: Int32, mine: Bool | slice) -> Work:
    return Work(
        work["start"][mine],
        work["end"][mine],
        work["stream"][mine],
        work["kind"][mine].astype(np.uint8),
        work["name"][mine],
        launch,
        work["size"][mine],
    )


def _steps(columns: Columns, device: int, devices: int) -> tuple[Step, ...]:
    found = [step for on, step in columns.steps if on is None or on == device or devices == 1]
    return tuple(sorted(found, key=lambda step: (step.start, -step.end)))


def _collectives(told: Mapping[str, Any], order: Int64 | None, mine: Bool | slice) -> Collectives:
    """The collectives of one device, by the row of its own work."""
    if not len(told["work"]):
        return Collectives()
    count = len(order) if order is not None else int(told["work"].max()) + 1
    place = np.arange(count)
    if order is not None:
        place[order] = np.arange(count)
    work = place[told["work"]]
    if not isinstance(mine, slice):
        rows = np.where(mine, np.cumsum(mine) - 1, UNKNOWN)
        work = rows[work]
    by_row = np.argsort(work, kind="stable")
    by_row = by_row[work[by_row] >= 0]
    return Collectives(work[by_row].astype(np.int32), told["sequence"][by_row], told["group"][by_row])


def _device_name(devices: Mapping[int, str], device: int) -> str | None:
    """The device's name; where its number is not listed (ROCm), the one that all listed devices bear."""
    named = {name for name in devices.values() if name}
    if devices.get(device):
        return devices[device]
    return named.pop() if len(named) == 1 else None


def _zero(header: Header, starts: Int64) -> int | None:
    if int(starts[-1]) > _EPOCH_NS:  # whatever the header calls the zero: older releases wrote it beside such times
        return 0
    return header.zero_unix_ns or None


def _damage(columns: Columns, place: str) -> tuple[str, ...]:
    said = []
    if columns.broken:
        said.append(f"{place}: {columns.broken} host events are no JSON, and were left out")
    if columns.unplaced:
        said.append(f"{place}: {columns.unplaced} host events have no usable time, and were left out")
    if columns.coarse:
        said.append(f"{place}: timestamps since 1970 as fractions resolve a quarter of a microsecond")
    return tuple(said)
