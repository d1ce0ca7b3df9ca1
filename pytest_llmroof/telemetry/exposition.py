"""Reading a page of metrics: Prometheus text (0.0.4 and 1.0.0) and OpenMetrics.

A page is read whole or refused whole: a line that cannot be understood raises SourceError with its number, because a
page that was cut or mixed up would otherwise give wrong differences. Three comment lines are ours (see recording.py):
``# scraped_at`` gives the page its clock, ``# scrape_seconds`` its error, ``# endpoint`` its origin.

There are three roads to the same result. A page whose lines have all been seen before, in that order, is only its
numbers (``_repeated``). Of any other page, lines as engines write them are taken apart at their blanks (``read``), and
whatever is written in another way is for the grammar, which also is what refuses (``_by_grammar``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.bodies import text_of
from pytest_llmroof.telemetry.comments import Comments
from pytest_llmroof.telemetry.grammar import Malformed, is_bare, line_of
from pytest_llmroof.telemetry.known import Key, KnownSeries, Layout, pick

#: Our own comment lines up to their last word.
_OUR_HEADS: Final = frozenset({"# scraped_at", "# scrape_seconds", "# endpoint"})
#: Later than this (the year 5138) is a time in other units.
_LATEST: Final = 1e11


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
    ``scraped_at`` is no Unix time, but counts from where the page's server began to tell. ``largest`` are gauges of
    which no sample is known but the largest of a time.
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
    largest: tuple[Sample, ...] = ()

    @property
    def clock(self) -> float | None:
        """When the page was scraped (Unix seconds): its own line, else the latest timestamp of its samples."""
        if self.scraped_at is not None:
            return self.scraped_at
        stamps = (sample.timestamp for sample in self.samples)
        return max((stamp for stamp in stamps if stamp is not None and 0 < stamp < _LATEST), default=None)


class _Lines(NamedTuple):
    """A page's lines, and each one's text up to its last blank and after it."""

    whole: list[str]
    heads: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def unterminated(self) -> bool:
        return bool(self.whole[-1].strip())


_sample: Final = partial(tuple.__new__, Sample)  # as Sample._make, without its check of the length


def parse_page(body: bytes | str, location: str, known: KnownSeries | None = None) -> Page:
    """Read a page; gzip is recognised by content. SourceError names ``location`` (and the line) for anything else.

    ``known`` may be shared by the pages of one server, which repeat most of their text.
    """
    text = text_of(body, location)
    known = KnownSeries() if known is None else known
    known.make_room()
    openmetrics = text.rstrip().endswith("# EOF")
    lines = _split(text)
    repeated = _repeated(lines, location, known, openmetrics)
    return repeated or _Reader(location, known, openmetrics).read(lines)


def _refusal(location: str, number: int, problem: str, *, cut: bool) -> SourceError:
    if cut:
        return SourceError(
            f"{location}:{number}: the last line is cut off ({problem})",
            "the scrape was interrupted: the whole page is refused, scrape it again",
        )
    return SourceError(f"{location}:{number}: {problem}", "the whole page is refused: scrape it again, as it comes")


def _split(text: str) -> _Lines:
    whole = text.split("\n")
    heads, _, words = zip(*[line.rpartition(" ") for line in whole], strict=True)
    return _Lines(whole, heads, words)


def _repeated(lines: _Lines, location: str, known: KnownSeries, openmetrics: bool) -> Page | None:
    """The page where all that it says but numbers and our own comments is known; None for any other."""
    layout = known.layouts.get(lines.heads)
    if layout is None or layout.rest(lines.words) != layout.rest_words:
        return None
    texts = layout.values(lines.words)
    reader = _Reader(location, known, openmetrics)
    try:
        values = list(map(float, texts))
        for index in layout.own:
            reader.comments.read(lines.whole[index].strip())
    except (ValueError, Malformed):
        return None
    if not is_bare("".join(texts)):
        return None
    samples = map(_sample, zip(layout.names, layout.labels, values, repeat(None)))
    return reader.page(tuple(samples), layout.types, unterminated=lines.unterminated and not layout.ended)


class _Reader:
    """Collects a page line by line.

    ``numbers`` are the lines of ``samples``, in their order, ``renumbered`` those of samples that came later and count.
    """

    def __init__(self, location: str, known: KnownSeries, openmetrics: bool) -> None:
        self.location = location
        self.known = known
        self.openmetrics = openmetrics
        self.samples: dict[Key, Sample] = {}
        self.numbers: list[int] = []
        self.comments = Comments()
        self.renumbered: dict[Key, int] = {}
        self.regular = True
        self.others: list[int] = []
        self.own: list[int] = []

    def read(self, lines: _Lines) -> Page:
        """The page of all lines. SourceError names the first that is malformed."""
        plain, number = self.known.plain, 0
        bare = is_bare("".join(lines.words))  # mostly all of them, and then none needs to be looked at
        try:
            for number, (line, head, word) in enumerate(zip(*lines, strict=True), start=1):
                series = plain(head) if line[:1] != "#" else None
                if series is None or self.comments.ended or not (bare or is_bare(word)):
                    self._read_other(line, head, number)
                    continue
                try:
                    value = float(word)
                except ValueError:
                    self._by_grammar(line, number)
                    continue
                name, (labels, pairs) = series
                self._add((name, pairs), _sample((name, labels, value, None)), number)
        except Malformed as error:
            raise _refusal(self.location, number, str(error), cut=number == len(lines.whole)) from None
        if not self.samples:
            raise SourceError(
                f"{self.location} holds no metrics, only comments", "scrape the server while it is running"
            )
        if self.regular:
            self._keep_layout(lines)
        unterminated = lines.unterminated and not self.comments.ended
        return self.page(tuple(self.samples.values()), self.comments.types, unterminated=unterminated)

    def _read_other(self, line: str, head: str, number: int) -> None:
        """A line that is no plain sample: blank, a comment, with a time or an exemplar, or written in another way."""
        text = line.rstrip("\r")
        if not text or text.isspace():
            self.others.append(number - 1)
        elif self.comments.ended:
            raise Malformed("text after # EOF: two scrapes in one file?")
        elif text.lstrip(" \t").startswith("#"):
            ours = self.comments.read(text.strip())
            self.regular &= not ours or head in _OUR_HEADS
            (self.own if ours else self.others).append(number - 1)
        else:
            self._by_grammar(line, number)

    def _by_grammar(self, line: str, number: int) -> None:
        self.regular = False
        found = line_of(line.rstrip("\r"), self.known)
        timestamp = found.timestamp
        if timestamp is not None and not self.openmetrics:
            timestamp /= 1000.0
        self._add(found.key, Sample(found.key[0], found.labels, found.value, timestamp), number)

    def _add(self, key: Key, sample: Sample, number: int) -> None:
        if key in self.samples:
            self._add_again(key, sample, number)
        else:
            self.samples[key] = sample
            self.numbers.append(number)

    def _add_again(self, key: Key, sample: Sample, number: int) -> None:
        """Of a series at several times the latest sample counts; without times one is too many."""
        earlier = self.samples[key]
        self.regular = False
        if sample.timestamp is None or earlier.timestamp is None:
            line = self.renumbered.get(key) or self.numbers[list(self.samples).index(key)]
            raise Malformed(
                f"{sample.name} with the same labels stands in line {line} already: two scrapes in one file?"
            )
        if earlier.timestamp < sample.timestamp:
            self.samples[key] = sample
            self.renumbered[key] = number

    def _keep_layout(self, lines: _Lines) -> None:
        """Every sample came from a line of its own that ends in its value: the next page may be like this one."""
        rest = pick(self.others)
        layout = Layout(
            names=tuple(sample.name for sample in self.samples.values()),
            labels=tuple(sample.labels for sample in self.samples.values()),
            values=pick([number - 1 for number in self.numbers]),
            rest=rest,
            rest_words=rest(lines.words),
            own=tuple(self.own),
            types=self.comments.types,
            ended=self.comments.ended,
        )
        self.known.keep(lines.heads, layout)

    def page(self, samples: tuple[Sample, ...], types: Mapping[str, str], *, unterminated: bool) -> Page:
        """The page of these samples, with what our own comments said."""
        said = self.comments
        return Page(
            location=self.location,
            samples=samples,
            types=types,
            scraped_at=said.scraped_at,
            scrape_seconds=(said.scrape_seconds or 0.0) + said.resolution,
            endpoint=said.endpoint,
            openmetrics=self.openmetrics,
            unterminated=unterminated,
        )
