"""What a benchmark found, as the row of a table: every script here prints some, and fails where one does not hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """``ours`` and ``peer`` are what was measured, ``ratio`` is what is judged against ``limit``, as texts."""

    name: str
    ours: str
    peer: str
    ratio: str
    limit: str
    holds: bool


#: How many times as long tenfold work may take: an exponent of 1.3. Caches that overflow make it more than ten, what a
#: run takes whatever its work makes it less.
MOST_GROWTH = 20.0


def growth(name: str, small_seconds: float, large_seconds: float, times: float = 10.0) -> Row:
    """How the CPU time of ours grows with the work, which grew so many times: the exponent is 1 where it is linear."""
    ratio = large_seconds / small_seconds
    most = MOST_GROWTH * times / 10
    exponent = math.log(ratio) / math.log(times)
    return Row(
        f"{name}: against {1 / times:g} of it", shown_seconds(large_seconds), shown_seconds(small_seconds),
        f"{ratio:.1f} (exponent {exponent:.2f})", f"at most {most:g}", ratio <= most,
    )  # fmt: skip


HEAD = ("what", "ours", "peer", "ratio", "limit", "verdict")


def table(rows: Sequence[Row]) -> str:
    """The rows as a table that reads well in a terminal and in Markdown."""
    cells = [HEAD, *((r.name, r.ours, r.peer, r.ratio, r.limit, "holds" if r.holds else "MISSED") for r in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def reported(rows: Sequence[Row]) -> int:
    """Print the rows. 1 where one of them does not hold."""
    print(table(rows))
    return int(not all(row.holds for row in rows))


def shown_seconds(seconds: float) -> str:
    """A duration in the unit that suits it."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"
