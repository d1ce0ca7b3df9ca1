"""Traces among the tables of ``nsys stats``, as timelines."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.calls import waiting
from pytest_llmroof.profiles.nsys_csv import AGAIN, Table
from pytest_llmroof.profiles.timeline import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    UNKNOWN,
    Intervals,
    Launches,
    Timeline,
    Work,
    int32,
    int64,
)
from pytest_llmroof.units import whole_of

_DEVICE: Final = re.compile(r"(.*\S)\s*\((\d{1,9})\)")
_COARSE_NS: Final = 100
_LONGEST_NS: Final = 30 * 86_400 * 10**9
_REPLAYS: Final = "graph replays that were recorded whole are not in such a table, and would seem idle"
_COPIES: Final = "copies are not in such a table, and seem idle"
_SIZES: Final = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


@dataclass(frozen=True)
class _Ran:
    """One row: ``called`` is the call that submitted it (process, thread, start, end, name)."""

    start: int
    end: int
    name: str
    device: int
    stream: int = UNKNOWN
    kind: int = KERNEL
    size: int = UNKNOWN
    device_name: str | None = None
    process: int | None = None
    called: tuple[int, int, int, int, str] | None = None


def gpu_trace(table: Table) -> tuple[Timeline, ...]:
    """Timelines of ``cuda_gpu_trace``: when the GPU worked, without what the host did."""
    rows = []
    for row in table.rows:
        start, end = _interval(table, row, "start", "duration")
        name = table.text(row, "name")
        kind = _kind(name)
        title = _DEVICE.fullmatch(table.text(row, "device"))
        rows.append(
            _Ran(
                start,
                end,
                name,
                device=int(title[2]) if title else _number(table, row, "device"),
                stream=_number(table, row, "strm"),
                kind=kind,
                size=_blocks([table.text(row, f"grd{axis}") for axis in "xyz"])
                if kind == KERNEL
                else _bytes(table, row),
                device_name=title[1] if title else None,
            )
        )
    return _timelines(table, rows, (_REPLAYS,), ("start", "duration"))


def kernel_trace(table: Table) -> tuple[Timeline, ...]:
    """Timelines of ``cuda_kern_exec_trace``: kernels with the calls that submitted them, without copies."""
    rows = []
    for row in table.rows:
        start, end = _interval(table, row, "kernel start", "kernel dur")
        called, lasted = table.nanoseconds(row, "api start"), table.nanoseconds(row, "api dur")
        process, thread = _number(table, row, "pid"), _number(table, row, "tid")
        call = None
        if called is not None and lasted is not None and lasted >= 0:
            name = re.sub(r"(?:_pt[ds][sz])?_v\d{4,}$", "", table.text(row, "api function"))
            call = (process, thread, called, called + lasted, name)
        rows.append(
            _Ran(
                start,
                end,
                table.text(row, "kernel name"),
                device=_number(table, row, "devid"),
                size=_blocks(table.text(row, "gridxyz").split()),
                process=process if process >= 0 else None,
                called=call,
            )
        )
    nodes = any(one.called is not None and "GraphLaunch" in one.called[4] for one in rows)
    said = (_COPIES,) if nodes else (_COPIES, _REPLAYS)
    return _timelines(table, rows, said, ("api start", "api dur", "kernel start", "kernel dur"))


def _interval(table: Table, row: tuple[int, list[str]], start: str, duration: str) -> tuple[int, int]:
    begin, lasts = table.nanoseconds(row, start), table.nanoseconds(row, duration)
    if begin is None or lasts is None or not 0 <= lasts < _LONGEST_NS:
        raise SourceError(f"{table.place}:{row[0]}: a piece of GPU work without a time", AGAIN)
    return begin, begin + lasts


def _timelines(table: Table, rows: list[_Ran], said: tuple[str, ...], times: tuple[str, ...]) -> tuple[Timeline, ...]:
    if not rows:
        raise SourceError(f"{table.place} holds no GPU activity: its table has no rows", AGAIN)
    coarse = table.resolution_ns(*times)
    if coarse > _COARSE_NS:
        said = (*said, f"times are rounded to {coarse / 1000:g} µs: write them with --timeunit nsec")
    groups: dict[tuple[int, int], list[_Ran]] = {}
    for row in rows:
        groups.setdefault((row.device, UNKNOWN if row.process is None else row.process), []).append(row)
    several = len(groups) > 1
    return tuple(
        _timeline(table.place, sorted(some, key=lambda one: (one.start, one.end)), rank if several else None, said)
        for rank, (_, some) in enumerate(sorted(groups.items()))
    )


def _timeline(place: str, rows: Sequence[_Ran], rank: int | None, said: tuple[str, ...]) -> Timeline:
    calls = sorted({row.called for row in rows if row.called is not None}, key=lambda call: call[2:])
    line = {call: index for index, call in enumerate(calls)}
    names: dict[str, int] = {}
    for name in (*(call[4] for call in calls), *(row.name for row in rows)):
        names.setdefault(name, len(names))
    host = Intervals(int64(call[2] for call in calls), int64(call[3] for call in calls))
    waits = waiting(call[4] for call in calls) if calls else np.zeros(0, dtype=np.bool_)
    return Timeline(
        location=place,
        profiler="Nsight Systems",
        work=Work(
            int64(row.start for row in rows),
            int64(row.end for row in rows),
            int32(row.stream for row in rows),
            np.array([row.kind for row in rows], dtype=np.uint8),
            int32(names[row.name] for row in rows),
            int32(UNKNOWN if row.called is None else line[row.called] for row in rows),
            int64(row.size for row in rows),
        ),
        names=tuple(names),
        launches=Launches(
            host.start, host.end, int32(names[call[4]] for call in calls), int64(call[1] for call in calls)
        ),
        syncs=Intervals(host.start[waits], host.end[waits]),
        # Only calls that launched something are in the table: what else the host did is not known.
        device=rows[0].device if rows[0].device >= 0 else None,
        device_name=rows[0].device_name,
        process=rows[0].process,
        rank=rank,
        distortions=said,
    )


def _kind(name: str) -> int:
    if name.startswith("[CUDA memset"):
        return MEMSET
    if name.lower().startswith("[cuda graph"):
        return GRAPH
    return MEMCPY if name.startswith("[CUDA") and "memcpy" in name else KERNEL


def _number(table: Table, row: tuple[int, list[str]], column: str) -> int:
    found = table.count(row, column)
    return found if found is not None and 0 <= found < 1 << 31 else UNKNOWN


def _blocks(axes: Sequence[str]) -> int:
    """The blocks of a grid."""
    sides = [whole_of(axis) for axis in axes]
    blocks = math.prod(side for side in sides if side is not None)
    if len(sides) != 3 or None in sides:
        return UNKNOWN
    return blocks if blocks < 1 << 62 else UNKNOWN


def _bytes(table: Table, row: tuple[int, list[str]]) -> int:
    factor = _SIZES.get(table.units.get("bytes", "b").lower())
    try:
        found = float(table.text(row, "bytes").replace(",", "")) * (factor or math.nan)
    except ValueError:
        return UNKNOWN
    return round(found) if 0 <= found < 1 << 62 else UNKNOWN
