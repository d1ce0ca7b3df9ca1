"""Which profiler wrote a file, by its content; a name alone is only trusted for formats that nothing here reads."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from shlex import quote
from typing import Final, Literal

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError

ProfileKind = Literal["torch trace", "nsys sqlite", "nsys stats csv", "ncu csv", "nsys report", "ncu report"]

_HEAD: Final = 256 * 1024
"""Bytes that are looked at: the header of a trace of eight devices takes some 10 kB."""

_SQLITE: Final = b"SQLite format 3\x00"
_NSYS_TABLE: Final = re.compile(rb"CUPTI_ACTIVITY_KIND_|META_DATA_EXPORT|TARGET_INFO_SESSION|NVTX_EVENTS|StringIds")
_TRACE: Final = re.compile(rb'"traceEvents"\s*:|"deviceProperties"\s*:\s*\[|"ph"\s*:\s*"[A-Za-z]"')
_NCU_HEADER: Final = re.compile(rb'^"?ID"?,.*"?Kernel Name"?,', re.MULTILINE)
_NSYS_HEADER: Final = re.compile(
    rb'^"?(Time ?\(%\)"?[,\t]"?Total Time ?\(|Start ?\(\w+\)"?[,\t]"?Duration ?\(|API Start ?\()', re.MULTILINE
)
_EXPORTS: Final[dict[str, tuple[ProfileKind, str]]] = {
    ".nsys-rep": ("nsys report", "nsys export --type sqlite --output {export} {name}"),
    ".qdrep": ("nsys report", "nsys export --type sqlite --output {export} {name}"),
    # What a capture leaves where its machine could not make a report of it.
    ".qdstrm": (
        "nsys report",
        "QdstrmImporter --input-file={name} && nsys export --type sqlite --output {export} {report}",
    ),
    ".ncu-rep": ("ncu report", "ncu --import {name} --csv --page raw --print-units base > {export}"),
}


def recognise(path: Path) -> ProfileKind | None:
    """The kind of profile a file is, None where it is none. Raises OSError where it cannot be read."""
    if path.suffix.lower() in _EXPORTS:
        return _EXPORTS[path.suffix.lower()][0]
    head = _head(path)
    if head.startswith(_SQLITE):
        return "nsys sqlite" if _mentions(path, _NSYS_TABLE) else None
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):  # what PowerShell's `>` writes
        head = head.decode("utf-16", errors="replace").encode("utf-8", errors="replace")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        return "torch trace" if _TRACE.search(text) else None
    text = text.replace(b"\r\n", b"\n")
    if _NCU_HEADER.search(text):
        return "ncu csv"
    return "nsys stats csv" if _NSYS_HEADER.search(text) else None


def refuse_report(path: Path) -> SourceError:
    """Why a profiler's own report file is not read, with the command that exports it."""
    kind, command = _EXPORTS[path.suffix.lower()]
    suffix = ".sqlite" if kind == "nsys report" else ".csv"
    tool = "Nsight Systems" if kind == "nsys report" else "Nsight Compute"
    return SourceError(
        f"{path.name} is a report that only {tool} itself can open",
        Advice(
            "export it",
            command.format(
                name=quote(path.name), export=quote(path.stem + suffix), report=quote(path.stem + ".nsys-rep")
            ),
        ),
    )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        start = file.read(_HEAD)
    if not start.startswith(b"\x1f\x8b"):
        return start
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        return unpacker.decompress(start, _HEAD)
    except zlib.error:
        return b""


def _mentions(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """Whether the table definitions at the start of a database name a table of ours."""
    import sqlite3
    from contextlib import closing

    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            tables = [str(name).encode() for (name,) in database.execute("SELECT name FROM sqlite_master")]
    except (sqlite3.Error, UnicodeDecodeError):  # what SQLite says quotes the damage
        with path.open("rb") as file:
            return bool(pattern.search(file.read(_HEAD)))
    return any(pattern.search(table) for table in tables)
