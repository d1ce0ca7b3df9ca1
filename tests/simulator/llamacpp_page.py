"""A run as llama-server shows it: tokens and seconds are added when a request ends, calls of its model live."""

from __future__ import annotations

from simulator.counted import Counted
from simulator.exposition import Lines


def page(counted: Counted, moment: float) -> str:
    """What a scrape gets at a moment of the run. It has no labels and no histogram."""
    lines = Lines("llamacpp:", {}, moment)
    for name, total in (
        ("prompt_tokens", counted.finished_computed),
        ("prompt_seconds", counted.finished_prefill_seconds),
        ("tokens_predicted", counted.finished_answers),
        ("tokens_predicted_seconds", counted.finished_decode_seconds),
        ("n_decode", counted.passes),
    ):
        lines.counter(name, ({}, total.at(moment)))
    lines.gauge("n_tokens_max", counted.longest(moment))
    passes = counted.passes.at(moment)
    lines.gauge("n_busy_slots_per_decode", counted.busy_slots.at(moment) / passes if passes else 0.0)
    step = counted.step_at(moment)
    lines.gauge("requests_processing", step.running if step else 0)
    lines.gauge("requests_deferred", step.waiting if step else 0)
    return lines.text
