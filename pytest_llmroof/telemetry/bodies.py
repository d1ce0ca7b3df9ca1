"""From the bytes of a scrape to its text: gzip, encodings, and what answers instead of metrics."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from typing import Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError

#: A page is some hundred kilobytes; beyond this it is no page, or a decompression bomb.
MAXIMUM_BYTES: Final = 64 * 2**20
#: Results of benchmarks may hold every token's time of every request.
MAXIMUM_JSON_BYTES: Final = 512 * 2**20

_GZIP: Final = b"\x1f\x8b"
_JSON: Final = re.compile(r'\[|\{\s*(?:\}|"(?:[^"\\]|\\.)*+"\s*:)')
_COMMENTS: Final = re.compile(r"(?:[ \t]*#[^\n]*\n|[ \t\r]*\n)*")
_SCRAPE: Final = Advice("name a page of metrics", "curl -sf http://HOST:PORT/metrics > page.prom")


def decoded(body: bytes | str, location: str, maximum: int | None = None) -> str:
    """The text of a file, unpacked. SourceError where it is damaged or no text."""
    if isinstance(body, str):
        return body.removeprefix("\ufeff")
    return _decoded(_unpacked(body, location, maximum or MAXIMUM_BYTES), location)


def comments_above(text: str) -> str:
    """The comment lines that a text begins with."""
    found = _COMMENTS.match(text)
    return found[0] if found else ""


def is_json(text: str) -> bool:
    """Whether a text, below its comment lines, begins as JSON does and metrics do not."""
    return _JSON.match(text, len(comments_above(text))) is not None


def records_of(text: str) -> list[dict[str, object]] | None:
    """The objects of a JSON list, as engines answer that hand out records of their steps; None for anything else."""
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(each, dict) for each in found) else None


def text_of(body: bytes | str, location: str) -> str:
    """The text of a page of metrics. SourceError says what it is where it is none."""
    text = decoded(body, location)
    start = text.lstrip()
    if not start:
        raise SourceError(f"{location} is empty", "the scrape failed: use curl -f, and check that the server is up")
    if start.startswith("<"):
        raise SourceError(
            f"{location} is HTML, not metrics",
            "an error page, a login or a dashboard answered: check the address, it mostly ends in /metrics",
        )
    if is_json(start):
        raise SourceError(f"{location} is JSON, not metrics", _SCRAPE)
    return text


def _unpacked(body: bytes, location: str, maximum: int) -> bytes:
    if len(body) > maximum:
        raise _too_large(location, maximum)
    if not body.startswith(_GZIP):
        return body
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            unpacked = file.read(maximum + 1)
    except EOFError:
        raise SourceError(f"{location} is a gzip file that was cut off", "write it again, to its end") from None
    except (OSError, zlib.error):
        raise SourceError(f"{location} is a damaged gzip file", "write it again") from None
    if len(unpacked) > maximum:
        raise _too_large(location, maximum)
    return unpacked


def _too_large(location: str, maximum: int) -> SourceError:
    return SourceError(f"{location} is larger than {maximum >> 20} MiB: no page of metrics is", _SCRAPE)


def _decoded(body: bytes, location: str) -> str:
    # What `curl ... > page.prom` writes in PowerShell.
    utf16 = body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = body.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        raise _binary(location) from None
    if "\0" in text:
        raise _binary(location)
    return text


def _binary(location: str) -> SourceError:
    return SourceError(f"{location} is binary, not text", _SCRAPE)
