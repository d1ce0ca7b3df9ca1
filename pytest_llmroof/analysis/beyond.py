"""Utilisations above what hardware reaches: in doubt as far as errors of measuring explain them, else impossible."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmroof.analysis.contradiction import said
from pytest_llmroof.analysis.devices import boost_clock
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Impossible, Measurement
from pytest_llmroof.analysis.sources import clock_error
from pytest_llmroof.analysis.thresholds import threshold


def within_reach(facts: WindowFacts, measured: Measurement) -> Measurement | Impossible:
    """The utilisation, doubted where it lies above its peak, or why the inputs contradict each other."""
    if measured.unit != "fraction" or measured.low <= 1 + threshold("beyond"):
        return measured
    reached = f"{measured.low * 100:.3g} % of a peak is more than any hardware reaches"
    if measured.low <= boost_clock(facts) * (1 + threshold("impossible") + clock_error(facts)):
        return replace(measured, doubted=f"{reached}, though not by more than errors of measuring explain")
    return Impossible(
        measured.metric,
        f"{reached}, and by more than errors of measuring explain",
        f"{said(facts.deployment, 'model', 'weights', 'tensor_parallel', 'gpu')}, that the telemetry is whole, and the "
        "window's clock (`duration:`)",
        measured.low,
    )
