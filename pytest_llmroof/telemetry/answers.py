"""What an endpoint answered that hands out its engine's records once, and forgets them: JSON lists, each with a clock.

Such an endpoint (TensorRT-LLM's iteration statistics) drains its queue. An answer holds what came since the one
before, so the first answer of a window holds what came before the window, and counts for nothing. An empty list is an
engine that did no step. Pages of running totals come out, one for each answer, at the time that it was asked for.

Where the engine numbers its records, a number that falls is a restart, and one that is left out is a record that
somebody else was handed, or that the server dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.bodies import comments_above
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.exposition import Page
from pytest_llmroof.telemetry.records import Record, Totals, pages_of, rank_of, value_at

#: The share of the engine's records that may be missing before its totals are refused.
_MISSING: Final = 0.1
#: What is said of empty lists where nothing else tells whose they are.
EMPTY: Final = "an empty list: the engine did no step, or keeps no records of them (enable_iter_perf_stats: true)"

_SCRAPED_AT: Final = re.compile(r"^[ \t]*#[ \t]*scraped_at[ \t]+(\d{1,11}(?:\.\d+)?)", re.MULTILINE)
_SCRAPE_SECONDS: Final = re.compile(r"^[ \t]*#[ \t]*scrape_seconds[ \t]+(\d+(?:\.\d+)?)", re.MULTILINE)
_ENDPOINT: Final = re.compile(r"^[ \t]*#[ \t]*endpoint[ \t]+(\S[^\n]*?)[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True)
class Head:
    """What the comment lines above a body say: Unix seconds, how long the scrape took, and the address."""

    scraped_at: float | None = None
    scrape_seconds: float = 0.0
    endpoint: str | None = None


def without_head(text: str) -> tuple[Head, str]:
    """A kept answer's head, and its body, whose lines keep their numbers."""
    above = comments_above(text)
    clock, seconds, endpoint = _SCRAPED_AT.search(above), _SCRAPE_SECONDS.search(above), _ENDPOINT.search(above)
    head = Head(
        float(clock[1]) if clock else None, float(seconds[1]) if seconds else 0.0, endpoint[1] if endpoint else None
    )
    return head, "\n" * above.count("\n") + text[len(above) :]


@dataclass(frozen=True)
class Answer:
    """One answer. ``recorded``: it is a recording's, of which there are two at least."""

    records: Sequence[Record]
    location: str
    head: Head
    recorded: bool = False


@dataclass
class Answers:
    """All answers of one server. ``engine`` is None while none held a record."""

    engine: EngineNames | None = None
    answers: list[Answer] = field(default_factory=list)
    missing: str | None = None

    @property
    def recorded(self) -> bool:
        """Whether they are a recording's."""
        return any(answer.recorded for answer in self.answers)

    def pages(self) -> Iterator[Page]:
        """Pages of running totals. SourceError where too many records are missing."""
        if self.engine is None:
            return
        answers = [answer for answer in self.answers if answer.head.scraped_at is not None]
        if len(answers) == len(self.answers) and (len(answers) > 1 or self.recorded):
            yield from self._by_clock(self.engine, sorted(answers, key=_clock))
            return
        # Without a clock every file counts, and time is that of the steps.
        records = [record for answer in self.answers for record in answer.records]
        yield from pages_of(self.engine, records, self.answers[0].location)

    def _by_clock(self, engine: EngineNames, answers: Sequence[Answer]) -> Iterator[Page]:
        ranks = dict.fromkeys(rank_of(engine, record) for answer in answers for record in answer.records)
        totals = Totals(engine, ranks)
        numbers = _Numbers(engine)
        pages = []
        for index, answer in enumerate(answers):
            numbers.begin()
            totals.forget()
            # The same answer twice is one that a proxy kept.
            again = index and answer.records == answers[index - 1].records
            for record in () if again else answer.records:
                numbers.take(record)
                if index:
                    totals.add(record)
                totals.look(record)
            page = totals.page(answer.location, answer.head.scraped_at or 0.0, numbers.shown)
            pages.append((page, answer.head.scrape_seconds))
        self.missing = numbers.missing(answers[0].location)
        for page, seconds in pages:
            yield Page(page.location, page.samples, scraped_at=page.scraped_at, scrape_seconds=seconds)


class _Numbers:
    """The numbers that an engine gives its records, by rank."""

    def __init__(self, engine: EngineNames) -> None:
        self._engine = engine
        self._key = str((engine.records or {}).get("number", ""))
        self._runs: dict[str, list[list[float]]] = {}
        self.shown: dict[str, float] = {}
        self._fell: set[str] = set()

    def begin(self) -> None:
        """The records of another answer follow."""
        self._fell.clear()

    def take(self, record: Record) -> None:
        """The next record of its rank."""
        number = value_at(record, self._key) if self._key else None
        if number is None:
            return
        rank = rank_of(self._engine, record)
        runs = self._runs.setdefault(rank, [[]])
        if runs[-1] and number <= runs[-1][-1]:
            # A new process counts from its beginning: the page shows where the number fell.
            runs.append([])
            self._fell.add(rank)
            self.shown[rank] = number
        elif rank not in self._fell:
            self.shown[rank] = number
        runs[-1].append(number)

    def missing(self, location: str) -> str | None:
        """What to say of records that nobody here was handed. SourceError where they are too many."""
        lost = counted = 0
        for runs in self._runs.values():
            pauses = [later - earlier for run in runs for earlier, later in pairwise(run)]
            counted += len(pauses)
            usual = min(pauses, default=1.0)
            lost += sum(round(pause / usual) - 1 for pause in pauses if pause >= 2 * usual)
        if not lost:
            return None
        share = f"{lost} of {counted + lost} iterations are missing from the answers"
        if lost > _MISSING * (counted + lost):
            raise SourceError(
                f"{location}: {share}: each record is handed out once, and somebody else was handed these",
                "let nobody else read this endpoint meanwhile, and ask more often than its queue is full (interval)",
            )
        return f"{share} (handed to somebody else, or dropped): totals and rates are too low by as much"


def _clock(answer: Answer) -> float:
    return answer.head.scraped_at or 0.0
