"""One window from its number to a verdict by each kind of evidence: what the matrices are counted from."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.floors import decode_costs
from pytest_llmroof.analysis.measurement import Impossible, Measurement
from pytest_llmroof.analysis.scenarios import without_scenario
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.roofline.cost import floor
from simulator.assessed import EVIDENCE, Evidence, assessed, write
from simulator.draw import draw
from simulator.judged import Expected, Found, expected
from simulator.plan import Plan
from simulator.scheduler import simulate


@dataclass(frozen=True)
class Outcome:
    """A simulated window, what is true of it, and what was said."""

    plan: Plan
    expected: Expected
    found: dict[Evidence, Found]


def measured(seed: int) -> Outcome:
    """Simulate a window, write its files to a folder of its own, and have them read."""
    drawn = draw(seed)
    run = simulate(drawn.plan, drawn.typical)
    truth = expected(run)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write(run, folder)
        found = {kind: found_in(assessed(run, files, kind, folder), truth) for kind in EVIDENCE}
    return Outcome(drawn.plan, truth, found)


def _ends(assessment: Assessment, family: str) -> tuple[float, float]:
    """The ends of what is known of the floor, over its value: of a step by its batch and context.

    Experts are routed evenly here, which is the product's value, too: that they may not be excuses nothing.
    """
    if family == "prefill":
        outcome = assessment.outcomes.get("prefill.mfu")
        if not isinstance(outcome, Measurement) or outcome.value <= 0:
            return 1.0, 1.0
        return outcome.bounded.low / outcome.value, outcome.bounded.high / outcome.value
    facts = assessment.facts
    if facts is None or facts.decode is None:
        return 1.0, 1.0
    costs = decode_costs(facts.deployment, facts.decode)
    floors = {end: one.seconds for end, cost in costs.items() if (one := floor(facts.deployment, cost)) is not None}
    return floors["low"] / floors["value"], floors["high"] / floors["value"]


def _open_floor(attribution: Attribution | None) -> float:
    """What of the time is said to be a floor, or something else: that of prompts, or that of all the work."""
    if attribution is None:
        return 0.0
    if not attribution.share("memory floor: weights", "memory floor: KV", "compute floor"):
        return attribution.share("not attributed")
    return sum(part.share for part in attribution.shares if part.maybe & {"prompts' floor", "cache reads"})


def found_in(assessment: Assessment, truth: Expected) -> Found:
    """What an assessment says of the time that is asked for."""
    if assessment.failure is not None:
        return Found(None, (), "low", "", (), None, (1.0, 1.0), 0.0, False, (), assessment.failure)
    diagnosis = assessment.diagnoses[truth.family]
    attribution = assessment.attribution
    own = attribution is not None and attribution.of == ("prefill" if truth.family == "prefill" else "decode step")
    shares: dict[str, float] = {}
    for part in attribution.shares if attribution is not None else ():
        shares[part.cause] = shares.get(part.cause, 0.0) + part.share
    return Found(
        diagnosis.scenario,
        diagnosis.candidates,
        diagnosis.confidence,
        diagnosis.title,
        assessment.diagnoses["ttft"].candidates,
        shares if own else None,
        _ends(assessment, truth.family),
        _open_floor(attribution),
        diagnosis.title == without_scenario("clock"),
        tuple(name for name, outcome in assessment.outcomes.items() if isinstance(outcome, Impossible)),
        None,
    )
