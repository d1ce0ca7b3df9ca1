"""The events of a PyTorch profiler's trace that matter, as columns; everything else is passed over.

Timestamps and durations are written in microseconds. Of an event's arguments only numbers and a collective's name,
size and group are looked at: shapes, stacks and whatever else a trace holds are never kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
import numpy as np

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.annotations import annotated_step, is_capture
from pytest_llmroof.profiles.columns import Columns
from pytest_llmroof.profiles.elements import Run, whole_elements
from pytest_llmroof.profiles.kernels import communication_classes, kernel_class
from pytest_llmroof.profiles.timeline import KERNEL, MEMCPY, MEMSET, UNKNOWN, Bool, Int64

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
_ANNOTATIONS: Final[dict[str, Literal["host", "device"]]] = {"user_annotation": "host", "gpu_user_annotation": "device"}
_NEEDED: Final = frozenset({*_WORK, *_CALLS, *_ANNOTATIONS, "overhead"})

_LARGEST: Final = 2**53
"""Microseconds: a larger number is no time."""
_LONGEST: Final = 30 * 86_400e6
"""Microseconds: nothing on a device lasts longer than 30 days."""

_DTYPE_BYTES: Final = {
    "double": 8, "long": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "byte": 1, "char": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


class _Args(msgspec.Struct, frozen=True, gc=False):
    """The arguments that are looked at. Their types are checked where they are used: traces differ in them."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    bytes: Any = None
    grid: msgspec.Raw = msgspec.Raw()
    elements: Any = msgspec.field(default=None, name="In msg nelems")
    dtype: Any = None
    sequence: Any = msgspec.field(default=None, name="Seq")
    group: Any = msgspec.field(default=None, name="Process Group Name")


class Event(msgspec.Struct, gc=False):
    """An event as most are written. Any other spelling is read by ``_leniently``."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = math.nan
    dur: float = math.nan
    pid: Any = None
    tid: Any = None
    args: _Args = _Args()


_GRID: Final = msgspec.json.Decoder(tuple[int, int, int])
_EVENTS: Final = msgspec.json.Decoder(list[Event])


def parse_events(text: bytes) -> list[Event] | None:
    """The events of a text of whole ones, separated by commas; None where it is something else."""
    try:
        return _EVENTS.decode(b"[%b]" % text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class EventReader:
    """Adds runs of events to columns."""

    def __init__(self, name: str) -> None:
        self.columns = Columns()
        self.count = 0
        self._file = name

    def add(self, run: Run[Event]) -> None:
        """Read a run. Raises SourceError where the device's work is damaged."""
        events = self._one_by_one(run) if run.parsed is None else run.parsed
        self.count += len(events)
        self._take(events, run)

    def _one_by_one(self, run: Run[Event]) -> list[Event]:
        """A run with something in it that is not strictly JSON, or not spelled as most events are."""
        previous, found = 0, []
        for begin, end in zip(*(places.tolist() for places in whole_elements(run.text)), strict=True):
            if begin and run.text[previous:begin].strip() != b",":
                raise SourceError(f"{self._file}: no comma between two events at byte {run.offset + previous}")
            previous = end
            event = _leniently(run.text[begin:end])
            if event is None:
                if _may_matter(run.text[begin:end]):
                    raise SourceError(f"{self._file}: the event at byte {run.offset + begin} is no JSON")
                self.columns.broken += 1
            found.append(event or Event())
        return found

    def _take(self, events: list[Event], run: Run[Event]) -> None:
        needed = [event for event in events if event.cat in _NEEDED and event.ph == "X"]
        for category in {event.cat for event in needed}:
            some = [event for event in needed if event.cat == category]
            begin, end, usable = self._times(some)
            if not usable.all():
                if category in _WORK:
                    bad = some[int(np.argmin(usable))]
                    index = next(index for index, event in enumerate(events) if event is bad)
                    at = run.offset + int(whole_elements(run.text)[0][index])
                    raise SourceError(f"{self._file}: the {category} event at byte {at} has no usable time")
                self.columns.unplaced += int((~usable).sum())
                some = [event for event, good in zip(some, usable.tolist(), strict=True) if good]
            if category in _WORK:
                self._work(some, begin, end, _WORK[category])
            elif category in _CALLS:
                self._calls(some, begin, end)
            elif category in _ANNOTATIONS:
                self._annotations(some, begin, end, _ANNOTATIONS[category])
            else:
                self.columns.overhead.add(begin, end)

    def _times(self, events: list[Event]) -> tuple[Int64, Int64, Bool]:
        """Starts and ends in ns of the events whose times are usable, and which these are."""
        start = np.array([event.ts for event in events], dtype=np.float64)
        duration = np.array([event.dur for event in events], dtype=np.float64)
        # Comparisons are false for what is not a number, too.
        usable: Bool = (np.abs(start) < _LARGEST) & (duration >= 0) & (duration < _LONGEST)
        begin = np.rint(start[usable] * 1000).astype(np.int64)
        self.columns.coarse |= bool((begin > _LARGEST).any())
        return begin, begin + np.rint(duration[usable] * 1000).astype(np.int64), usable

    def _calls(self, events: list[Event], begin: Int64, end: Int64) -> None:
        named = self.columns.names.of
        self.columns.calls.add(
            begin,
            end,
            _numbers([event.tid for event in events]),
            named([event.name for event in events]),
            _numbers([event.args.correlation for event in events]),
        )

    def _work(self, events: list[Event], begin: Int64, end: Int64, kind: int) -> None:
        columns, named = self.columns, self.columns.names.of
        told = [index for index, event in enumerate(events) if event.args.sequence is not None]
        columns.collectives.add(
            len(columns.work) + np.array(told, dtype=np.int64),
            _numbers([events[index].args.sequence for index in told]),
            named([f"process group {str(events[index].args.group)[:64]}" for index in told]),
        )
        columns.work.add(
            begin,
            end,
            _narrow([event.pid if event.args.device is None else event.args.device for event in events]),
            _narrow([event.tid if event.args.stream is None else event.args.stream for event in events]),
            np.full(len(events), kind),
            named([event.name for event in events]),
            _numbers([event.args.correlation for event in events]),
            _sizes(events),
        )

    def _annotations(self, events: list[Event], begin: Int64, end: Int64, on: Literal["host", "device"]) -> None:
        for event, start, stop in zip(events, begin.tolist(), end.tolist(), strict=True):
            self.columns.captures += is_capture(event.name)
            step = annotated_step(event.name, start, stop, on, _number(event.tid))
            if step is not None:
                self.columns.steps.append((_number(event.pid) if on == "device" else None, step))


