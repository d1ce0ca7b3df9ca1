"""Metrics of a part of the time: idle time, communication and the clock are explained by their own cause.

A window that lost most of its time to slow kernels may still breach a limit on its idle time, and that is the host's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pytest_llmroof.analysis.attribution import Attribution, Cause, Share
from pytest_llmroof.analysis.clocks import slowest
from pytest_llmroof.analysis.constants import threshold
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.findings import Finding, named, too_little_load
from pytest_llmroof.analysis.losses import candidates, losses
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.scenarios import without_scenario

#: The shares of the time that a family's metrics measure, and the scenario that explains the first of them.
PARTS: Final[Mapping[Family, tuple[tuple[Cause, ...], str]]] = {
    "idle": (("idle: within steps", "idle: between steps"), "D"),
    "communication": (("exposed communication: transport", "exposed communication: waiting"), "C"),
}


def of_part(facts: WindowFacts, split: Attribution | None, of: Family, observed: Observed | None) -> Finding:
    """What explains the idle time or the communication of a window, however small a part of its time that is."""
    waited = observed.waited if observed is not None and of == "communication" else 0.0
    part = _within(split, PARTS[of][0], waited)
    if split is not None and part is not None:
        lost = losses(part, facts.deployment, observed)
        return named(candidates(lost), lost, split, observed)
    if of == "idle":
        return _without_idle_share(facts, observed)
    if observed is None or not observed.communication_known:
        return Finding((), "low")
    return Finding((), "medium", without_scenario("hidden" if observed.hidden_communication else "nothing_lost"))


def of_clock(facts: WindowFacts) -> Finding:
    """Why the clock is low, as far as the counters tell. It has no scenario."""
    low = slowest(facts)
    if low is None:
        return Finding((), "low")
    if not low.lowered:
        return Finding((), "medium", without_scenario("clock_full"))
    if low.cause is None:
        return Finding((), "low", without_scenario("clock"))
    return Finding((), "medium", without_scenario(f"clock_{low.cause}"))


def _without_idle_share(facts: WindowFacts, observed: Observed | None) -> Finding:
    """Idle time that is no share of the steps: for want of requests, or of a pipeline, or none under load."""
    if observed is not None and observed.idle_known:
        return Finding((), "medium", without_scenario("nothing_lost"))
    if (found := too_little_load(facts)) is not None:
        return found
    # A stage without work waits for another one, or for its host.
    return Finding(("C", "D"), "low") if facts.deployment.pipeline_parallel > 1 else Finding((), "low")


def _within(split: Attribution | None, causes: tuple[Cause, ...], waited: float) -> Attribution | None:
    """The shares of some causes as a time of their own; None where they took none worth saying.

    With what others ``waited``, as a share of the step, where that is seen from the rank that they waited for.
    """
    if split is None:
        return None
    shares = [part for part in split.shares if part.cause in causes and part.share > 0]
    if waited:
        shares.append(Share("exposed communication: waiting", waited * split.seconds, waited, True, "other ranks"))
    seconds = sum(part.seconds for part in shares)
    if seconds < threshold("least_part") * split.seconds:
        return None
    return replace(split, seconds=seconds, shares=tuple(replace(one, share=one.seconds / seconds) for one in shares))
