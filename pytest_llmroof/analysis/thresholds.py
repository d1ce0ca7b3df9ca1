"""The thresholds of measuring, from the packaged data."""

from __future__ import annotations

from functools import cache

from pytest_llmroof.data import load


@cache
def threshold(name: str) -> float:
    """A threshold of ``measuring.yaml`` by its name."""
    return float(load("measuring.yaml")["thresholds"][name])


@cache
def remedy(name: str) -> str:
    """What to collect, with the command, by a key of ``measuring.yaml``."""
    return str(load("measuring.yaml")["remedies"][name])
