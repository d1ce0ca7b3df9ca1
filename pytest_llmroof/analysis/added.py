"""Metrics of other plugins: their function called on a view of the window, and what it gives made an outcome."""

from __future__ import annotations

import math
from collections.abc import Callable

from pytest_llmroof import extend
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.analysis.metrics import Metric, metric_of
from pytest_llmroof.analysis.views import view_of
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.errors import ConfigError
from pytest_llmroof.foreign import Raised, called


def added_outcome(facts: WindowFacts, metric: Metric, outcome_of: Callable[[str], Outcome]) -> Outcome:
    """The metric in this window. Whatever goes wrong in its function is no data that names plugin and error.

    ``outcome_of`` measures the package's own metrics, which the function may ask for.
    """
    if metric.measure is None:
        raise AssertionError(f"{metric.name} is the package's own")
    view = view_of(facts, lambda name: packaged_metric(name, outcome_of))
    given: object = called(metric.measure, view)
    if isinstance(given, Raised):
        return _failed(metric, f"raised {given.said}")
    if isinstance(given, extend.NoData):
        return _no_data(metric, given)
    if not isinstance(given, extend.Value):
        return _failed(metric, f"gave {type(given).__name__}, and not a Value or NoData of pytest_llmroof.extend")
    return _measurement(metric, given, view.source)


def _measurement(metric: Metric, given: extend.Value, source: str) -> Outcome:
    ends = (given.value, given.value if given.low is None else given.low, _high(given))
    if not all(map(_number, ends)):
        return _failed(metric, f"gave {given!r}: value, low and high are numbers")
    value, low, high = map(float, ends)
    if not math.isfinite(value) or not math.isfinite(low) or math.isnan(high) or not low <= value <= high:
        return _failed(metric, f"gave {value:g} in [{low:g}, {high:g}]: a finite value inside its interval is expected")
    if given.samples is not None and (isinstance(given.samples, bool) or not isinstance(given.samples, int)):
        return _failed(metric, f"gave samples {given.samples!r}: a whole number is expected")
    return Measurement(
        metric=metric.name,
        bounded=Bounded(value, low, high),
        unit=metric.unit,
        source=str(given.source) or source,
        method=str(given.method) or metric.meaning,
        samples=None if given.samples is None else int(given.samples),
    )


def _high(given: extend.Value) -> float:
    return given.value if given.high is None else given.high


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _no_data(metric: Metric, given: extend.NoData) -> NoData:
    remedy = str(given.remedy) if given.remedy else None
    return NoData(metric.name, str(given.reason) or f"{metric.plugin} cannot measure it here", remedy)


def _failed(metric: Metric, what: str) -> NoData:
    return NoData(metric.name, f"its function in {metric.plugin} {what}", f"mend {metric.plugin}")


def packaged_metric(name: str, outcome_of: Callable[[str], Outcome]) -> extend.Value | extend.NoData:
    """One of the package's metrics for a plugin's function; those of plugins are not there to build on."""
    try:
        metric = metric_of(name)
    except ConfigError as error:
        raise KeyError(error.problem) from None
    if metric.measure is not None:
        raise KeyError(f"{name} is a metric of {metric.plugin}, and none of the package's own")
    outcome = outcome_of(name)
    if isinstance(outcome, NoData):
        return extend.NoData(outcome.reason, str(outcome.remedy) if outcome.remedy else None)
    if isinstance(outcome, Impossible):
        return extend.NoData(f"{name} is impossible: {outcome.reason}", f"check {outcome.check}")
    return extend.Value(
        outcome.value, outcome.low, outcome.high, outcome.source, outcome.method, outcome.samples
    )  # fmt: skip
