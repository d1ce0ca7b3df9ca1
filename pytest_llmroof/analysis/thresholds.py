"""The thresholds of measuring, from the packaged data."""

from __future__ import annotations

from functools import cache

from pytest_llmroof.data import load


@cache
def threshold(name: str) -> float:
    """A threshold of ``measuring.yaml`` by its name."""
    return float(load("measuring.yaml")["thresholds"][name])


@cache
def remedy(name: str, engine: str = "vllm") -> str:
    """What to collect, with the command, by a key of ``measuring.yaml``; in an engine's own words where it has some."""
    measuring = load("measuring.yaml")
    words = measuring["remedies_of_engines"]
    own = {} if engine == "vllm" else {**words["other"], **words.get(engine, {})}
    return str(own.get(name) or measuring["remedies"][name])
