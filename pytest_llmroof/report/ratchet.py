"""The ratchet: a gate file with every limit that reports would allow to be tighter, and nothing else of it changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.report.calibrate import Seen, supported
from pytest_llmroof.report.wire import Document

#: A limit is moved where that makes it tighter by more than this share of it: less is the noise of a night.
_WORTH: Final = 0.01


@dataclass(frozen=True)
class Turn:
    """One gate: what it becomes (None: it stays), and a sentence for people. ``line`` counts from 1."""

    line: int
    column: int
    written: str
    becomes: str | None
    said: str


def ratcheted(path: Path, shown: str, reports: Sequence[tuple[str, Document]]) -> tuple[str, list[str]]:
    """The text of the gate file with tighter limits, and a sentence for each gate that was looked at.

    Limits are those that ``init --from`` would write: what the worst of the reports supports. ConfigErrors where the
    gate file is wrong, SourceError where no report holds a window of it.
    """
    specs = load_gate_file(path, path.parent)
    text = path.read_text(encoding="utf-8")
    turns, windows = [], 0
    for spec in specs:
        seen = [
            Seen(name, document["created"], window)
            for name, document in reports
            for window in document["windows"]
            if window["name"] == spec.name
        ]
        windows += len(seen)
        turns += [_turn(gate, seen, spec.name) for gate in spec.gates if gate.position is not None]
    if not windows:
        names = ", ".join(name for name, _ in reports)
        raise SourceError(
            f"{names}: no window of {shown} is in there ({', '.join(spec.name for spec in specs)})",
            Advice("write the report again", f"pytest {shown} --llmroof-report=FILE.json"),
        )
    return _edited(text, turns, shown)


def _turn(gate: Gate, seen: Sequence[Seen], window: str) -> Turn:
    position = gate.position
    assert position is not None

    def stays(why: str) -> Turn:
        return Turn(position.line, position.column, gate.expression, None, f"{window}: {gate.canonical} stays: {why}")

    if gate.limit.kind != "absolute":
        return stays("its limit moves by itself")
    if not seen:
        return stays("no report holds this window")
    limit = supported(gate.metric, gate.operator, seen, gate.per)
    if limit is None or limit.value is None or limit.expression is None:
        return stays("the reports support no limit for it")
    rising = gate.operator in (">=", ">")
    gained = limit.value - gate.limit.value if rising else gate.limit.value - limit.value
    if gained <= _WORTH * abs(gate.limit.value):
        return stays(f"the reports support {limit.expression}")
    origin = "; ".join(limit.origins)
    return Turn(
        position.line, position.column, gate.expression, limit.expression,
        f"{window}: {gate.canonical} becomes {limit.expression}: {origin}",
    )  # fmt: skip


def _edited(text: str, turns: Sequence[Turn], shown: str) -> tuple[str, list[str]]:
    lines = text.splitlines(keepends=True)
    said = []
    # From the right, so that an edit does not move the places of others in its line.
    for turn in sorted(turns, key=lambda turn: (turn.line, turn.column), reverse=True):
        sentence = turn.said
        if turn.becomes is not None:
            line = lines[turn.line - 1]
            at = line.find(turn.written, max(0, turn.column - 1))
            if at < 0:
                sentence += " (to be written by hand: it does not stand there as one text)"
            else:
                lines[turn.line - 1] = line[:at] + turn.becomes + line[at + len(turn.written) :]
        said.append(f"{shown}:{turn.line}: {sentence}")
    return "".join(lines), list(reversed(said))
