"""What is known of a window once it was read, measured, attributed, diagnosed and judged."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Outcomes
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.roofline.deployment import Deployment


@dataclass(frozen=True)
class Assessment:
    """All that is known of a window. Everything but ``spec`` may be missing; ``failure`` then says why."""

    spec: WindowSpec
    deployment: Deployment
    facts: WindowFacts | None
    outcomes: Outcomes
    attribution: Attribution | None
    diagnosis: Diagnosis | None
    verdicts: tuple[Verdict, ...]
    failure: str | None = None
