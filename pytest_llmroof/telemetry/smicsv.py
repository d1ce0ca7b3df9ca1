"""Rows of what nvidia-smi and amd-smi print as lines: CSV, and the columns of ``nvidia-smi dmon``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.exporters import Exporter, exporters
from pytest_llmroof.telemetry.gputables import Row

#: Columns that hold the time.
_TIMES: Final = ("timestamp", "time")
_AGAIN: Final = Advice(
    "record it again", "nvidia-smi --query-gpu=timestamp,index,name,utilization.gpu,clocks.sm --format=csv -l 1"
)
#: A line of nvidia-smi --format=csv,noheader: a time, then cells.
_NO_HEADER: Final = re.compile(r"\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{3}, ")
#: How much of a file's beginning is looked at: a head stands in one of its first lines.
_LOOKED_AT: Final = 4_000
_HEAD_LINES: Final = 12
_SAYS: Final = ("nvidia-smi has failed", "unable to determine", "failed to initialize nvml", "no devices were found")


def is_csv(head: str) -> bool:
    """Whether a text begins as such a table, or as one without its head, or as what the tool says where it fails."""
    lines = [line for line in head[:_LOOKED_AT].splitlines() if line.strip()][:_HEAD_LINES]
    if not lines or any(line.startswith(("# HELP", "# TYPE")) for line in lines):
        return False
    if _failed(lines[0]) or any(_is_dmon(line) for line in lines):
        return True
    first = next((line for line in lines if not line.lstrip().startswith("#")), "")
    return _NO_HEADER.match(first) is not None or _head(lines) is not None


def csv_rows(text: str, location: str) -> tuple[str, list[Row], list[str]] | None:
    """The tool, its rows, and what to say of them; None for a text that is no such table.

    SourceError for one that is, but is damaged, with the line.
    """
    lines = text.splitlines()
    head = _head(lines)
    if head is None:
        _refuse_without_head(lines, location)
        return None
    key, number, columns = head
    rows: list[Row] = []
    notes: list[str] = []
    width = len(columns)
    last = max(index for index, line in enumerate(lines) if line.strip())
    for index in range(number + 1, len(lines)):
        line = lines[index].strip()
        if not line or line.startswith("#") or line == lines[number].strip():
            continue
        cells = _cells(line)
        if len(cells) != width:
            if index == last and len(cells) < width and rows and not _failed(line):
                notes.append(_cut(location, last))
                continue
            raise _bad_line(location, index + 1, line, len(cells), width)
        rows.append(_row(index + 1, dict(zip(columns, cells, strict=True))))
    if _unfinished(text, rows, last):
        notes.append(_open(location, last))
        rows.pop()
    if not rows:
        raise SourceError(f"{location} has a head, but no row of figures", _AGAIN)
    return key, rows, notes


def _unfinished(text: str, rows: Sequence[Row], last: int) -> bool:
    """Whether the last row's last cell may have been cut: no line feed ends it."""
    return len(rows) > 1 and not text.endswith(("\n", "\r")) and rows[-1].line == last + 1


def _cut(location: str, last: int) -> str:
    return f"{location}:{last + 1}: the last line is cut off, and left out"


def _open(location: str, last: int) -> str:
    return f"{location}:{last + 1}: the last line does not end, and is left out"


def dmon_rows(text: str, location: str) -> tuple[str, list[Row], list[str]] | None:
    """The same of ``nvidia-smi dmon``: a head after ``#``, columns apart by blanks."""
    columns: list[str] = []
    rows: list[Row] = []
    notes: list[str] = []
    lines = text.splitlines()
    last = max((index for index, line in enumerate(lines) if line.strip()), default=0)
    for number, line in enumerate(lines, start=1):
        words = line.replace("#", " # ", 1).split() if line.lstrip().startswith("#") else line.split()
        if words[:1] == ["#"]:
            if _is_dmon(line):
                columns = [word.casefold() for word in words[1:]]
        elif columns and words:
            if number == last + 1 and len(words) < len(columns) and rows and not _failed(line):
                notes.append(_cut(location, last))
                continue
            if len(words) != len(columns):
                raise _bad_line(location, number, line, len(words), len(columns))
            rows.append(_row(number, dict(zip(columns, words, strict=True))))
        elif words:
            return None
    if _unfinished(text, rows, last):
        notes.append(_open(location, last))
        rows.pop()
    return ("nvidia-smi", rows, notes) if rows else None


