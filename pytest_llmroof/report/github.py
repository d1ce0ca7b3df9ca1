"""What GitHub shows of a run: the job's summary, and annotations at the lines of gates.

A summary of more than 1 MiB is not shown at all, and of annotations the first ten errors of a step; both are kept to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Final

from pytest_llmroof.report.checklist import NOT_TICKED, sections
from pytest_llmroof.report.document import shown_word
from pytest_llmroof.report.headline import headline, one_line
from pytest_llmroof.report.inert import code_block
from pytest_llmroof.report.names import gate_names
from pytest_llmroof.report.release import blocks, outcome_sentence
from pytest_llmroof.report.text import failing_text
from pytest_llmroof.report.wire import Document, visible

MOST_ANNOTATIONS: Final = 10
#: What a step's summary may grow to: GitHub refuses it from 1 MiB on.
MOST_SUMMARY_BYTES: Final = 900 * 1024
#: Lists are cut at every so many lines.
_PIECE: Final = 100
_CUT: Final = "**Cut here**: GitHub shows no more. The report files hold everything."


def error_commands(document: Document, place: Callable[[str], str]) -> list[str]:
    """Workflow commands: an error for each breach, the worst first; of more than ten, the tenth says how many more.

    ``place`` turns a gate's file into its path in the repository.
    """
    rows = _breaches(document)
    shown = rows if len(rows) <= MOST_ANNOTATIONS else rows[: MOST_ANNOTATIONS - 1]
    commands = [_error(_message(window, gate), _properties(gate, name, place)) for window, gate, name in shown]
    if len(rows) > len(shown):
        more = f"{len(rows) - len(shown)} more gates failed or were not measured: the job's summary lists them"
        commands.append(_error(f"{outcome_sentence(document)}; {more}", {"title": "llmroof"}))
    return commands


def _breaches(document: Document) -> list[tuple[Document, Document, str]]:
    """What stands in the way, with its window and name: failures by their margin, then what was not measured."""
    rows = [
        (window, gate, name)
        for window in document["windows"]
        for gate, name in zip(window["gates"], gate_names(window["gates"]), strict=True)
        if blocks(gate) and shown_word(gate) != "not run"
    ]
    return sorted(rows, key=lambda row: (row[1]["verdict"] != "fail", row[1]["margin"] or 0.0))


def _message(window: Document, gate: Document) -> str:
    said = gate["in_words"] or ""
    return "\n".join(filter(None, [headline(window, gate), one_line(said)]))


def _properties(gate: Document, name: str, place: Callable[[str], str]) -> dict[str, str]:
    properties = {"title": name}
    if gate["file"]:
        properties = {"file": place(gate["file"]), "line": str(gate["line"] or 1), **properties}
    return properties


def _error(message: str, properties: dict[str, str]) -> str:
    pairs = ",".join(f"{key}={_in_property(visible(value))}" for key, value in properties.items())
    return f"::error {pairs}::{_in_data(visible(message))}"


def _in_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _in_property(text: str) -> str:
    return _in_data(text).replace(":", "%3A").replace(",", "%2C")


def summary(document: Document, room: int = MOST_SUMMARY_BYTES) -> str:
    """The Markdown of a job's summary in at most ``room`` bytes: cut between its parts, and it says so."""
    text = ""
    left = room - len(_CUT.encode()) - 1
    if left < 0:
        return ""
    for part in _parts(document):
        if len(part.encode()) > left:
            return text + _CUT + "\n"
        text += part
        left -= len(part.encode())
    return text


def _parts(document: Document) -> Iterator[str]:
    """The checklist in pieces that may be cut between; what is not ticked, and why, comes before what is."""
    found = list(sections(document))
    head, rest = found[:3], found[3:]
    first = [part for part in rest if part.startswith(NOT_TICKED)]
    for part in (*head, *first):
        yield from _pieces(part)
    yield from map(_details, _breaches(document)[:MOST_ANNOTATIONS])
    for part in rest:
        if part not in first:
            yield from _pieces(part)


def _pieces(part: str) -> Iterator[str]:
    lines = part.split("\n")
    for start in range(0, len(lines), _PIECE):
        last = start + _PIECE >= len(lines)
        yield "\n".join(lines[start : start + _PIECE]) + ("\n\n" if last else "\n")


def _details(row: tuple[Document, Document, str]) -> str:
    """The whole text of a breach, folded."""
    window, gate, _ = row
    first, _, rest = failing_text(window, gate).partition("\n")
    return (
        f"<details><summary><code>{escape(visible(first))}</code></summary>\n\n{code_block(rest)}\n\n</details>\n\n"
    )
