"""Numbers of every country and units of every scale, as Nsight Compute prints them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.profiles.ncu_numbers import (
    AmbiguousNumber,
    Kind,
    decimal_sign,
    factor_of,
    is_number,
    parse_number,
)


@pytest.mark.parametrize(
    ("text", "sign", "value"),
    [
        ("21,058,944", None, 21_058_944), ("4,963,609,951.19", None, 4_963_609_951.19), ("0.01", None, 0.01),
        ("100", None, 100), ("0", None, 0), ("1.862e+09", None, 1.862e9), ("-3.5", None, -3.5), ("0.123", None, 0.123),
        ("1.250,5", None, 1250.5), ("1250,5", None, 1250.5), ("1.234.567", None, 1_234_567),
        ("13,485", ".", 13_485), ("13,485", ",", 13.485), ("1.234", ".", 1.234), ("1.234", ",", 1234),
        ("1'234.5", None, 1234.5), ("1\u202f234,5", None, 1234.5), ("1 234 567", None, 1_234_567),
        ("2.5 (2; 3; 2.5)", None, 2.5), (" 7 ", None, 7), ("1234.567", None, 1234.567),
    ],
)  # fmt: skip
def test_numbers(text: str, sign: Any, value: float) -> None:
    assert parse_number(text, sign) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["n/a", "N/A", "", "nan", "-nan", "inf", "(!) n/a", "CachePreferNone", "1,2,3", "12,34,567", "1.2.3", "1,234.5,6",
     "1.5 234", "--1", "1e99999", "9" * 100, "0x10", "٣٤", "1 23"],
)  # fmt: skip
def test_what_is_no_number_is_none(text: str) -> None:
    assert parse_number(text, ".") is None


@pytest.mark.parametrize("text", ["13,485", "1.234", "-999.000"])
def test_a_number_that_may_be_two_is_refused_until_a_sign_is_known(text: str) -> None:
    with pytest.raises(AmbiguousNumber):
        parse_number(text, None)
    assert decimal_sign(text) is None


def test_a_number_of_the_other_country_is_none() -> None:
    assert parse_number("1.250,5", ".") is None
    assert parse_number("1,250.5", ",") is None


@given(whole=st.integers(0, 10**12), cents=st.integers(0, 99), sign=st.sampled_from([".", ","]))
def test_grouped_and_plain_numbers_mean_the_same(whole: int, cents: int, sign: str) -> None:
    other = "," if sign == "." else "."
    grouped = f"{whole:,}".replace(",", other) + f"{sign}{cents:02d}"
    plain = f"{whole}{sign}{cents:02d}"
    assert decimal_sign(grouped) == decimal_sign(plain) == sign
    expected = pytest.approx(whole + cents / 100, rel=1e-12)
    assert parse_number(grouped, None) == expected
    assert parse_number(plain, sign) == expected


@given(st.text(max_size=60))
def test_any_text_is_read_or_not(text: str) -> None:
    if decimal_sign(text) is not None:
        assert is_number(text)
    for sign in (".", ","):
        value = parse_number(text, sign)
        assert value is None or is_number(text)


@pytest.mark.parametrize(
    ("unit", "kind", "factor"),
    [
        ("ns", "seconds", 1e-9), ("us", "seconds", 1e-6), ("ms", "seconds", 1e-3), ("s", "seconds", 1),
        ("nsecond", "seconds", 1e-9), ("usecond", "seconds", 1e-6), ("msecond", "seconds", 1e-3),
        ("second", "seconds", 1), ("byte", "bytes", 1), ("Kbyte", "bytes", 1e3),
        ("Mbyte", "bytes", 1e6), ("Gbyte", "bytes", 1e9),
        ("Tbyte", "bytes", 1e12), ("byte/s", "bytes/s", 1), ("Gbyte/s", "bytes/s", 1e9), ("Tbyte/s", "bytes/s", 1e12),
        ("Gbyte/second", "bytes/s", 1e9), ("Tbyte", "bytes/s", 1e12), ("byte/ns", "bytes/s", 1e9),
        ("hz", "hertz", 1), ("Mhz", "hertz", 1e6), ("Ghz", "hertz", 1e9), ("cycle/nsecond", "hertz", 1e9),
        ("1/ns", "hertz", 1e9), ("", "kilohertz", 1e3), ("%", "share", 0.01), ("", "number", 1), ("inst", "number", 1),
        ("Kinst", "number", 1e3), ("inst/cycle", "number", 1),
        ("1/ns", "number", 1e9), ("inst/ns", "number", 1e9), ("1", "number", 1), ("register/thread", "number", 1),
    ],
)  # fmt: skip
def test_units(unit: str, kind: Kind, factor: float) -> None:
    assert factor_of(unit, kind) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("unit", "kind"),
    [("byte", "seconds"), ("ns", "bytes"), ("byte/s", "bytes"), ("byte/cycle", "bytes/s"), ("", "seconds"),
     ("parsec", "seconds"), ("Xbyte", "bytes"), ("%", "number"), ("byte", "share"), ("cycle", "hertz"),
     ("Kibyte", "bytes"), ("k", "number")],
)  # fmt: skip
def test_a_unit_of_another_kind_is_none(unit: str, kind: Kind) -> None:
    assert factor_of(unit, kind) is None
