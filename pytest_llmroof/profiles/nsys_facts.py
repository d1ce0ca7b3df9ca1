"""What an export of Nsight Systems tells besides work and calls: devices, clock, annotated steps, warnings.

Of texts only those of annotations are read that name a step, the names of GPUs, and the tool's own warnings, which are
told in words of ours: they may hold paths and arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np

from pytest_llmroof.profiles.annotations import PREFIXES, annotated_step, is_capture, step_of
from pytest_llmroof.profiles.nsys_database import Database, Table, timed, whole
from pytest_llmroof.profiles.nsys_rows import Processes, Rows
from pytest_llmroof.profiles.timeline import UNKNOWN, Step

SCHEMA: Final = 3
_WARNING, _ERROR = 2, 3
_LOST: Final = re.compile(
    r"lost|dropp?ed|discard|overflow|truncated|incomplete|missing|not all|not collected|no cuda events"
    r"|(could not|couldn't|cannot|failed to)( be)? (collect|record|trace)",
    re.IGNORECASE,
)
_CUDA: Final = re.compile(r"\bCUDA\b|CUPTI|kernels?\b|\bevents (were|have been) ", re.IGNORECASE)
_ELSEWHERE: Final = re.compile(r"Unified Memory|page faults?|OpenGL|Vulkan|\bOS runtime", re.IGNORECASE)
#: Loading modules is the program's own work, whoever watches it.
_LOADING: Final = "6, 7"
_RANGES: Final = "59, 60, 70, 71"
_LONGEST_TEXT: Final = 500
_FALLBACK_SYNCS: Final = "1, 3, 4"


@dataclass(frozen=True)
class Gpus:
    """``names`` by the number of the GPU, ``of`` (process id, number of its device) the number of the GPU."""

    names: Mapping[int, str] = field(default_factory=dict)
    of: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def name(self, gpu: int | None, device: int) -> str | None:
        """A device's name; where its GPU is not told, that of the same number, else the one that all bear."""
        if gpu is not None:
            return self.names.get(gpu)
        alike = set(self.names.values())
        return self.names.get(device) or (alike.pop() if len(alike) == 1 else None)


def gpus(database: Database) -> Gpus:
    """The GPUs of the machine, and how processes number them."""
    names: dict[int, str] = {}
    table = database.table("TARGET_INFO_GPU") or database.table("TARGET_INFO_CUDA_GPU")
    if table is not None and {"id", "name"} <= table.columns:
        for number, name in database.rows(f'SELECT id, substr(name, 1, 100) FROM "{table.name}"'):
            if isinstance(number, int) and isinstance(name, str) and name.strip():
                names[number] = name.strip()
    of: dict[tuple[int, int], int] = {}
    table = database.table("TARGET_INFO_CUDA_DEVICE")
    if table is not None and {"gpuid", "cudaid", "pid"} <= table.columns:
        for gpu, device, pid in database.rows(f'SELECT gpuId, cudaId, pid FROM "{table.name}"'):
            if isinstance(gpu, int) and isinstance(device, int) and isinstance(pid, int):
                of[pid, device] = gpu
    return Gpus(names, of)


def zero_unix_ns(database: Database) -> int | None:
    """The Unix time of the capture's start."""
    table = database.table("TARGET_INFO_SESSION_START_TIME")
    if table is None or "utcepochns" not in table.columns:
        return None
    found = [value for (value,) in database.rows(f'SELECT utcEpochNs FROM "{table.name}"')]
    return found[0] if len(found) == 1 and isinstance(found[0], int) and 0 < found[0] < 1 << 62 else None


def schema_note(database: Database) -> str | None:
    """What to say where the export's schema is not one that is known here."""
    table = database.table("META_DATA_EXPORT")
    if table is None or not {"name", "value"} <= table.columns:
        return None
    query = f"SELECT substr(value, 1, 20) FROM \"{table.name}\" WHERE name = 'EXPORT_SCHEMA_VERSION'"
    for (value,) in database.rows(query):
        version = re.fullmatch(r"(\d+)(\.\d+)*", str(value))
        if version and int(version[1]) != SCHEMA:
            return f"{database.place} has schema {version[0]} of Nsight Systems; {SCHEMA}.x is known here"
    return None


