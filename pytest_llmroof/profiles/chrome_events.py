"""The events of a PyTorch profiler's trace that matter, as columns; everything else is passed over.

Timestamps and durations are written in microseconds. Of an event's arguments only numbers and a collective's name,
size and group are looked at: shapes, stacks and whatever else a trace holds are never kept.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.annotations import is_capture, step_of
from pytest_llmroof.profiles.elements import Run
from pytest_llmroof.profiles.timeline import KERNEL, MEMCPY, MEMSET, UNKNOWN, Int64, Step

#: Categories of device work, by today's names and those of older releases.
_WORK: Final = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
}
_CALLS: Final = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "Runtime", "Driver"})
_ANNOTATIONS: Final = {"user_annotation": "host", "gpu_user_annotation": "device"}
_NEEDED: Final = frozenset({*_WORK, *_CALLS, *_ANNOTATIONS, "overhead"})

_LARGEST: Final = 2**53
"""Microseconds: a larger number is no time."""

_DTYPE_BYTES: Final = {
    "double": 8, "long": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "byte": 1, "char": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


class _Event(msgspec.Struct, gc=False):
    """An event as most are written. Any other spelling is read by ``_leniently``."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = math.nan
    dur: float = math.nan
    pid: int | str = ""
    tid: int | str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Args(msgspec.Struct, gc=False):
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    bytes: int | None = None
    grid: tuple[int, int, int] | None = None
    elements: int | None = msgspec.field(default=None, name="In msg nelems")
    dtype: str | None = None
    sequence: int | None = msgspec.field(default=None, name="Seq")
    group: str | None = msgspec.field(default=None, name="Process Group Name")


_EVENTS: Final = msgspec.json.Decoder(list[_Event])
_ARGS: Final = msgspec.json.Decoder(_Args)


@dataclass
class Names:
    """Names, each kept once."""

    place: dict[str, int] = field(default_factory=dict)

    def of(self, name: str) -> int:
        """The name's place."""
        return self.place.setdefault(name, len(self.place))


class Rows:
    """A table of whole numbers that grows: rows one behind the other, for little memory and time."""

    def __init__(self, *columns: str) -> None:
        self._columns = columns
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._numbers) // len(self._columns)

    def add(self, *row: int) -> None:
        """One row, a number for each column; what no 64 bits can hold becomes UNKNOWN."""
        try:
            self._numbers.extend(row)
        except OverflowError:
            del self._numbers[len(self) * len(self._columns) :]
            self._numbers.extend(_known(number) for number in row)

    def columns(self) -> dict[str, Int64]:
        """Every column, as a view of the table."""
        table = np.frombuffer(self._numbers, dtype=np.int64) if len(self) else np.zeros(0, dtype=np.int64)
        return dict(zip(self._columns, table.reshape(-1, len(self._columns)).T, strict=True))


@dataclass
class Columns:
    """What was read so far. Times are nanoseconds on the trace's clock.

    Calls and work refer to each other by ``correlation``, collectives to the row of their ``work``.
    """

    names: Names = field(default_factory=Names)
    work: Rows = field(
        default_factory=lambda: Rows("start", "end", "device", "stream", "kind", "name", "correlation", "size")
    )
    calls: Rows = field(default_factory=lambda: Rows("start", "end", "process", "thread", "name", "correlation"))
    collectives: Rows = field(default_factory=lambda: Rows("work", "sequence", "group"))
    overhead: Rows = field(default_factory=lambda: Rows("start", "end"))
    steps: list[tuple[int | None, Step]] = field(default_factory=list)
    """With the device of those on a device's clock."""
    captures: int = 0
    coarse: bool = False
    """Whether timestamps are too large for a float of microseconds to hold nanoseconds."""
    broken: int = 0
    """Events that are no JSON, of kinds that do not matter here."""
    unplaced: int = 0
    """Host calls without a usable time."""


