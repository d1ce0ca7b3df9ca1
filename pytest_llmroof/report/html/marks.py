"""The points of a chart with their labels: names where there is room for names, else numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.report.figures import quantity
from pytest_llmroof.report.html.axes import Scale
from pytest_llmroof.report.html.boxes import Box, Label, around, place
from pytest_llmroof.report.html.roofs import Kind, Point, Roofline

#: A name is cut to these many characters until there is room for it.
_LABEL_LENGTHS: Final = (32, 20, 12)
_LONGEST_TITLE: Final = 200
_MOST_NUMBERS: Final = 3
#: Of labels, in the drawing's units.
LABEL_SIZE: Final = 12.5
#: Ends of an interval that are nearer to the point are hidden by it.
_NUDGE: Final = 4.0


@dataclass(frozen=True)
class Mark:
    """A point, its interval's ends, its label where there is room, and what it says when pointed at."""

    kind: Kind
    x: float
    y: float
    low: float | None
    high: float | None
    roof: float
    label: Label | None
    title: str


@dataclass(frozen=True)
class Cluster:
    """A point that is drawn, and the numbers of all that lie there."""

    point: Point
    numbers: list[int]

    def labels(self, used: str, numbered: bool) -> Iterator[str]:
        """What can stand beside it, the longest first."""
        if numbered:
            shown = ", ".join(map(str, self.numbers[:_MOST_NUMBERS]))
            yield f"{shown}…" if len(self.numbers) > _MOST_NUMBERS else shown
            yield str(self.numbers[0])
            return
        more = f" and {len(self.numbers) - 1} more" if len(self.numbers) > 1 else ""
        for longest in _LABEL_LENGTHS:
            yield f"{_cut(self.point.label, longest)} {used}{more}"


def clusters(points: Sequence[Point], x: Scale, y: Scale) -> list[Cluster]:
    """Points of one kind that would hide each other, by their numbers; the first of them is drawn."""
    found: list[Cluster] = []
    for number, point in enumerate(points, 1):
        near = around(x(point.intensity), y(point.flops_per_second), 3)
        for cluster in found:
            other = cluster.point
            if other.kind == point.kind and near.meets(around(x(other.intensity), y(other.flops_per_second), 3)):
                cluster.numbers.append(number)
                break
        else:
            found.append(Cluster(point, [number]))
    return found


def marked(
    cluster: Cluster,
    numbered: bool,
    roofline: Roofline,
    x: Scale,
    y: Scale,
    plot: Box,
    taken: list[Box],
    lines: list[Box],
) -> Mark:
    """A cluster's point in the drawing, with the longest label that covers nothing of what is ``taken``."""
    point = cluster.point
    at_x, at_y = x(point.intensity), y(point.flops_per_second)
    # The point's own surroundings are among what is taken: its label stands beside them.
    others = [box for box in taken if box != around(at_x, at_y, 7)]
    used = _used(point, roofline)
    places = (
        place(text, at_x, at_y, LABEL_SIZE, plot, others, lines, near=numbered)
        for text in cluster.labels(used, numbered)
    )
    label = next((label for label in places if label), None)
    return Mark(
        kind=point.kind,
        x=at_x,
        y=at_y,
        low=_apart(y, point.low, at_y),
        high=_apart(y, point.high, at_y),
        roof=y(roofline.roof(point)),
        label=label,
        title=f"{_cut(point.label, _LONGEST_TITLE)}: {used} of the roof",
    )


def _cut(text: str, longest: int) -> str:
    """Names of kernels have no blanks to be cut at."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def _used(point: Point, roofline: Roofline) -> str:
    return ("≥ " if point.at_least else "") + quantity(roofline.share(point), "fraction", 2)


def _apart(y: Scale, value: float | None, at: float) -> float | None:
    """Where an interval's end is drawn; None where it would vanish behind the point itself."""
    if value is None or value <= 0:
        return None
    end = y(value)
    return end if abs(end - at) > _NUDGE else None
