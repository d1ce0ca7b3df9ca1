"""The rows of Nsight Compute's CSV, long (details page) or wide (raw page), as cells of each launch, unconverted.

What a row says of process and host is read into nothing.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pytest_llmroof.advice import Advice, AnyAdvice, as_advice
from pytest_llmroof.data import load
from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.ncu_numbers import Sign, decimal_sign, sign_of_whole
from pytest_llmroof.profiles.packed import Packed

#: ``name [unit]`` or ``name (unit)``: heads of columns where the units have no row of their own.
_HEAD_UNIT: Final = re.compile(r"(\w+__[\w.]+) [\[(]([^\])]*)[\])]")
_TOOLS: Final = ("==", "ncu ", "Profiling ")
_LONGEST_HEAD: Final = 1 << 20
_LARGEST: Final = 512 << 20
"""Bytes of a table, unpacked: tens of thousands of launches with every counter."""
#: Units in which sums are whole numbers: a separator in them is one of thousands.
_WHOLE: Final = ("ns", "nsecond", "byte", "inst", "cycle", "sector", "block", "thread", "request", "warp")
_MOST_RULES: Final = 64
_LONG: Final = ("Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
#: What tells launches apart, beside their number and name.
_KEYS: Final = ("Process ID", "Context", "Stream")

Wanted = Callable[[str, str], bool]
"""Whether a metric is kept, by section and name."""


@dataclass(frozen=True)
class Cell:
    """One value as it is written."""

    text: str
    unit: str
    line: int


@dataclass
class RawLaunch:
    """What rows say of one launch: ``cells`` by (section, metric); the section of a wide table is empty."""

    name: str
    device: str
    compute_capability: str
    line: int
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    rules: list[tuple[str, str, str]] = field(default_factory=list)
    conflicts: list[tuple[str, str]] = field(default_factory=list)

    def put(self, section: str, metric: str, cell: Cell) -> None:
        """Keep a value; one that is there already must say the same, else it is no value."""
        known = self.cells.setdefault((section, metric), cell)
        if known is not cell and (known.text, known.unit) != (cell.text, cell.unit):
            self.conflicts.append((section, metric))


@dataclass
class Rows:
    """All launches of a file, the decimal sign that it proves, and what there is to say of it."""

    launches: list[RawLaunch]
    sign: Sign | None
    notes: list[str]


def again() -> AnyAdvice:
    """How to get a sound export."""
    return as_advice(load("ncu.yaml")["remedies"]["again"])


def read_rows(path: Path, place: str, wanted: Wanted) -> Rows:
    """The launches of a file. SourceError, with the line, where it is damaged or holds none."""
    packed = Packed(path)
    text = _decoded(_bounded(packed, place), place)
    if packed.unfinished:
        raise SourceError(f"{place}: the gzip data end too early: launches are missing", again())
    begin, number, head = _head(text, place)
    reader = _Reader(place, wanted, head)
    reader.read(csv.reader(_lines(text, begin)), number, _complete(text))
    notes = [note.replace(packed.name, place, 1) for note in packed.notes]
    return Rows(reader.launches(), reader.sign(), notes + reader.notes)


def _bounded(packed: Packed, place: str) -> bytes:
    """The content. SourceError where it is longer than any export: a small packed file can hold very much."""
    content = bytearray()
    for piece in packed.pieces():
        content += piece
        if len(content) > _LARGEST:
            fewer = Advice("profile fewer launches", "ncu --launch-count 200 ...")
            raise SourceError(f"{place} holds more than {_LARGEST >> 20} MiB", fewer)
    return bytes(content)


def _decoded(content: bytes, place: str) -> str:
    """The text: UTF-8, or the UTF-16 that PowerShell's ``>`` writes."""
    if not content.strip():
        raise SourceError(f"{place} is empty", again())
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    return content.decode("utf-8-sig", errors="replace")


def _lines(text: str, begin: int) -> Iterator[str]:
    """Lines from a place on, as only line feeds end them (names of kernels may hold other separators)."""
    while begin < len(text):
        end = text.find("\n", begin) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _complete(text: str) -> bool:
    """Whether the last row has its end: a line feed, or the quote that closes its last cell."""
    return text.endswith(("\n", "\r", '"', '",'))


def _head(text: str, place: str) -> tuple[int, int, list[str]]:
    """Where the table begins (character and line), and the names of its columns."""
    begin = 0
    for number, line in enumerate(_lines(text, 0), start=1):
        if "Kernel Name" in line and line.startswith(('"ID"', "ID,")) and len(line) < _LONGEST_HEAD:
            try:
                cells = [cell.strip() for cell in next(csv.reader([line]))]
            except csv.Error as error:
                raise SourceError(f"{place}:{number}: the table is damaged ({error})", again()) from None
            if {"ID", "Kernel Name"} <= set(cells):
                return begin, number, cells
        begin += len(line)
    raise SourceError(f"{place} is no table of Nsight Compute: no line names the columns ID and Kernel Name", again())


