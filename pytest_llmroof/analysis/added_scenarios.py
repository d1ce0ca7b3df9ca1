"""Scenarios and remedies of other plugins: asked after the package's own diagnosis, which they complete or replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeVar, get_args

from pytest_llmroof import extend
from pytest_llmroof.analysis.added import packaged_metric
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnosis import Confidence, Diagnosis, Evidence, Remedy
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Outcomes
from pytest_llmroof.analysis.views import view_of
from pytest_llmroof.foreign import Raised, called

_T = TypeVar("_T")
#: Which attributed time a family's diagnosis is of; those of windows take what there is.
_SPLIT: Final = {"decode": "decode step", "prefill": "prefill", "ttft": "ttft"}


@dataclass(frozen=True)
class AddedScenario:
    """A scenario of a plugin, under its key."""

    key: str
    scenario: extend.Scenario
    plugin: str


@dataclass(frozen=True)
class AddedRemedy:
    """A remedy that a plugin adds to a scenario of the package."""

    letter: str
    remedy: extend.Remedy
    plugin: str


@dataclass
class _Known:
    scenarios: tuple[AddedScenario, ...] = ()
    remedies: tuple[AddedRemedy, ...] = ()


_KNOWN: Final = _Known()


def set_scenarios(scenarios: tuple[AddedScenario, ...], remedies: tuple[AddedRemedy, ...]) -> None:
    """Know these, and no others."""
    _KNOWN.scenarios, _KNOWN.remedies = scenarios, remedies


def added_scenarios() -> tuple[AddedScenario, ...]:
    """The scenarios that are known now, for lists."""
    return _KNOWN.scenarios


def with_added(
    diagnosis: Diagnosis, facts: WindowFacts, outcomes: Outcomes, attribution: Callable[[], Attribution | None]
) -> Diagnosis:
    """The diagnosis with what other plugins know of this window; what fails of theirs is said among what is missing."""
    if not _KNOWN.scenarios and not _KNOWN.remedies:
        return diagnosis
    seen = _Seen(diagnosis, facts, outcomes, attribution())
    for added in _KNOWN.scenarios:
        found = seen.asked(added.plugin, f"the condition of {added.key}", added.scenario.condition, None)
        if found is None:
            continue
        if isinstance(found, extend.Found) and found.confidence in get_args(Confidence):
            return seen.instead(added, found)
        seen.failed(added.plugin, f"the condition of {added.key}", f"gave {type(found).__name__}, not Found or None")
    letters = (diagnosis.scenario or "").split(" or ")
    further = [one for one in _KNOWN.remedies if one.letter in letters]
    return seen.with_remedies(diagnosis, [(one.plugin, one.remedy) for one in further])


class _Seen:
    """One diagnosis as plugins see it, and what went wrong in their functions."""

    def __init__(
        self, diagnosis: Diagnosis, facts: WindowFacts, outcomes: Outcomes, attribution: Attribution | None
    ) -> None:
        self.diagnosis = diagnosis
        self._window = view_of(facts, lambda name: packaged_metric(name, outcomes.__getitem__))
        of_time = attribution is not None and attribution.of == _SPLIT.get(diagnosis.of, attribution.of)
        shares: dict[str, float] = {}
        for part in attribution.shares if attribution is not None and of_time else ():
            shares[part.cause] = shares.get(part.cause, 0.0) + part.share
        self._view = extend.DiagnosisView(
            diagnosis.of, diagnosis.scenario, diagnosis.title, diagnosis.confidence, MappingProxyType(shares)
        )
        self._failures: list[str] = []

    def asked(
        self, plugin: str, what: str, function: Callable[[extend.WindowView, extend.DiagnosisView], _T], otherwise: _T
    ) -> _T:
        """What a plugin's function gives; ``otherwise`` where it fails."""
        given = called(function, self._window, self._view)
        if not isinstance(given, Raised):
            return given
        self.failed(plugin, what, f"raised {given.said}")
        return otherwise

    def failed(self, plugin: str, what: str, problem: str) -> None:
        """Keep a failure for whoever reads the diagnosis."""
        self._failures.append(f"{what} in {plugin} {problem}")

    def instead(self, added: AddedScenario, found: extend.Found) -> Diagnosis:
        """The plugin's scenario in place of the package's, which stays a candidate with its evidence."""
        evidence = Evidence(added.key, True, str(found.statement), str(found.source))
        named = replace(
            self.diagnosis,
            scenario=added.key,
            candidates=(added.key, *self.diagnosis.candidates),
            title=added.scenario.title,
            confidence=found.confidence,
            evidence=(evidence, *self.diagnosis.evidence),
            remedies=(),
            words=added.scenario.words,
        )
        return self.with_remedies(named, [(added.plugin, remedy) for remedy in added.scenario.remedies])

    def with_remedies(self, diagnosis: Diagnosis, remedies: list[tuple[str, extend.Remedy]]) -> Diagnosis:
        """The diagnosis with those remedies that apply behind its own."""
        fitting = [Remedy(one.title, one.detail, one.effect) for plugin, one in remedies if self._applies(plugin, one)]
        return replace(
            diagnosis,
            remedies=tuple(dict.fromkeys((*diagnosis.remedies, *fitting))),
            missing=(*diagnosis.missing, *self._failures),
        )

    def _applies(self, plugin: str, remedy: extend.Remedy) -> bool:
        if remedy.applies is None:
            return True
        return self.asked(plugin, f"`applies` of {remedy.title!r}", remedy.applies, False) is True
