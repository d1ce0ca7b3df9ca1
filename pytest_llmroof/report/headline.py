"""The first line of a failing text: finding, limit, distance, cause, id, in 200 characters."""

from __future__ import annotations

from typing import Any, Final

from pytest_llmroof.report.figures import apart
from pytest_llmroof.report.limits import away, expected, only_a_bound
from pytest_llmroof.report.rows import uncommanded
from pytest_llmroof.report.wire import Document

LONGEST: Final = 200

#: What can be cut of a long expression before the finding itself would suffer.
_SHORTEST_EXPECTATION: Final = 60
_LONGEST_ID: Final = 40


def headline(window: Document, gate: Document) -> str:
    """One line that stands alone in a summary, a JUnit message or an annotation."""
    tail = f"   [{uncommanded(shorten(one_line(gate['id']), _LONGEST_ID))}]" if gate["id"] else ""
    room = LONGEST - len(tail)
    line = _judged(window, gate, room) if judged(gate) else _not_measured(gate, room)
    return shorten(uncommanded(one_line(line)), room) + tail


def judged(gate: Document) -> bool:
    """Whether a value was held against a limit."""
    return gate["verdict"] in ("pass", "fail") and gate["value"] is not None and gate["limit"] is not None


def _judged(window: Document, gate: Document, room: int) -> str:
    found = f"found {quantity_apart(gate)}, expected "
    apart_by = f" ({away(gate)}{', approximate' if gate['approximate'] else ''}{_whose(gate)})"
    asked = shorten(expected(gate, basis=True), max(_SHORTEST_EXPECTATION, room - len(found) - len(apart_by)))
    cause = cause_of(window, gate) if gate["verdict"] == "fail" else None
    line = found + asked + apart_by
    return f"{line}; {cause}" if cause else line


def _whose(gate: Document) -> str:
    """``; the worst of 4 GPUs: gpu 2 of node-1``, of a gate that is held for each."""
    reason = one_line(gate["reason"] or "").partition(";")[0]
    return f"; {reason}" if reason.startswith("the worst of ") else ""


def quantity_apart(gate: Document) -> str:
    """The value, printed so that it differs from the limit where it does; of a lower bound, that it is one.

    A time comes from a bucket, whose lower bound it lies ``above``; a sample or a count was seen: ``at least 32``.
    """
    shown = apart(gate["value"], gate["limit"], gate["unit"])
    if not only_a_bound(gate):
        return shown
    return f"{'above' if gate['unit'] == 'seconds' else 'at least'} {shown}"


def _not_measured(gate: Document, room: int) -> str:
    """The reason is cut before what was asked: both must be read. What would settle it is for the lines below."""
    word = gate["verdict"]
    head = {"no data": "NOT MEASURED: ", "not judged": "NOT JUDGED: ", "not run": "NOT RUN: "}.get(
        word, f"NOT MEASURED ({word}): "
    )
    asked = "; expected " + shorten(expected(gate), _SHORTEST_EXPECTATION)
    said = (gate.get("because") if word == "inconclusive" else None) or gate["reason"]
    reason = one_line(said or gate["in_words"] or "no reason was given").rstrip(".;")
    return head + shorten(reason, room - len(head) - len(asked)) + asked


def cause_of(window: Document, gate: Document) -> str | None:
    """``scenario C: communication and interconnect stalls``."""
    diagnosis = diagnosis_of(window, gate)
    if diagnosis is None or not diagnosis["title"]:
        return None
    title: str = diagnosis["title"]
    return f"scenario {diagnosis['scenario']}: {title}" if diagnosis["scenario"] else title


def diagnosis_of(window: Document, gate: Document) -> dict[str, Any] | None:
    """The diagnosis of the time that a gate measures."""
    diagnosis = window["diagnoses"].get(gate["family"])
    if diagnosis is None and window["diagnosis"] and window["diagnosis"]["of"] == gate["family"]:
        diagnosis = window["diagnosis"]
    found: dict[str, Any] | None = diagnosis
    return found


def one_line(text: str) -> str:
    """Without line breaks and runs of blanks."""
    return " ".join(text.split())


def shorten(text: str, width: int) -> str:
    """Cut at a word where one is near, with an ellipsis."""
    if len(text) <= width:
        return text
    cut = text[: max(width - 1, 0)]
    at_word = cut.rpartition(" ")[0]
    return (at_word if len(at_word) > len(cut) - 20 else cut).rstrip(" ,;:").removesuffix(" =") + "…"
