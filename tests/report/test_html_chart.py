"""The roofline chart: points where they belong, and labels that cover nothing."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import intensity, of_everything, profiled, several_accelerators

from pytest_llmroof.report.html import render
from pytest_llmroof.report.html.axes import Scale, rate, thousands
from pytest_llmroof.report.html.boxes import Box, around, place
from pytest_llmroof.report.html.chart import MOST_NAMED, chart
from pytest_llmroof.report.html.roofs import Ceiling, Point, Roofline, rooflines

H100 = 3.35e12
PEAK = 989.4e12


def roofline(*points: Point, fp8: bool = True) -> Roofline:
    ceilings = (Ceiling(("fp8",), 2 * PEAK, False),) if fp8 else ()
    return Roofline("NVIDIA H100", "h100", H100, (*ceilings, Ceiling(("bf16",), PEAK, True)), 0.86, 0.771, points)


def point(at: float, flops: float, label: str = "decode") -> Point:
    return Point("decode", label, "decode", at, flops, None, None)


def test_a_phase_stands_at_its_intensity_and_the_rate_that_its_bytes_give() -> None:
    (found,) = rooflines(of_everything()["windows"])
    (decode,) = found.points
    # MBU 41.3 % of 3.35 TB/s are 1.38 TB/s; at 12.2 FLOP/B 16.9 TFLOP/s of one GPU.
    assert decode.intensity == 12.2
    assert decode.flops_per_second == pytest.approx(0.413 * 3.35e12 * 12.2, rel=2e-3)
    assert decode.low == pytest.approx(0.409 * 3.35e12 * 12.2)
    assert decode.high == pytest.approx(0.418 * 3.35e12 * 12.2)
    # The roof above it is the memory's: 12.2 x 3.35 = 40.9 TFLOP/s.
    assert found.attainable(12.2) == pytest.approx(40.87e12)
    assert found.attainable(1000) == PEAK
    assert [ceiling.precisions for ceiling in found.ceilings] == [("fp8",), ("bf16",)]


def test_a_kernel_stands_where_its_two_utilisations_put_it() -> None:
    document = of_everything()
    measurements = document["windows"][0]["measurements"]
    for metric, value in (("mfu", 0.5), ("mbu", 0.2)):
        measurements[f"kernels(gemm*).{metric}"] = {**measurements["decode.mbu"], "value": value}
    measurements["kernels(gemv).mfu"] = {**measurements["decode.mbu"], "value": 0.0}  # no place on this scale
    (found,) = rooflines(document["windows"])
    kernel = found.points[1]
    # 494.7 TFLOP/s over 0.67 TB/s are 738 FLOP/B.
    assert (kernel.kind, kernel.label) == ("kernel", "decode: gemm*")
    assert kernel.flops_per_second == pytest.approx(494.7e12)
    assert kernel.intensity == pytest.approx(738.36, rel=1e-4)
    assert len(found.points) == 2


def test_profiled_kernels_are_held_against_the_roof_of_their_own_precision() -> None:
    (found,) = rooflines(profiled()["windows"])
    gemm, attention = found.points[1:]  # what counted no FLOPs has no place
    # 1000 TFLOP/s are half of the fp8 peak, and above the bf16 one: 1000 / 0.505 = 1980.
    assert gemm.label == "gemm_fp8"
    assert found.share(gemm) == pytest.approx(0.505)
    assert found.roof(gemm) == pytest.approx(1980.2e12, rel=1e-4)
    drawn = chart(found, 860, 420)
    labels = [mark.label.text for mark in drawn.marks if mark.label]
    assert labels == ["decode 41 %", "gemm_fp8 50 %", "attention ≥ 60 %"]
    assert attention.at_least
    page = render(profiled())
    assert "reads as compute; warps wait: 41\u00a0% long scoreboard" in page
    assert "Kernels by their time, kernels.csv" in page


def test_accelerators_and_precisions_have_roofs_of_their_own() -> None:
    windows = several_accelerators()["windows"]
    assert [one.name for one in rooflines(windows)] == ["h100-sxm5-80gb", "h200-sxm-141gb"]
    windows[1]["gpu"] = {**windows[0]["gpu"], "precision": "fp8", "peak_flops_per_second": 1978.9e12}
    assert [one.own.precisions for one in rooflines(windows)] == [("bf16",), ("fp8",)]


def test_without_bandwidth_or_measurements_there_is_no_chart() -> None:
    windows = of_everything()["windows"]
    assert rooflines(windows[1:]) == []
    windows[0]["gpu"]["memory_bandwidth_bytes_per_second"] = None
    assert rooflines(windows) == []
    assert intensity().value == 12.2


def test_scales_are_logarithmic() -> None:
    scale = Scale(1, 100, 50, 250)
    assert [scale(value) for value in (1, 10, 100)] == [50, 150, 250]
    assert list(Scale(0.5, 2000, 0, 1).decades()) == [1, 10, 100, 1000]
    assert [rate(value) for value in (1e9, 1e13, 1e15)] == ["1 G", "10 T", "1 P"]
    assert [thousands(value) for value in (0.1, 100.0, 1e4)] == ["0.1", "100", "10k"]


def test_roofs_meet_at_the_ridge() -> None:
    drawn = chart(roofline(point(12.2, 16.9e12)), 860, 420)
    own = [line for line in drawn.roofs if line.role == "own"]
    flat = next(line for line in own if line.y1 == line.y2)
    slope = next(line for line in own if line.y1 != line.y2)
    assert (slope.x2, slope.y2) == pytest.approx((flat.x1, flat.y1))
    # One decade up for one to the right: the slope of the memory roof.
    (mark,) = drawn.marks
    decade = drawn.x_ticks[1].position - drawn.x_ticks[0].position
    height = drawn.y_ticks[0].position - drawn.y_ticks[1].position
    assert (slope.y1 - slope.y2) / (slope.x2 - slope.x1) == pytest.approx(height / decade)
    # 16.9 of 40.9 TFLOP/s: 0.384 decades below its roof.
    assert (mark.y - mark.roof) / height == pytest.approx(math.log10(40.87 / 16.9), rel=1e-3)
    assert mark.label is not None
    assert mark.label.text == "decode 41 %"


def test_points_that_hide_each_other_share_a_label() -> None:
    drawn = chart(roofline(*(point(12.2, 16.9e12, f"window {index}") for index in range(5))), 860, 420)
    (mark,) = drawn.marks
    assert mark.label is not None
    assert mark.label.text == "window 0 41 % and 4 more"


def test_more_points_than_names_have_room_for_are_numbered() -> None:
    points = [point(10.0 * 1.6**index, 2e12 * 1.5**index, "a long name") for index in range(MOST_NAMED + 1)]
    assert not chart(roofline(*points[:-1]), 860, 420).numbered
    drawn = chart(roofline(*points), 860, 420)
    assert drawn.numbered
    assert [mark.label.text for mark in drawn.marks if mark.label] == [str(one) for one in range(1, MOST_NAMED + 2)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.05, 1e5), st.floats(1e-4, 1.2), st.text(min_size=1, max_size=60)), min_size=1, max_size=30
    ),
    st.sampled_from([(860.0, 420.0), (358.0, 380.0)]),
    st.booleans(),
)
def test_no_label_covers_another_or_a_point(
    given_points: list[tuple[float, float, str]], size: tuple[float, float], fp8: bool
) -> None:
    empty = roofline(fp8=fp8)
    points = [point(at, share * empty.attainable(at), label) for at, share, label in given_points]
    drawn = chart(roofline(*points, fp8=fp8), *size)
    boxes = [mark.label.box for mark in drawn.marks if mark.label]
    assert all(box.within(drawn.plot) for box in boxes)
    fixed = [label.box for label in drawn.roof_labels]
    for one, other in itertools.combinations(boxes + fixed, 2):
        assert not one.meets(other) or (one in fixed and other in fixed)
    for mark in drawn.marks:
        assert drawn.plot.left <= mark.x <= drawn.plot.right
        assert drawn.plot.top <= mark.y <= drawn.plot.bottom
        assert not any(box.meets(around(mark.x, mark.y, 4)) for box in boxes)


def test_a_label_without_room_is_left_out() -> None:
    inside = Box(0, 0, 100, 100)
    assert place("decode", 50, 50, 12, inside, [], []) is not None
    assert place("decode", 50, 50, 12, inside, [inside], []) is None
    # Right of the point a line is in the way: left of it none is.
    beside = place("d", 50, 50, 12, inside, [], [Box(60, 45, 61, 55)])
    assert beside is not None
    assert beside.anchor == "end"