class _Reader:
    """Gathers rows by launch."""

    def __init__(self, place: str, wanted: Wanted, head: list[str]) -> None:
        self.place = place
        self.wanted = wanted
        self.notes: list[str] = []
        self._head = head
        self._columns = {name: index for index, name in reversed(list(enumerate(head)))}
        self._long_table = "Metric Name" in self._columns
        if self._long_table and not {"Metric Value", "Metric Unit"} <= self._columns.keys():
            raise SourceError(f"{place}: the table has names of metrics, but no column of values and units", again())
        self._least = max(self._columns[one] for one in _LONG) + 1 if self._long_table else len(head)
        self._units = [""] * len(head)
        self._metrics = [] if self._long_table else self._wide_metrics()
        self._kept = [one for one in self._metrics if one[3]]
        self._launches: dict[tuple[str, ...], RawLaunch] = {}
        self._signs: dict[Sign, int] = {}
        self._foreign = 0

    def launches(self) -> list[RawLaunch]:
        """In the order of the file."""
        if not self._launches:
            raise SourceError(f"{self.place} has the head of a table, but no launch: nothing was profiled", again())
        return list(self._launches.values())

    def sign(self) -> Sign | None:
        """The decimal sign; SourceError where a file proves both."""
        if len(self._signs) == 2:
            (first, a), (second, b) = self._signs.items()
            raise SourceError(
                f"{self.place}: line {a} writes decimals with {first!r} and line {b} with {second!r}: which numbers "
                "are meant is not known",
                as_advice(load("ncu.yaml")["remedies"]["locale"]),
            )
        return next(iter(self._signs), None)

    def read(self, rows: Iterator[list[str]], first_line: int, complete: bool) -> None:
        """All rows from the head on; the last one may be cut off."""
        line, held = first_line, self._head  # a second head says nothing
        try:
            for row in rows:
                self._row(line, held)
                line, held = first_line + rows.line_num - 1, row  # type: ignore[attr-defined]  # of csv, which counts
        except csv.Error as error:
            raise SourceError(f"{self.place}:{line + 1}: the table is damaged ({error})", again()) from None
        if _is_launch(held) and (not complete or len(held) < self._least):
            self.notes.append(f"{self.place}:{line}: the last line is cut off, and was left out")
        else:
            self._row(line, held)
        if self._foreign:
            self.notes.append(f"{self.place}: {self._foreign} lines between the rows are no rows, and were left out")

    def _row(self, line: int, row: list[str]) -> None:
        if not _is_launch(row):
            self._beside(row)
            return
        if len(row) < self._least or any(row[len(self._head) :]):
            raise SourceError(
                f"{self.place}:{line}: a row of {len(row)} cells, where the head has {len(self._head)}: the table is "
                "damaged",
                again(),
            )
        columns = self._columns
        name = row[columns["Kernel Name"]]
        key = (row[0], name, *(row[columns[one]] for one in _KEYS if one in columns))
        launch = self._launches.get(key)
        if launch is None:
            device = row[columns["Device"]] if "Device" in columns else ""
            capability = row[columns["CC"]] if "CC" in columns else ""
            launch = self._launches[key] = RawLaunch(name, device, capability, line)
        if self._long_table:
            self._long(line, row, launch)
        else:
            self._wide(line, row, launch)

    def _beside(self, row: list[str]) -> None:
        """A row of no launch: units, the head again, what the tool or the application says, or something else."""
        if not any(cell.strip() for cell in row):
            return
        if not self._long_table and row[0].strip() == "" and len(row) == len(self._head):
            self._units = row
        elif not row[0].startswith(_TOOLS) and row[0].strip() != "ID":
            self._foreign += 1

    def _long(self, line: int, row: list[str], launch: RawLaunch) -> None:
        columns = self._columns
        section = row[columns["Section Name"]] if "Section Name" in columns else ""
        metric = row[columns["Metric Name"]]
        if metric:
            cell = Cell(row[columns["Metric Value"]], row[columns["Metric Unit"]], line)
            kept = self.wanted(section, metric)
            if kept:
                launch.put(section, metric, cell)
            if kept or not self._signs:
                self._prove(metric, cell)
        rule = columns.get("Rule Name")
        if rule is not None and len(row) > rule + 2 and row[rule] and len(launch.rules) < _MOST_RULES:
            launch.rules.append((row[rule], row[rule + 1], row[rule + 2]))

    def _wide(self, line: int, row: list[str], launch: RawLaunch) -> None:
        for index, metric, unit, kept in self._kept if self._signs else self._metrics:
            cell = Cell(row[index], self._units[index] if unit is None else unit, line)
            if kept:
                launch.put("", metric, cell)
            self._prove(metric, cell)

    def _wide_metrics(self) -> list[tuple[int, str, str | None, bool]]:
        """Column, name, unit where the head tells it, and whether it is kept; others only show the decimal sign."""
        found = []
        for index, head in enumerate(self._head):
            match = _HEAD_UNIT.fullmatch(head)
            name, unit = (match[1], match[2]) if match else (head, None)
            if "__" in name:
                found.append((index, name, unit, self.wanted("", name)))
        return found

    def _prove(self, metric: str, cell: Cell) -> None:
        """Note the decimal sign that a value proves."""
        sign = decimal_sign(cell.text)
        if sign is None and cell.unit in _WHOLE and metric.endswith((".sum", "Duration")):
            sign = sign_of_whole(cell.text)
        if sign is not None:
            self._signs.setdefault(sign, cell.line)


def _is_launch(row: Sequence[str]) -> bool:
    """Whether a row's first cell is the number of a launch."""
    return bool(row) and row[0].isascii() and row[0].strip().isdecimal()
