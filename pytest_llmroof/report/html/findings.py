"""Failed gates with their cause: those of one window that one diagnosis explains stand together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmroof.report.fact_rows import fact_rows
from pytest_llmroof.report.headline import diagnosis_of, one_line
from pytest_llmroof.report.html.gates import GateRow, gate_row, section_of, sentence, worst_first
from pytest_llmroof.report.wire import Document

#: Findings that are shown at once, and those that can be unfolded; the gates of further ones are rows.
MOST_OPEN: Final = 4
MOST_FOLDED: Final = 24
#: Gates of one finding that are shown in full.
MOST_GATES: Final = 3


@dataclass(frozen=True)
class Remedy:
    """What to do, what it should give, and how."""

    title: str
    effect: str
    detail: str


@dataclass(frozen=True)
class Evidence:
    """One statement for the diagnosis, or against a rival."""

    scenario: str
    statement: str
    source: str


@dataclass(frozen=True)
class Cause:
    """A diagnosis as texts."""

    name: str
    confidence: str
    regime: str
    supporting: tuple[Evidence, ...]
    against: tuple[Evidence, ...]
    missing: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    several: bool


@dataclass(frozen=True)
class Finding:
    """Failed gates of one window, why, and what they were measured with. ``further`` gates are rows only."""

    window: str
    gates: tuple[GateRow, ...]
    further: tuple[GateRow, ...]
    cause: Cause | None
    facts: tuple[tuple[str, str], ...]

    @property
    def count(self) -> int:
        """How many gates it explains."""
        return len(self.gates) + len(self.further)


def findings(windows: Sequence[Document]) -> list[Finding]:
    """All of them: the worst of each cause first, then the others, the worst margin first."""
    found: list[tuple[float, Finding]] = []
    for window in windows:
        groups: dict[str, list[Document]] = {}
        for gate in window["gates"]:
            if section_of(gate) == "failed":
                groups.setdefault(_key(window, gate), []).append(gate)
        for gates in groups.values():
            gates.sort(key=worst_first)
            found.append((worst_first(gates[0]), _finding(window, gates)))
    found.sort(key=lambda pair: pair[0])
    worst: dict[str, Finding] = {}
    for _, finding in found:
        worst.setdefault(finding.cause.name if finding.cause else "", finding)
    first = list(worst.values())
    shown = set(map(id, first))
    return first + [finding for _, finding in found if id(finding) not in shown]


def _key(window: Document, gate: Document) -> str:
    """The same for gates of one cause and one cure, whichever kind of time they measure."""
    diagnosis = diagnosis_of(window, gate)
    if diagnosis is None:
        return ""
    return "/".join(
        map(str, (diagnosis["scenario"], diagnosis["title"], *(one["title"] for one in diagnosis["remedies"])))
    )


def _finding(window: Document, gates: Sequence[Document]) -> Finding:
    worst, diagnosis = gates[0], diagnosis_of(window, gates[0])
    return Finding(
        window=one_line(window["name"]),
        gates=tuple(map(gate_row, gates[:MOST_GATES])),
        further=tuple(map(gate_row, gates[MOST_GATES:])),
        cause=_cause(diagnosis) if diagnosis else None,
        facts=tuple(_facts(window, worst)),
    )


def _cause(diagnosis: dict[str, Any]) -> Cause:
    title, scenario = one_line(diagnosis["title"] or ""), diagnosis["scenario"]
    every = [
        (one["supports"], Evidence(one["scenario"], one_line(one["statement"]), one_line(one["source"] or "")))
        for one in diagnosis["evidence"]
    ]
    return Cause(
        name=f"Scenario {scenario}: {title}" if scenario else title,
        confidence=diagnosis["confidence"],
        regime=diagnosis["regime"] or "",
        supporting=tuple(evidence for supports, evidence in every if supports),
        against=tuple(evidence for supports, evidence in every if not supports),
        missing=tuple(map(sentence, diagnosis["missing"])),
        remedies=tuple(
            Remedy(one_line(one["title"]), one_line(one["effect"] or ""), one_line(one["detail"] or ""))
            for one in diagnosis["remedies"]
        ),
        several=len(diagnosis["candidates"]) > 1,
    )


def _facts(window: Document, gate: Document) -> Iterator[tuple[str, str]]:
    """What the failing text says between its first line and the diagnosis, and how the worst gate was measured."""
    rows = fact_rows(window, gate, supported=False)  # the gate's own lines say what is supported
    texts = {
        "Gate": gate_row(gate).place,
        **{f"{row.label[:1].upper()}{row.label[1:]}": row.text for row in rows},
        "Source": gate["source"],
        "Method": gate["method"],
    }
    yield from ((label, one_line(text)) for label, text in texts.items() if text)
