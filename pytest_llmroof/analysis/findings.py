"""Findings: which scenario a window's time speaks for, asked in the order in which scenarios rule each other out."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmroof.analysis.admission import Saturation, idleness, saturation
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.constants import reach, threshold
from pytest_llmroof.analysis.diagnosis import Confidence
from pytest_llmroof.analysis.evidence import measured
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.losses import (
    Losses,
    candidates,
    clock_unknown,
    late_rank_possible,
    losses,
    only_work,
)
from pytest_llmroof.analysis.measurement import Outcomes
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.scenarios import combined_name, combined_title, scenarios, without_scenario

_WEAKER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low"}


@dataclass(frozen=True)
class Finding:
    """What was found: the letters it may be (none: nothing to name), how sure, and a title where it needs its own."""

    letters: tuple[str, ...]
    confidence: Confidence
    title: str | None = None
    cause: Saturation | None = None


def too_little_load(facts: WindowFacts, whole: bool = False) -> Finding | None:
    """G: the window was mostly without requests; ``whole``: with what lies around a benchmark."""
    idle = idleness(facts, whole)
    if facts.idle or (idle is not None and idle.share > threshold("idle_window")):
        return Finding(("G",), "medium")
    return None


def queued(facts: WindowFacts, ttft: Attribution | None) -> Finding | None:
    """E: the queue is the largest share of the time to first token; with its cause where samples tell."""
    if ttft is None:
        return None
    queue = ttft.share("queue")
    if not queue or queue < max(part.share for part in ttft.shares):
        return None
    cause = saturation(facts)
    # Where prefill fills the steps, compute-bound prefill is the cause and the queue its symptom.
    letters = ("E", "B") if cause is not None and cause.cause == "compute" else ("E",)
    return Finding(letters, "medium", _admission_title(cause), cause)


def saturated(facts: WindowFacts) -> Finding | None:
    """E for what measures admission itself (cache, waiting requests): the cache or the slots are full."""
    cause = saturation(facts)
    if cause is None or cause.cause == "compute":
        return None
    return Finding(("E",), "medium", _admission_title(cause), cause)


def near_memory_roof(facts: WindowFacts, outcomes: Outcomes, attribution: Attribution) -> Finding | None:
    """A: the memory floor binds, and the step comes near to what memory reaches."""
    decode = facts.decode
    if decode is None or decode.floor is None or not decode.floor.memory_bound or facts.deployment.accelerator is None:
        return None
    limit = _limit("memory_bound_mbu", reach(facts.deployment.accelerator, "memory")[0])
    mbu = measured(outcomes, "decode.mbu")
    value = mbu.value if mbu else attribution.share("memory floor: weights", "memory floor: KV")
    if value <= limit:
        return None
    certain = mbu is not None and mbu.bounded.low > limit
    return Finding(("A",), "medium" if certain else "low")


def interleaved(attribution: Attribution) -> Finding | None:
    """B in a decode step: other requests' prefill is its largest share."""
    share = attribution.share("interleaved prefill")
    if not share or share < max(part.share for part in attribution.shares):
        return None
    return Finding(("B",), "medium")


def near_compute_roof(facts: WindowFacts, outcomes: Outcomes, attribution: Attribution) -> Finding | None:
    """Prefill near the compute roof is B; decode near it is a regime without a scenario."""
    if attribution.of == "decode step":
        return _compute_bound_decode(facts, attribution)
    accelerator = facts.deployment.accelerator
    if accelerator is None or attribution.share("compute floor") <= attribution.share("memory floor: weights"):
        return None
    if facts.prefill_share is not None and facts.prefill_share < threshold("prefill_majority"):
        return None
    eta = reach(accelerator, facts.deployment.compute)[0]
    mfu = measured(outcomes, "prefill.mfu")
    by_mfu = mfu is not None and mfu.value > threshold("compute_bound_mfu")
    by_floor = attribution.share("compute floor") >= threshold("near_achievable") * eta
    if not by_mfu and not by_floor:
        return None
    certain = by_floor or (mfu is not None and mfu.bounded.low > threshold("compute_bound_mfu"))
    return Finding(("B",), "medium" if certain else "low")