def warnings(database: Database) -> tuple[int, int]:
    """How many of the tool's own warnings tell of CUDA events that may be lost, and how many of something else."""
    table = database.table("DIAGNOSTIC_EVENT")
    if table is None or not {"severity", "text"} <= table.columns:
        return 0, 0
    query = f'SELECT substr(text, 1, {_LONGEST_TEXT}) FROM "{table.name}" WHERE severity IN ({_WARNING}, {_ERROR})'
    texts = [str(text) for (text,) in database.rows(query)]
    lost = sum(bool(_LOST.search(text) and _CUDA.search(text) and not _ELSEWHERE.search(text)) for text in texts)
    return lost, len(texts) - lost


def overhead(database: Database, processes: Processes) -> Rows:
    """The profiler's own time, by process."""
    rows = Rows()
    for name in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"):
        table = database.table(name)
        if table is None:
            continue
        kind = f" AND overheadType NOT IN ({_LOADING})" if "overheadtype" in table.columns else ""
        _add_intervals(database, table, kind, "globalTid", rows, processes)
    return rows


def recorded_waits(database: Database, processes: Processes) -> Rows:
    """Times in which the host waited for the device, where calls themselves were not recorded."""
    rows, table = Rows(), database.table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    if table is not None and "synctype" in table.columns:
        _add_intervals(database, table, f" AND syncType IN ({_FALLBACK_SYNCS})", "globalPid", rows, processes)
    return rows


def _add_intervals(
    database: Database, table: Table, where: str, process: str, rows: Rows, processes: Processes
) -> None:
    if not {"start", "end"} <= table.columns:
        return
    columns = ['"start"', '"end"', whole(table.first(process, otherwise=UNKNOWN))]
    for start, end, of in database.numbers(table, columns, timed() + where):
        rows.add(start=start.copy(), end=end.copy(), process=processes.places(of))


@dataclass(frozen=True)
class Annotations:
    """Steps by the place of their process, and how many ranges tell of the capture of a graph."""

    steps: tuple[tuple[int, Step], ...] = ()
    captures: int = 0


def annotated(database: Database, processes: Processes) -> Annotations:
    """The ranges that name a step."""
    table = database.table("NVTX_EVENTS")
    if table is None or not {"start", "end"} <= table.columns:
        return Annotations()
    steps, captures = [], 0
    for start, end, thread, text in _ranges(database, table):
        captures += is_capture(text)
        step = annotated_step(text, start, end, "host", thread)
        if step is not None:
            process = int(processes.places(np.array([thread], dtype=np.int64))[0])
            steps.append((process, step))
    return Annotations(tuple(steps), captures)


def _ranges(database: Database, table: Table) -> Iterator[tuple[int, int, int, str]]:
    """Start, end, thread and text of ranges whose text begins as that of a step; the text may stand elsewhere."""
    where = timed() + (f" AND eventType IN ({_RANGES})" if "eventtype" in table.columns else "")
    first = f'"start", "end", {whole(table.first("globalTid", otherwise=UNKNOWN))}'
    if "text" in table.columns:
        begins = " OR ".join(f"text LIKE '{prefix}%'" for prefix in PREFIXES)
        query = f'SELECT {first}, substr(text, 1, {_LONGEST_TEXT}) FROM "{table.name}" WHERE {where} AND ({begins})'
        for row in database.rows(query):
            yield _range(row)
    if "textid" in table.columns:
        wanted = f"typeof(textId) = 'integer' AND {where}"
        query = f'SELECT DISTINCT textId FROM "{table.name}" WHERE {wanted}'
        texts = database.strings(value for (value,) in database.rows(query) if isinstance(value, int))
        texts = {number: text for number, text in texts.items() if step_of(text) is not None or is_capture(text)}
        if texts:
            alone = f" AND {table.first('text')} IS NULL" if "text" in table.columns else ""
            query = f'SELECT {first}, textId FROM "{table.name}" WHERE {wanted}{alone}'
            for *times, number in database.rows(query):
                if number in texts:
                    yield _range((*times, texts[number]))


def _range(row: tuple[object, ...]) -> tuple[int, int, int, str]:
    start, end, thread = (cast(int, value) for value in row[:3])  # the query asks for whole numbers
    return start, end, thread, str(row[3])


def process_id(number: int) -> int:
    """The operating system's number of a process, from the global one."""
    return (number >> 24) & 0xFFFFFF
