"""What every profiler's export becomes: the work of one device on one clock, with what the host did for it.

All times are whole nanoseconds on the file's own clock. Every table is sorted by start. Names are kept once, in
``Timeline.names``, and referred to by their place there. Nothing of the profiled process's environment, arguments or
output is ever kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]

Phase = Literal["prefill", "decode", "mixed"]
Profiler = Literal["PyTorch profiler", "Nsight Systems"]

KERNEL: Final = 0
MEMCPY: Final = 1
MEMSET: Final = 2
GRAPH: Final = 3
"""A whole graph replay, whose kernels were not recorded one by one: it is busy time, and never classified."""

UNKNOWN: Final = -1
"""In columns of places, sizes and counts: not known."""


def int64(values: Iterable[int] = ()) -> Int64:
    """A column of times or sizes."""
    return np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.int64)


def int32(values: Iterable[int] = ()) -> Int32:
    """A column of places or identifiers."""
    return np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.int32)


@dataclass(frozen=True)
class Intervals:
    """Half-open intervals ``[start, end)`` in nanoseconds, sorted by start; they may overlap."""

    start: Int64 = field(default_factory=int64)
    end: Int64 = field(default_factory=int64)

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Work(Intervals):
    """What ran on the device: kernels, copies, memsets, opaque graph replays.

    ``stream`` is the profiler's number of the stream, ``kind`` KERNEL, MEMCPY, MEMSET or GRAPH, ``name`` a place in
    the names, ``launch`` the row of its launch (UNKNOWN where none was recorded). ``size`` tells work of the same name
    apart: the bytes of a copy or of a collective's message, for other communication the blocks of its grid; UNKNOWN
    else.
    """

    stream: Int32 = field(default_factory=int32)
    kind: UInt8 = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    name: Int32 = field(default_factory=int32)
    launch: Int32 = field(default_factory=int32)
    size: Int64 = field(default_factory=int64)


@dataclass(frozen=True)
class Launches(Intervals):
    """Calls of the host's API that submitted work: ``name`` is the call's place in the names, without the version
    suffix of some exports (``cudaLaunchKernel``, ``hipGraphLaunch``), ``thread`` the caller.
    """

    name: Int32 = field(default_factory=int32)
    thread: Int64 = field(default_factory=int64)


@dataclass(frozen=True)
class Collectives:
    """What a profiler tells of some communication kernels: rows of the work, each one's number in its process group
    (the same on every rank of it), and the group's name as a place in the names.
    """

    work: Int32 = field(default_factory=int32)
    sequence: Int64 = field(default_factory=int64)
    group: Int32 = field(default_factory=int32)


@dataclass(frozen=True)
class Step:
    """One step as an annotation tells it: requests and tokens are None where it does not.

    ``on`` is the clock of its interval: ``host`` is the time that the host took to prepare and submit the step, which
    the device runs later; ``device`` is the device's own.
    """

    start: int
    end: int
    name: str
    on: Literal["host", "device"] = "host"
    phase: Phase | None = None
    prefill_requests: int | None = None
    prefill_tokens: int | None = None
    decode_requests: int | None = None
    decode_tokens: int | None = None
    thread: int = UNKNOWN


@dataclass(frozen=True)
class Timeline:
    """One device of one process (so one rank) in one export.

    ``location`` is the file as the user named it, ``zero_unix_ns`` the Unix time of its clock's zero, where it is told
    (timelines of several ranks are only compared with it, or by their collectives). ``syncs`` are calls that made the
    host wait for the device; ``host`` are all recorded calls of the API, those included; ``overhead`` is the
    profiler's own. ``options`` are those that slow the host, and are on (``with_stack``). ``capturing`` counts calls
    that record a graph. ``notes`` are sentences on what was left out or mended; ``distortions`` are phrases that make
    its figures doubtful. ``ranks`` of the rank's own process group are ``world_size``.
    """

    location: str
    profiler: Profiler
    work: Work
    names: tuple[str, ...]
    launches: Launches = field(default_factory=Launches)
    syncs: Intervals = field(default_factory=Intervals)
    host: Intervals = field(default_factory=Intervals)
    overhead: Intervals = field(default_factory=Intervals)
    steps: tuple[Step, ...] = ()
    collectives: Collectives = field(default_factory=Collectives)
    device: int | None = None
    device_name: str | None = None
    process: int | None = None
    rank: int | None = None
    world_size: int | None = None
    zero_unix_ns: int | None = None
    options: tuple[str, ...] = ()
    capturing: int = 0
    notes: tuple[str, ...] = ()
    distortions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for table in (self.work, self.launches, self.syncs, self.host, self.overhead):
            if len(table) and bool((table.start[1:] < table.start[:-1]).any()):
                raise ValueError(f"{type(table).__name__} of {self.location} are not sorted by start")

    @property
    def title(self) -> str:
        """How a report calls it: its file, and its device or rank where the file holds several."""
        return self.location if self.rank is None else f"{self.location} (rank {self.rank})"

    def graph_launched(self) -> Bool:
        """Which work was submitted by a graph launch."""
        graph = np.fromiter(("GraphLaunch" in name for name in self.names), dtype=np.bool_, count=len(self.names))
        known = self.work.launch >= 0
        found: Bool = np.equal(self.work.kind, GRAPH)
        found[known] |= graph[self.launches.name[self.work.launch[known]]]
        return found
