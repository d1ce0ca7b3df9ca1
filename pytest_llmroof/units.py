"""Quantities with units: how they are written in gates and files, and how they are printed.

SI throughout: 1 GB = 1e9 B, 1 GiB = 2**30 B, 1 TFLOP/s = 1e12 FLOP/s. A unit is one of the canonical names below;
it is also what a report calls it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

Unit = Literal[
    "fraction",
    "seconds",
    "bytes",
    "bytes/s",
    "FLOP/s",
    "FLOP/byte",
    "tokens",
    "tokens/s",
    "requests/s",
    "hertz",
    "count",
]
UNITS: Final[tuple[str, ...]] = get_args(Unit)

#: Every way to write a unit: (canonical unit, factor to it).
SPELLINGS: Final[dict[str, tuple[Unit, float]]] = {
    "%": ("fraction", 0.01),
    "s": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "us": ("seconds", 1e-6),
    "µs": ("seconds", 1e-6),
    "ns": ("seconds", 1e-9),
    "m": ("seconds", 60.0),
    "min": ("seconds", 60.0),
    "h": ("seconds", 3600.0),
    "d": ("seconds", 86400.0),
    "FLOP/B": ("FLOP/byte", 1.0),
    "FLOP/byte": ("FLOP/byte", 1.0),
    "tok/s": ("tokens/s", 1.0),
    "ktok/s": ("tokens/s", 1e3),
    "tokens/s": ("tokens/s", 1.0),
    "tok": ("tokens", 1.0),
    "tokens": ("tokens", 1.0),
    "req/s": ("requests/s", 1.0),
    "requests/s": ("requests/s", 1.0),
    "Hz": ("hertz", 1.0),
    "kHz": ("hertz", 1e3),
    "MHz": ("hertz", 1e6),
    "GHz": ("hertz", 1e9),
    **{f"{prefix}B": ("bytes", factor) for prefix, factor in
       [("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12),
        ("Ki", 2.0**10), ("Mi", 2.0**20), ("Gi", 2.0**30), ("Ti", 2.0**40)]},
    **{f"{prefix}B/s": ("bytes/s", factor) for prefix, factor in
       [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("Gi", 2.0**30), ("Ti", 2.0**40)]},
    **{f"{prefix}FLOP/s": ("FLOP/s", factor) for prefix, factor in
       [("", 1.0), ("G", 1e9), ("T", 1e12), ("P", 1e15)]},
    **{f"{prefix}FLOPS": ("FLOP/s", factor) for prefix, factor in [("G", 1e9), ("T", 1e12), ("P", 1e15)]},
}  # fmt: skip

#: From so many on, digits of a printed figure are noise of the arithmetic.
MOST_DIGITS: Final = 12

#: Fewer than the largest counter of 64 bits has: what is written with more is no count of anything.
_COUNTER_DIGITS: Final = 18
_NUMBER: Final = r"[+-]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?"
_QUANTITY: Final = re.compile(rf"\s*({_NUMBER})\s*([^\s\d].*?)?\s*")


class UnitError(ValueError):
    """A quantity that cannot be read, or whose unit is of another kind than asked for."""


@dataclass(frozen=True)
class Quantity:
    """A number in a canonical unit; ``unit`` is None where none was written."""

    value: float
    unit: Unit | None

    def as_unit(self, unit: Unit) -> float:
        """The number in ``unit``; a bare number is taken to be in it. UnitError where the kinds differ."""
        if self.unit is None or self.unit == unit:
            return self.value
        raise UnitError(f"expected {describe(unit)}, not {describe(self.unit)}")


def parse_quantity(text: str) -> Quantity:
    """Read ``75%``, ``0.75``, ``50ms``, ``3.2 TB/s``. Raises UnitError for anything else, infinities included."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(f"{text!r} is not a quantity: a number with an optional unit, like 75%, 50ms or 3.2TB/s")
    number, spelling = match.groups()
    value = float(number.replace("_", ""))
    if not math.isfinite(value):
        raise UnitError(f"{text!r} is out of range")
    if spelling is None:
        return Quantity(value, None)
    try:
        unit, factor = SPELLINGS[spelling]
    except KeyError:
        from pytest_llmroof.near import did_you_mean

        raise UnitError(f"unknown unit {spelling!r}{did_you_mean(spelling, SPELLINGS)}") from None
    # Division rounds right where multiplying by a small factor does not: 95 * 0.01 is above 0.95.
    value = value * factor if factor >= 1 else value / round(1 / factor)
    if not math.isfinite(value):
        raise UnitError(f"{text!r} is out of range")
    return Quantity(value, unit)


