"""The PyTorch profiler's trace (Chrome JSON), of CUDA and of ROCm, plain or packed, as timelines.

The array of events is streamed: what precedes and follows it are small objects, which may stand in any order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.chrome_build import Header, timelines_of
from pytest_llmroof.profiles.chrome_events import Event, EventReader, parse_events
from pytest_llmroof.profiles.elements import Elements
from pytest_llmroof.profiles.packed import Packed
from pytest_llmroof.profiles.timeline import Timeline

_EVENTS: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
#: Work that follows the list of events: traces that were joined, or a second list.
_SECOND: Final = re.compile(rb'"cat"\s*:\s*"(?:kernel|Kernel|gpu_mem)')
#: How a trace ends that was written to its end.
_ENDED: Final = re.compile(rb"\]\s*(?:,[^{}\[\]]*)?\}\s*$")
_BOM: Final = b"\xef\xbb\xbf"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_LONGEST_HEADER: Final = 64 << 20
_LONGEST_KEY: Final = 4096
"""Bytes that a key, its colon and what stands between them and the list take at most."""
_MOST_NESTED: Final = 16
"""Lists of events inside of other values that are passed over."""

#: Those that slow the host, the worst first.
_OPTIONS: Final = ("with_stack", "record_shapes", "profile_memory", "with_modules", "with_flops")
_AGAIN: Final = "record it again, and let the profiler finish writing before the server is stopped"


def read_chrome(path: Path, location: str | None = None) -> tuple[Timeline, ...]:
    """The timelines of a trace, one for each device. Raises SourceError where it is damaged or holds no GPU work.

    ``location`` is what reports call the file; its name, where nothing else is given.
    """
    place = location or path.name
    packed = Packed(path)
    pieces = packed.pieces()
    before, begun, offset = _until_events(pieces, place)
    elements = Elements(pieces, begun, offset, parse_events)
    reader = EventReader(place)
    for run in elements.runs():
        reader.add(run)
    listed = before == b"["
    after = elements.rest + b"".join(_bounded(pieces, place)) if elements.closed else b""
    if _SECOND.search(after):
        raise SourceError(
            f"{place} holds several traces, one after the other: only the first one would be read",
            "make each of them a file of its own",
        )
    if not elements.closed:
        _check_end(elements, reader.count, listed, place, packed)
    notes = [note.replace(packed.name, place, 1) for note in packed.notes]
    if packed.unfinished:
        notes.append(f"{place}: the gzip data lack their ending, and the trace in them is whole")
    keys: dict[str, Any] = {}
    if listed and after.strip():
        notes.append(f"{place}: what follows the list of events was left out")
    if not listed:
        closed = _object(before + b"]}")
        if closed is None:
            raise SourceError(f"{place}: what precedes the events is no JSON", _AGAIN)
        keys.update(closed)
        rest = after.strip()
        trailing = _object(b'{"": 0' + rest) if rest.startswith((b",", b"}")) else None
        if trailing is None:
            notes.append(f"{place}: what follows the events is cut off or damaged, and was left out")
        else:
            keys.update(trailing)
    doubts = () if elements.closed else ("the list of events is not closed: the last ones may be missing",)
    return timelines_of(reader.columns, _header(keys), place, tuple(notes), doubts)


def _until_events(pieces: Iterator[bytes], place: str) -> tuple[bytes, bytes, int]:
    """The text up to the events' opening bracket, what was read behind it, and where that begins."""
    text, skipped, seen, nested = b"", 0, 0, 0
    for piece in pieces:
        if not text:
            if piece.startswith(_UTF_16):
                raise SourceError(f"{place} is UTF-16 text, and traces are UTF-8", "copy it without a shell's >")
            skipped += len(piece) - len(piece.removeprefix(_BOM))
            piece = piece.removeprefix(_BOM)
        text += piece
        start = text.lstrip()
        if start.startswith(b"["):
            begin = len(text) - len(start) + 1
            return b"[", text[begin:], skipped + begin
        if start and not start.startswith(b"{"):
            raise SourceError(f"{place} is no trace: it starts with neither an object nor a list")
        for match in _EVENTS.finditer(text, seen):
            if _at_top(text[: match.start()]):
                return text[: match.end()], text[match.end() :], skipped + match.end()
            seen, nested = match.end(), nested + 1
            if nested > _MOST_NESTED:
                raise SourceError(f"{place} holds traces within something else", "make each of them a file of its own")
        seen = max(seen, len(text) - _LONGEST_KEY)
        if len(text) > _LONGEST_HEADER:
            break
    if not text.strip():
        raise SourceError(f"{place} is empty", _AGAIN)
    raise SourceError(f"{place} holds no list of events (traceEvents) in its {len(text)} bytes", _AGAIN)


def _at_top(text: bytes) -> bool:
    """Whether a key that follows this text is one of the outermost object."""
    try:
        json.loads((text + b'"":0}').decode("utf-8", errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _bounded(pieces: Iterator[bytes], place: str) -> Iterator[bytes]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > _LONGEST_HEADER:
            raise SourceError(f"{place}: {total} bytes follow the events, which is no trace")
        yield piece


def _check_end(elements: Elements[Event], count: int, listed: bool, place: str, packed: Packed) -> None:
    """Refuse a trace whose events just end: which work is missing, nobody knows."""
    rest = elements.rest.lstrip(b" \t\r\n,")
    # The format allows a bare list to stay open: its writer may have been stopped after any event.
    if listed and not rest and count and not packed.unfinished:
        return
    at = elements.offset + len(elements.rest)
    where = at - len(rest)
    if rest.startswith(b"{") and _ENDED.search(rest[-_LONGEST_KEY:]):
        raise SourceError(
            f"{place}: the event at byte {where}, after {count} complete ones, does not end, and the trace does: a "
            "quote in one of the names that follow is not escaped",
            "record it again without stacks (with_stack), or with a newer PyTorch, which escapes them",
        )
    if rest.startswith(b"{") or not rest:
        raise SourceError(
            f"{place} is truncated at byte {at}{' (unpacked)' if packed.unfinished else ''}, "
            f"after {count} complete events: the work that followed is missing",
            _AGAIN,
        )
    raise SourceError(f"{place}: no event begins at byte {where}, after {count} events", _AGAIN)


def _object(text: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text.decode("utf-8", errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _header(keys: Mapping[str, Any]) -> Header:
    """The few facts that are kept: nothing else of what a trace says about its machine."""
    given = keys.get("distributedInfo")
    distributed: Mapping[str, Any] = given if isinstance(given, dict) else {}
    devices = keys.get("deviceProperties")
    named = {}
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, dict) and isinstance(device.get("name"), str) and _whole(device.get("id")) is not None:
            named[int(device["id"])] = str(device["name"])
    return Header(
        devices=named,
        rank=_whole(distributed.get("rank")),
        world_size=_whole(distributed.get("world_size")),
        zero_unix_ns=_whole(keys.get("baseTimeNanoseconds")),
        options=tuple(option for option in _OPTIONS if keys.get(option) in (1, True, "1", "true")),
    )


def _whole(value: object) -> int | None:
    """A whole number that is not negative, and not absurd."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        return None
    return value
