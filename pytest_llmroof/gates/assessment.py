"""What is known of a window once it was read, measured, attributed, diagnosed and judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Outcomes
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.roofline.deployment import Deployment


@dataclass(frozen=True)
class Assessment:
    """All that is known of a window. Everything but ``spec`` may be missing; ``failure`` then says why.

    ``diagnosis`` is the window's; ``diagnoses`` has one for each family of metrics (``decode``, ``prefill``, ``ttft``,
    ``window``) that a gate of the window measures, for a breach is explained by the scenario of its own time.
    """

    spec: WindowSpec
    deployment: Deployment
    facts: WindowFacts | None
    outcomes: Outcomes
    attribution: Attribution | None
    diagnosis: Diagnosis | None
    verdicts: tuple[Verdict, ...]
    failure: str | None = None
    diagnoses: Mapping[str, Diagnosis] = field(default_factory=dict)
