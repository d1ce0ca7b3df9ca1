"""The grammar of a line of metrics: names, labels, values, exemplars, and in words what is wrong with a line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from pytest_llmroof.telemetry.known import Key, KnownSeries

_STRING: Final = r'"(?:[^"\\\n]|\\.)*+"'
_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_EQUALS: Final = rf"[ \t]*+=[ \t]*+{_STRING}"
#: A label, or the metric's own name in quotes.
_LABEL: Final = rf"[ \t]*+(?:[a-zA-Z_][a-zA-Z0-9_]*+{_EQUALS}|{_STRING}(?:{_EQUALS})?)[ \t]*+"
_LABELS: Final = rf"\{{(?:{_LABEL}(?:,{_LABEL})*+,?)?[ \t]*+\}}"
_HEAD: Final = re.compile(rf"[ \t]*+(?P<name>{_NAME})?[ \t]*+(?P<labels>{_LABELS})?")
_REST: Final = re.compile(
    r"[ \t]*+(?P<value>[^\s#{]\S*)(?:[ \t]++(?P<timestamp>[^\s#]\S*))?(?P<exemplar>[ \t]++#.*)?[ \t]*+"
)
_EXEMPLAR: Final = re.compile(rf"[ \t]++#[ \t]*+{_LABELS}[ \t]++(?P<value>\S++)(?:[ \t]++(?P<timestamp>\S++))?[ \t]*+")
_PAIR: Final = re.compile(rf"(?P<key>[a-zA-Z_][a-zA-Z0-9_]*+|{_STRING})[ \t]*+(?:=[ \t]*+(?P<value>{_STRING}))?")
_ESCAPE: Final = re.compile(r'\\([\\"n])')


class Malformed(Exception):
    """What is wrong with a line."""


class Line(NamedTuple):
    """A line with a sample. ``timestamp`` is as written."""

    key: Key
    labels: Mapping[str, str]
    value: float
    timestamp: float | None


def line_of(line: str, known: KnownSeries) -> Line:
    """The parts of a line. Malformed where it is no sample."""
    return _plain_line(line, known) or _any_line(line)


def _plain_line(line: str, known: KnownSeries) -> Line | None:
    """A line as servers write those with a time or an exemplar behind the value: one blank before each."""
    sample, _, _ = line.partition(" # ")
    head, _, word = sample.rpartition(" ")
    series, stamp = known.plain(head), None
    if series is None:
        stamp = word
        head, _, word = head.rpartition(" ")
        series = known.plain(head)
    if series is None or not is_bare(word if stamp is None else word + stamp):
        return None
    try:
        value, timestamp = float(word), None if stamp is None else float(stamp)
    except ValueError:
        return None
    if timestamp is not None and not math.isfinite(timestamp):
        return None
    if len(sample) < len(line):
        _check_exemplar(line[len(sample) :])
    name, (labels, pairs) = series
    return Line((name, pairs), labels, value, timestamp)


def _any_line(line: str) -> Line:
    match = _HEAD.match(line)
    rest = _REST.fullmatch(line, match.end() if match else 0)
    if match is None or rest is None or not (match["name"] or match["labels"]):
        raise Malformed(what_is_wrong(line))
    # In this order, which is the one in which a line's faults are told.
    name, labels = labels_of(match["name"], match["labels"])
    value = number(rest["value"])
    if rest["exemplar"]:
        _check_exemplar(rest["exemplar"])
    timestamp = number(rest["timestamp"], "timestamp") if rest["timestamp"] else None
    return Line((name, frozenset(labels.items())), labels, value, timestamp)


def is_bare(values: str) -> bool:
    """Whether what ``float`` takes is a number as pages write it, without a blank, ``_`` or digits of other scripts."""
    return values.isascii() and values.isprintable() and "_" not in values


def labels_of(name: str | None, block: str | None) -> tuple[str, dict[str, str]]:
    """The name and labels of a series. The name may stand among the labels, in quotes."""
    labels: dict[str, str] = {}
    for pair in _PAIR.finditer(block[1:-1] if block else ""):
        key, value = pair["key"], pair["value"]
        plain = unquoted(key) if key.startswith('"') else key
        if value is None:
            if name is not None:
                raise Malformed(f"label {short(plain)} has no value")
            name = plain
        elif plain in labels:
            raise Malformed(f"label {short(plain)} is given twice")
        else:
            labels[plain] = unquoted(value)
    if not name:
        raise Malformed("the metric has no name")
    return name, labels


def unquoted(text: str) -> str:
    """What a text in quotes says."""
    inner = text.strip()[1:-1]
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], inner) if "\\" in inner else inner


def number(text: str, what: str = "value") -> float:
    """A number as pages write it. Malformed names ``what`` it is for."""
    try:
        value = float(text)
    except ValueError:
        raise Malformed(f"the {what} {short(text)} is not a number") from None
    if "_" in text or not text.isascii():
        raise Malformed(f"the {what} {short(text)} is not a number")
    if what == "timestamp" and not math.isfinite(value):
        raise Malformed(f"the timestamp {short(text)} is not a time")
    return value


def _check_exemplar(text: str) -> None:
    match = _EXEMPLAR.fullmatch(text)
    if match is None:
        raise Malformed("what follows the value after # is not an exemplar")
    number(match["value"], "exemplar's value")
    if match["timestamp"]:
        number(match["timestamp"], "timestamp")


def what_is_wrong(line: str) -> str:
    """Why a line is no sample, in words."""
    stripped = line.strip()
    name = re.match(_NAME, stripped)
    if name is None and not stripped.startswith("{"):
        return f"a metric's name was expected, not {short(stripped)}"
    rest = stripped[name.end() :].lstrip() if name else stripped
    if rest.startswith("{"):
        block = re.match(_LABELS, rest)
        if block is None:
            return _wrong_labels(rest)
        rest = rest[block.end() :].strip()
    if not rest or rest.startswith("#"):
        return "the value is missing"
    words = rest.split("#", 1)[0].split()
    try:
        number(words[0])
    except Malformed as error:
        return str(error)
    return f"{short(' '.join(words[2:]) or rest)} follows the value and its timestamp"


def _wrong_labels(rest: str) -> str:
    good = re.match(rf"\{{(?:{_LABEL},)*+(?:{_LABEL})?", rest)
    remaining = rest[good.end() :] if good else rest
    if remaining.count('"') % 2:
        return "the labels are not closed: a quote is missing"
    if "}" not in remaining:
        return "the labels are not closed: } is missing"
    return f"the labels cannot be read at {short(remaining)}"


def short(text: str) -> str:
    """A few characters of what stands there: a page may hold what no log should."""
    return repr(text if len(text) <= 24 else text[:24] + "...")
