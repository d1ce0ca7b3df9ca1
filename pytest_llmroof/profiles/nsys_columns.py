"""From the rows of an export of Nsight Systems to sorted columns: named, and joined to the calls that submitted it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pytest_llmroof.profiles.calls import launching, waiting
from pytest_llmroof.profiles.joining import Numbered, submitted_by
from pytest_llmroof.profiles.nsys_database import Database
from pytest_llmroof.profiles.nsys_rows import COPY, REPLAY, SET, Read, blocks_host, copy_name
from pytest_llmroof.profiles.timeline import GRAPH, KERNEL, UNKNOWN, Bool, Int32, Int64, UInt8

_VERSION: Final = re.compile(r"(?:_pt[ds][sz])?_v\d{4,}$")
"""What exports append to the name of a call: the version of the API, and the kind of its default stream."""
_UNNAMED: Final = "unnamed"


@dataclass(frozen=True)
class WorkColumns:
    """The device's work, sorted by start, then end. ``call`` is a row of the calls."""

    start: Int64
    end: Int64
    device: Int32
    stream: Int32
    process: Int32
    name: Int32
    kind: UInt8
    call: Int32
    size: Int64


@dataclass(frozen=True)
class CallColumns:
    """The host's calls, sorted by start; which of them launch something, and which wait for the device."""

    start: Int64
    end: Int64
    thread: Int64
    process: Int32
    name: Int32
    launches: Bool
    waits: Bool


@dataclass(frozen=True)
class Columns:
    """``unnamed`` is the place of the name of what has none, UNKNOWN where all have one. ``untimed`` counts pieces of
    work without times, ``unplaced`` such calls; ``mixed`` is whether launches are unknown for want of processes.
    """

    work: WorkColumns
    calls: CallColumns
    names: tuple[str, ...]
    processes: tuple[int, ...]
    unnamed: int
    untimed: int
    unplaced: int
    mixed: bool


class _Names:
    """Names, each kept once."""

    def __init__(self, database: Database) -> None:
        self.place: dict[str, int] = {}
        self._database = database

    def places(self, numbers: Int32, text: Callable[[str], str]) -> Int32:
        """The place of the name of each number; ``text`` makes names of strings of the export."""
        if not len(numbers):
            return numbers
        low = int(numbers.min())
        used = np.flatnonzero(_used(numbers, low)) + low
        strings = self._database.strings(used.tolist())
        place = np.full(int(used[-1]) - low + 1, UNKNOWN, dtype=np.int32)
        for number in used.tolist():
            name = text(strings[number]) if number in strings else _unwritten(number)
            place[number - low] = self.place.setdefault(name, len(self.place))
        result: Int32 = place[numbers - low]
        return result


def columns_of(database: Database, read: Read) -> Columns:
    """The columns of what was read, which is used up."""
    names = _Names(database)
    calls, call_number = _calls(read, names)
    rows = read.work
    start, end = rows.take("start"), rows.take("end")
    timed = (start != 0) | (end != 0)  # both are 0 where they "could not be collected", by CUPTI's description
    sort = _sorter(_order_of_timed(start, end, timed))
    start, end = sort(start), sort(end)
    kind: UInt8 = sort(rows.take("kind", np.uint8))
    device: Int32 = sort(rows.take("device", np.int32))
    process = _adopted(sort(rows.take("process", np.int32)), device, calls.process)
    number: Int64 = sort(rows.take("correlation"))
    call, mixed = submitted_by(Numbered(number, process), Numbered(call_number, calls.process), calls.launches)
    name = names.places(sort(rows.take("name", np.int32)), str)
    work = WorkColumns(
        start=start,
        end=end,
        device=device,
        stream=sort(rows.take("stream", np.int32)),
        process=process,
        name=name,
        kind=kind,
        call=call,
        size=sort(rows.take("size")),
    )
    found = tuple(names.place)
    _add_blocking_copies(work, calls, found)
    return Columns(
        work=_without_doubles(work, number),
        calls=calls,
        names=found,
        processes=tuple(read.processes.numbers),
        unnamed=names.place.get(_UNNAMED, UNKNOWN),
        untimed=int((~timed).sum()),
        unplaced=read.unplaced,
        mixed=mixed,
    )


