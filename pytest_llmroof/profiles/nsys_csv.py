"""The tables that ``nsys stats --format csv`` prints: found among the lines around them, with times in nanoseconds."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.packed import Packed
from pytest_llmroof.units import whole_of

_LARGEST: Final = 256 << 20
_COLUMN: Final = re.compile(r"(.*?)\s*(?:\(([^()]*)\))?\s*")
_NANOSECONDS: Final = {
    "ns": 1, "nsec": 1, "us": 1_000, "usec": 1_000, "μs": 1_000, "µs": 1_000, "ms": 1_000_000, "msec": 1_000_000,
    "s": 1_000_000_000, "sec": 1_000_000_000,
}  # fmt: skip
_THOUSANDS: Final = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?")
_LATEST_NS: Final = 1 << 62
#: How a table begins, whatever its units.
_HEADS: Final = (("time", "total time"), ("start", "duration"), ("api start", "api dur"))
AGAIN: Final = "write it again, and let nsys stats finish"


@dataclass(frozen=True)
class Table:
    """``columns`` maps a column's name in lower case, without its unit, to its place, ``units`` to its unit.

    ``rows`` are (line of the file, cells).
    """

    place: str
    columns: Mapping[str, int]
    units: Mapping[str, str]
    rows: tuple[tuple[int, list[str]], ...]

    def text(self, row: tuple[int, list[str]], column: str) -> str:
        """A cell; empty where there is no such column."""
        return row[1][self.columns[column]].strip() if column in self.columns else ""

    def nanoseconds(self, row: tuple[int, list[str]], column: str) -> int | None:
        """A time; None where the cell is empty. Raises SourceError where it is no time, and names the line."""
        cell = self.text(row, column)
        if not cell or cell == "-":
            return None
        number = _plain(cell)
        factor = _NANOSECONDS.get(self.units.get(column, "ns").lower())
        if number is None or factor is None or abs(float(number)) * factor >= _LATEST_NS:
            raise SourceError(f"{self.place}:{row[0]}: {cell[:40]!r} is no time ({column})", AGAIN)
        return int(number) * factor if number.lstrip("-").isdigit() else round(float(number) * factor)

    def count(self, row: tuple[int, list[str]], column: str) -> int | None:
        """A whole number; None where the cell is empty or something else."""
        number = _plain(self.text(row, column))
        return None if number is None else whole_of(number)

    def resolution_ns(self, *columns: str) -> float:
        """The coarsest step in which its times are written."""
        finest = 0.0
        for column in columns:
            factor = _NANOSECONDS.get(self.units.get(column, "ns").lower(), 1)
            digits = max((len(self.text(row, column).partition(".")[2]) for row in self.rows[:1000]), default=0)
            finest = max(finest, factor / 10**digits)
        return finest


def read_tables(path: Path, place: str) -> list[Table]:
    """Every table in a file. Raises SourceError where one is damaged, or there is none."""
    packed, content = Packed(path), bytearray()
    for piece in packed.pieces():
        content += piece
        if len(content) > _LARGEST:
            raise SourceError(f"{place} is longer than any table that nsys stats writes of one capture", None)
    if packed.unfinished:
        raise SourceError(f"{place}: the packed data lack their ending", AGAIN)
    text = bytes(content).decode("utf-8-sig", errors="replace")
    lines = text.replace("\r\n", "\n").split("\n")
    tables = list(_tables(lines, place))
    if not tables:
        raise SourceError(f"{place} holds no table of nsys stats", AGAIN)
    return tables


def _tables(lines: Sequence[str], place: str) -> Iterator[Table]:
    at = 0
    while at < len(lines):
        delimiter = "\t" if "\t" in lines[at] else ","
        head = _cells(lines[at], delimiter)
        named = [_COLUMN.fullmatch(cell.strip()) for cell in head]
        names = [match[1].strip().lower() if match else "" for match in named]
        if tuple(names[:2]) not in _HEADS:
            at += 1
            continue
        units = {name: match[2] for name, match in zip(names, named, strict=True) if match and match[2]}
        rows, at = _rows(lines, at + 1, len(head), delimiter, place)
        yield Table(place, {name: index for index, name in reversed(list(enumerate(names)))}, units, tuple(rows))


def _rows(
    lines: Sequence[str], at: int, width: int, delimiter: str, place: str
) -> tuple[list[tuple[int, list[str]]], int]:
    """The rows from a line on, up to an empty line or the table's end, and where that is."""
    rows: list[tuple[int, list[str]]] = []
    while at < len(lines) and lines[at].strip():
        cells = _cells(lines[at], delimiter)
        if len(cells) != width or lines[at].count('"') % 2:
            if len(cells) == 1 and rows and '"' not in lines[at]:  # "Processing [...]" of the next report
                break
            cut = not any(line.strip() for line in lines[at + 1 :])
            several = f"{len(cells)} cells, where the head has {width}"
            odd = several if len(cells) != width else "a quote that nothing closes"
            raise SourceError(f"{place}:{at + 1}: {odd}: it is {'cut off' if cut else 'damaged'}", AGAIN)
        rows.append((at + 1, cells))
        at += 1
    return rows, at


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _plain(cell: str) -> str | None:
    """A number without its thousands separators; None where it is none."""
    if _THOUSANDS.fullmatch(cell):
        cell = cell.replace(",", "")
    return cell if _NUMBER.fullmatch(cell) else None
