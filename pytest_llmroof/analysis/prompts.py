"""Prompt work of a window: how many steps held prompt tokens, and what the mean one of them held."""

from __future__ import annotations

import math

from pytest_llmroof.analysis.facts import PrefillFacts
from pytest_llmroof.analysis.quantiles import edges
from pytest_llmroof.analysis.tokens import Tokens
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.data import load
from pytest_llmroof.roofline.step import Prefill, Step
from pytest_llmroof.telemetry.window import Engine, Window


def prompt_work(window: Window, tokens: Tokens, decode_tokens: float | None) -> PrefillFacts | None:
    """The prompt work over all replicas, None where no prompt token was computed or nothing counts them.

    ``decode_tokens`` are those that a mean decode step emits; None where the engine's steps are not to be believed.
    """
    bounds = tokens.computed_bounds
    if bounds is None or bounds.high <= 0 or not tokens.computed:
        return None
    requests = tokens.first or tokens.finished or _fewest_requests(window, tokens.computed)
    steps = _counted_apart(window) or _all_counted(window, decode_tokens) or _budgeted(tokens, requests)
    return PrefillFacts(
        tokens=bounds,
        requests=requests,
        steps=steps,
        estimated=not steps.exact,
        step=prompt_step(tokens.computed, requests, tokens.hit_rate or 0.0, steps.value),
        hit_rate=tokens.hit_rate or 0.0,
        hits_told=tokens.hits_told,
        hits_counted=tokens.hits_counted,
    )


def in_steps(prefill: PrefillFacts, steps: float) -> Step:
    """The mean step with prompts, were the same prompts computed in so many steps."""
    return prompt_step(prefill.tokens.value, prefill.requests, prefill.hit_rate, steps)


def prompt_step(computed: float, requests: float, hit_rate: float, steps: float) -> Step:
    """The mean step with prompts: whole prompts side by side, or one chunk of a prompt behind its earlier chunks.

    Everything is a mean, hence a fraction: 1.6 prompts, each 1 000 tokens behind 200 cached ones.
    """
    per_request = computed / requests
    cached = per_request * hit_rate / (1 - hit_rate) if hit_rate < 1 else 0.0
    at_once = requests / steps
    if at_once >= 1:
        return Step(prefills=(Prefill(tokens=per_request, cached=cached, sequences=at_once, logits=1.0),))
    chunk = computed / steps
    earlier = cached + max(0.0, per_request - chunk) / 2
    return Step(prefills=(Prefill(tokens=chunk, cached=earlier, sequences=1.0, logits=at_once),))


def counted_prompt_steps(engine: Engine, decode_tokens: float) -> float | None:
    """Steps that held prompt tokens: those with far more tokens than decoding makes. None where no histogram tells.

    A step whose bucket begins at twice the tokens that a mean decode step emits held a prompt; all of a prompt's chunks
    are counted at its last one. More steps than first outputs cannot be among them.
    """
    histogram = engine.histograms.get("step_tokens")
    if histogram is None or not histogram.count:
        return None
    first = engine.histograms.get("ttft")
    most = first.count if first is not None else math.inf
    above = [count for i, count in enumerate(histogram.counts) if edges(histogram, i)[0] >= 2 * decode_tokens]
    return min(sum(above), most)


def _fewest_requests(window: Window, computed: float) -> float:
    """At least so many requests asked for these tokens, where nothing counts them: none was longer than the longest."""
    longest = [max(gauge.values) for engine in window.engines if (gauge := engine.gauges.get("longest_sequence"))]
    return max(1.0, computed / max(longest)) if longest and max(longest) > 0 else 1.0


def _counted_apart(window: Window) -> Bounded | None:
    """Steps with prompts where every engine counts them apart from decode steps."""
    counted = [engine.counters["prefill_steps"] for engine in window.engines if "prefill_steps" in engine.counters]
    return Bounded.exactly(sum(counted)) if len(counted) == len(window.engines) and sum(counted) > 0 else None


def _all_counted(window: Window, decode_tokens: float | None) -> Bounded | None:
    """Steps with prompts of all engines, None where one of them does not tell or none was seen."""
    if decode_tokens is None:
        return None
    counted = [counted_prompt_steps(engine, decode_tokens) for engine in window.engines]
    known = [count for count in counted if count is not None]
    return Bounded.exactly(sum(known)) if len(known) == len(counted) and sum(known) > 0 else None


def _budgeted(tokens: Tokens, requests: float) -> Bounded:
    """Steps by the tokens that one step computes at most; a guess, since engines do not export their budget."""
    budget = load("measuring.yaml")["step_budget"]
    computed = tokens.computed or 0.0
    fewest, usual = (float(math.ceil(computed / budget[key])) for key in ("high", "value"))
    # No batching at all: every prompt in steps of its own.
    most = max(requests * math.ceil(computed / requests / budget["low"]), usual)
    return Bounded(usual, min(fewest, usual), most)
