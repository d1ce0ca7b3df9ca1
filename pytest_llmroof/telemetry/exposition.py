"""Reading a page of metrics: Prometheus text (0.0.4 and 1.0.0) and OpenMetrics.

A page is read whole or refused whole: a line that cannot be understood raises SourceError with its number, because a
page that was cut or mixed up would otherwise give wrong differences. Three comment lines are ours (see recording.py):
``# scraped_at`` gives the page its clock, ``# scrape_seconds`` its error, ``# endpoint`` its origin.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.bodies import text_of

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
_COMMENT: Final = re.compile(r"#[ \t]*(\S+)(?:[ \t]+(.*))?")
#: Later than this (the year 5138) is a time in other units.
_LATEST: Final = 1e11
#: BSD's date knows no %N and prints the letter: whole seconds.
_CLOCK: Final = re.compile(r"(?P<seconds>\d{1,11})(?:\.(?:\d+|(?P<no_fraction>N)))?")


class Sample(NamedTuple):
    """One line: a series and its value. ``timestamp`` is Unix seconds, where the page itself gives one."""

    name: str
    labels: Mapping[str, str]
    value: float
    timestamp: float | None = None


@dataclass(frozen=True)
class Page:
    """One scrape. ``location`` is what messages may call it.

    ``scraped_at`` is Unix seconds, ``scrape_seconds`` how long the scrape took (0 where unknown). ``endpoint`` is the
    address without user, password and query. ``types`` are the declared ones by metric name. ``unterminated`` tells
    that the last line does not end in a line feed, so that its value may have been cut. ``relative_clock``:
    ``scraped_at`` is no Unix time, but counts from where the page's server began to tell.
    """

    location: str
    samples: tuple[Sample, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    scraped_at: float | None = None
    scrape_seconds: float = 0.0
    endpoint: str | None = None
    openmetrics: bool = False
    unterminated: bool = False
    relative_clock: bool = False

    @property
    def clock(self) -> float | None:
        """When the page was scraped (Unix seconds): its own line, else the latest timestamp of its samples."""
        if self.scraped_at is not None:
            return self.scraped_at
        stamps = (sample.timestamp for sample in self.samples)
        return max((stamp for stamp in stamps if stamp is not None and 0 < stamp < _LATEST), default=None)


class Series(NamedTuple):
    """A series: a name, its labels, and both as a key that does not depend on the labels' order."""

    name: str
    labels: Mapping[str, str]
    key: tuple[str, frozenset[tuple[str, str]]]


Heads = dict[str, Series]
"""Series by the text in front of their value. Pages of one server repeat these texts: sharing one makes them cheap."""


class _Malformed(Exception):
    """What is wrong with a line."""


def parse_page(body: bytes | str, location: str, heads: Heads | None = None) -> Page:
    """Read a page; gzip is recognised by content. SourceError names ``location`` (and the line) for anything else.

    ``heads`` may be shared by the pages of one server, which repeat most of their text.
    """
    text = text_of(body, location)
    reader = _Reader(location, {} if heads is None else heads, _ends_as_openmetrics(text))
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            reader.read(line, number)
        except _Malformed as error:
            raise _refusal(location, number, str(error), cut=number == len(lines)) from None
    if not reader.samples:
        raise SourceError(f"{location} holds no metrics, only comments", "scrape the server while it is running")
    return reader.page(unterminated=bool(lines[-1].strip()) and not reader.ended)


def _ends_as_openmetrics(text: str) -> bool:
    return text.rstrip().endswith("# EOF")


def _refusal(location: str, number: int, problem: str, *, cut: bool) -> SourceError:
    if cut:
        return SourceError(
            f"{location}:{number}: the last line is cut off ({problem})",
            "the scrape was interrupted: the whole page is refused, scrape it again",
        )
    return SourceError(f"{location}:{number}: {problem}", "the whole page is refused: scrape it again, as it comes")


