"""Everything that was observed of a window's time, as one: what several sources tell is taken from the surest."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmroof.analysis.constants import counter_constant
from pytest_llmroof.analysis.engine_evidence import observed_by_engine
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware_evidence import observed_by_counters
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.profile_evidence import observed_by_profile


def observe(facts: WindowFacts) -> Observed | None:
    """What profiles, the engine and the GPUs' own counters observed; None where nothing did.

    A profile goes before the others, then the engine's own account, which goes before the counters for they are means
    over samples; what only the counters tell (idle time within steps, the clock, how the rest reads) stands beside it.
    """
    first = observed_by_profile(facts) or observed_by_engine(facts)
    counters = observed_by_counters(facts)
    if first is None or counters is None:
        return first or counters
    told = {"clock": counters.source_of("clock"), "rest": counters.source_of("rest")}
    within = first.idle_within
    if first.by == "engine" and counters.idle_between is not None:
        # The counters see all idle time, the engine that between its steps.
        within = max(0.0, counters.idle_between - (first.idle_between or 0.0))
        told["idle_within"] = f"{counters.source}, less what the engine tells of the time between steps"
    return replace(
        first,
        idle_within=within,
        clock=counters.clock,
        clock_cause=counters.clock_cause,
        # What a profile saw itself needs no reading of counters.
        rest=None if first.communication_known else counters.rest,
        signs=(*first.signs, *counters.signs),
        ranks=first.ranks if first.by == "profile" else counters.ranks,
        sources={**first.sources, **told},
    )


def idle_note(facts: WindowFacts) -> str | None:
    """Both figures of idle time, where the engine's and the counters' differ by more than a little."""
    engine, counters = observed_by_engine(facts), observed_by_counters(facts)
    if engine is None or counters is None or engine.idle_between is None or counters.idle_between is None:
        return None
    first, second = engine.idle_between, counters.idle_between
    if not differ(first, second):
        return None
    used = ": the rest lies within steps" if second > first else ", and the engine's figure is used"
    return (
        f"idle time under load is {first * 100:.0f} % by the engine's own account ({engine.source}), which tells of "
        f"that between steps, and {second * 100:.0f} % by the GPUs' counters ({counters.source}){used}"
    )


def differ(first: float, second: float) -> bool:
    """Whether two figures of one share are worth showing both."""
    apart = abs(first - second)
    return apart > counter_constant("least_difference") and apart > counter_constant("differs") * max(first, second)
