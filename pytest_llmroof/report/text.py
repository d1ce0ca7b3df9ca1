"""The failing text of a gate, made from the report document alone: any report can be rendered again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pytest_llmroof.report.change_text import change_of, change_rows
from pytest_llmroof.report.fact_rows import fact_rows, limit_rows, measured
from pytest_llmroof.report.headline import diagnosis_of, headline, one_line
from pytest_llmroof.report.rows import MOST_LINES, Row, laid_out
from pytest_llmroof.report.wire import Document

__all__ = ["Told", "failing_text", "headline", "text_of"]

_MOST_REMEDIES: Final = 4
_MOST_EVIDENCE: Final = 3


class Told:
    """Which gates told everything about their window: the first one that breached, and before it one not measured.

    What was not measured has no diagnosis, no change and no remedy, so that a breach behind it must tell them still.
    """

    def __init__(self) -> None:
        self._tellers: dict[tuple[object, str], object] = {}

    def whole(self, window: object, teller: object, gate: Document) -> bool:
        """Whether a gate's text is the whole one; a rerun of a gate that told everything tells it again.

        ``window`` and ``teller`` tell windows and gates apart.
        """
        kind = "breach" if measured(gate) else "unmeasured"
        if kind == "unmeasured" and (window, "breach") in self._tellers:
            return self._tellers.get((window, kind)) == teller
        return self._tellers.setdefault((window, kind), teller) == teller

    def changed(self, window: object, teller: object, change: Document | None) -> bool:
        """Whether a gate tells what changed since the baseline: the first one of its window that can."""
        return change is not None and self._tellers.setdefault((window, "change"), teller) == teller


def failing_text(window: Document, gate: Document, first: bool = True, changed: bool = False) -> str:
    """At most 40 lines that tell what was found, why, and what to do.

    A further gate of a window whose text was shown (``first`` false) gets the first line and its limit only; one that
    was not measured the command that would measure it, where the first line has no room for it. ``changed``: what
    changed since the baseline as well, where no gate before it could tell.
    """
    rows = list(_rows(window, gate) if first else _further_rows(window, gate, changed))
    return "\n".join([headline(window, gate), *laid_out(rows, MOST_LINES - 1)])


def text_of(told: Told, window: Document, gate: Document, *, of: tuple[object, object], whole: bool = False) -> str:
    """The text of the next failing gate: all of it where ``told`` or ``whole`` says so.

    ``of`` tells its window and the gate itself from others.
    """
    first = told.whole(*of, gate)
    changed = told.changed(*of, change_of(window, gate) if measured(gate) else None)
    return failing_text(window, gate, first=first or whole, changed=changed)


def _rows(window: Document, gate: Document) -> Iterator[Row]:
    if gate["in_words"]:
        yield Row("in words", gate["in_words"])
    if gate["why"]:
        yield Row("asked because", one_line(gate["why"]), rank=2)
    yield from _reason_rows(gate, headline(window, gate))
    yield from fact_rows(window, gate)
    yield from (Row("note", one_line(note), rank=1) for note in window["notes"])
    yield from (Row("not read", one_line(name), rank=4) for name in window["unread"])
    diagnosis = diagnosis_of(window, gate) if measured(gate) else None
    if diagnosis:
        yield from _diagnosis_rows(diagnosis)
    if measured(gate) and (change := change_of(window, gate)):
        yield from change_rows(change)
    if diagnosis:
        yield from _remedy_rows(diagnosis["remedies"])


def _further_rows(window: Document, gate: Document, changed: bool) -> Iterator[Row]:
    if gate["verdict"] in ("no data", "impossible"):
        yield from _reason_rows(gate, headline(window, gate))
    yield from limit_rows(gate)
    if changed and (change := change_of(window, gate)):
        yield from change_rows(change)


def _reason_rows(gate: Document, first_line: str) -> Iterator[Row]:
    """Why a verdict is not a plain one, and what would give a plain one; not again what the first line holds whole."""
    if gate["reason"] and one_line(gate["reason"]).rstrip(".;") not in first_line:
        label = {"no data": "no data", "impossible": "contradiction", "inconclusive": "inconclusive"}.get(
            gate["verdict"], "approximate" if gate["approximate"] else "note"
        )
        yield Row(label, one_line(gate["reason"]))
    said = gate["reason"] or ""
    for label, key in (("to measure it", "remedy"), ("check", "check")):
        if gate[key] and gate[key] not in said:
            yield Row(label, one_line(gate[key]))
    if (gate["approximate"] or gate["verdict"] == "inconclusive") and gate["settle"] and gate["settle"] not in said:
        yield Row("to settle it", one_line(gate["settle"]))


def _diagnosis_rows(diagnosis: dict[str, Any]) -> Iterator[Row]:
    scenario, title = diagnosis["scenario"], diagnosis["title"]
    name = f"Scenario {scenario}: {title}" if scenario else title
    yield Row("DIAGNOSIS", f"{name}   (confidence: {diagnosis['confidence']})", heading=True)
    for supporting in (True, False):
        evidence = [one for one in diagnosis["evidence"] if one["supports"] is supporting]
        for index, one in enumerate(evidence):
            label = "for" if supporting else f"against {one['scenario']}"
            if supporting and len(diagnosis["candidates"]) > 1:
                label = f"for {one['scenario']}"
            source = f" ({one['source']})" if supporting and one["source"] else ""
            yield Row(label, one_line(one["statement"]) + source, rank=1 if index < _MOST_EVIDENCE else 5)
    yield from (Row("missing", one_line(missing), rank=2) for missing in diagnosis["missing"])


def _remedy_rows(remedies: list[dict[str, Any]]) -> Iterator[Row]:
    for number, remedy in enumerate(remedies, 1):
        effect = f"   -> {one_line(remedy['effect'])}" if remedy["effect"] else ""
        rank = 0 if number == 1 else 1 if number <= _MOST_REMEDIES else 5
        label = "REMEDIATION" if number == 1 else " "
        title = f"{number}. {one_line(remedy['title'])}{effect}"
        yield Row(label, title, heading=True, rank=rank, hang=len(f"{number}. "))
        if remedy["detail"]:
            detail = one_line(remedy["detail"])
            yield Row("", detail, heading=True, rank=max(rank, 3), hang=len(f"{number}. "))
