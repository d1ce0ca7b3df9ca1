"""Numbers and units as Nsight Compute prints them: scaled units, thousands separators, either decimal sign, ``n/a``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Final, Literal

Sign = Literal[".", ","]
Kind = Literal["seconds", "bytes", "bytes/s", "hertz", "kilohertz", "share", "number", "text"]

_NUMBER: Final = re.compile(r"([+-]?)(\d[\d.,]*)(?:[eE]([+-]?\d{1,4}))?", re.ASCII)
#: Thousands apart by blanks or apostrophes, as some countries print them; they separate no decimals anywhere.
_BLANKED: Final = re.compile("[+-]?[0-9]{1,3}(?:[ \u00a0\u2009\u202f'\u2019][0-9]{3})+(?:[.,][0-9]+)?")
_BLANKS: Final = re.compile("[ \u00a0\u2009\u202f'\u2019]")
_LONGEST: Final = 80

_PREFIXES: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_TIMES: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0}
_TIME_WORDS: Final = {"second": 1.0, "msecond": 1e-3, "usecond": 1e-6, "nsecond": 1e-9, "minute": 60.0}
_SECONDS: Final = _TIMES | _TIME_WORDS | {f"{word}s": factor for word, factor in _TIME_WORDS.items()}
#: Nouns of plain counts: a metric of theirs is a number.
_COUNTED: Final = re.compile(
    r"(?:1|([kmgtp]?)(?:inst|ops?|flops?|cycles?|warps?|threads?|blocks?|sectors?|requests?|samples?|sm|wavefronts?"
    r"|registers?|bits?|pass(?:es)?|clusters?))?",
    re.IGNORECASE,
)


class AmbiguousNumber(ValueError):
    """A number that may have a decimal sign or a thousands separator: ``13,485``."""


@dataclass(frozen=True)
class _Read:
    """A number, read as far as that goes without knowing the country: ``sign`` is the decimal sign it proves."""

    minus: str
    digits: str
    exponent: str | None
    sign: Sign | None
    ambiguous: bool = False


def decimal_sign(text: str) -> Sign | None:
    """The decimal sign that a text proves, None where it is no number, or one that proves nothing."""
    read = _read(text)
    return read.sign if read else None


def sign_of_whole(text: str) -> Sign | None:
    """The decimal sign that a whole number proves by another one that separates its thousands (``13,485``)."""
    read = _read(text)
    if read is None or not read.ambiguous:
        return None
    return "." if "," in read.digits else ","


def is_number(text: str) -> bool:
    """Whether a text has the shape of a number in some country."""
    return _read(text) is not None


def parse_number(text: str, sign: Sign | None) -> float | None:
    """A finite number; None for everything else (``n/a``, ``nan``, words). AmbiguousNumber where ``sign`` is needed."""
    read = _read(text)
    if read is None:
        return None
    if read.ambiguous and sign is None:
        raise AmbiguousNumber(text)
    decimal = sign or read.sign or "."
    if read.sign is not None and read.sign != decimal:
        return None
    digits = read.digits.replace("," if decimal == "." else ".", "").replace(decimal, ".")
    number = float(f"{read.minus}{digits}e{read.exponent or 0}")
    return number if math.isfinite(number) else None


def _read(text: str) -> _Read | None:
    """The parts of a number, None where its separators can be meant in no way."""
    text = text.partition("(")[0].strip()  # "2.5 (2; 3; 2.5)": a value with those of its instances behind it
    if len(text) > _LONGEST:
        return None
    blanked = _BLANKED.fullmatch(text) is not None
    match = _NUMBER.fullmatch(_BLANKS.sub("", text) if blanked else text)
    if match is None:
        return None
    minus, digits, exponent = match.groups()
    read = _Read(minus, digits, exponent, None)
    kinds = {character for character in digits if character in ".,"}
    if not kinds:
        return read
    last = max(digits.rfind("."), digits.rfind(","))
    sign: Sign = "." if digits[last] == "." else ","
    other: Sign = "," if sign == "." else "."
    if len(kinds) == 2:
        whole = digits[:last]
        return replace(read, sign=sign) if sign not in whole and _grouped(whole, other) else None
    if digits.count(sign) > 1:
        return replace(read, sign=other) if _grouped(digits, sign) else None
    before, after = digits[:last], digits[last + 1 :]
    if blanked or exponent is not None or len(after) != 3 or len(before) > 3 or before.startswith("0"):
        return replace(read, sign=sign)
    return replace(read, ambiguous=True)


def _grouped(digits: str, separator: str) -> bool:
    """Whether digits stand in groups of three."""
    first, *rest = digits.split(separator)
    return 1 <= len(first) <= 3 and all(len(group) == 3 for group in rest)


def factor_of(unit: str, kind: Kind) -> float | None:
    """What a number in ``unit`` is multiplied with to be of ``kind``; None where the unit is of another kind.

    Prefixes are decimal, as the tool's are: 1 Kbyte is 1000 bytes. Units of rates may lack their ``/s``.
    """
    unit = unit.strip().strip("[]()").strip()
    above, _, below = unit.partition("/")
    if kind == "share":
        return 0.01 if unit in ("", "%", "pct") else None
    if kind == "seconds":
        return _SECONDS.get(unit.lower())
    if kind == "bytes":
        return None if below else _bytes(above)
    if kind == "bytes/s":
        per = 1.0 if not below else _SECONDS.get(below.lower())
        scale = _bytes(above)
        return None if scale is None or per is None else scale / per
    if kind == "hertz":
        return _hertz(above, below)
    if kind == "kilohertz":
        return 1e3 if not unit else _hertz(above, below)
    if kind == "number":
        match = _COUNTED.fullmatch(above)
        # Of rates only those over time have scales: per cycle, block or thread is what it says.
        return _PREFIXES[(match[1] or "").lower()] / _SECONDS.get(below.lower(), 1.0) if match else None
    return 1.0


def _bytes(unit: str) -> float | None:
    word = unit.lower()
    for ending in ("bytes", "byte"):
        if word.endswith(ending):
            return _PREFIXES.get(word.removesuffix(ending))
    return None


def _hertz(above: str, below: str) -> float | None:
    word = above.lower()
    if below:
        per = _SECONDS.get(below.lower())
        match = re.fullmatch(r"([kmgt]?)(?:cycles?|1)", word)
        return _PREFIXES[match[1]] / per if match and per else None
    for ending in ("hertz", "hz"):
        if word.endswith(ending):
            return _PREFIXES.get(word.removesuffix(ending))
    return None
