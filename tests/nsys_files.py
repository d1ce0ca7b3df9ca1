"""SQLite exports of Nsight Systems, written from the schedules of ``timelines``: of several schemas, whole and damaged.

A database holds the processes of one machine, one schedule each. Its clock begins where the first schedule's does.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from timelines import Schedule

BASE = 1 << 48
PREFIX = "CUPTI_ACTIVITY_KIND_"

KERNEL_3_20 = (
    "start INTEGER NOT NULL", "end INTEGER NOT NULL", "deviceId INTEGER NOT NULL", "contextId INTEGER NOT NULL",
    "greenContextId INTEGER", "streamId INTEGER NOT NULL", "correlationId INTEGER", "globalPid INTEGER",
    "demangledName INTEGER NOT NULL", "shortName INTEGER NOT NULL", "mangledName INTEGER", "launchType INTEGER",
    "cacheConfig INTEGER", "registersPerThread INTEGER", "gridX INTEGER", "gridY INTEGER", "gridZ INTEGER",
    "blockX INTEGER", "blockY INTEGER", "blockZ INTEGER", "staticSharedMemory INTEGER", "dynamicSharedMemory INTEGER",
    "localMemoryPerThread INTEGER", "localMemoryTotal INTEGER", "gridId INTEGER", "sharedMemoryExecuted INTEGER",
    "graphNodeId INTEGER", "sharedMemoryLimitConfig INTEGER",
)  # fmt: skip
KERNEL_3_25 = (
    *KERNEL_3_20, "qmdBulkReleaseDone INTEGER", "qmdPreexitDone INTEGER", "qmdLastCtaDone INTEGER", "graphId INTEGER",
    "clusterX INTEGER", "clusterY INTEGER", "clusterZ INTEGER", "clusterSchedulingPolicy INTEGER",
    "maxPotentialClusterSize INTEGER", "maxActiveClusters INTEGER", "sharedMemoryRequestedPercentage INTEGER",
    "tensorSizeMinusOneElements TEXT NOT NULL DEFAULT '[]'",
)  # fmt: skip
OLD_KERNEL = tuple(column for column in KERNEL_3_20 if not column.startswith(("green", "mangled", "launchType")))
MINIMAL = ("start INTEGER", "end INTEGER", "deviceId INTEGER", "streamId INTEGER", "correlationId INTEGER",
           "shortName INTEGER", "demangledName INTEGER", "gridX INTEGER", "gridY INTEGER", "gridZ INTEGER")  # fmt: skip
COPY = ("start INTEGER", "end INTEGER", "deviceId INTEGER", "contextId INTEGER", "streamId INTEGER",
        "correlationId INTEGER", "globalPid INTEGER", "bytes INTEGER", "copyKind INTEGER", "srcKind INTEGER",
        "dstKind INTEGER")  # fmt: skip
GRAPH = ("start INTEGER", "end INTEGER", "deviceId INTEGER", "contextId INTEGER", "greenContextId INTEGER",
         "streamId INTEGER", "correlationId INTEGER", "globalPid INTEGER", "graphId INTEGER",
         "graphExecId INTEGER")  # fmt: skip
CALL = ("start INTEGER", "end INTEGER", "eventClass INTEGER", "globalTid INTEGER", "correlationId INTEGER",
        "nameId INTEGER", "returnValue INTEGER", "callchainId INTEGER")  # fmt: skip
NVTX = ("start INTEGER NOT NULL", "end INTEGER", "eventType INTEGER NOT NULL", "text TEXT", "globalTid INTEGER",
        "textId INTEGER", "domainId INTEGER")  # fmt: skip

Row = dict[str, Any]


class Export:
    """Tables as they will be written: rows may be added, changed or taken away until then."""

    def __init__(self, kernel: Sequence[str] = KERNEL_3_25, suffix: str = "") -> None:
        self.columns: dict[str, tuple[str, ...]] = {
            f"{PREFIX}KERNEL{suffix}": tuple(kernel),
            f"{PREFIX}MEMCPY": COPY,
            f"{PREFIX}GRAPH_TRACE": GRAPH,
            f"{PREFIX}RUNTIME{suffix}": CALL,
            "NVTX_EVENTS": NVTX,
            "StringIds": ("id INTEGER NOT NULL PRIMARY KEY", "value TEXT NOT NULL"),
            "TARGET_INFO_GPU": ("vmId INTEGER", "id INTEGER", "name TEXT", "memoryBandwidth INTEGER"),
            "TARGET_INFO_CUDA_DEVICE": ("gpuId INTEGER", "cudaId INTEGER", "pid INTEGER"),
            "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs INTEGER", "utcTime TEXT"),
            "META_DATA_EXPORT": ("name TEXT NOT NULL", "value TEXT"),
            "META_DATA_CAPTURE": ("name TEXT NOT NULL", "value TEXT"),
            "PROFILER_OVERHEAD": ("start INTEGER", "end INTEGER", "globalTid INTEGER", "nameId INTEGER",
                                  "overheadType INTEGER"),
            "DIAGNOSTIC_EVENT": ("timestamp INTEGER", "timestampType INTEGER", "source INTEGER", "severity INTEGER",
                                 "text TEXT", "globalPid INTEGER"),
            f"{PREFIX}SYNCHRONIZATION": ("start INTEGER", "end INTEGER", "deviceId INTEGER", "globalPid INTEGER",
                                         "syncType INTEGER"),
        }  # fmt: skip
        self.rows: dict[str, list[Row]] = {}
        self.suffix = suffix
        self.strings: dict[str, int] = {}

    def add(self, table: str, **row: Any) -> None:
        """A row; columns that the table lacks are left out."""
        self.rows.setdefault(table, []).append(row)

    def string(self, text: str) -> int:
        """The number of a string."""
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 10
            self.add("StringIds", id=self.strings[text], value=text)
        return self.strings[text]

    def write(self, path: Path, shuffled: int | None = None) -> Path:
        """The database; with a seed, its rows stand in another order. Only tables with rows are created."""
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database:
            for table, rows in self.rows.items():
                columns = [column.split()[0] for column in self.columns[table]]
                database.execute(f"CREATE TABLE {table} ({', '.join(map(_quoted, self.columns[table]))})")
                rows = list(rows)
                if shuffled is not None:
                    random.Random(shuffled).shuffle(rows)
                given = [column for column in columns if any(column in row for row in rows)]
                database.executemany(
                    f"INSERT INTO {table} ({', '.join(map(_quoted, given))}) VALUES ({', '.join('?' * len(given))})",
                    [[row.get(column) for column in given] for row in rows],
                )
            database.commit()
        return path


def _quoted(column: str) -> str:
    name, _, rest = column.partition(" ")
    return f'"{name}" {rest}'.strip()


def process(pid: int) -> int:
    """The global number of a process."""
    return BASE | pid << 24


def export_of(
    schedules: Iterable[Schedule],
    *,
    opaque: bool = False,
    colliding: bool = False,
    registered: bool = False,
    kernel: Sequence[str] = KERNEL_3_25,
    suffix: str = "",
) -> Export:
    """The export of schedules of one machine, one process and device each.

    ``opaque`` graphs are recorded whole; numbers of calls are the same in all processes where they are ``colliding``,
    and annotations are ``registered`` strings.
    """
    export = Export(kernel, suffix)
    every = list(schedules)
    zero = every[0].zero_unix_ns or 0
    if every[0].zero_unix_ns is not None:
        export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=zero, utcTime="2026-01-01T00:00:00")
    export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.25.0")
    for device, schedule in enumerate(every):
        pid = 1000 + device
        apart = (schedule.zero_unix_ns or 0) - zero
        first = 0 if colliding else device * 1_000_000
        export.add("TARGET_INFO_GPU", vmId=0, id=device, name=schedule.device_name, memoryBandwidth=10**12)
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=device, cudaId=device, pid=pid)
        _add(export, schedule, pid, device, apart, first, opaque, registered)
    return export


def _add(
    export: Export, schedule: Schedule, pid: int, device: int, apart: int, first: int, opaque: bool, registered: bool
) -> None:
    """The rows of one process."""
    thread = process(pid) | pid
    for start, end, name in schedule.steps:
        text: Row = {"textId": export.string(name)} if registered else {"text": name}
        export.add("NVTX_EVENTS", start=start + apart, end=end + apart, eventType=59, globalTid=thread, **text)
    graphs: dict[int, list[tuple[int, int]]] = {}
    for call in schedule.calls:
        export.add(
            f"{PREFIX}RUNTIME{export.suffix}", start=call.start + apart, end=call.end + apart, eventClass=0,
            globalTid=thread, correlationId=first + call.launch if call.launch else 0,
            nameId=export.string(f"{call.name}_v7000"), returnValue=0,
        )  # fmt: skip
        if opaque and "Graph" in call.name and call.launch:
            graphs[call.launch] = []
    for one in schedule.work:
        if one.launch in graphs:
            graphs[one.launch].append((one.start + apart, one.end + apart))
            continue
        common = {"start": one.start + apart, "end": one.end + apart, "deviceId": device, "contextId": 1,
                  "streamId": one.stream, "globalPid": process(pid),
                  "correlationId": None if one.launch is None else first + one.launch}  # fmt: skip
        if one.kind == "kernel":
            short = export.string("kernel")
            export.add(
                f"{PREFIX}KERNEL{export.suffix}", **common, demangledName=export.string(one.name), shortName=short,
                mangledName=export.string(f"_Z{one.name}"), gridX=64, gridY=1, gridZ=1, tensorSizeMinusOneElements="[]",
            )  # fmt: skip
        else:
            export.add(f"{PREFIX}MEMCPY", **common, bytes=4096, copyKind=1, srcKind=1, dstKind=2)
    for launch, parts in graphs.items():
        export.add(
            f"{PREFIX}GRAPH_TRACE", start=min(start for start, _ in parts), end=max(end for _, end in parts),
            deviceId=device, contextId=1, streamId=7, globalPid=process(pid), correlationId=first + launch, graphId=5,
            graphExecId=6,
        )  # fmt: skip


def write_nsys(path: Path, *schedules: Schedule, **options: Any) -> Path:
    """The export of schedules, its rows in no order."""
    return export_of(schedules, **options).write(path, shuffled=7)
