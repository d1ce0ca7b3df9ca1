"""Files that a user names: what they are to the system, and their bytes, within bounds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.bodies import MAXIMUM_BYTES
from pytest_llmroof.telemetry.sniffing import unreadable

#: What a page of metrics is called.
PAGE_NAME: Final = re.compile(r".*\.(prom|metrics|openmetrics)(\.gz)?", re.IGNORECASE)


def by_name(entry: Path) -> tuple[int, str]:
    """The order of pages without a clock, as their names have it: ``after.prom`` is not the first."""
    name = entry.name.casefold()
    return (0 if "before" in name else 2 if "after" in name else 1), entry.name


def mode_of(path: Path, shown: str) -> int:
    """Its mode to the system. SourceError where there is nothing, or nothing that may be looked at."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise SourceError(f"{shown} does not exist", record_hint(shown)) from None
    except (OSError, ValueError) as error:
        raise unreadable(shown, error) from None


def record_hint(shown: str) -> Advice:
    """What to do for a path where there is nothing to read."""
    if PAGE_NAME.fullmatch(shown) or shown.endswith(".txt"):
        return Advice("scrape the server", f"curl -sf http://HOST:PORT/metrics > {shown}")
    return Advice("record it", f"python -m pytest_llmroof record --out={shown} http://HOST:PORT/metrics -- COMMAND")


def resolves_inside(entry: Path, inside: Path) -> bool:
    """Whether a link leads to something in a folder."""
    try:
        return entry.resolve(strict=True).is_relative_to(inside)
    except (OSError, RuntimeError):
        return False


def body_of(path: Path, shown: str, maximum: int | None = None) -> bytes:
    """A file's bytes. SourceError where it can't be read, or is larger than ``maximum`` (that of a page)."""
    maximum = maximum or MAXIMUM_BYTES
    try:
        if path.stat().st_size > maximum:
            size = f"{maximum >> 20} MiB"
            raise SourceError(f"{shown} is larger than {size}: no page of metrics is", "name a scrape")
        return path.read_bytes()
    except OSError as error:
        raise unreadable(shown, error) from None
