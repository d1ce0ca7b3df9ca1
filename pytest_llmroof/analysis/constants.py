"""Thresholds of the diagnosis, constants of estimates and remedies: they are data, and this is how code reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_llmroof.data import load
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.roof import achievable, typical


def threshold(name: str) -> float:
    """A threshold of the diagnosis."""
    return float(_section("diagnosis")[name])


def remedy_constant(name: str) -> float:
    """A constant of the remedies' effects."""
    return float(_section("remedies")[name])


def remedy_range(name: str) -> tuple[float, float]:
    """A range that a remedy's effect rests on."""
    low, high = _section("remedies")[name]
    return float(low), float(high)


def communication_constant(name: str, key: str | None = None) -> float:
    """A constant of the communication estimate; ``key`` chooses in a table, its ``default`` stands for the rest."""
    found = _section("communication")[name]
    if key is not None:
        found = found[key] if key in found else found["default"]
    return float(found)


def counter_constant(name: str) -> float:
    """A threshold of the GPUs' own counters."""
    return float(_section("gpu_counters")[name])


def counter_rows() -> tuple[Mapping[str, Any], ...]:
    """The rows by which activities of the GPUs are read: what each ``reads`` and ``says``, and bounds of figures."""
    return tuple(_section("gpu_counters")["rows"])


def reach(accelerator: Accelerator, kind: str) -> tuple[float, str]:
    """Eta, the fraction of a peak that real kernels reach (``memory`` or a precision), and what it rests on."""
    measured = achievable(accelerator, kind)
    if measured is not None:
        return measured, f"measured on {accelerator.name}"
    return typical(kind), "typical"


def _section(name: str) -> dict[str, Any]:
    section: dict[str, Any] = load("thresholds.yaml")[name]
    return section
