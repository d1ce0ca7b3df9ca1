"""GPU counters that a tool prints as a table or a document: its rows as readings, each at the time that it tells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.exporters import Exporter, exporters
from pytest_llmroof.telemetry.gpupages import Labelled, readings_of
from pytest_llmroof.telemetry.gpurefresh import Reading

Clock = Literal["unix", "local", "none"]

_NUMBER: Final = re.compile(r"(?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(?P<unit>%|[A-Za-z/]+)?")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE: Final = re.compile(
    r"(?P<year>\d{4})[/-]?(?P<month>\d{2})[/-]?(?P<day>\d{2})[ T]+(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})"
    r"(?:[.,](?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d{2}:?\d{2})?"
)
_ASCTIME: Final = re.compile(
    r"[A-Za-z]{3} (?P<name>[A-Za-z]{3}) +(?P<day>\d{1,2}) (?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})"
    r" (?P<year>\d{4})"
)
_UNIX: Final = re.compile(r"\d{9,10}(?:\.\d+)?")


@dataclass(frozen=True)
class Row:
    """What was printed of one GPU at one time: cells by the name of their column (in lower case)."""

    line: int
    cells: Mapping[str, str]
    time: str | None = None


@dataclass(frozen=True)
class GpuTable:
    """A table's readings. Times are Unix seconds; of a ``local`` clock as if it were UTC; of none the row's number.

    ``scraped_at`` is what the file itself says of when it was begun (Unix seconds).
    """

    exporter: Exporter
    location: str
    readings: tuple[Reading, ...]
    clock: Clock
    scraped_at: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def span(self) -> tuple[float, float]:
        """First and last time."""
        times = [reading.time for reading in self.readings]
        return min(times), max(times)


def table_of(key: str, rows: Sequence[Row], location: str, scraped_at: float | None, notes: Sequence[str]) -> GpuTable:
    """The table that rows of a tool make. SourceError names the line of a cell that cannot be understood."""
    exporter = exporters()[key]
    rows = _partitioned(exporter, rows)
    told = [_time(row, location) for row in rows]
    clocks = {clock for _, clock in told}
    clock = clocks.pop() if len(clocks) == 1 else "none"
    seen: dict[object, int] = {}
    readings: list[Reading] = []
    for row, (time, _) in zip(rows, told, strict=True):
        gpus = readings_of(exporter, _samples(exporter, row, location))
        for gpu in gpus:
            number = seen[gpu.key] = seen.get(gpu.key, -1) + 1
            readings.append(Reading(float(number) if clock == "none" else time, (gpu,), location))
    said = list(notes)
    if len(rows) > 1 and len(seen) == 1 and not any(one.index or one.uuid for one in readings[0].gpus):
        said.append(f"no column of {location} tells its GPUs apart: its rows are taken as one GPU's")
    return GpuTable(exporter, location, tuple(readings), clock, scraped_at, tuple(said))


def _partitioned(exporter: Exporter, rows: Sequence[Row]) -> list[Row]:
    """Rows with the partition that they are of, where a GPU has several: none of them is the whole GPU's."""
    columns = exporter.labels.get("partition", ())
    if not columns:
        return list(rows)
    seen: dict[str | None, set[str]] = {}
    for row in rows:
        if (number := _cell(exporter, row, columns)) is not None:
            seen.setdefault(_cell(exporter, row, exporter.labels["index"]), set()).add(number)
    found = []
    for row in rows:
        parts = seen.get(_cell(exporter, row, exporter.labels["index"]), set())
        if len(parts) > 1 and (number := _cell(exporter, row, columns)) is not None:
            name = exporter.partitions.get(len(parts), "")
            profile = f"{name} ({len(parts)} partitions)".lstrip()
            (instance,), (kind,) = exporter.labels["instance"], exporter.labels["profile"]
            row = replace(row, cells={**row.cells, instance: number, kind: profile})
        found.append(row)
    return found


def _cell(exporter: Exporter, row: Row, columns: Sequence[str]) -> str | None:
    cells = (row.cells.get(column, "") for column in columns)
    return next((text for text in cells if text.casefold() not in exporter.absent), None)


def _samples(exporter: Exporter, row: Row, location: str) -> list[Labelled]:
    """The cells that are known, as the samples of a page would be."""
    labels = {name: text for name, text in row.cells.items() if text.casefold() not in exporter.absent}
    samples: list[Labelled] = []
    for name, text in row.cells.items():
        if name in exporter.flags:
            if text.casefold() in ("active", "not active"):
                samples.append((name, labels, float(exporter.flags[name]) if text.casefold() == "active" else 0.0))
        elif name in exporter.reasons:
            if _HEX.fullmatch(text):
                samples.append((name, labels, float(int(text, 16))))
        elif name in exporter.names:
            samples.append((name, labels, _value(exporter, name, text, f"{location}:{row.line}")))
    # A row that tells no figure still names its GPU.
    return samples or [("", labels, 0.0)]


def _value(exporter: Exporter, name: str, text: str, where: str) -> float | str:
    """A cell's figure in the unit of its column, or why there is none."""
    why = exporter.absent.get(text.casefold())
    if why is not None:
        return why
    match = _NUMBER.fullmatch(text)
    unit = (match["unit"] or "").casefold() if match else ""
    if match is None or (unit and unit not in exporter.units and unit not in ("mb/s", "kb/s")):
        raise SourceError(f"{where}: {name} is {text[:40]!r}, which is no figure", "record it again, to its end")
    factor = exporter.units.get(unit)
    scale = exporter.names[name][0].scale
    return float(match["number"]) * (factor / scale if factor is not None else 1.0)


def _time(row: Row, location: str) -> tuple[float, Clock]:
    if row.time is None:
        return 0.0, "none"
    if _UNIX.fullmatch(row.time):
        return float(row.time), "unix"
    try:
        return _date(row.time)
    except ValueError:
        raise SourceError(f"{location}:{row.line}: {row.time[:40]!r} is no time", "record it again") from None


def _date(text: str) -> tuple[float, Clock]:
    match = _DATE.fullmatch(text) or _ASCTIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    found = match.groupdict()
    month = int(found["month"]) if "month" in found else _MONTHS.index(found["name"].casefold()) + 1
    at = datetime(
        int(found["year"]), month, int(found["day"]), int(found["hour"]), int(found["minute"]), int(found["second"]),
        tzinfo=UTC,
    )  # fmt: skip
    seconds = at.timestamp() + float(f"0.{found.get('fraction') or 0}")
    zone = found.get("zone")
    if zone is None:
        return seconds, "local"
    if zone == "Z":
        return seconds, "unix"
    offset = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return seconds - (offset if zone[0] == "+" else -offset), "unix"
