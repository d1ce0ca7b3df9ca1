"""What a frontend and the engines behind it each count: the frontend's is judged, as clients see it; both are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.gather import known_of_all
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.tokens import finished_requests
from pytest_llmroof.telemetry.window import Window

_Measure = Callable[[WindowFacts, str], Outcome]


def at_servers(facts: WindowFacts, name: str, measure: _Measure) -> Outcome:
    """A metric as frontend and engines tell it: the frontend's where that is its to tell, the engines' beside it.

    Latencies of the frontend stand among the engines' own already; requests are an account of each.
    """
    front, lost = facts.window.front, facts.window.front_lost
    base = name.partition(".")[0]
    if base == "errors" and lost is not None and front is None:
        reason = f"{lost}; errors that it alone counted are in no engine's count"
        return NoData(name, reason, "measure over a time in which the frontend is there from end to end")
    if front is None or base not in front.prefer:
        return measure(facts, name)
    behind = measure(_of(facts, replace(facts.window, engines=front.own, front=None)), name)
    if base != "errors":
        before = measure(facts, name)
    else:
        before = measure(_of(facts, replace(facts.window, engines=(front.seen,), front=None)), name)
        if isinstance(before, NoData) and not front.seen.unusable:
            return behind
    if not isinstance(before, Measurement) or not isinstance(behind, Measurement) or before.source == behind.source:
        return before
    return replace(before, other=behind)


def _of(facts: WindowFacts, window: Window) -> WindowFacts:
    """The facts with the requests of other accounts."""
    window = known_of_all(window)
    return replace(facts, window=window, finished_requests=finished_requests(window))
