"""A diagnosis: the scenario, the evidence for it and against its rivals, what is missing, and remedies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_llmroof.advice import AnyAdvice

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Evidence:
    """One statement that speaks for (``supports``) or against a scenario, with its source."""

    scenario: str
    supports: bool
    statement: str
    source: str


@dataclass(frozen=True)
class Remedy:
    """What to do, and the effect that the roofline predicts for this deployment.

    ``effect`` is for people; ``metric`` is the gate's value it moves, ``low``/``high`` its range afterwards in the
    metric's unit (None where no figure can be given).
    """

    title: str
    detail: str
    effect: str
    metric: str | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Diagnosis:
    """``scenario`` is a letter, ``"C or D"``, or None (nothing to name); ``candidates`` its letters.

    ``of`` is the metric family that it explains: ``decode``, ``prefill``, ``ttft``, ``window``.
    ``missing`` lists what would tell the candidates apart, each with the advice that gives it.
    """

    scenario: str | None
    candidates: tuple[str, ...]
    title: str
    regime: str | None
    confidence: Confidence
    of: str
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    missing: tuple[AnyAdvice, ...] = ()
    words: str = ""
    """What a scenario of another plugin means, for somebody who does not know GPUs."""
