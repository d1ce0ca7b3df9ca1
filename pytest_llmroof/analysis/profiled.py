"""Which part of a window's profiles speaks for it: of every device the steps of the window's phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_llmroof.advice import AnyAdvice, behind
from pytest_llmroof.analysis.communication import communicates
from pytest_llmroof.analysis.devices import degree_confirmed
from pytest_llmroof.analysis.hardware_serving import degree_known
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.analysis.vendors import profile_wanted, vendor_of
from pytest_llmroof.profiles.profile import Profile

if TYPE_CHECKING:
    from pytest_llmroof.analysis.facts import Phase, WindowFacts
    from pytest_llmroof.profiles.figures import Shares, StepFigures, TimelineFigures


@dataclass(frozen=True)
class Part:
    """One device's figures, and the typical steps among them; None where steps could not be told apart."""

    figures: TimelineFigures
    steps: StepFigures | None

    @property
    def shares(self) -> Shares:
        """How the typical step, else the whole recording, was spent."""
        return self.steps.shares if self.steps is not None else self.figures.whole


@dataclass(frozen=True)
class Silent:
    """Why the profiles say nothing of the window, and what would."""

    reason: str
    remedy: AnyAdvice | None


def parts(facts: WindowFacts) -> tuple[Part, ...] | Silent:
    """The part of every device that was profiled; why there is none, where profiles were given."""
    profile, wanted = facts.profile, profile_wanted(vendor_of(facts))
    if profile is None:
        return Silent("no profile is among the telemetry", wanted)
    if not profile.timelines:
        return _nothing(profile, wanted)
    sound = [one for one in profile.timelines if one.abstain is None]
    if not sound:
        return Silent(profile.timelines[0].abstain or "the profile tells nothing", wanted)
    if degree_known(facts.deployment) and not communicates(facts.deployment):
        sound = [_alone(one) for one in sound]
    found = [_part(one, facts.phase) for one in sound]
    chosen = tuple(part for part in found if part is not None)
    if not chosen:
        seen = " and ".join(sorted({str(phase) for one in sound for phase in one.steps if phase is not None}))
        return Silent(
            f"{source_of(sound)} holds {seen} steps only, and the window is a {facts.phase} one",
            behind(f"profile a few steps of {facts.phase}: ", wanted),
        )
    return chosen


def alone(facts: WindowFacts, figures: Sequence[TimelineFigures]) -> bool:
    """Whether each replica is known to have one GPU: by what was said, or by counters, and no profile shows others."""
    if communicates(facts.deployment) or not (degree_known(facts.deployment) or degree_confirmed(facts)):
        return False
    return all(one.collective is None and (one.world_size or 1) == 1 for one in figures)


def profiled_phase(profile: Profile | None) -> Phase | None:
    """The phase that nearly all of the profiled time is of; None where annotations do not tell."""
    time: dict[Phase, float] = {}
    for one in profile.timelines if profile is not None else ():
        for phase, steps in one.steps.items():
            if phase is not None:
                time[phase] = time.get(phase, 0.0) + steps.count * steps.median_seconds
    most = max(time, key=lambda phase: time[phase], default=None)
    if most is None:
        return None
    return most if time[most] >= threshold("decode_only") * sum(time.values()) else "mixed"


def source_of(figures: Sequence[TimelineFigures]) -> str:
    """The files by name: ``rank0.json, rank1.json and 2 more``."""
    names = list(dict.fromkeys(one.location for one in figures))
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _part(figures: TimelineFigures, phase: Phase) -> Part | None:
    """The steps of a phase; all of them in a mixed window, and where nothing tells of what kind they are."""
    told = any(key is not None for key in figures.steps)
    if not told or phase == "mixed":
        return Part(figures, figures.steps.get(None))
    steps = figures.steps.get(phase)
    return Part(figures, steps) if steps is not None else None


def _alone(figures: TimelineFigures) -> TimelineFigures:
    """The figures of a GPU that serves the model alone: graph replays that were recorded whole hide no communication.

    Unless the recording itself shows some, or a larger world: then what was said of the server is of another one.
    """
    if figures.whole.exposed is not None or figures.collective is not None or (figures.world_size or 1) > 1:
        return figures
    steps = {phase: replace(one, shares=_without_communication(one.shares)) for phase, one in figures.steps.items()}
    return replace(figures, whole=_without_communication(figures.whole), steps=steps)


def _without_communication(shares: Shares) -> Shares:
    return replace(shares, communication=0.0, exposed=0.0, transport=0.0, waiting=0.0, hidden=0.0)


def _nothing(profile: Profile, wanted: AnyAdvice) -> Silent:
    """Why no timeline was read."""
    timelines = [one for one in profile.refused if not one.file.kind.startswith("ncu")]
    if timelines:
        first = timelines[0]
        return Silent(first.reason, first.remedy or wanted)
    if profile.summaries:
        refusal = profile.summaries[0].refusal()
        return Silent(refusal.reason, refusal.remedy)
    return Silent(
        f"{', '.join(file.location for file in profile.read)} holds no timeline: kernels one by one", wanted
    )
