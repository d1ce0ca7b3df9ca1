"""Idle time of the GPU as the engine itself tells it: how long it computed, of the time in which there was work."""

from __future__ import annotations

from pytest_llmroof.analysis.busytime import is_bound
from pytest_llmroof.analysis.constants import threshold
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.sources import clock_error, sources
from pytest_llmroof.telemetry.window import Window


def observed_by_engine(facts: WindowFacts) -> Observed | None:
    """Idle time between steps as a share of the loaded time; None where the engine does not tell it, or not soundly.

    Of gaps within steps it tells nothing: a forward pass is timed from its first kernel to its last one.
    The whole window's mean: prefill steps, which keep a GPU busier, are in there. Where only an interval of the loaded
    time is known the share is the least that it can be. Pipeline stages idle in bubbles, which are another cause.
    """
    window = facts.window
    computed, loaded = _of_all(window, "forward_seconds"), _loaded_seconds(facts)
    if computed is None or loaded is None or facts.deployment.pipeline_parallel > 1:
        return None
    seconds, quantities = loaded
    idle = 1 - computed / seconds
    if idle < -(threshold("impossible_excess") + clock_error(facts)):
        return None  # more than all of the time: these seconds are of something else
    source = sources(window, "forward_seconds", *quantities)
    return Observed(source=source, by="engine", idle_between=max(0.0, idle))


def _loaded_seconds(facts: WindowFacts) -> tuple[float, tuple[str, ...]] | None:
    """The time in which the engines had work, summed over them, and what tells it. None where only a bound is known."""
    timed = _of_all(facts.window, "timed_step_seconds")
    if timed:
        return timed, ("timed_step_seconds",)
    busy = facts.busy
    if busy is None or is_bound(busy) or facts.window.since_start or busy.seconds.low <= 0:
        return None
    told = _of_all(facts.window, "unloaded_seconds") is not None
    return busy.seconds.low * len(facts.window.engines), ("unloaded_seconds",) if told else ()


def _of_all(window: Window, counter: str) -> float | None:
    """A counter over all engines, None unless each of them has it."""
    values = [engine.counters.get(counter) for engine in window.engines]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
