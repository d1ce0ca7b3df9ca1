"""Which of the files that a user names, or that lie in a recording, a profiler wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pytest_llmroof.profiles.profile import ProfileFile
from pytest_llmroof.profiles.recognise import recognise

#: Scrapes: a recording holds thousands of them, and no profiler calls its file so.
_PAGES: Final = re.compile(r".*\.(prom|metrics|openmetrics)(\.gz)?", re.IGNORECASE)


def find_profiles(paths: Sequence[tuple[Path, str]]) -> tuple[ProfileFile, ...]:
    """The profiles among (path, what messages may call it), folders looked into one level deep.

    What cannot be looked at is none: whoever reads the rest says so.
    """
    return tuple(found for path, shown in paths for found in _among(path, shown))


def _among(path: Path, shown: str) -> Iterator[ProfileFile]:
    try:
        if not path.is_dir():
            yield from _file(path, shown)
            return
        inside, entries = path.resolve(), sorted(path.iterdir())
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(".") and _lies_in(entry, inside):
            yield from _file(entry, f"{shown.rstrip('/')}/{entry.name}")


def _file(path: Path, shown: str) -> Iterator[ProfileFile]:
    try:
        kind = recognise(path) if path.is_file() and not _PAGES.fullmatch(path.name) else None
    except OSError:
        return
    if kind is not None:
        yield ProfileFile(path, shown, kind)


def _lies_in(entry: Path, inside: Path) -> bool:
    """Whether an entry is no link that leads out of its folder."""
    try:
        return not entry.is_symlink() or entry.resolve(strict=True).is_relative_to(inside)
    except (OSError, RuntimeError):
        return False