class _Reader:
    """Collects a page line by line."""

    def __init__(self, location: str, heads: Heads, openmetrics: bool) -> None:
        self.location = location
        self.heads = heads
        self.openmetrics = openmetrics
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], Sample] = {}
        self.lines: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self.types: dict[str, str] = {}
        self.scraped_at: float | None = None
        self.scrape_seconds: float | None = None
        self.endpoint: str | None = None
        self.resolution = 0.0
        self.ended = False

    def read(self, line: str, number: int) -> None:
        # Lines of known series with one blank before a bare value: nearly all of them, after the first page.
        head, _, value = line.rpartition(" ")
        series = self.heads.get(head)
        if series is None or self.ended:
            self._read_slowly(line.rstrip("\r"), number)
            return
        self._add(series, Sample(series.name, series.labels, _number(value.rstrip("\r"))), number)

    def _read_slowly(self, line: str, number: int) -> None:
        if not line or line.isspace():
            return
        if self.ended:
            raise _Malformed("text after # EOF: two scrapes in one file?")
        if line.lstrip(" \t").startswith("#"):
            self._comment(line.strip())
            return
        match = _HEAD.match(line)
        head = line[: match.end()] if match else ""
        rest = _REST.fullmatch(line, len(head))
        if match is None or rest is None or not (match["name"] or match["labels"]):
            raise _Malformed(_what_is_wrong(line))
        series = self.heads.get(head) or self._series(head, match["name"], match["labels"])
        value = _number(rest["value"])
        if rest["exemplar"]:
            _check_exemplar(rest["exemplar"])
        timestamp = _number(rest["timestamp"], "timestamp") if rest["timestamp"] else None
        if timestamp is not None and not self.openmetrics:
            timestamp /= 1000.0
        self._add(series, Sample(series.name, series.labels, value, timestamp), number)

    def _series(self, head: str, name: str | None, labels: str | None) -> Series:
        name, parsed = _labels(name, labels)
        series = Series(name, parsed, (name, frozenset(parsed.items())))
        self.heads[head] = series
        return series

    def _add(self, series: Series, sample: Sample, number: int) -> None:
        earlier = self.samples.get(series.key)
        if earlier is not None:
            if sample.timestamp is None or earlier.timestamp is None:
                raise _Malformed(
                    f"{series.name} with the same labels stands in line {self.lines[series.key]} already: "
                    "two scrapes in one file?"
                )
            if earlier.timestamp >= sample.timestamp:
                return
        self.samples[series.key] = sample
        self.lines[series.key] = number

    def _comment(self, line: str) -> None:
        match = _COMMENT.match(line)
        if match is None:
            return
        word, rest = match[1], (match[2] or "").strip()
        if word == "TYPE":
            self._type(rest)
        elif word == "EOF" and not rest:
            self.ended = True
        elif word == "scraped_at" and self.scraped_at is None:
            self.scraped_at = self._clock(rest)
        elif word == "scrape_seconds" and self.scrape_seconds is None:
            self.scrape_seconds = _seconds(rest)
        elif word == "endpoint" and rest and self.endpoint is None:
            self.endpoint = shown_endpoint(rest)

    def _type(self, rest: str) -> None:
        name, _, kind = rest.rpartition(" ")
        if not name or not kind:
            raise _Malformed("a TYPE line needs a name and a type")
        name = name.strip()
        self.types[_unquoted(name) if name.startswith('"') else name] = kind.lower()

    def _clock(self, rest: str) -> float:
        match = _CLOCK.fullmatch(rest)
        if match is None:
            raise _Malformed(f"scraped_at must be Unix seconds like 1764417600.25, not {_short(rest)}")
        if match["no_fraction"]:
            self.resolution = 1.0
            return float(match["seconds"])
        return float(rest)

    def page(self, *, unterminated: bool) -> Page:
        return Page(
            location=self.location,
            samples=tuple(self.samples.values()),
            types=self.types,
            scraped_at=self.scraped_at,
            scrape_seconds=(self.scrape_seconds or 0.0) + self.resolution,
            endpoint=self.endpoint,
            openmetrics=self.openmetrics,
            unterminated=unterminated,
        )


def shown_endpoint(address: str) -> str:
    """An address as it may be shown: without user, password, query and fragment."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "endpoint"
    if not parts.netloc:
        return address.split("?", 1)[0]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _labels(name: str | None, block: str | None) -> tuple[str, dict[str, str]]:
    """The name and labels of a series. The name may stand among the labels, in quotes."""
    labels: dict[str, str] = {}
    for pair in _PAIR.finditer(block[1:-1] if block else ""):
        key, value = pair["key"], pair["value"]
        plain = _unquoted(key) if key.startswith('"') else key
        if value is None:
            if name is not None:
                raise _Malformed(f"label {_short(plain)} has no value")
            name = plain
        elif plain in labels:
            raise _Malformed(f"label {_short(plain)} is given twice")
        else:
            labels[plain] = _unquoted(value)
    if not name:
        raise _Malformed("the metric has no name")
    return name, labels


def _unquoted(text: str) -> str:
    inner = text.strip()[1:-1]
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], inner) if "\\" in inner else inner


def _number(text: str, what: str = "value") -> float:
    try:
        value = float(text)
    except ValueError:
        raise _Malformed(f"the {what} {_short(text)} is not a number") from None
    if "_" in text or not text.isascii():
        raise _Malformed(f"the {what} {_short(text)} is not a number")
    if what == "timestamp" and not math.isfinite(value):
        raise _Malformed(f"the timestamp {_short(text)} is not a time")
    return value


def _seconds(text: str) -> float:
    value = _number(text, "scrape_seconds")
    if not 0 <= value < math.inf:
        raise _Malformed(f"scrape_seconds must be a time in seconds, not {_short(text)}")
    return value


def _check_exemplar(text: str) -> None:
    match = _EXEMPLAR.fullmatch(text)
    if match is None:
        raise _Malformed("what follows the value after # is not an exemplar")
    _number(match["value"], "exemplar's value")
    if match["timestamp"]:
        _number(match["timestamp"], "timestamp")


def _what_is_wrong(line: str) -> str:
    """Why a line is no sample, in words."""
    stripped = line.strip()
    name = re.match(_NAME, stripped)
    if name is None and not stripped.startswith("{"):
        return f"a metric's name was expected, not {_short(stripped)}"
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
        _number(words[0])
    except _Malformed as error:
        return str(error)
    return f"{_short(' '.join(words[2:]) or rest)} follows the value and its timestamp"


def _wrong_labels(rest: str) -> str:
    good = re.match(rf"\{{(?:{_LABEL},)*+(?:{_LABEL})?", rest)
    remaining = rest[good.end() :] if good else rest
    if remaining.count('"') % 2:
        return "the labels are not closed: a quote is missing"
    if "}" not in remaining:
        return "the labels are not closed: } is missing"
    return f"the labels cannot be read at {_short(remaining)}"


def _short(text: str) -> str:
    """A few characters of what stands there: a page may hold what no log should."""
    return repr(text if len(text) <= 24 else text[:24] + "...")
