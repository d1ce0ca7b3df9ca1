"""What a gate that hangs on a baseline is held against, and why there may be nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pytest_llmroof.advice import Advice, AnyAdvice
from pytest_llmroof.bounded import Bounded


@dataclass(frozen=True)
class Baseline:
    """What earlier windows reached, in the metric's unit.

    ``value`` is their median, ``spread`` the standard deviation of their logarithms (None where they have none: a
    single window, or zeros), ``windows`` their number, ``low`` and ``high`` the least and the greatest. ``ratio`` is
    this window's value over the baseline's with its 95 % interval: a limit inside that noise cannot be told from the
    value. None where the noise is not known. ``reports`` names the files, the newest first; ``conditions`` say what was
    another there without ending the comparison (the hit rate, the batch, the replicas).
    """

    value: float
    windows: int = 1
    spread: float | None = None
    ratio: Bounded | None = None
    low: float | None = None
    high: float | None = None
    reports: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True)
class NoBaseline:
    """Why there is nothing to hold a gate against, and the command that changes it."""

    reason: str
    remedy: AnyAdvice


NONE_GIVEN: Final = NoBaseline(
    "no baseline: none was given",
    Advice(
        "keep a run's figures, and hold later runs against them",
        "pytest ... --llmroof-report=base/NAME.json, later pytest ... --llmroof-baseline=base",
    ),
)