def _sizes(events: list[Event]) -> Int64:
    """Bytes of copies and of collectives' messages; of communication that does not tell, the blocks of its grid."""
    told = [event.args.bytes is not None or event.args.elements is not None for event in events]
    classes = communication_classes()
    named = {name for name in {event.name for event in events} if kernel_class(name) in classes}
    return _numbers(
        [
            _size(event.args) if known or event.name in named else UNKNOWN
            for event, known in zip(events, told, strict=True)
        ]
    )


def _size(args: _Args) -> int:
    if args.bytes is not None:
        return _number(args.bytes)
    if args.elements is not None:
        return _number(args.elements) * _DTYPE_BYTES.get(str(args.dtype).lower(), 1)
    try:
        return math.prod(_GRID.decode(args.grid))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return UNKNOWN


def _leniently(text: bytes) -> Event | None:
    """An event with NaN, control characters, broken UTF-8 or numbers as text; None where it is no object."""
    try:
        found = json.loads(text.decode("utf-8", errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    given = found.get("args")
    return Event(
        ph=str(found.get("ph", "")),
        cat=str(found.get("cat", "")),
        name=str(found.get("name", "")),
        ts=_float(found.get("ts")),
        dur=_float(found.get("dur")),
        pid=found.get("pid"),
        tid=found.get("tid"),
        args=_lenient_args(given if isinstance(given, dict) else {}),
    )


def _lenient_args(given: Mapping[str, Any]) -> _Args:
    values = {field.name: given.get(field.encode_name) for field in msgspec.structs.fields(_Args)}
    grid = msgspec.Raw(json.dumps(values.pop("grid")).encode())
    return _Args(grid=grid, **values)


def _may_matter(text: bytes) -> bool:
    """Whether a broken event could be the device's work."""
    return any(f'"{category}"'.encode() in text for category in _WORK)


def _float(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _numbers(values: list[Any]) -> Int64:
    """A column of whole numbers, UNKNOWN where there is none or no 64 bits hold it."""
    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_number(value) for value in values], dtype=np.int64)


def _narrow(values: list[Any]) -> Int64:
    """The same for what 32 bits hold."""
    numbers = _numbers(values)
    return np.where(np.abs(numbers) < 2**31, numbers, UNKNOWN)


def _number(value: object) -> int:
    """A process's, thread's or device's number; text (``stream 7``) gives the number in it."""
    if isinstance(value, str):
        digits = "".join(sign for sign in value if "0" <= sign <= "9")[:18]
        return int(digits) if digits else UNKNOWN
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 2**62 else UNKNOWN
