"""The batch that counters tell against the requests that gauges saw: samples settle nothing, but they may speak up."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.units import format_quantity


def gauge_notes(facts: WindowFacts) -> tuple[str, ...]:
    """A sentence where the batch, at its low end, is clearly more than the requests that any sample saw running.

    Only where the samples can speak: there are many, or the load was the same at both ends of the window.
    """
    return tuple(_batch_note(facts))


def _batch_note(facts: WindowFacts) -> Iterator[str]:
    seen = [series.values for engine in facts.window.engines if (series := engine.gauges.get("running")) is not None]
    if facts.decode is None or not seen or len(seen) < len(facts.window.engines):
        return
    most = max((max(values) for values in seen if values), default=0.0)
    batch = facts.decode.batch.low
    if most <= 0 or batch <= threshold("batch_over_running") * most or not all(map(_speaks, seen)):
        return
    name, samples = facts.window.source_name("running") or "running requests", min(map(len, seen))
    yield (
        f"batch {format_quantity(batch, 'count')} by the counters, but {name} was {most:.6g} at most in {samples} "
        "samples: either the load varied between them, or they are not of one server; check both, and record samples"
    )


def _speaks(values: tuple[float, ...]) -> bool:
    """Whether samples may stand for what lies between them."""
    if len(values) >= threshold("gauge_samples"):
        return True
    return len(values) > 1 and min(values[0], values[-1]) * threshold("batch_over_running") >= max(values)
