"""What a gate is held against: the median of the earlier windows, their noise, and the conditions that differ."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Measurement, Outcome, View
from pytest_llmroof.baseline.identity import conditions
from pytest_llmroof.baseline.matching import Baselines
from pytest_llmroof.baseline.reading import EarlierWindow, in_view
from pytest_llmroof.baseline.statistics import log_spread, ratio_interval
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.gates.baseline import Baseline, NoBaseline
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.judge import hangs_on_baseline
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.report.measures import facts_document
from pytest_llmroof.report.scope import deployment_document, gpu_document, model_document
from pytest_llmroof.report.wire import Document, to_wire

#: So many windows differ in a condition before it is said of the baseline.
_HALF: Final = 0.5


def identity_of(spec: WindowSpec, facts: WindowFacts) -> Document:
    """The parts of a window's document that are compared with earlier ones."""
    identity: Document = to_wire(
        {
            "id": spec.id,
            "name": spec.name,
            "phase": facts.phase,
            "gpu": gpu_document(facts.deployment),
            "model": model_document(facts.deployment),
            "deployment": deployment_document(facts.deployment),
            "provenance": facts.deployment.provenance,
            "facts": facts_document(facts),
        }
    )
    return identity


def baseline_of(gate: Gate, outcome: Outcome, here: Document, baselines: Baselines) -> Baseline | NoBaseline | None:
    """What the gate is held against, or why there is nothing; None for a gate that does not hang on a baseline."""
    if not hangs_on_baseline(gate) or not isinstance(outcome, Measurement):
        return None
    what = f"{gate.metric} per {gate.per}" if gate.per else gate.metric
    if outcome.view is not None:
        what += f" as the {outcome.view} sees it"
    view = outcome.view
    found = baselines.matching(here, dict(gate.labels), lambda window: bool(values_of(window, gate, view)), what)
    return found if isinstance(found, NoBaseline) else _baseline(gate, outcome, here, found)


def measured_there(window: EarlierWindow, metric: str, view: View | None) -> Mapping[str, Any] | None:
    """What a window measured of a metric in this view; None where that is only known to lie above something."""
    measured = in_view(window.document["measurements"], metric, view)
    if measured is None or measured["value"] is None:
        return None
    return None if measured["high"] is None and measured["value"] == measured["low"] else measured


def values_of(window: EarlierWindow, gate: Gate, view: View | None = None) -> list[float]:
    """What a window measured of the gate's metric: its value, and before it those of its repeats.

    A gate that is held per replica is held against the worst replica there, which only such a gate's row has.
    """
    if gate.per is not None:
        rows = window.document["gates"]
        found = [row["found"] for row in rows if row["metric"] == gate.metric and row["per"] == gate.per]
        return [value for value in found if value is not None][:1]
    measured = measured_there(window, gate.metric, view)
    return [] if measured is None else [*measured["repeats"], measured["value"]]


def _baseline(gate: Gate, outcome: Measurement, here: Document, windows: Sequence[EarlierWindow]) -> Baseline:
    per_window = [values_of(window, gate, outcome.view) for window in windows]
    values = [found[-1] for found in per_window]
    # One report of repeated windows is as many windows; of several reports each counts once, for what lies between
    # two nights is more than what lies between two windows of one.
    if len(values) == 1 and len(per_window[0]) > 2:
        values = per_window[0][:-1]
    value = statistics.median(values)
    own = outcome.repeats if len(outcome.repeats) > 1 else (outcome.value,)
    ratio = _ratio(gate, outcome, value, own, values, windows)
    return Baseline(
        value=value,
        windows=len(values),
        spread=log_spread(values),
        ratio=ratio,
        low=min(values),
        high=max(values),
        reports=tuple(dict.fromkeys(window.report for window in windows)),
        conditions=_common_conditions(windows, here),
    )


def _ratio(
    gate: Gate,
    outcome: Measurement,
    value: float,
    own: Sequence[float],
    values: Sequence[float],
    windows: Sequence[EarlierWindow],
) -> Bounded | None:
    if value <= 0 or outcome.value <= 0 or not math.isfinite(outcome.value):
        return None
    ratio = outcome.value / value
    found = ratio_interval(ratio, own, values)
    if found is not None or len(own) + len(values) > 2 or gate.per is not None:
        return found
    # One window each: nothing tells their noise but the intervals in which each was measured.
    there = measured_there(windows[0], gate.metric, outcome.view)
    if there is None:
        return None
    low, high = there["low"], there["high"]
    if low is None or high is None or low <= 0 or not math.isfinite(outcome.high) or low == high:
        return None
    return Bounded.spanning(ratio, max(0.0, outcome.low) / high, outcome.high / low)


def _common_conditions(windows: Sequence[EarlierWindow], here: Document) -> tuple[str, ...]:
    """What was another load in more than half of the windows, as the newest of those says it."""
    said = [conditions(window.document, here) for window in windows]
    kinds = [[_kind(phrase) for phrase in one] for one in said]
    frequent = {
        kind for one in kinds for kind in one if sum(kind in other for other in kinds) > _HALF * len(windows)
    }  # fmt: skip
    found: dict[str, str] = {}
    for one in said:
        for phrase in one:
            if _kind(phrase) in frequent:
                found.setdefault(_kind(phrase), phrase)
    return tuple(found.values())


def _kind(phrase: str) -> str:
    """``prefix hits``, ``batch``, ``replicas``: the phrase without its figures."""
    return " ".join(word for word in phrase.split(" there")[0].split() if word.isalpha()).rstrip("s")
