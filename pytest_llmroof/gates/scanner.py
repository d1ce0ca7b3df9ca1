"""Reading an expression from left to right: a place in it, quantities, and refusals that point at a column."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NoReturn

from pytest_llmroof.errors import ConfigError, Position
from pytest_llmroof.units import Quantity, Unit, UnitError, parse_quantity

NUMBER: Final = re.compile(r"(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?")
_UNIT: Final = re.compile(r"%|[^\W\d_]+(?:/[^\W\d_]+)?")
_SPACE: Final = re.compile(r"\s*")

#: Longest piece of an expression that a message repeats.
SHOWN: Final = 200


class ExpressionError(ConfigError):
    """An expression that is no gate; ``column`` counts from 1 inside it."""

    def __init__(self, detail: str, expression: str, column: int, position: Position | None = None) -> None:
        shown = expression if len(expression) <= SHOWN else expression[:SHOWN] + "..."
        super().__init__(f"{detail}, at column {column} of {shown!r}", position)
        self.detail = detail
        self.expression = expression
        self.column = column

    def at(self, position: Position) -> ExpressionError:
        """The same, placed in a file: ``position`` is where the expression starts."""
        exact = replace(position, column=position.column + self.column - 1) if position.column else position
        return ExpressionError(self.detail, self.expression, self.column, exact)


class Reader:
    """A place in an expression that moves to the right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.skip()

    def skip(self) -> None:
        """Past blanks."""
        self.at = _end(_SPACE, self.text, self.at)

    def take(self, pattern: re.Pattern[str]) -> str:
        """What the pattern matches here (may be nothing), and past it; blanks are left."""
        start, self.at = self.at, _end(pattern, self.text, self.at)
        return self.text[start : self.at]

    def fail(self, detail: str, at: int | None = None) -> NoReturn:
        """Refuse the expression at an offset, else here."""
        raise ExpressionError(detail, self.text, (self.at if at is None else at) + 1)

    def end(self) -> None:
        """Nothing may follow."""
        self.skip()
        if self.at < len(self.text):
            self.fail(f"unexpected {self.text[self.at :].strip()!r} after the limit")


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def amount(reader: Reader, unit: Unit, name: str) -> str:
    """The canonical spelling of a quantity that must be in ``unit``."""
    reader.skip()
    start = reader.at
    found, text = quantity(reader)
    in_unit(reader, start, found, text, unit, name)
    return text


def quantity(reader: Reader) -> tuple[Quantity, str]:
    """A number with an optional unit, and its spelling without blanks."""
    start = reader.at
    number = reader.take(NUMBER)
    if not number:
        rest = reader.text[start:].strip()
        if rest.startswith("-"):
            reader.fail("a limit must not be negative")
        reader.fail(f"expected a number, not {rest!r}" if rest else "expected a number, like 75% or 50ms")
    reader.skip()
    unit_at = reader.at
    unit = reader.take(_UNIT)
    if unit in ("x", "of"):
        reader.at, unit = unit_at, ""
    if unit in ("baseline", "xbaseline"):
        reader.fail(f"a factor is written {number}x baseline", start)
    try:
        return parse_quantity(number + unit), number + unit
    except UnitError as error:
        reader.fail(str(error), unit_at if unit else start)


#: A bare number is in seconds, as the metric is; from here on it can only have been meant in milliseconds.
_BETWEEN_TOKENS: Final = ("itl", "tpot", "decode", "timeline")
_SECONDS_BETWEEN_TOKENS: Final = 1.0
_SECONDS_OF_REQUESTS: Final = 100.0


def in_unit(reader: Reader, start: int, quantity: Quantity, text: str, unit: Unit, name: str) -> float:
    """The number of a quantity that was read as ``text`` at ``start``, in the unit of the metric ``name``."""
    try:
        value = quantity.as_unit(unit)
    except UnitError as error:
        reader.fail(f"{name}: {error}", start)
    if unit == "fraction" and quantity.unit is None and value > 1:
        meant = f"did you mean {text}%?" if 2 <= value <= 100 else "a share cannot exceed 100 %"
        hint = f" (did you mean {text}%?)" if value < 2 else ""
        reader.fail(f"{name} is a share, and {text} is above 1: {meant}{hint}", start)
    most = _SECONDS_BETWEEN_TOKENS if name.partition(".")[0] in _BETWEEN_TOKENS else _SECONDS_OF_REQUESTS
    if unit == "seconds" and quantity.unit is None and value >= most:
        # Read as seconds, a limit that was meant in milliseconds would pass whatever is found.
        reader.fail(f"{name} is a duration, and {text} has no unit: did you mean {text}ms or {text}s?", start)
    return value
