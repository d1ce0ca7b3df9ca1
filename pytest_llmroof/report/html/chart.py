"""The roofline chart's geometry: logarithmic axes, roofs, points and labels, in the units of an SVG drawing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.report.figures import quantity
from pytest_llmroof.report.html.axes import Scale, rate, thousands
from pytest_llmroof.report.html.boxes import Anchor, Box, Label, around, width_of
from pytest_llmroof.report.html.marks import LABEL_SIZE, Mark, clusters, marked
from pytest_llmroof.report.html.roofs import Ceiling, Roofline
from pytest_llmroof.units import format_quantity

#: More points than this would hide each other: the chart's table has them all.
MOST_POINTS: Final = 200
#: So many points have their names beside them and their way up to the roof drawn; more have numbers, as in the table.
MOST_NAMED: Final = 8


@dataclass(frozen=True)
class Line:
    """A straight line; ``role`` chooses how it is drawn."""

    role: str
    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Tick:
    """A mark of an axis."""

    position: float
    text: str


@dataclass(frozen=True)
class Slanted:
    """A text along the memory roof."""

    text: str
    x: float
    y: float
    degrees: float


@dataclass(frozen=True)
class Chart:
    """Everything to draw, in a space of ``width`` x ``height``."""

    width: float
    height: float
    plot: Box
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    roofs: tuple[Line, ...]
    roof_labels: tuple[Label, ...]
    slanted: Slanted
    marks: tuple[Mark, ...]
    numbered: bool


def chart(roofline: Roofline, width: float, height: float) -> Chart:
    """The chart of one accelerator; of very many points the first ones."""
    plot = Box(54, 34, width - 14, height - 48)
    x, y = _scales(roofline, plot)
    roofs = tuple(_roofs(roofline, x, y))
    slanted, along = _slanted(roofline, x, y, plot, roofs)
    shown = clusters(roofline.points[:MOST_POINTS], x, y)
    near = [around(x(one.point.intensity), y(one.point.flops_per_second), 7) for one in shown]
    roof_labels = tuple(_roof_labels(roofline, x, y, plot, near))
    taken = [label.box for label in roof_labels] + along + near
    lines = [box for line in roofs if line.role != "ridge" for box in _along(line)]
    marks = []
    numbered = len(shown) > MOST_NAMED
    for cluster in shown:
        mark = marked(cluster, numbered, roofline, x, y, plot, taken, lines)
        if mark.label:
            taken.append(mark.label.box)
        marks.append(mark)
    return Chart(
        width=width,
        height=height,
        plot=plot,
        x_ticks=tuple(Tick(x(value), thousands(value)) for value in x.decades()),
        y_ticks=tuple(Tick(y(value), rate(value)) for value in y.decades()),
        roofs=roofs,
        roof_labels=roof_labels,
        slanted=slanted,
        marks=tuple(marks),
        numbered=numbered,
    )


def _scales(roofline: Roofline, plot: Box) -> tuple[Scale, Scale]:
    """Room for every point, every ridge and a little of both sides; at least two decades upwards."""
    intensities = [point.intensity for point in roofline.points]
    rates = [point.low or point.flops_per_second for point in roofline.points]
    rates += [point.flops_per_second for point in roofline.points]
    highest = max(roofline.ceilings[0].flops_per_second, *(point.flops_per_second for point in roofline.points))
    ridge = highest / roofline.bandwidth
    left = min(1.0, *(value / 2.5 for value in intensities))
    right = max(8 * ridge, *(value * 4 for value in intensities))
    bottom = min(highest / 100, *(rate / 3 for rate in rates))
    return Scale(left, right, plot.left, plot.right), Scale(bottom, highest * 2.2, plot.bottom, plot.top)


def _roofs(roofline: Roofline, x: Scale, y: Scale) -> Iterator[Line]:
    """The memory roof up to the highest ridge, each compute roof from its own, and what kernels reach of both."""
    own, bandwidth = roofline.own, roofline.bandwidth
    yield from _roof("other", bandwidth, own.flops_per_second, roofline.ceilings[0].flops_per_second, x, y)
    for ceiling in roofline.ceilings:
        role = "own" if ceiling.own else "other"
        yield _flat(role, ceiling.flops_per_second, bandwidth, x, y)
    yield from _roof("own", bandwidth, y.low, own.flops_per_second, x, y)
    if roofline.memory_reach and roofline.compute_reach:
        reached = own.flops_per_second * roofline.compute_reach, bandwidth * roofline.memory_reach
        yield from _roof("reach", reached[1], y.low, reached[0], x, y)
        yield _flat("reach", reached[0], reached[1], x, y)
    ridge = own.flops_per_second / bandwidth
    yield Line("ridge", x(ridge), y(own.flops_per_second), x(ridge), y(y.low))


def _roof(role: str, bandwidth: float, low: float, high: float, x: Scale, y: Scale) -> Iterator[Line]:
    """The part of a memory roof between two rates, inside the drawing."""
    low = max(low, y.low, x.low * bandwidth)
    if high > low:
        yield Line(role, x(low / bandwidth), y(low), x(high / bandwidth), y(high))


def _flat(role: str, rate: float, bandwidth: float, x: Scale, y: Scale) -> Line:
    return Line(role, x(rate / bandwidth), y(rate), x(x.high), y(rate))


def _slanted(roofline: Roofline, x: Scale, y: Scale, plot: Box, roofs: tuple[Line, ...]) -> tuple[Slanted, list[Box]]:
    """The memory roof's name above its middle, and the room that it takes as boxes along it."""
    slope = next(line for line in roofs if line.role == "own" and line.y1 != line.y2)
    angle = math.atan2(slope.y2 - slope.y1, slope.x2 - slope.x1)
    text = f"memory {quantity(roofline.bandwidth, 'bytes/s')}"
    middle_x, middle_y = (slope.x1 + slope.x2) / 2, (slope.y1 + slope.y2) / 2
    # Off the line, at a right angle to it.
    at_x, at_y = middle_x + math.sin(angle) * 7, middle_y - math.cos(angle) * 7
    half = width_of(text, LABEL_SIZE) / 2
    steps = range(-4, 5)
    boxes = [
        around(at_x + math.cos(angle) * half * step / 4, at_y + math.sin(angle) * half * step / 4, 9) for step in steps
    ]
    return Slanted(text, at_x, at_y, math.degrees(angle)), [box for box in boxes if box.meets(plot)]