def _is_dmon(line: str) -> bool:
    """Whether a line is the head of dmon's columns."""
    names = set(line.casefold().replace("#", " ", 1).split())
    return line.lstrip().startswith("#") and "gpu" in names and bool({"pwr", "sm", "mclk", "gtemp", "fb"} & names)


def _failed(line: str) -> bool:
    """Whether a line is what a tool says instead of figures."""
    return any(line.casefold().lstrip().startswith(says) for says in _SAYS)


def _row(line: int, cells: dict[str, str]) -> Row:
    time = next((cells.pop(name) for name in _TIMES if name in cells), None)
    day = cells.pop("date", None)
    if day is not None and time is not None:
        time = f"{day} {time}"
    elif time is not None and re.fullmatch(r"[\d:.]+:[\d.]+", time):
        time = None  # a time of day, without the day
    return Row(line, cells, time)


def _head(lines: Sequence[str]) -> tuple[str, int, list[str]] | None:
    """The tool, the line of the head, and its columns."""
    for index, line in enumerate(lines[:_HEAD_LINES]):
        if line.startswith(("# HELP", "# TYPE")):
            return None
        columns = _columns(line.strip().lstrip("#").strip())
        for key, exporter in exporters().items():
            if exporter.tables and _fits(exporter, columns):
                return key, index, columns
        if line.strip() and not line.lstrip().startswith("#"):
            return None
    return None


def _fits(exporter: Exporter, columns: Sequence[str]) -> bool:
    labels = {label for names in exporter.labels.values() for label in names}
    figures = [name for name in columns if name in exporter.names or name in exporter.flags or name in exporter.reasons]
    if exporter.key == "amd-smi":
        return "gpu" in columns and len(figures) >= 2
    dotted = [name for name in figures if "." in name]
    names = set(exporter.device_labels) & set(columns)
    return bool(dotted) or (bool(names) and set(columns) <= {*labels, *_TIMES} and len(columns) > 1)


def _columns(line: str) -> list[str]:
    """Names of columns, without the unit that may stand in brackets behind them."""
    return [(cell.partition("[")[0].rstrip() or cell).casefold() for cell in _cells(line)]


def _cells(line: str) -> list[str]:
    """The cells of a line. What stands in brackets is one cell: amd-smi prints lists as they are."""
    return list(_split(line)) if "[" in line or '"' in line else [cell.strip() for cell in line.split(",")]


def _split(line: str) -> Iterator[str]:
    depth, quoted, begun = 0, False, 0
    for at, letter in enumerate(line):
        if letter == '"':
            quoted = not quoted
        elif letter in "[]" and not quoted:
            depth = max(0, depth + (1 if letter == "[" else -1))
        elif letter == "," and not depth and not quoted:
            yield line[begun:at].strip().strip('"')
            begun = at + 1
    yield line[begun:].strip().strip('"')


def _bad_line(location: str, number: int, line: str, cells: int, width: int) -> SourceError:
    if _failed(line):
        return SourceError(
            f"{location}:{number}: the tool failed: {line.strip()[:100]}", "mend the driver, record again"
        )
    return SourceError(f"{location}:{number}: {cells} cells where the head has {width} columns", _AGAIN)


def _refuse_without_head(lines: Sequence[str], location: str) -> None:
    """SourceError for what only nvidia-smi prints, where nothing says what it is."""
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    if _NO_HEADER.match(first):
        raise SourceError(
            f"{location}: rows of nvidia-smi without their head (noheader): nothing says what the columns are",
            "leave out noheader, or write the head above as a comment: # timestamp, index, utilization.gpu, ...",
        )
    if _failed(first):
        raise SourceError(f"{location}:1: the tool failed: {first.strip()[:100]}", "mend the driver, record again")
