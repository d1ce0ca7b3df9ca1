"""Rates and shares from counters: throughput, prefix hits, speculation, preemptions and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.analysis.residency import gauge, under_load
from pytest_llmroof.analysis.sources import NO_CLOCK, cannot, not_exported, over_duration, source, sources
from pytest_llmroof.analysis.thresholds import remedy, threshold
from pytest_llmroof.analysis.tokens import EDGES, count_tokens
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.units import Unit

#: Requests that ended by one of these reasons did not give what was asked.
FAILED: Final = ("abort", "error")
#: What tells errors where no series counts them: one appears with the first error, or this release has none.
_UNCOUNTED: Final = "keep the result of a load generator: no series counts errors here, be it that there was none"
#: How requests end, of which none may be missing from a share of those that failed.
_ENDS: Final = ("requests_finished", "requests_aborted", "requests_errored")


def output_rate(facts: WindowFacts, metric: str) -> Outcome:
    """Generated tokens per second of the window."""
    generated = count_tokens(facts.window).generated_bounds
    at_finish = generated is not None and not generated.exact
    what = "generated tokens, counted when their request finishes," if at_finish else "generated tokens"
    return _rate(facts, metric, generated, "tokens/s", what, "generation_tokens")


def input_rate(facts: WindowFacts, metric: str) -> Outcome:
    """Prompt tokens per second of the window, cached ones included."""
    what = "prompt tokens, cached ones included,"
    return _rate(facts, metric, _exactly(facts.prompt_tokens), "tokens/s", what, "prompt_tokens")


def request_rate(facts: WindowFacts, metric: str) -> Outcome:
    """Finished requests per second of the window."""
    finished = facts.finished_requests
    if cannot(facts.window, metric) is not None:
        return not_exported(facts, metric, "count of requests", "counter")
    return _rate(facts, metric, _exactly(finished), "requests/s", "finished requests", "requests_finished", "e2e")


def preemptions(facts: WindowFacts, metric: str) -> Outcome:
    """Requests thrown out of the cache and computed again."""
    count = facts.window.counter("preemptions")
    if count is None:
        return not_exported(facts, metric, "count of preemptions", "counter")
    return _exact(facts, metric, count, "count", "preempted requests in the window", None, "preemptions")


def prefix_hit_rate(facts: WindowFacts, metric: str) -> Outcome:
    """Share of prompt tokens found in the prefix cache: by tokens where they are counted, else the engine's gauge."""
    window = facts.window
    queries, hits = window.counter("prefix_queries"), window.counter("prefix_hits")
    if queries and hits is not None:
        how = "tokens found over tokens looked up in the prefix cache"
        return _share(facts, metric, hits, queries, how, "prefix_hits", "prefix_queries")
    cached, prompt = window.counter("prompt_tokens_cached"), window.counter("prompt_tokens")
    if prompt and cached is not None:
        how = "cached prompt tokens over prompt tokens"
        return _share(facts, metric, cached, prompt, how, "prompt_tokens_cached", "prompt_tokens")
    rate = gauge(window, "prefix_hit_rate", lambda values: sum(values) / len(values))
    inside = under_load(window, rate) if rate is not None else None
    known = [value for value in inside.values if 0 <= value <= 1] if inside is not None else []
    if not known:  # vLLM says -1 where the cache is switched off
        return not_exported(facts, metric, "prefix cache hits (or the cache is off)", "prefix")
    how = "the engine's own rate, last sample"
    return _exact(facts, metric, known[-1], "fraction", how, len(known), "prefix_hit_rate")


def acceptance_rate(facts: WindowFacts, metric: str) -> Outcome:
    """Share of draft tokens that were accepted."""
    drafted, accepted = facts.window.counter("draft_tokens"), facts.window.counter("accepted_tokens")
    if drafted is None or accepted is None:
        return not_exported(facts, metric, "count of draft tokens", "speculative")
    if not drafted:
        return NoData(metric, "no token was drafted in this window", remedy("speculative", facts.window.kind))
    how = "accepted over drafted tokens"
    return _share(facts, metric, accepted, drafted, how, "accepted_tokens", "draft_tokens")