def first_token(facts: WindowFacts, ttft: Attribution) -> Finding | None:
    """Of the time to first token that is not queueing: prefill near the roof is B, the front end has no scenario."""
    if ttft.share("front end") >= max(part.share for part in ttft.shares):
        return Finding((), "medium", without_scenario("front_end"))
    prefill = ttft.share("other requests' prefill", "compute floor", "kernel ceiling")
    if ttft.share("compute floor") and prefill >= threshold("prefill_majority"):
        # What others' prompts take is not known to be near the roof; one's own is.
        own = ttft.share("compute floor", "kernel ceiling")
        return Finding(("B",), "medium" if own >= ttft.share("other requests' prefill") else "low")
    return None


def largest_loss(facts: WindowFacts, attribution: Attribution, observed: Observed | None) -> Finding:
    """C, D or F by the largest lost share; several where nothing tells them apart; none where little is lost.

    A clock that heat lowered is nobody's scenario, and still the cause where it took most.
    """
    lost = losses(attribution, facts.deployment, observed)
    clock = attribution.share("clock")
    most = max((lost.at_most(letter) for letter in lost.letters), default=0.0)
    if clock >= threshold("lost_share") and clock >= threshold("lost_lead") * most:
        return Finding((), "medium", without_scenario("clock"))
    letters = candidates(lost)
    if not letters:
        known = not attribution.share("not attributed") or (observed is not None and only_work(attribution, observed))
        return Finding((), "medium" if known else "low", without_scenario("nothing_lost"))
    return named(letters, lost, attribution, observed)


def named(letters: tuple[str, ...], lost: Losses, attribution: Attribution, observed: Observed | None) -> Finding:
    """The letters of a loss, and how sure they are by what saw it."""
    if observed is None or (len(letters) == 1 and letters[0] in lost.estimated):
        return Finding(letters, "low")
    by_profile = observed.by == "profile" and all(observed.sees(letter) for letter in letters)
    confidence: Confidence = "high" if by_profile else "medium"
    if len(letters) > 1:
        confidence = "low" if lost.pools else "medium"
    # Of one rank the tenth percentile of many alike collectives is the transfer, which leaves out a rank that is late
    # at times. The shortest of one collective over some of the ranks holds all waiting for another one.
    if confidence == "high" and "C" in letters and observed.ranks > 1 and late_rank_possible(attribution, observed):
        confidence = "medium"
    if confidence == "high" and clock_unknown(letters, attribution, observed):
        confidence = "medium"
    if observed.distortions or observed.mismatch(attribution.step_seconds) > threshold("step_mismatch"):
        confidence = _WEAKER[confidence]
    return Finding(letters, confidence, _waiting_title(letters, attribution, observed))


def _waiting_title(letters: tuple[str, ...], attribution: Attribution, observed: Observed) -> str | None:
    """Where ranks wait for one of them more than for the links, the title says so: better links would not help."""
    waiting = attribution.share("exposed communication: waiting")
    if waiting <= attribution.share("exposed communication: transport") or not set(letters) & {"C", "D"}:
        return None
    causes = scenarios()["C"].causes
    if observed.waiting_cause is None:
        return f"{combined_title(combined_name(letters))} ({causes['straggler']})" if len(letters) > 1 else None
    return f"{scenarios()['C'].title} ({causes[observed.waiting_cause]})" if letters == ("C",) else None


def _compute_bound_decode(facts: WindowFacts, attribution: Attribution) -> Finding | None:
    accelerator = facts.deployment.accelerator
    share = attribution.share("compute floor")
    if accelerator is None:
        return None
    eta = reach(accelerator, facts.deployment.compute)[0]
    if share < threshold("near_achievable") * eta:
        return None
    return Finding((), "medium", without_scenario("compute_roof"))


def _limit(name: str, eta: float) -> float:
    """Near the roof: above the framework's threshold, or at nine tenths of what kernels reach."""
    return min(threshold(name), threshold("near_achievable") * eta)


def _admission_title(cause: Saturation | None) -> str | None:
    if cause is None:
        return None
    scenario = scenarios()["E"]
    return f"{scenario.title} ({scenario.causes[cause.cause]})"
