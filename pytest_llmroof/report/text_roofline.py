"""The roofline as a few lines of text: both roofs on logarithmic axes, and where the phases lie under them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from pytest_llmroof.report.figures import quantity
from pytest_llmroof.report.headline import one_line, shorten
from pytest_llmroof.report.html.roofs import Point, Roofline, rooflines
from pytest_llmroof.report.rows import uncommanded
from pytest_llmroof.report.wire import Document
from pytest_llmroof.units import format_quantity

_ROWS: Final = 9
_WIDEST: Final = 64
_NARROWEST: Final = 24
#: Room for a label of the y axis: `989 TFLOP/s |`.
_MARGIN: Final = 14
_MOST_POINTS: Final = 9
_LONGEST_NAME: Final = 32
_LETTERS: Final = "abcdefghi"


def roofline_lines(windows: Sequence[Document], width: int) -> list[str]:
    """The charts, one for each accelerator; none where the terminal is too narrow, or nothing was measured."""
    columns = min(width - _MARGIN - 2, _WIDEST)
    if columns < _NARROWEST:
        return []
    charts = (_chart(roofline, columns, width) for roofline in rooflines(windows) if roofline.points)
    return [line for chart in charts for line in chart]


def _chart(roofline: Roofline, columns: int, width: int) -> Iterator[str]:
    points = roofline.points[:_MOST_POINTS]
    peak, bandwidth = roofline.own.flops_per_second, roofline.bandwidth
    ridge = peak / bandwidth
    left = math.log10(min(ridge, *(point.intensity for point in points)) / 3)
    right = math.log10(max(ridge, *(point.intensity for point in points)) * 3)
    bottom = math.log10(min(roofline.attainable(10**left), *(point.flops_per_second for point in points)))
    top = math.log10(peak)

    def column(intensity: float) -> int:
        return round((math.log10(intensity) - left) / (right - left) * (columns - 1))

    def row(flops_per_second: float) -> int:
        share = (math.log10(flops_per_second) - bottom) / (top - bottom)
        return min(max(round((1 - share) * (_ROWS - 1)), 0), _ROWS - 1)

    grid = [[" "] * columns for _ in range(_ROWS)]
    for at in range(columns):
        intensity = 10 ** (left + at / (columns - 1) * (right - left))
        grid[row(roofline.attainable(intensity))][at] = "_" if intensity >= ridge else "/"
    for letter, point in zip(_LETTERS, points, strict=False):
        grid[row(point.flops_per_second)][column(point.intensity)] = letter
    yield f"roofline of one {roofline.name}: log FLOP/s over log FLOP/B"[:width]
    for number, cells in enumerate(grid):
        label = format_quantity(peak, "FLOP/s") if number == 0 else ""
        yield f"{label:>{_MARGIN - 2}} |{''.join(cells)}".rstrip()
    foot = f"ridge {format_quantity(ridge, 'FLOP/byte')}"
    place = min(max(column(ridge) - len(foot) // 2, 0), columns - len(foot))
    yield f"{'':{_MARGIN - 2}} +{'-' * columns}"
    yield f"{'':{_MARGIN - 1}}{'':{place}}{foot}"
    for letter, point in zip(_LETTERS, points, strict=False):
        yield uncommanded(f"  {letter} {_said(roofline, point)}")[:width].rstrip()
    if len(roofline.points) > len(points):
        yield f"    and {len(roofline.points) - len(points)} more: the HTML report shows all"


def _said(roofline: Roofline, point: Point) -> str:
    """``decode: 79.2 % of the memory roof, 14.5 FLOP/B, 38.4 TFLOP/s``."""
    bound = "memory" if point.intensity < roofline.own.flops_per_second / roofline.bandwidth else "compute"
    name = point.label if point.label == point.window else f"{point.label} ({point.window})"
    return (
        f"{shorten(one_line(name), _LONGEST_NAME)}: {quantity(roofline.share(point), 'fraction')} of the {bound} roof, "
        f"{format_quantity(point.intensity, 'FLOP/byte')}, {format_quantity(point.flops_per_second, 'FLOP/s')}"
    )
