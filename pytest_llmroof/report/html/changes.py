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
    parts = tuple(_differences(change["parts"], scale))
    text = first.text
    return Change(
        window=one_line(window["name"]),
        headline=text[:1].upper() + text[1:],
        rows=tuple((row.label, row.text) for row in rows),
        parts=parts,
        unit=scale.name,
    )


def _differences(parts: Sequence[Document], scale: Scale) -> Iterator[Difference]:
    """Those that can be printed other than as zero. What only one window knows is in the JSON report."""
    changed = [(part, _printed(part, scale)) for part in parts if part["seconds"] is not None]
    shown = [(part, difference) for part, difference in changed if difference]
    largest = max((abs(difference) for _, difference in shown), default=1.0)
    for part, difference in shown:
        width = abs(difference) / largest * 50
        yield Difference(
            of=part["of"],
            cause=one_line(part["cause"]),
            before=_plain(part["before_seconds"], scale),
            after=_plain(part["after_seconds"], scale),
            change=scale.signed(difference),
            more=difference > 0,
            start=round(50.0 if difference > 0 else 50.0 - width, 2),
            width=round(width, 2),
        )


def _printed(part: Document, scale: Scale) -> float:
    """The difference of what is printed where both are, so that it can be checked by eye."""
    before, after = part["before_seconds"], part["after_seconds"]
    if before is None or after is None:
        return scale.rounded(part["seconds"])
    return round(scale.rounded(after) - scale.rounded(before), scale.decimals)


def _plain(seconds: float | None, scale: Scale) -> str:
    return "" if seconds is None else scale.plain(scale.rounded(seconds))
