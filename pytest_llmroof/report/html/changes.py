"""What changed since a baseline: a time then and now, and what of the difference is traffic, queue and engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.report.change_text import Scale, change_rows
from pytest_llmroof.report.headline import one_line
from pytest_llmroof.report.wire import Document

#: Of very many windows the first ones: all of them are in the JSON report.
MOST_CHANGES: Final = 12


@dataclass(frozen=True)
class Difference:
    """One part of a difference, with a bar from the middle of the drawing: its start and width in per cent."""

    of: str
    cause: str
    before: str
    after: str
    change: str
    more: bool
    start: float
    width: float


@dataclass(frozen=True)
class Change:
    """A section: its first line, what it says of traffic, queue and engine, and the parts."""

    window: str
    headline: str
    rows: tuple[tuple[str, str], ...]
    parts: tuple[Difference, ...]
    unit: str


def changes(windows: Sequence[Document]) -> list[Change]:
    """Every comparison of every window."""
    return [_change(window, change) for window in windows for change in _of(window)]


def _of(window: Document) -> Iterator[Document]:
    every = list((window["changes"] or {}).values())
    yield from every
    if window["change"] and window["change"] not in every:
        yield window["change"]


def _change(window: Document, change: Document) -> Change:
    first, *rows = change_rows(change)
    scale = Scale.of(max(change["before_seconds"], change["after_seconds"]), change["seconds"])
    # Parts that only one window knows, or too small to be printed other than as zero, are in the JSON report.
    parts = [part for part in change["parts"] if part["seconds"] is not None and scale.rounded(part["seconds"])]
    largest = max((abs(part["seconds"]) for part in parts), default=0.0)
    text = first.text
    return Change(
        window=one_line(window["name"]),
        headline=text[:1].upper() + text[1:],
        rows=tuple((row.label, row.text) for row in rows),
        parts=tuple(_difference(part, scale, largest) for part in parts),
        unit=scale.name,
    )


def _difference(part: Document, scale: Scale, largest: float) -> Difference:
    seconds, before, after = part["seconds"], part["before_seconds"], part["after_seconds"]
    # The difference of what is printed, so that it can be checked by eye.
    known = before is not None and after is not None
    change = scale.rounded(after) - scale.rounded(before) if known else scale.rounded(seconds)
    width = abs(seconds) / largest * 50 if largest else 0.0
    return Difference(
        of=part["of"],
        cause=one_line(part["cause"]),
        before=_plain(before, scale),
        after=_plain(after, scale),
        change=scale.signed(change),
        more=seconds > 0,
        start=round(50.0 if seconds > 0 else 50.0 - width, 2),
        width=round(width, 2),
    )


def _plain(seconds: float | None, scale: Scale) -> str:
    return "" if seconds is None else scale.plain(scale.rounded(seconds))
