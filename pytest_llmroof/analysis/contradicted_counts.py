"""Counters of one server that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pytest_llmroof.analysis.contradiction import Contradiction
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.analysis.tokens import observations

_ONE_SERVER: Final = "that both scrapes are of one server, whole and as they came"


def tokens(facts: WindowFacts) -> Iterator[Contradiction]:
    """More tokens counted than went through the engine's steps, or came in its outputs."""
    window = facts.window
    held = window.counter("step_tokens")
    for quantity, spoiled in (("generation_tokens", "output."), ("prompt_tokens_computed", "input.")):
        count = window.counter(quantity)
        if count and held and count > threshold("tokens_in_steps") * held:
            name, of_steps = window.source_name(quantity) or quantity, window.source_name("step_tokens")
            yield Contradiction(
                f"{name} grew by {count:.6g}, but all steps of the window held {held:.6g} tokens ({of_steps})",
                _ONE_SERVER,
                counts=(spoiled,),
            )
    generated, intervals, first = facts.generated_tokens, observations(window, "itl"), observations(window, "ttft")
    if "itl_per_step" not in window.conventions or not generated or intervals is None or first is None:
        return
    drafts, drafted = window.counter("draft_steps"), window.counter("draft_tokens")
    most = max(threshold("tokens_per_output"), 1 + drafted / drafts if drafts and drafted else 0.0)
    if generated > most * (intervals + first):
        yield Contradiction(
            f"{window.source_name('generation_tokens')} grew by {generated:.6g} in {intervals + first:.6g} outputs: "
            f"more than {most:.0f} tokens in each",
            _ONE_SERVER,
            counts=("output.",),
        )