def _roof_labels(roofline: Roofline, x: Scale, y: Scale, plot: Box, points: list[Box]) -> Iterator[Label]:
    """Each compute roof's name above it: the own one's always, others where there is room."""
    taken = list(points)
    for ceiling in sorted(roofline.ceilings, key=lambda ceiling: not ceiling.own):
        start = x(ceiling.flops_per_second / roofline.bandwidth)
        places = _flat_labels(_ceiling_text(ceiling), start, plot.right, y(ceiling.flops_per_second) - 6)
        free = (label for label in places if not any(label.box.meets(box) for box in taken))
        label = next(free, places[0] if ceiling.own else None)
        if label:
            taken.append(label.box)
            yield label


def _ceiling_text(ceiling: Ceiling) -> str:
    return f"{', '.join(ceiling.precisions)} {format_quantity(ceiling.flops_per_second, 'FLOP/s')}"


def _flat_labels(text: str, start: float, end: float, baseline: float) -> list[Label]:
    """At the right end of a line, at its start, or between the two."""
    width = width_of(text, LABEL_SIZE)
    middle = (start + 16 + end - width) / 2
    places: list[tuple[float, Anchor, float]] = [
        (end, "end", end - width),
        (start + 16, "start", start + 16),
        (middle, "start", middle),
    ]
    return [
        Label(text, at, baseline, anchor, Box(left, baseline - 12, left + width, baseline + 4))
        for at, anchor, left in places
        if left + width <= end + 1
    ]


def _along(line: Line) -> list[Box]:
    """Small boxes that cover a line."""
    steps = max(1, int(math.hypot(line.x2 - line.x1, line.y2 - line.y1) / 8))
    return [
        around(
            line.x1 + (line.x2 - line.x1) * step / steps,
            line.y1 + (line.y2 - line.y1) * step / steps,
            2,
        )
        for step in range(steps + 1)
    ]
