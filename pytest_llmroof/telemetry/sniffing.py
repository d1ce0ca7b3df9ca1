"""What a file holds, from its beginning: its name is no evidence."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Final, Literal

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.bodies import is_json
from pytest_llmroof.telemetry.smi import is_table

Content = Literal["metrics", "json", "html", "empty", "binary", "text", "table", "statistics"]

_HEAD_BYTES: Final = 16_384
_COMMENT: Final = r"^#[ \t]*(HELP|TYPE|scraped_at|scrape_seconds|endpoint)[ \t]"
_SAMPLE: Final = r"\A\s*[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^\n]*\})?[ \t]+[-+.\dIN]\S*\s"
_METRICS: Final = re.compile(f"{_COMMENT}|{_SAMPLE}", re.MULTILINE)


def unreadable(shown: str, error: Exception) -> SourceError:
    """Why a path could not be read, without the system's own text."""
    if isinstance(error, PermissionError):
        return SourceError(f"{shown} may not be read (permission denied)", "give the user that runs pytest read access")
    why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return SourceError(f"{shown} cannot be read ({why})", "check the path")


def sniff(path: Path, shown: str) -> Content:
    """What a file holds, from its beginning."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise unreadable(shown, error) from None
    return content_of(head)


def content_of(head: bytes) -> Content:
    """What the beginning of a file says of its content."""
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return "binary"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        head = head.decode("utf-16", errors="ignore").encode()
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")
    start = text.lstrip()
    if not start:
        return "empty"
    if "\0" in text or text.count("�") > 2:
        return "binary"
    if is_json(start):
        return "json"
    if is_table(text):
        return "table"
    if start.startswith("# AIPerf Server Metrics Export"):
        return "statistics"
    if _METRICS.search(text):
        return "metrics"
    if start.startswith("<"):
        return "html"
    return "json" if start[0] in "{[" else "text"
