"""How figures are printed, so that every printed number follows from the other printed ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from pytest_llmroof.data import load
from pytest_llmroof.units import MOST_DIGITS, Unit, format_quantity, number_of, same_printed
from pytest_llmroof.units import precise as precise

#: More of a whole than any report says, though a damaged one may.
_MOST_SHARE: Final = 1e9
#: Words for shares of a whole; a share within two points of one is called so.
_SHARES: Final = [
    ("a tenth", Fraction(1, 10)),
    ("a fifth", Fraction(1, 5)),
    ("a quarter", Fraction(1, 4)),
    ("a third", Fraction(1, 3)),
    ("half", Fraction(1, 2)),
    ("two thirds", Fraction(2, 3)),
    ("three quarters", Fraction(3, 4)),
    ("nine tenths", Fraction(9, 10)),
]

#: Causes whose share of a time evidence and the finding in words say, too.
_SAID_ALONE: Final = ("idle", "exposed communication", "queue", "not attributed")


def quantity(value: float | None, unit: Unit, digits: int = 3) -> str:
    """``41.3 %``; ``unbounded`` for None, which is how documents write an infinite end."""
    return "unbounded" if value is None else format_quantity(value, unit, digits)


def apart(value: float, limit: float, unit: Unit) -> str:
    """A value beside its limit: never printed as if it were the limit when it is not (74.98 %, not 75.0 %)."""
    if value == limit:
        return precise(value, unit)
    shown = format_quantity(value, unit)
    for digits in range(3, MOST_DIGITS):
        shown = format_quantity(value, unit, digits)
        if not same_printed(shown, format_quantity(limit, unit, digits)):
            break
    return shown


def distance(value: float, limit: float, unit: Unit, border: str | None = None) -> str:
    """How far a printed value is from a printed limit: ``33.7 points`` for shares, else ``19.2 %`` of the limit.

    ``border`` is how the limit is printed, where that is not ``precise``.
    """
    shown, border = apart(value, limit, unit), border or precise(limit, unit)
    if "unbounded" in (shown, border):
        return "far"
    if unit == "fraction":
        decimals = max(_decimals(shown), _decimals(border))
        points = f"{abs(number_of(shown) - number_of(border)):.{decimals}f}"
        return f"{points} point{'s' * (points != '1')}"
    if limit == 0:
        return shown
    return format_quantity(abs(value / limit - 1), "fraction")


def _decimals(text: str) -> int:
    match = re.match(r"[-+]?[\d ]*\.(\d+)", text)
    return len(match.group(1)) if match else 0


def short_count(number: float) -> str:
    """A number of tokens in few characters: ``560``, ``1.5k``, ``4.1k``, ``128k``."""
    if number < 999.5:
        return f"{number:.0f}"
    thousands = number / 1000
    text = f"{thousands:.1f}" if thousands < 99.95 else f"{thousands:.0f}"
    return f"{text.removesuffix('.0')}k"


def percentages(shares: Sequence[float], yields: Sequence[int] = ()) -> list[int]:
    """Whole per cents that add up to the rounded whole: each is rounded alone, as other lines say it.

    What is then missing or too much is a point each of those at ``yields``, and of others only where there are too few:
    of those whose rounding was the worst first.
    """
    exact = [min(share, _MOST_SHARE) * 100 for share in shares]
    result = [round(part) for part in exact]
    gap = round(sum(exact)) - sum(result)
    step = 1 if gap > 0 else -1
    movable = [index for index in range(len(exact)) if result[index] + step >= 0]
    movable.sort(key=lambda index: (index not in yields, step * (result[index] - exact[index])))
    for index in movable[: abs(gap)]:
        result[index] += step
    return result


def yielding(causes: Sequence[str]) -> list[int]:
    """Which shares of a time may be printed a point off, so that all add up: those that evidence does not say alone.

    Where it says all of them, what is not attributed.
    """
    others = [index for index, cause in enumerate(causes) if not cause.startswith(_SAID_ALONE)]
    return others or [index for index, cause in enumerate(causes) if cause == "not attributed"]


def share_in_words(share: float) -> str:
    """``a third`` for 0.34, ``42 %`` where no word is near."""
    word, nearest = min(_SHARES, key=lambda pair: abs(share - float(pair[1])))
    return word if abs(share - float(nearest)) <= 0.02 else f"{share * 100:.0f} %"


def times(ratio: float) -> str:
    """A factor of two digits: ``2.4``, ``15``."""
    return f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:.0f}"


def wording() -> dict[str, dict[str, str]]:
    """The packaged phrases of failing texts."""
    phrases: dict[str, dict[str, str]] = load("wording.yaml")
    return phrases
