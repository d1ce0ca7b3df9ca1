"""Quantities: reading, refusing, printing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.units import (
    SPELLINGS,
    UNITS,
    Quantity,
    Unit,
    UnitError,
    describe,
    format_quantity,
    grouped,
    number_of,
    parse_as,
    parse_quantity,
    same_printed,
    whole_of,
)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("75%", 0.75, "fraction"),
        ("0.75", 0.75, None),
        (" 50 ms ", 0.05, "seconds"),
        ("2s", 2.0, "seconds"),
        ("10m", 600.0, "seconds"),
        ("120tok/s", 120.0, "tokens/s"),
        ("3.2TB/s", 3.2e12, "bytes/s"),
        ("640TFLOP/s", 640e12, "FLOP/s"),
        ("989.4TFLOPS", 989.4e12, "FLOP/s"),
        ("80GB", 80e9, "bytes"),
        ("24GiB", 24 * 2**30, "bytes"),
        ("1e3", 1000.0, None),
        (".5s", 0.5, "seconds"),
        ("1_000", 1000.0, None),
    ],
)
def test_reads(text: str, value: float, unit: Unit | None) -> None:
    quantity = parse_quantity(text)
    assert quantity.value == pytest.approx(value)
    assert quantity.unit == unit


@pytest.mark.parametrize("text", ["", "ms", "1.2.3", "nan", "inf", "1e999", "1e300TB", "60:30", "5 pc", "0x10", "75%%"])
def test_refuses(text: str) -> None:
    with pytest.raises(UnitError):
        parse_quantity(text)


def test_an_unknown_unit_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnitError, match=r"unknown unit 'TFLOPs'.*did you mean"):
        parse_quantity("640TFLOPs")


def test_a_unit_of_the_wrong_kind_says_what_was_expected() -> None:
    with pytest.raises(UnitError, match=r"expected a share \(75%\), not a duration"):
        parse_quantity("50ms").as_unit("fraction")
    assert Quantity(0.5, None).as_unit("fraction") == 0.5


@pytest.mark.parametrize("text", ["", "-1", "1.0", "\u00b2", "\u0661", "9" * 19, "9" * 5000, "0x1"])
def test_what_writes_no_whole_number(text: str) -> None:
    assert whole_of(text) is None
    assert whole_of("0123") == 123


def test_what_is_too_large_to_print_is_like_no_other_number() -> None:
    shown = format_quantity(1.7e308, "fraction")
    assert number_of(shown) == math.inf
    assert same_printed(shown, "unbounded")
    assert not same_printed(shown, "75 %")
    assert not same_printed("75 %", shown)


@pytest.mark.parametrize("value", [True, None, [], math.nan, math.inf])
def test_what_is_no_number_is_no_quantity(value: object) -> None:
    with pytest.raises(UnitError):
        parse_as(value, "seconds")


def test_yaml_scalars() -> None:
    assert parse_as(60, "seconds") == 60.0
    assert parse_as("1m", "seconds") == 60.0
    assert parse_as("1e3", "tokens") == 1000.0


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.413, "fraction", "41.3 %"),
        (0.00339, "fraction", "0.339 %"),
        (0.75, "fraction", "75 %"),
        (0.0262, "seconds", "26.2 ms"),
        (0.99951, "seconds", "1.00 s"),
        (60.0, "seconds", "60 s"),
        (0.0, "seconds", "0 s"),
        (145e9, "bytes", "145 GB"),
        (3.35e12, "bytes/s", "3.35 TB/s"),
        (989.4e12, "FLOP/s", "989 TFLOP/s"),
        (295.3, "FLOP/byte", "295 FLOP/B"),
        (28400, "tokens", "28 400 tok"),
        (12.4, "count", "12.4"),
        (1.98e9, "hertz", "1.98 GHz"),
        (math.inf, "seconds", "unbounded"),
        (1.7e308, "fraction", "unbounded"),  # as a percentage it is
    ],
)
def test_prints(value: float, unit: Unit, text: str) -> None:
    assert format_quantity(value, unit) == text


def test_four_digits_where_asked() -> None:
    assert format_quantity(145.04e9, "bytes", 4) == "145.0 GB"


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_is_described(unit: Unit) -> None:
    assert describe(unit)


@given(st.floats(min_value=1e-9, max_value=1e15), st.sampled_from(UNITS))
def test_what_is_printed_is_read_again(value: float, unit: Unit) -> None:
    text = format_quantity(value, unit, digits=6).replace(" ", "")
    quantity = parse_quantity(text)
    assert quantity.as_unit(unit) == pytest.approx(value, rel=1e-5)


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(sorted(SPELLINGS)))
def test_factors(number: float, spelling: str) -> None:
    unit, factor = SPELLINGS[spelling]
    if not math.isfinite(number * factor):
        return
    quantity = parse_quantity(f"{number!r}{spelling}")
    assert quantity.unit == unit
    assert quantity.value == pytest.approx(number * factor, rel=1e-15, abs=1e-300)


@pytest.mark.parametrize(("text", "value"), [("95%", 0.95), ("7%", 0.07), ("55ms", 0.055), ("35us", 0.000035)])
def test_small_factors_round_right(text: str, value: float) -> None:
    # 95 * 0.01 is 0.9500000000000001: a gate `>= 95%` would fail a measured 0.95.
    assert parse_quantity(text).value == value


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except UnitError:
        return
    assert math.isfinite(quantity.value)


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (9_999.4, "9999"), (10_000, "10 000"), (148_176, "148 176"), (-12_345, "-12 345")]
)
def test_counts_are_grouped_like_quantities(number: float, shown: str) -> None:
    assert grouped(number) == shown
    assert format_quantity(round(number), "count") == shown
