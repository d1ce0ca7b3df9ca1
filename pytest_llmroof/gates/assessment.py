"""What is known of a window once it was read, measured, attributed, diagnosed and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Outcomes
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.roofline.deployment import Deployment


class Reasons:
    """Where a window's time went and why, worked out when somebody asks: a gate that holds needs neither.

    ``diagnoses`` has a diagnosis for each family of metrics (``decode``, ``prefill``, ``ttft``, ``window``, ``none``),
    for a breach is explained by the scenario of its own time; ``family`` is the window's own, None where nothing was
    measured.
    """

    def __init__(
        self, attribute: Callable[[], Attribution | None], diagnoses: Mapping[str, Diagnosis], family: str | None
    ) -> None:
        self._attribute = attribute
        self.diagnoses = diagnoses
        self.family = family

    @cached_property
    def attribution(self) -> Attribution | None:
        """The shares of the window's step, None where the sources do not tell."""
        return self._attribute()

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The window's own."""
        return self.diagnoses[self.family] if self.family is not None else None


#: Of a window that was not measured.
NONE: Reasons = Reasons(lambda: None, {}, None)


@dataclass(frozen=True)
class Assessment:
    """All that is known of a window. Everything but ``spec`` may be missing; ``failure`` then says why."""

    spec: WindowSpec
    deployment: Deployment
    facts: WindowFacts | None
    outcomes: Outcomes
    verdicts: tuple[Verdict, ...]
    failure: str | None = None
    reasons: Reasons = NONE

    @property
    def attribution(self) -> Attribution | None:
        """Where the time went."""
        return self.reasons.attribution

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Why the window is as it is."""
        return self.reasons.diagnosis

    @property
    def diagnoses(self) -> Mapping[str, Diagnosis]:
        """Why each family of its metrics is as it is."""
        return self.reasons.diagnoses