def whole_of(text: str) -> int | None:
    """The whole number that ASCII digits write; None for anything else, and for more digits than a counter has."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _COUNTER_DIGITS else None


def parse_as(value: object, unit: Unit) -> float:
    """A finite number in ``unit`` from a YAML scalar (a number, or text with a unit). Raises UnitError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UnitError(f"expected {describe(unit)}, not {type(value).__name__}")
    if isinstance(value, str):
        return parse_quantity(value).as_unit(unit)
    try:
        number = float(value)
    except OverflowError:  # a whole number has no largest one
        number = math.inf
    if not math.isfinite(number):
        raise UnitError(f"expected {describe(unit)}, not {number}")
    return number


def describe(unit: Unit) -> str:
    """What a unit measures, with an example, for messages."""
    return {
        "fraction": "a share (75%)",
        "seconds": "a duration (50ms, 2s)",
        "bytes": "a size (80GB)",
        "bytes/s": "a bandwidth (3.35TB/s)",
        "FLOP/s": "a compute rate (989TFLOP/s)",
        "FLOP/byte": "an intensity (295FLOP/B)",
        "tokens": "a number of tokens (2048)",
        "tokens/s": "a token rate (120tok/s)",
        "requests/s": "a request rate (4req/s)",
        "hertz": "a frequency (1980MHz)",
        "count": "a number",
    }[unit]


def format_quantity(value: float, unit: Unit, digits: int = 3) -> str:
    """For people: ``41.3 %``, ``26.2 ms``, ``145.0 GB``, ``3.35 TB/s``, ``28 400 tok``; ``digits`` significant ones."""
    if math.isinf(value * 1e3):  # or what its printed form would round or scale to
        return "unbounded"
    if unit == "fraction":
        return f"{_number(value * 100, digits)} %"
    if unit == "seconds":
        return _scaled(value, [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")], digits)
    if unit in ("bytes", "bytes/s"):
        suffix = unit.removeprefix("bytes")
        prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]
        return _scaled(value, [(factor, f"{prefix}B{suffix}") for factor, prefix in prefixes], digits)
    if unit == "FLOP/s":
        return _scaled(value, [(1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1.0, "FLOP/s")], digits)
    if unit == "hertz":
        return _scaled(value, [(1e9, "GHz"), (1e6, "MHz"), (1.0, "Hz")], digits)
    suffix = {"FLOP/byte": " FLOP/B", "tokens": " tok", "tokens/s": " tok/s", "requests/s": " req/s", "count": ""}[unit]
    return f"{_number(value, digits)}{suffix}"


def precise(value: float, unit: Unit) -> str:
    """With as many digits as it takes to print a limit as it was written: ``99.95 %``, ``75 %``, ``50 ms``."""
    for digits in range(3, MOST_DIGITS):
        text = format_quantity(value, unit, digits)
        # Every printed unit is linear: twelve digits tell whether the short form lost something.
        if same_printed(text, format_quantity(value, unit, MOST_DIGITS)):
            # As it was written: 2.5 s, not 2.50 s.
            return re.sub(r"(\.\d*?)0+(?= |$)", r"\1", text).replace(". ", " ").removesuffix(".")
    return format_quantity(value, unit, MOST_DIGITS)


def same_printed(short: str, long: str) -> bool:
    """Whether two printed quantities are one, whatever their digits."""
    one, other = number_of(short), number_of(long)
    # A count has no unit: what is left without its digits is compared, not the last word.
    unit, other_unit = short.lstrip("+-0123456789. "), long.lstrip("+-0123456789. ")
    return unit == other_unit and math.isclose(one, other, rel_tol=1e-9, abs_tol=0.0)


def number_of(text: str) -> float:
    """The number that a printed quantity starts with: ``28 400 tok`` -> 28400.0."""
    if text == "unbounded":
        return math.inf
    match = re.match(r"[-+]?\d+(?: \d{3})*(?:\.\d+)?", text)
    if match is None:
        raise ValueError(f"{text!r} does not start with a number")
    return float(match.group().replace(" ", ""))


def grouped(number: float) -> str:
    """A count for people: ``9999``, ``28 400``."""
    rounded = round(number)
    return f"{rounded:,}".replace(",", " ") if abs(rounded) >= 10_000 else str(rounded)


def _scaled(value: float, steps: list[tuple[float, str]], digits: int) -> str:
    if value == 0:
        return f"0 {steps[0][1]}"
    for factor, name in steps:
        # 0.9995 s is 1.00 s, not 1000 ms: the step is chosen after rounding to the printed digits.
        if abs(float(f"{value / factor:.{digits - 1}e}")) >= 1:
            return f"{_number(value / factor, digits)} {name}"
    factor, name = steps[-1]
    return f"{_number(value / factor, digits)} {name}"


def _number(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    if abs(value - round(value)) <= 1e-9 * abs(value):
        return grouped(value)
    decimals = max(0, digits - 1 - magnitude)
    return f"{value:,.{decimals}f}".replace(",", " ") if abs(value) >= 10_000 else f"{value:.{decimals}f}"
