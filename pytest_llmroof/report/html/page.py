"""The page of a report: everything that its template shows, in the order in which it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.report.html.bars import Bar, bar
from pytest_llmroof.report.html.changes import MOST_CHANGES, Change, changes
from pytest_llmroof.report.html.chart import Chart, chart
from pytest_llmroof.report.html.findings import MOST_FOLDED, MOST_OPEN, Finding, findings
from pytest_llmroof.report.html.gates import WindowRows, by_window, counted, not_run_rows, section_of
from pytest_llmroof.report.html.naming import named
from pytest_llmroof.report.html.roofs import Roofline, rooflines
from pytest_llmroof.report.html.tested import Fact, moment, tested
from pytest_llmroof.report.html.windows import MOST_WINDOWS, Details, Note, details, notes
from pytest_llmroof.report.release import outcome_sentence
from pytest_llmroof.report.wire import Document

#: Bars and charts beyond these are folded, and of very many only the first are there.
_OPEN_BARS: Final = 4
_MOST_BARS: Final = 40
_MOST_CHARTS: Final = 12
_WIDE: Final = (860.0, 420.0)
_NARROW: Final = (358.0, 380.0)


@dataclass(frozen=True)
class Tally:
    """How many gates came out so, and where they are told."""

    count: int
    word: str
    section: str


@dataclass(frozen=True)
class Drawing:
    """A roofline, drawn for a wide and for a narrow page."""

    roofline: Roofline
    wide: Chart
    narrow: Chart


@dataclass(frozen=True)
class Page:
    """The report as a page."""

    sentence: str
    outcome: str
    tallies: tuple[Tally, ...]
    facts: tuple[Fact, ...]
    findings: tuple[Finding, ...]
    folded_findings: tuple[Finding, ...]
    further_findings: tuple[Finding, ...]
    failed_folded: int
    unmeasured: tuple[WindowRows, ...]
    changes: tuple[Change, ...]
    bars: tuple[Bar, ...]
    further_bars: tuple[Bar, ...]
    drawings: tuple[Drawing, ...]
    warned: tuple[WindowRows, ...]
    passed: tuple[WindowRows, ...]
    not_run: tuple[tuple[str, str], ...]
    notes: tuple[Note, ...]
    windows: tuple[Details, ...]
    windows_left: int
    left: tuple[str, ...]
    created: str
    created_exact: str
    version: str


def page(document: Document) -> Page:
    """The page of a report document."""
    windows: Sequence[Document] = named(document["windows"])
    found = findings(windows)
    worst = sorted(windows, key=_urgency)
    bars = [one for window in worst if (one := bar(window))]
    charts = rooflines(windows)
    changed = changes(worst)
    passed, warned, unmeasured = (by_window(windows, word) for word in ("passed", "warned", "unmeasured"))
    not_run = tuple(not_run_rows(windows, document["not_run"]))
    sentence = outcome_sentence(document)
    left = (
        (len(changed) - MOST_CHANGES, "comparisons with the baseline"),
        (len(bars) - _MOST_BARS, "bars of where the time went"),
        (len(charts) - _MOST_CHARTS, "roofline charts"),
    )
    return Page(
        sentence=sentence,
        outcome="passed" if sentence.startswith("Passed") else "blocked",
        tallies=tuple(
            Tally(count, word, section)
            for count, word, section in (
                (document["summary"]["fail"], "failed", "failed"),
                (counted(unmeasured), "not measured", "unmeasured"),
                (counted(warned), "warned", "warned"),
                (counted(passed), "passed", "passed"),
                (len(not_run), "not run", "not-run"),
            )
            if count
        ),
        facts=tuple(tested(document)),
        findings=tuple(found[:MOST_OPEN]),
        folded_findings=tuple(found[MOST_OPEN:MOST_FOLDED]),
        further_findings=tuple(found[MOST_FOLDED:]),
        failed_folded=sum(one.count for one in found[MOST_OPEN:]),
        unmeasured=tuple(unmeasured),
        changes=tuple(changed[:MOST_CHANGES]),
        bars=tuple(bars[:_OPEN_BARS]),
        further_bars=tuple(bars[_OPEN_BARS:_MOST_BARS]),
        drawings=tuple(Drawing(one, chart(one, *_WIDE), chart(one, *_NARROW)) for one in charts[:_MOST_CHARTS]),
        warned=tuple(warned),
        passed=tuple(passed),
        not_run=not_run,
        notes=tuple(notes(windows)),
        windows=tuple(map(details, worst[:MOST_WINDOWS])),
        windows_left=max(0, len(windows) - MOST_WINDOWS),
        left=tuple(f"{number} more {what}" for number, what in left if number > 0),
        created=moment(document["created"]),
        created_exact=document["created"],
        version=document["version"],
    )


def _urgency(window: Document) -> int:
    """Windows with failed gates first, then those with others that block."""
    sections = {section_of(gate) for gate in window["gates"]}
    order = ("failed", "unmeasured", "not-run", "warned", "passed")
    return next((place for place, section in enumerate(order) if section in sections), len(order))
