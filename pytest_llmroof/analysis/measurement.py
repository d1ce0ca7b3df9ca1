"""What a metric's measurement comes out as: a value with its interval and source, no data, or a contradiction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.units import Unit

View = Literal["client", "server"]


@dataclass(frozen=True)
class Alternative:
    """The value that a metric would have if an unconfirmed assumption were wrong: ``weights = fp8 (assumed bf16)``."""

    assumption: str
    value: float


@dataclass(frozen=True)
class Measurement:
    """A metric's value, in ``unit``, with the interval it lies in, where it came from and how it is defined.

    ``judged_by`` says what decides a gate: ``value`` (the limit inside the interval makes the verdict approximate), or
    ``bounds`` (the value is one end of the interval: a limit inside it cannot be decided, ``undecided`` says why and
    what would). ``settle`` says what would narrow the interval. ``achievable`` is the fraction of the same peak that
    real kernels reach, for utilisations. ``samples`` counts observations (requests, steps, scrapes). ``bucketed``: the
    ends of the interval are bounds of a histogram's buckets, so that a limit on one of them is decided exactly.
    """

    metric: str
    bounded: Bounded
    unit: Unit
    source: str
    method: str
    samples: int | None = None
    achievable: float | None = None
    judged_by: Literal["value", "bounds"] = "value"
    undecided: str | None = None
    settle: AnyAdvice | None = None
    alternatives: tuple[Alternative, ...] = ()
    bucketed: bool = False
    other: Measurement | None = None
    """The same metric as another source has it, which is not judged: a server's view beside its client's."""
    repeats: tuple[float, ...] = ()
    """Where the window was taken several times: the value of each, of which this one is the median."""
    view: View | None = None
    """Whose figure it is, of what both see; None of what only one can."""
    doubted: str | None = None
    """Why the figure itself is in doubt though its interval is not: it makes every verdict approximate."""

    @property
    def value(self) -> float:
        """The figure that reports print."""
        return self.bounded.value

    @property
    def low(self) -> float:
        """The low end of the interval."""
        return self.bounded.low

    @property
    def high(self) -> float:
        """The high end of the interval; infinite where nothing bounds it."""
        return self.bounded.high


@dataclass(frozen=True)
class NoData:
    """The metric cannot be measured from these sources. ``remedy`` says what to collect."""

    metric: str
    reason: str
    remedy: AnyAdvice | None = None


@dataclass(frozen=True)
class Impossible:
    """The inputs contradict each other. ``reason`` shows the implied figure, ``check`` which inputs to look at."""

    metric: str
    reason: str
    check: str
    implied: float | None = None


Outcome = Measurement | NoData | Impossible
Outcomes = Mapping[str, Outcome]
