"""The rows of an export of Nsight Systems as columns: the device's work, and the calls of the host.

Times are nanoseconds since the capture began. Rows stand in no order. A number of a process is what its threads and
contexts have in common (``globalPid``, and ``globalTid`` without its thread), and is kept as a place in ``processes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pytest_llmroof.profiles.nsys_database import Database, Table, timed, usable, whole
from pytest_llmroof.profiles.timeline import GRAPH, KERNEL, MEMCPY, MEMSET, UNKNOWN, Int32, Int64

PROCESS: Final = -0x1000000
"""The bits of a thread's global number that its process has, too."""
_INT32: Final = np.iinfo(np.int32)

_TABLES: Final = {
    KERNEL: "CUPTI_ACTIVITY_KIND_KERNEL",
    MEMCPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    MEMSET: "CUPTI_ACTIVITY_KIND_MEMSET",
    GRAPH: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}

#: Names that are no strings of the export, as numbers below every string's.
UNNAMED: Final = -1
REPLAY: Final = -2
SET: Final = -3
COPY: Final = -1000
_COPIES: Final = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
                  10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD"}  # fmt: skip
_MEMORIES: Final = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
_TO_HOST, _PAGEABLE = 2, 0


class Rows:
    """Columns of one kind, a list of blocks each, until they are taken."""

    def __init__(self) -> None:
        self.blocks: dict[str, list[NDArray[Any]]] = {}

    def add(self, **columns: NDArray[Any]) -> None:
        """A block of every column."""
        for name, column in columns.items():
            self.blocks.setdefault(name, []).append(column)

    def take(self, name: str, kind: type[np.generic] = np.int64) -> NDArray[Any]:
        """A column, whole; it is held here no longer."""
        blocks = self.blocks.pop(name, [])
        return np.concatenate(blocks) if blocks else np.zeros(0, dtype=kind)


class Processes:
    """Numbers of processes, as places in the order of their appearance; UNKNOWN where there is none."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def places(self, numbers: Int64) -> Int32:
        """The place of each number of a process or of one of its threads."""
        found = np.full(len(numbers), UNKNOWN, dtype=np.int32)
        known = numbers != UNKNOWN
        processes = numbers & PROCESS
        rest = known.copy()
        while rest.any():  # a handful of them
            number = int(processes[np.argmax(rest)])
            if number not in self.numbers:
                self.numbers.append(number)
            same = known & (processes == number)
            found[same] = self.numbers.index(number)
            rest &= ~same
        return found


@dataclass(frozen=True)
class Read:
    """What an export holds. ``unplaced`` counts calls of the host without a usable time, which are left out."""

    work: Rows
    calls: Rows
    processes: Processes
    unplaced: int


def read_rows(database: Database) -> Read:
    """The device's work, and the host's calls. Raises SourceError where a piece of work has no usable time."""
    processes, work, calls = Processes(), Rows(), Rows()
    for kind in _TABLES:
        _add_work(database, kind, work, processes)
    return Read(work, calls, processes, _add_calls(database, calls, processes))


def _add_work(database: Database, kind: int, rows: Rows, processes: Processes) -> None:
    table = database.table(_TABLES[kind])
    if table is None:
        return
    _check_times(database, table)
    columns = [
        table.first("deviceId", otherwise=UNKNOWN),
        table.first("streamId", otherwise=UNKNOWN),
        table.first("correlationId", otherwise=UNKNOWN),
        table.first("globalPid", otherwise=UNKNOWN),
        _name(table, kind),
        _size(table, kind),
    ]

    def add(block: Iterable[Int64]) -> None:
        start, end, device, stream, correlation, process, name, size = block
        if not usable(start, end):
            raise ValueError("times")
        rows.add(
            start=start.copy(),
            end=end.copy(),
            device=_int32(device),
            stream=_int32(stream),
            correlation=correlation.copy(),
            process=processes.places(process),
            name=_int32(name),
            size=size.copy(),
            kind=np.full(len(start), kind, dtype=np.uint8),
        )

    packed: list[str] = []
    if kind == KERNEL and {"deviceid", "streamid", "correlationid", "globalpid", "demangledname"} <= table.columns:
        packed = _packed('"deviceid"', '"streamid"', '"correlationid"', '"globalpid"', '"demangledname"', columns[-1])
    _each_block(database, table, columns, add, rows, _refuse_untimed, packed)


def _add_calls(database: Database, rows: Rows, processes: Processes) -> int:
    """Add the host's calls. How many of them have no usable time (they had not returned, for one), and are left out."""
    table = database.table("CUPTI_ACTIVITY_KIND_RUNTIME")
    if table is None or not {"start", "end", "nameid"} <= table.columns:
        return 0
    columns = [
        table.first("globalTid", otherwise=UNKNOWN),
        table.first("correlationId", otherwise=UNKNOWN),
        table.first("nameId", otherwise=UNNAMED),
    ]

    def add(block: Iterable[Int64]) -> None:
        start, end, thread, correlation, name = block
        if not usable(start, end):
            raise ValueError("times")
        rows.add(
            start=start.copy(),
            end=end.copy(),
            thread=thread.copy(),
            correlation=correlation.copy(),
            process=processes.places(thread),
            name=_int32(name),
        )

    return _each_block(database, table, columns, add, rows, lambda _database, _table, _count: None)


