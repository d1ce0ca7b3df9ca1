"""What a user asks of a Prometheus-compatible server: which series, and of what time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pytest_llmroof.telemetry.promql import matchers, milliseconds
from pytest_llmroof.units import parse_quantity


@dataclass(frozen=True)
class Question:
    """What a user asks of a server: the series that ``selector`` (label matchers) chooses, from ``start`` to ``end``.

    Times are Unix seconds.
    """

    selector: str
    start: float
    end: float

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.start

    @property
    def range(self) -> str:
        """The range of a range selector that reads the whole window."""
        return milliseconds(self.duration)


def end_of(text: str, now: Callable[[], float] = time.time) -> float:
    """Unix seconds of ``now``, ``now-24h``, Unix seconds or RFC 3339 with a zone, as gate files have it."""
    if text == "now":
        return now()
    if text.startswith("now-"):
        return now() - parse_quantity(text.removeprefix("now-")).value
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()


def utc(seconds: float) -> str:
    """A time as people and Prometheus write it."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def question_of(
    selector: str,
    *,
    duration: float,
    end: str,
    now: Callable[[], float] = time.time,
) -> Question:
    """The question for a selector as it was written. ConfigError where that is none."""
    until = end_of(end, now)
    return Question(matchers(selector), until - duration, until)
