"""The thresholds of measuring, from the packaged data."""

from __future__ import annotations

from functools import cache

from pytest_llmroof.advice import AnyAdvice, as_advice
from pytest_llmroof.data import load


@cache
def threshold(name: str) -> float:
    """A threshold of ``measuring.yaml`` by its name."""
    return float(load("measuring.yaml")["thresholds"][name])


@cache
def remedy(name: str, engine: str = "vllm") -> AnyAdvice:
    """What to collect, by a key of ``measuring.yaml``; in an engine's own words where it has some."""
    measuring = load("measuring.yaml")
    words = measuring["remedies_of_engines"]
    own = {} if engine == "vllm" else {**words["other"], **words.get(engine, {})}
    return as_advice(own.get(name) or measuring["remedies"][name])
