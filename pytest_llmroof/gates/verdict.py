"""The verdict on a gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.analysis.measurement import Outcome
from pytest_llmroof.gates.baseline import Baseline
from pytest_llmroof.gates.gate import Gate

Word = Literal["pass", "fail", "inconclusive", "no data", "impossible", "not judged", "not run"]


@dataclass(frozen=True)
class Verdict:
    """How a gate came out.

    ``value``, ``limit`` (in the metric's unit) and ``margin`` are None where nothing was measured. ``margin`` is the
    signed distance to the limit as a fraction: absolute for metrics that are fractions (-0.337: 33.7 points short),
    relative to the limit for others; negative is a breach. ``supported`` is the limit that this window would support
    (low end of the interval less 5 %; for ``<=`` gates the high end plus 5 %). ``because`` explains everything that is
    not a plain pass or fail: why there is no data, what contradicts what, what is not exact enough. ``advice`` is what
    to do about it: how to get the data, which inputs to check, what would settle the interval or what nobody confirmed.
    ``unconfirmed`` names the facts of the deployment that were assumed, and would turn the verdict if they were wrong.
    ``baseline`` is what the limit was made from, where the gate hangs on one.
    """

    gate: Gate
    word: Word
    outcome: Outcome | None
    value: float | None = None
    limit: float | None = None
    margin: float | None = None
    approximate: bool = False
    supported: float | None = None
    because: str | None = None
    advice: tuple[AnyAdvice, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    baseline: Baseline | None = None

    @property
    def reason(self) -> str | None:
        """Why, and what to do, with its commands."""
        return "; ".join(filter(None, (self.because, self._advised))) or None

    @property
    def settle(self) -> str | None:
        """What would settle an approximate verdict."""
        return self._advised if self.approximate else None

    @property
    def _advised(self) -> str | None:
        return "; ".join(map(str, self.advice)) or None