class EventReader:
    """Adds runs of events to columns."""

    def __init__(self, name: str) -> None:
        self.columns = Columns()
        self._file = name

    def add(self, run: Run) -> None:
        """Read a run. Raises SourceError where the device's work is damaged."""
        try:
            events = _EVENTS.decode(b"[" + run.text + b"]")
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._one_by_one(run)
            return
        needed = _NEEDED
        for index, event in enumerate(events):
            if event.cat in needed and event.ph == "X":
                self._take(event, run, index)

    def _one_by_one(self, run: Run) -> None:
        """A run with something in it that is not strictly JSON, or not spelled as most events are."""
        previous = 0
        for index, (begin, end) in enumerate(zip(run.starts.tolist(), run.ends.tolist(), strict=True)):
            between = run.text[previous:begin].strip()
            if index and between != b",":
                raise SourceError(f"{self._file}: no comma between two events at byte {run.offset + previous}")
            previous = end
            event = _leniently(run.text[begin:end])
            if event is None:
                if _may_matter(run.text[begin:end]):
                    raise SourceError(f"{self._file}: the event at byte {run.offset + begin} is no JSON")
                self.columns.broken += 1
            elif event.cat in _NEEDED and event.ph == "X":
                self._take(event, run, index)

    def _take(self, event: _Event, run: Run, index: int) -> None:
        columns, category = self.columns, event.cat
        start, end = event.ts, event.ts + event.dur
        # The comparison is false for what is not a number, too.
        if not (-_LARGEST < start <= end < _LARGEST):
            if category in _WORK:
                at = run.offset + int(run.starts[index])
                raise SourceError(f"{self._file}: the {category} event at byte {at} has no usable time")
            columns.unplaced += 1
            return
        begin = round(start * 1000)
        if begin > _LARGEST:
            columns.coarse = True
        end = begin + round(event.dur * 1000)
        if category in _CALLS:
            self._call(event, begin, end)
        elif category in _WORK:
            self._work(event, begin, end)
        elif category == "overhead":
            columns.overhead.add(begin, end)
        else:
            self._annotation(event, begin, end)

    def _call(self, event: _Event, begin: int, end: int) -> None:
        correlation = _args(event).correlation
        process = event.pid if type(event.pid) is int else _number(event.pid)
        thread = event.tid if type(event.tid) is int else _number(event.tid)
        name = self.columns.names.of(event.name)
        self.columns.calls.add(begin, end, process, thread, name, UNKNOWN if correlation is None else correlation)

    def _work(self, event: _Event, begin: int, end: int) -> None:
        args = _args(event)
        if args.sequence is not None:
            group = self.columns.names.of(f"process group {args.group}")
            self.columns.collectives.add(len(self.columns.work), args.sequence, group)
        self.columns.work.add(
            begin,
            end,
            _number(event.pid) if args.device is None else args.device,
            _number(event.tid) if args.stream is None else args.stream,
            _WORK[event.cat],
            self.columns.names.of(event.name),
            UNKNOWN if args.correlation is None else args.correlation,
            _size(args),
        )

    def _annotation(self, event: _Event, begin: int, end: int) -> None:
        on = _ANNOTATIONS[event.cat]
        if is_capture(event.name):
            self.columns.captures += 1
        told = step_of(event.name)
        if told is None:
            return
        step = Step(
            begin,
            end,
            event.name[:200],
            "device" if on == "device" else "host",
            told.phase,
            told.prefill_requests,
            told.prefill_tokens,
            told.decode_requests,
            told.decode_tokens,
            _number(event.tid),
        )
        self.columns.steps.append((_number(event.pid) if on == "device" else None, step))


def _size(args: _Args) -> int:
    """Bytes of a copy or a collective's message, else blocks of the grid."""
    if args.bytes is not None:
        return args.bytes
    if args.elements is not None:
        return args.elements * _DTYPE_BYTES.get((args.dtype or "").lower(), 1)
    return UNKNOWN if args.grid is None else math.prod(args.grid)


def _args(event: _Event) -> _Args:
    try:
        return _ARGS.decode(event.args)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _args_leniently(_object(bytes(event.args)) or {})


def _args_leniently(found: Mapping[str, Any]) -> _Args:
    grid = found.get("grid")
    text = {key: found.get(key) for key in ("dtype", "Process Group Name")}
    return _Args(
        **{key: _integer(found.get(key)) for key in ("device", "stream", "correlation", "bytes")},
        grid=tuple(grid) if isinstance(grid, list) and [type(one) for one in grid] == [int] * 3 else None,
        elements=_integer(found.get("In msg nelems")),
        sequence=_integer(found.get("Seq")),
        dtype=text["dtype"] if isinstance(text["dtype"], str) else None,
        group=None if text["Process Group Name"] is None else str(text["Process Group Name"])[:64],
    )


def _leniently(text: bytes) -> _Event | None:
    """An event with NaN, control characters, broken UTF-8 or numbers as text; None where it is no object."""
    found = _object(text)
    if found is None:
        return None
    args = found.get("args")
    return _Event(
        ph=str(found.get("ph", "")),
        cat=str(found.get("cat", "")),
        name=str(found.get("name", "")),
        ts=_float(found.get("ts")),
        dur=_float(found.get("dur")),
        pid=_text_or_number(found.get("pid")),
        tid=_text_or_number(found.get("tid")),
        args=msgspec.Raw(json.dumps(args).encode() if isinstance(args, dict) else b"{}"),
    )


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text.decode("utf-8", errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _may_matter(text: bytes) -> bool:
    """Whether a broken event could be the device's work."""
    return any(f'"{category}"'.encode() in text for category in _WORK)


def _float(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _integer(value: object) -> int | None:
    number = _float(value)
    return int(number) if math.isfinite(number) else None


def _text_or_number(value: object) -> int | str:
    return value if isinstance(value, int | str) else ""


def _number(value: int | str) -> int:
    """A process's, thread's or device's number; text (``stream 7``) gives the number in it."""
    if isinstance(value, str):
        digits = "".join(sign for sign in value if "0" <= sign <= "9")[:18]
        return int(digits) if digits else UNKNOWN
    return _known(value)


def _known(value: int) -> int:
    return value if 0 <= value < 2**62 else UNKNOWN
