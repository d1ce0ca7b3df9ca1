"""The release checklist in Markdown: a box for each gate, ticked only where it held."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pytest_llmroof.report.change_text import change_rows
from pytest_llmroof.report.document import shown_word
from pytest_llmroof.report.files import write_whole
from pytest_llmroof.report.headline import diagnosis_of, one_line
from pytest_llmroof.report.inert import inert
from pytest_llmroof.report.limits import limit_text
from pytest_llmroof.report.release import (
    asked_in_words,
    blocks,
    came_to,
    outcome_sentence,
    plain_reason,
    what_was_tested,
)
from pytest_llmroof.report.wire import Document

NOT_TICKED: Final = "## Not ticked"

#: A word of the language: neither a name (vLLM, decode.mbu, llmroof.yaml) nor a path begins with a capital.
_FIRST_WORD: Final = re.compile(r"[a-z]+(?=[\s,;']|: |$)")


def write(path: Path, document: Document) -> None:
    """Write the checklist. Raises OSError."""
    write_whole(path, rendered(document))


def rendered(document: Document) -> str:
    """The text of the Markdown file."""
    return "\n\n".join(sections(document)) + "\n"


def sections(document: Document) -> Iterator[str]:
    """The parts of the checklist, what matters most first; each is whole Markdown of its own."""
    yield "# Release checklist"
    yield f"**{outcome_sentence(document)}**"
    made = f"Made {_moment(document['created'])} by pytest-llmroof {inert(document['version'])}."
    yield "\n".join([*(f"- {inert(line)}" for line in what_was_tested(document)), f"- {made}"])
    windows = document["windows"]
    rows = [(window, gate) for window in windows for gate in window["gates"]]
    names = list(_names(rows))
    yield from _section(NOT_TICKED, (
        f"- {name}: {' '.join(_why_not(window, gate))}"
        for name, (window, gate) in zip(names, rows, strict=True) if blocks(gate) and shown_word(gate) != "not run"
    ))  # fmt: skip
    for window in windows:
        judged = [gate for gate in window["gates"] if shown_word(gate) != "not run"]
        if judged:
            yield _list(f"## {_title(window)}", (_item(gate) for gate in judged))
        yield from _changes(window)
    yield from _section("## Deviations", (
        *(f"- {name}: {said}" for name, (_, gate) in zip(names, rows, strict=True) for said in _deviations(gate)),
        *(f"- {_title(window)}: {_closed(inert(one_line(note)))}" for window in windows for note in window["notes"]),
    ))  # fmt: skip
    unrun = [
        f"- [ ] {name} ({inert(came_to(gate))})"
        for name, (_, gate) in zip(names, rows, strict=True) if shown_word(gate) == "not run"
    ]  # fmt: skip
    unrun += [f"- [ ] {inert(test['node_id'])} (not run: {inert(test['reason'])})" for test in document["not_run"]]
    yield from _section("## Not run", iter(unrun))


def _moment(created: str) -> str:
    """``2026-11-29 12:00 UTC``."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ", created)
    return f"{match[1]} {match[2]} UTC" if match else inert(created)


def _section(heading: str, lines: Iterable[str]) -> Iterator[str]:
    """A heading with its lines; nothing at all without lines."""
    every = list(lines)
    if every:
        yield _list(heading, iter(every))


def _list(heading: str, lines: Iterator[str]) -> str:
    return "\n".join([heading, "", *lines])


def _title(window: Document) -> str:
    file, separator, _ = window["id"].partition("::")
    return inert(window["name"]) + (f" ({inert(file)})" if separator else "")


def _name(gate: Document) -> str:
    """``REL-7 decode MBU >= 75 %``."""
    return inert(" ".join(filter(None, [gate["id"], asked_in_words(gate)])))


def _names(rows: Sequence[tuple[Document, Document]]) -> Iterator[str]:
    """The gates' names where no heading tells the window: with it where several windows have a gate of that name."""
    holders: dict[str, set[str]] = {}
    for window, gate in rows:
        holders.setdefault(_name(gate), set()).add(_title(window))
    for window, gate in rows:
        name = _name(gate)
        yield f"{name}, {_title(window)}" if len(holders[name]) > 1 else name


def _item(gate: Document) -> str:
    box = "x" if gate["verdict"] == "pass" else " "
    warns = "; a warning only" if shown_word(gate) == "warned" else ""
    return f"- [{box}] {_name(gate)} ({inert(came_to(gate))}{warns})"


def _why_not(window: Document, gate: Document) -> Iterator[str]:
    """The finding, what the gate is for, and what to do: a sentence each. Which of several causes comes first."""
    yield _reason(gate)
    if gate["why"]:
        yield _closed(f"Asked because: {inert(one_line(gate['why']))}")
    diagnosis = diagnosis_of(window, gate) if gate["verdict"] == "fail" else None
    if diagnosis is None:
        return
    several = len(diagnosis["candidates"]) > 1
    if several and diagnosis["missing"]:
        yield _closed(f"To find the cause: {inert(one_line(_first_missing(diagnosis)))}")
    if diagnosis["remedies"]:
        first = diagnosis["remedies"][0]
        label = "A guess until then" if several else "To try first"
        effect = f" ({inert(one_line(first['effect']))})" if first["effect"] else ""
        yield f"{label}: {inert(one_line(first['title']))}{effect}."


def _closed(sentence: str) -> str:
    """A sentence with one mark at its end."""
    sentence = sentence.rstrip(".; ")
    return sentence if sentence.endswith(("?", "!", "…")) else f"{sentence}."


def _reason(gate: Document) -> str:
    """One plain sentence: what the finding means, or why there is none."""
    said = gate["in_words"] if gate["verdict"] in ("fail", "inconclusive") else plain_reason(gate)
    return _closed(inert(_capitalised(said or plain_reason(gate) or gate["in_words"] or "no reason was given")))


def _first_missing(diagnosis: Document) -> str:
    """What would tell the cause, without its command where the report has that apart."""
    advice = diagnosis.get("advice")
    text: str = advice[0]["text"] if advice else diagnosis["missing"][0]
    return text


def _capitalised(sentence: str) -> str:
    word = _FIRST_WORD.match(sentence)
    return f"{sentence[0].upper()}{sentence[1:]}" if word else sentence


def _deviations(gate: Document) -> Iterator[str]:
    """What somebody who signs the list should know of a gate that does not block."""
    word = shown_word(gate)
    if word == "warned":
        yield f"a warning, which blocks nothing: {_reason(gate)}"
    if word in ("pass", "fail", "warned") and gate["approximate"]:
        yield _closed(f"approximate: {inert(plain_reason(gate) or 'the measurement is not exact enough')}")
    if gate["default"] and word != "not run":
        limit = limit_text(gate)
        yield f"the limit of {inert(limit)} is the default, nobody set it."
    if gate["baseline"] and word != "not run":
        yield from (_closed(inert(one_line(condition))) for condition in gate["baseline"]["conditions"])


def _changes(window: Document) -> Iterator[str]:
    """What changed since the baseline, for each time that breached: how much, and what of it is whose."""
    for change in window["changes"].values():
        first, *rest = change_rows(change)
        lines = [f"- {inert(f'{row.label} {row.text}')}" for row in rest]
        yield _list(f"**CHANGE** {inert(first.text)}", iter(lines)) if lines else f"**CHANGE** {inert(first.text)}"
