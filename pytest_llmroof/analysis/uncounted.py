"""Figures of a window whose sources count one kind of tokens, and not the other: known from below only."""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.analysis.decodebounds import as_lower_bound
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.analysis.tokens import count_tokens


def uncounted(facts: WindowFacts) -> str | None:
    """Which tokens these sources do not count, though they count others."""
    if facts.computed_prompt_tokens is None:
        return "prompt tokens"
    return "generated tokens" if facts.decode is None and count_tokens(facts.window).decoded is None else None


def at_least(measured: Measurement, undecided: str, settle: AnyAdvice) -> Measurement:
    """The measurement as one whose low end is known, and nothing above it."""
    unbounded = replace(measured, bounded=replace(measured.bounded, high=math.inf))
    return as_lower_bound(unbounded, undecided, settle)