def tokens_per_step(facts: WindowFacts, metric: str) -> Outcome:
    """Tokens that a sequence emits per verify step: one, and the accepted ones."""
    drafts, accepted = facts.window.counter("draft_steps"), facts.window.counter("accepted_tokens")
    lengths = gauge(facts.window, "accept_length", lambda values: sum(values) / len(values))
    lost = any("draft_steps" in engine.unusable for engine in facts.window.engines)
    seen = [value for value in lengths.values if value > 0] if lengths is not None and not lost else []
    if drafts is None and seen:
        how = "the engine's own mean over its last log interval, mean of the samples"
        measured = _exact(facts, metric, sum(seen) / len(seen), "count", how, len(seen), "accept_length")
        bounded = Bounded(max(1.0, measured.value), 1.0, math.inf)
        return replace(measured, bounded=bounded, settle="read a release that counts verify steps")
    if drafts is None or accepted is None:
        return not_exported(facts, metric, "count of drafts", "speculative")
    if not drafts:
        return NoData(metric, "nothing was drafted in this window", remedy("speculative", facts.window.kind))
    how = "1 + accepted tokens over verify steps, which are counted per sequence"
    return _exact(facts, metric, 1 + accepted / drafts, "count", how, drafts, "accepted_tokens", "draft_steps")


def error_rate(facts: WindowFacts, metric: str) -> Outcome:
    """Share of the finished requests that failed or were aborted, as the server counts them."""
    window, finished = facts.window, facts.finished_requests
    counted = [window.counter(name) for name in ("requests_aborted", "requests_errored")]
    reasons = [engine.finished for engine in window.engines if engine.finished]
    lost = any(name in engine.unusable for engine in window.engines for name in _ENDS)
    if lost or (not reasons and all(count is None for count in counted)):
        return not_exported(facts, metric, "reasons why requests finished", "counter")
    if not finished:
        return NoData(metric, "no request finished in this window", remedy("load"))
    if any(count is not None for count in counted):
        failed = sum(count for count in counted if count is not None)
    else:
        failed = sum(count for one in reasons for reason, count in one.items() if reason in FAILED)
    how = "requests that were aborted or failed over all that finished; requests refused at the door are not in there"
    measured = _exact(facts, metric, failed / finished, "fraction", how, finished, "requests_finished")
    if reasons and counted[1] is None:
        return replace(measured, bounded=Bounded(measured.value, measured.value, 1.0), settle=_UNCOUNTED)
    return measured


RATES: Final[dict[str, Callable[[WindowFacts, str], Outcome]]] = {
    "output.tokens_per_second": output_rate,
    "output.tokens_per_second.per_gpu": output_rate,
    "input.tokens_per_second": input_rate,
    "input.tokens_per_second.per_gpu": input_rate,
    "requests_per_second": request_rate,
    "requests_per_second.per_gpu": request_rate,
    "preemptions": preemptions,
    "prefix_cache.hit_rate": prefix_hit_rate,
    "speculative.acceptance_rate": acceptance_rate,
    "speculative.tokens_per_step": tokens_per_step,
    "errors.rate": error_rate,
}


def _rate(
    facts: WindowFacts, metric: str, amount: Bounded | None, unit: Unit, what: str, *quantities: str
) -> Outcome:  # fmt: skip
    if amount is None:
        return not_exported(facts, metric, f"count of {what.rstrip(',')}", "counter")
    bounded = over_duration(amount, facts)
    if bounded is None:
        return NoData(metric, NO_CLOCK, remedy("clock"))
    gpus = facts.deployment.gpus
    each = metric.endswith(".per_gpu")
    return Measurement(
        metric=metric,
        bounded=bounded.scaled(1 / gpus) if each else bounded,
        unit=unit,
        source=source(facts.window, *quantities),
        method=f"{what} over the whole window, idle included" + (f", over {gpus} GPUs" if each else ""),
        samples=round(facts.finished_requests) if facts.finished_requests else None,
        settle=EDGES if math.isinf(bounded.high) else None,
    )


def _exactly(amount: float | None) -> Bounded | None:
    return None if amount is None else Bounded.exactly(amount)


def _share(facts: WindowFacts, metric: str, part: float, whole: float, method: str, *quantities: str) -> Outcome:
    """One counter's share of another: more than all of it cannot be."""
    if part > whole * (1 + threshold("whole_share")):
        names = [source(facts.window, quantity) for quantity in quantities]
        reason = f"{names[0]} grew by {part:.6g}, {names[1]} by {whole:.6g} only: a share of {part / whole * 100:.0f} %"
        return Impossible(metric, reason, "that both scrapes are of one server, whole and as they came", part / whole)
    return _exact(facts, metric, min(1.0, part / whole), "fraction", method, whole, *quantities)


def _exact(
    facts: WindowFacts, metric: str, value: float, unit: Unit, method: str, samples: float | None, *quantities: str
) -> Measurement:
    return Measurement(
        metric=metric,
        bounded=Bounded.exactly(value),
        unit=unit,
        source=sources(facts.window, *quantities),
        method=method,
        samples=round(samples) if samples is not None else None,
    )
