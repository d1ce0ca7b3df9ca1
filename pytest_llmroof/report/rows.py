"""A labelled text of limited width and length: the layout of a failing text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

#: Wide enough that a fact of ordinary length stays one line, which can be searched for.
WIDTH: Final = 140
LABEL: Final = 15
MOST_LINES: Final = 40
_COMMAND: Final = re.compile(r"##(\w*)\[")


@dataclass(frozen=True)
class Row:
    """A label of at most 14 characters and its text. A ``heading`` stands at the margin, everything else two in.

    Where the text grows too long, the rows of the highest ``rank`` go first, the last of them before the others;
    rank 0 always stays. A ``single`` row is never wrapped. ``hang`` indents what follows the first line of a numbered
    item, and the whole of a row without a label.
    """

    label: str
    text: str
    heading: bool = False
    rank: int = 0
    single: bool = False
    hang: int = 0

    def lines(self) -> list[str]:
        """Wrapped, continued under its own text."""
        indent = 0 if self.heading else 2
        first = " " * indent + self.label.ljust(LABEL)
        if self.single:
            return [first + self.text]
        following = " " * (indent + LABEL + self.hang)
        wrapped = textwrap.wrap(
            self.text,
            width=WIDTH,
            initial_indent=first if self.label or not self.hang else following,
            subsequent_indent=following,
            break_on_hyphens=False,
            break_long_words=False,
        )
        return wrapped or [first.rstrip()]


def uncommanded(line: str) -> str:
    """The line, which no CI system takes for a command: GitHub would one that begins with ``::``, and one with ``##[``
    anywhere; Azure and TeamCity one with ``##vso[`` and ``##teamcity[``.
    """
    line = _COMMAND.sub(r"##\1\\[", line) if "##" in line else line
    start = line.lstrip()
    return line.replace("::", "\\::", 1) if start.startswith("::") else line


def laid_out(rows: Iterable[Row], most: int = MOST_LINES) -> list[str]:
    """The lines of the rows, at most so many; what was left out is said."""
    kept = [(row, row.lines()) for row in rows]
    left_out = 0
    while sum(len(lines) for _, lines in kept) + bool(left_out) > most:
        worst = max(row.rank for row, _ in kept)
        if worst == 0:
            break
        index = max(index for index, (row, _) in enumerate(kept) if row.rank == worst)
        left_out += len(kept.pop(index)[1])
    lines = [uncommanded(line) for _, row_lines in kept for line in row_lines]
    if left_out:
        lines = [*lines[: most - 1], f"  ({left_out} more lines: the JSON report holds them)"]
    return lines[:most]