def _each_block(
    database: Database,
    table: Table,
    columns: Sequence[str],
    add: Callable[[Iterable[Int64]], None],
    rows: Rows,
    untimed: Callable[[Database, Table, int], None],
    packed: Sequence[str] = (),
) -> int:
    """Read a table as what it should be; where it is not, again and with every value checked.

    ``packed`` are expressions of work that are read in place of the columns, where every value fits.

    How many rows have no usable times: those are left out, unless ``untimed`` refuses them.
    """
    before = {name: len(blocks) for name, blocks in rows.blocks.items()}
    for expressions in (packed, columns) if packed else (columns,):
        try:
            for block in database.numbers(table, ['"start"', '"end"', *expressions]):
                add(_unpacked(block) if expressions is packed else block)
            return 0
        except ValueError:
            for name, blocks in rows.blocks.items():
                del blocks[before.get(name, 0) :]
    ((bad,),) = database.rows(f'SELECT count(*) FROM "{table.name}" WHERE NOT ({timed()})')
    count = bad if isinstance(bad, int) else 0
    if count:
        untimed(database, table, count)
    for block in database.numbers(table, ['"start"', '"end"', *map(whole, columns)], timed()):
        add(block)
    return count


def _packed(device: str, stream: str, number: str, process: str, name: str, size: str) -> list[str]:
    """Two numbers for five columns: what reading costs is the count of values. NULL where one does not fit."""
    return [
        f"CASE WHEN {device} BETWEEN 0 AND 127 AND {stream} BETWEEN 0 AND 65535 "
        f"THEN ({process} >> 24 << 23) | ({stream} << 7) | {device} END",
        f"CASE WHEN {number} BETWEEN 0 AND 4294967295 AND {name} BETWEEN 0 AND 2147483647 "
        f"THEN ({name} << 32) | {number} END",
        size,
    ]


def _unpacked(block: Int64) -> Iterable[Int64]:
    start, end, place, named, size = block
    device, stream, process = place & 127, place >> 7 & 0xFFFF, place >> 23 << 24
    return start, end, device, stream, named & 0xFFFFFFFF, process, named >> 32, size


def _check_times(database: Database, table: Table) -> None:
    if not {"start", "end"} <= table.columns:
        raise database.damaged(f"its table {table.name} has no columns start and end")
    kinds = next(database.rows(f'SELECT typeof("start"), typeof("end") FROM "{table.name}" LIMIT 1'))
    if "real" in kinds:
        raise database.damaged(f"times in its table {table.name} are no whole nanoseconds")


def _refuse_untimed(database: Database, table: Table, count: int) -> None:
    raise database.damaged(f"{count} row{'s' if count > 1 else ''} of its table {table.name} have no usable time")


def _name(table: Table, kind: int) -> str:
    """The name's number: a string's of the export for kernels."""
    if kind == KERNEL:  # the short name of many kernels is just "kernel"
        return table.first("demangledName", "shortName", "mangledName", otherwise=UNNAMED)
    if kind == MEMSET:
        return str(SET)
    if kind == GRAPH:
        return str(REPLAY)
    of, source, target = (table.first(name, otherwise=15) for name in ("copyKind", "srcKind", "dstKind"))
    return f"{COPY} - ({of} & 15) * 256 - ({source} & 15) * 16 - ({target} & 15)"


def _size(table: Table, kind: int) -> str:
    """What tells work of a name apart: bytes, or the blocks of a grid."""
    if kind == KERNEL:
        if not {"gridx", "gridy", "gridz"} <= table.columns:
            return str(UNKNOWN)
        return f"COALESCE(gridX * gridY * gridZ, {UNKNOWN})"
    return str(UNKNOWN) if kind == GRAPH else table.first("bytes", otherwise=UNKNOWN)


def copy_name(number: int) -> str:
    """The name of a copy, as PyTorch's profiler writes it."""
    of, source, target = _copy(number)
    ends = [_MEMORIES.get(memory) for memory in (source, target)]
    title = f"Memcpy {_COPIES[of]}" if of in _COPIES else "Memcpy"
    return f"{title} ({ends[0]} -> {ends[1]})" if all(ends) else title


def blocks_host(number: int) -> bool:
    """Whether the call of a copy returns when it is over, whatever it is called: one to memory that can be paged."""
    of, _, target = _copy(number)
    return of == _TO_HOST and target == _PAGEABLE


def _copy(number: int) -> tuple[int, int, int]:
    code = COPY - number
    return code // 256, code // 16 % 16, code % 16


def _int32(column: Int64) -> Int32:
    """A column of small numbers; UNKNOWN where one does not fit."""
    if len(column) and (column.min() < _INT32.min or column.max() > _INT32.max):
        column = np.where((column >= _INT32.min) & (column <= _INT32.max), column, UNKNOWN)
    return column.astype(np.int32)