def _calls(read: Read, names: _Names) -> tuple[CallColumns, Int64]:
    """The calls, and the number of each."""
    rows = read.calls
    start = rows.take("start")
    sort = _sorter(_by_time(start, None))
    name = names.places(sort(rows.take("name", np.int32)), lambda text: _VERSION.sub("", text))
    known = tuple(names.place)
    calls = CallColumns(
        start=sort(start),
        end=sort(rows.take("end")),
        thread=sort(rows.take("thread")),
        process=sort(rows.take("process", np.int32)),
        name=name,
        launches=launching(known)[name] if len(name) else np.zeros(0, dtype=np.bool_),
        waits=waiting(known)[name] if len(name) else np.zeros(0, dtype=np.bool_),
    )
    return calls, sort(rows.take("correlation"))


def _order_of_timed(start: Int64, end: Int64, timed: Bool) -> Int64 | None:
    if timed.all():
        return _by_time(start, end)
    kept = np.flatnonzero(timed)
    order = _by_time(start[kept], end[kept])
    return kept if order is None else kept[order]


def _adopted(process: Int32, device: Int32, callers: Int32) -> Int32:
    """Work of an unknown process belongs to the only one there is, else to the only one that uses its device."""
    unknown = np.flatnonzero(process == UNKNOWN)
    if not len(unknown):
        return process
    adopted = process.copy()
    everyone = (set(np.unique(process).tolist()) | set(np.unique(callers).tolist())) - {UNKNOWN}
    for place in np.unique(device[unknown]).tolist():
        there = set(np.unique(process[device == place]).tolist()) - {UNKNOWN} or everyone
        if len(there) == 1:
            adopted[unknown[device[unknown] == place]] = there.pop()
    return adopted


def _by_time(start: Int64, end: Int64 | None) -> Int64 | None:
    """The order of time; None where rows stand in it."""
    ahead = start[1:] - start[:-1]
    order = None if bool((ahead >= 0).all()) else np.argsort(start, kind="stable")
    if end is None:
        return order
    ordered = start if order is None else start[order]
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return order
    # Of work that starts together, what ends first comes first.
    order = np.arange(len(start)) if order is None else order
    together = np.zeros(len(start), dtype=np.bool_)
    together[1:] |= same
    together[:-1] |= same
    some = order[together]
    order[together] = some[np.lexsort((end[some], start[some]))]
    return order


def _sorter(order: Int64 | None) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return (lambda column: column) if order is None else (lambda column: column[order])


def _used(numbers: Int32, low: int) -> Bool:
    used = np.zeros(int(numbers.max()) - low + 1, dtype=np.bool_)
    used[numbers - low] = True
    return used


def _unwritten(number: int) -> str:
    """The name of a number that stands for no string, or for one that is missing."""
    if number <= COPY:
        return copy_name(number)
    return {REPLAY: "CUDA graph", SET: "Memset"}.get(number, _UNNAMED)


def _add_blocking_copies(work: WorkColumns, calls: CallColumns, names: tuple[str, ...]) -> None:
    """Calls of copies to memory that can be paged wait for the device, too."""
    blocking = np.array([name in _BLOCKING for name in names], dtype=np.bool_)
    if blocking.any():
        calls.waits[work.call[blocking[work.name] & (work.call >= 0)]] = True


def _without_doubles(work: WorkColumns, number: Int64) -> WorkColumns:
    """Without replays whose kernels are there as well."""
    replays = np.flatnonzero(work.kind == GRAPH)
    if not len(replays):
        return work
    kernels = np.flatnonzero(work.kind == KERNEL)
    keys = [np.stack((work.process[rows].astype(np.int64), number[rows])) for rows in (replays, kernels)]
    shown = set(map(tuple, keys[1].T.tolist())) if len(kernels) else set()
    doubled = [row for row, key in zip(replays.tolist(), map(tuple, keys[0].T.tolist()), strict=True)
               if key[1] > 0 and key in shown]  # fmt: skip
    if not doubled:
        return work
    keep = np.ones(len(work.start), dtype=np.bool_)
    keep[doubled] = False
    return WorkColumns(**{name: column[keep] for name, column in vars(work).items()})


_BLOCKING: Final = frozenset(copy_name(number) for number in range(COPY - 4096, COPY + 1) if blocks_host(number))
