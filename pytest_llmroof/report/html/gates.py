"""Gates as rows: what was asked, what was found, and how far apart the two are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.report.document import shown_word
from pytest_llmroof.report.figures import quantity
from pytest_llmroof.report.headline import judged, one_line, quantity_apart
from pytest_llmroof.report.limits import away, expected, supports
from pytest_llmroof.report.release import UNMEASURED
from pytest_llmroof.report.wire import Document

#: Which section a gate stands in, by the summary's word.
_SECTIONS: Final = {"fail": "failed", "pass": "passed", "warned": "warned", "not run": "not-run"} | dict.fromkeys(
    UNMEASURED, "unmeasured"
)


@dataclass(frozen=True)
class Gauge:
    """A value against its limit on one scale, in per cent of the drawing's width; ``over`` is what a limit allows."""

    value: float
    limit: float
    at_least: bool


@dataclass(frozen=True)
class GateRow:
    """One gate for a table or a card. Texts that do not apply are empty."""

    asked: str
    id: str
    found: str
    distance: str
    verdict: str
    approximate: bool
    default: bool
    in_words: str
    reason: str
    remedy: str
    settle: str
    check: str
    why: str
    supported: str
    interval: str
    place: str
    gauge: Gauge | None


@dataclass(frozen=True)
class WindowRows:
    """The gates of one window that stand in one section."""

    window: str
    rows: tuple[GateRow, ...]


def section_of(gate: Document) -> str:
    """``failed``, ``unmeasured``, ``warned``, ``passed`` or ``not-run``."""
    return _SECTIONS[shown_word(gate)]


def by_window(windows: Sequence[Document], section: str) -> list[WindowRows]:
    """A section's gates, window by window, the least to spare first."""
    found = []
    for window in windows:
        gates = sorted((gate for gate in window["gates"] if section_of(gate) == section), key=worst_first)
        if gates:
            found.append(WindowRows(one_line(window["name"]), tuple(map(gate_row, gates))))
    return found


def worst_first(gate: Document) -> float:
    """The sorting key of gates: the worst margin first."""
    return gate["margin"] if gate["margin"] is not None else 0.0


def gate_row(gate: Document) -> GateRow:
    """A gate's texts, from its document."""
    has_value = judged(gate)
    said = one_line(gate["reason"] or "")
    uncertain = gate["approximate"] or gate["verdict"] == "inconclusive"
    return GateRow(
        asked=expected(gate),
        id=one_line(gate["id"] or ""),
        found=quantity_apart(gate) if has_value else _found(gate),
        distance=away(gate) if has_value else "",
        verdict=gate["verdict"],
        approximate=bool(gate["approximate"]),
        default=bool(gate["default"]),
        in_words=sentence(gate["in_words"]),
        reason=sentence(said),
        remedy=_unsaid(gate["remedy"], said),
        settle=_unsaid(gate["settle"], said) if uncertain else "",
        check=_unsaid(gate["check"], said),
        why=one_line(gate["why"] or ""),
        supported=(supports(gate) or "") if gate["value"] is not None else "",
        interval=_interval(gate),
        place=_place(gate),
        gauge=_gauge(gate) if has_value else None,
    )


def _found(gate: Document) -> str:
    """What was measured where that was not enough for a verdict."""
    return "" if gate["value"] is None else quantity(gate["value"], gate["unit"])


def _interval(gate: Document) -> str:
    if gate["value"] is None or gate["low"] == gate["high"]:
        return ""
    return f"{quantity(gate['low'], gate['unit'])} to {quantity(gate['high'], gate['unit'])}"


def _place(gate: Document) -> str:
    if not gate["file"]:
        return ""
    return f"{one_line(gate['file'])}:{gate['line']}" if gate["line"] else one_line(gate["file"])


def _unsaid(text: str | None, said: str) -> str:
    """What else there is to say, unless the reason holds it already."""
    shown = one_line(text or "")
    return "" if shown in said else shown


def sentence(text: str | None) -> str:
    """With a capital at its start where that is a plain word, for a page of prose; a command stays as it is."""
    shown = one_line(text or "")
    word, _, rest = shown.partition(" ")
    plain = word.isalpha() and word.islower() and not rest.startswith("-")
    return shown[:1].upper() + shown[1:] if plain else shown


def _gauge(gate: Document) -> Gauge | None:
    """Shares on a scale up to one, everything else a little beyond the larger of value and limit."""
    value, limit = gate["value"], gate["limit"]
    if value < 0 or limit < 0 or not (value or limit):
        return None
    whole = 1.0 if gate["unit"] == "fraction" and max(value, limit) <= 1 else max(value, limit) * 1.15
    return Gauge(
        value=round(value / whole * 100, 2),
        limit=round(limit / whole * 100, 2),
        at_least=gate["operator"] in (">=", ">"),
    )


def counted(rows: Iterable[WindowRows]) -> int:
    """How many gates there are in these rows."""
    return sum(len(window.rows) for window in rows)


def not_run_rows(windows: Sequence[Document], items: Sequence[Document]) -> Iterator[tuple[str, str]]:
    """What did not run, and why: tests, and gates of windows that were not measured for them."""
    for window in windows:
        for gate in window["gates"]:
            if section_of(gate) == "not-run":
                yield f"{one_line(window['name'])}: {expected(gate)}", one_line(gate["reason"] or gate["verdict"])
    for one in items:
        yield one_line(one["node_id"]), one_line(one["reason"] or "")
