"""A window that was read: measured, its time accounted for, and a diagnosis for whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, get_args

from pytest_llmroof.analysis.added_scenarios import with_added
from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Outcomes
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.observing import observe
from pytest_llmroof.gates.assessment import Reasons
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.profiles.profile import Profile
from pytest_llmroof.resolve import with_telemetry
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.window import SourceInfo, Window

FAMILIES: Final[tuple[Family, ...]] = get_args(Family)
_FAMILY: Final[Mapping[str, Family]] = {family: family for family in FAMILIES}


@dataclass(frozen=True)
class Measured:
    """A window that was read and measured, before any gate is judged."""

    facts: WindowFacts
    outcomes: Outcomes
    reasons: Reasons


def measure_window(
    window: Window, deployment: Deployment, spec: WindowSpec, profile: Profile | None = None
) -> Measured:  # fmt: skip
    """Measure, attribute and diagnose a window that was read, with what profiles of it tell."""
    if profile is not None:
        window = _profiled(window, profile)
    facts = gather(window, with_telemetry(deployment, window, spec), spec.phase, profile)
    outcomes = measure(facts)
    return Measured(facts, outcomes, _reasons(facts, outcomes, _tpot_limit(spec.gates, facts)))


def _profiled(window: Window, profile: Profile) -> Window:
    """The window with its profiles among what was read, and what was not."""
    return replace(
        window,
        sources=(*window.sources, *(SourceInfo(kind, location) for kind, location in profile.sources)),
        unread=(*window.unread, *(refused.line for refused in profile.refused)),
        device_names=tuple(dict.fromkeys((*window.device_names, *profile.device_names))),
    )


def _reasons(facts: WindowFacts, outcomes: Outcomes, tpot_limit_seconds: float | None) -> Reasons:
    """Where the time went and why, for whoever asks."""

    @cache
    def observed() -> Observed | None:
        return observe(facts)

    @cache
    def attribution() -> Attribution | None:
        return attribute(facts, outcomes, observed())

    def of(family: Family) -> Diagnosis:
        limit = tpot_limit_seconds
        found = diagnose(facts, outcomes, attribution(), family, tpot_limit_seconds=limit, observed=observed())
        return with_added(found, facts, outcomes, attribution)

    return Reasons(attribution, Diagnoses(of), _family_of_phase(facts))


class Diagnoses(Mapping[str, Diagnosis]):
    """A diagnosis for each family, made when somebody asks for it: a gate that holds needs none."""

    def __init__(self, diagnose_family: Callable[[Family], Diagnosis]) -> None:
        self._diagnose = diagnose_family
        self._known: dict[str, Diagnosis] = {}

    def __getitem__(self, family: str) -> Diagnosis:
        if family not in self._known:
            self._known[family] = self._diagnose(_FAMILY[family])
        return self._known[family]

    def __contains__(self, family: object) -> bool:
        return family in FAMILIES

    def __iter__(self) -> Iterator[str]:
        return iter(FAMILIES)

    def __len__(self) -> int:
        return len(FAMILIES)


def _tpot_limit(gates: tuple[Gate, ...], facts: WindowFacts) -> float | None:
    """The tightest limit on the time between tokens: a larger batch may not go beyond it."""
    tokens = facts.decode.tokens_per_step if facts.decode else 1.0
    limits = [
        gate.limit.value / (tokens if gate.metric == "decode.step_time" else 1.0)
        for gate in gates
        if gate.metric.startswith(("tpot.", "itl.", "decode.step_time"))
        and gate.operator in ("<=", "<")
        and gate.limit.kind == "absolute"
    ]
    return min(limits, default=None)


def _family_of_phase(facts: WindowFacts) -> Family:
    return "prefill" if facts.phase == "prefill" else "decode"
