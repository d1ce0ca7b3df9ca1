"""Tokens of a window: asked and computed, generated and fed back, and what hides at its edges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.runs import same_load
from pytest_llmroof.telemetry.window import Engine, Window

#: What to do where nothing tells how many requests were in flight at a window's ends.
EDGES: Final = "keep the engine's gauge of running requests: without it nothing tells what was in flight at the ends"
#: The same where nothing tells which prompt tokens came from a prefix cache.
HITS: Final = "measure prompts that no cache holds (llmroof_probe.prefill), or a release that counts cached tokens"
#: Why nothing is known but the ends then.
UNTOLD: Final = "nothing counts which prompt tokens a prefix cache held, and so how many were computed"


@dataclass(frozen=True)
class Tokens:
    """Tokens and requests of some engines over a window; None is what the sources do not tell.

    ``prompt`` are prompt tokens of the requests whose first output came (cached ones included), ``computed`` those that
    passed through the model. ``first`` counts first outputs, ``finished`` finished requests. ``mean_prompt`` is per
    request, cached tokens included. ``in_flight`` are prompt tokens that may have been computed before the first
    sample (the interval's low end) or after the last first output (its high end), infinite where nothing tells.
    """

    prompt: float | None
    computed: float | None
    generated: float | None
    first: float | None
    finished: float | None
    mean_prompt: float | None
    mean_output: float | None
    in_flight: tuple[float, float] = (0.0, 0.0)
    hits_told: bool = True
    """Whether something tells which of the prompt tokens were cached, be it an engine's default."""
    hits_counted: bool = True
    """Whether they are counted: else all may be cached, but one token of each request."""
    counted_decodes: float | None = None
    """Tokens of decode steps, where they are counted as such."""
    outputs_in_flight: tuple[float, float] = (0.0, 0.0)
    """Tokens counted when their request finished that may have been generated before the first sample, and those that
    may have been before the last one but were not counted yet. An unknown number of them is infinite."""

    @property
    def generated_bounds(self) -> Bounded | None:
        """Generated tokens with what was in flight at the edges, where they are counted when requests finish."""
        if self.generated is None:
            return None
        before, after = self.outputs_in_flight
        return Bounded(self.generated, max(0.0, self.generated - before), self.generated + after)

    @property
    def hit_rate(self) -> float | None:
        """Share of the prompt tokens that were not computed."""
        if not self.prompt or self.computed is None:
            return None
        return max(0.0, 1 - self.computed / self.prompt)

    @property
    def decoded(self) -> float | None:
        """Tokens that decode steps emitted: all but the first of each request, which its prefill emits."""
        if self.counted_decodes is not None:
            return self.counted_decodes
        if self.generated is None:
            return None
        return max(0.0, self.generated - (self.first if self.first is not None else self.finished or 0.0))

    @property
    def computed_bounds(self) -> Bounded | None:
        """Computed prompt tokens with what was in flight at the edges."""
        if self.computed is None:
            return None
        before, after = self.in_flight
        least = self.computed if self.hits_counted else min(self.computed, self.first or self.finished or 0.0)
        most = self.computed if self.hits_counted else max(self.computed, self.prompt or 0.0)
        return Bounded(self.computed, max(0.0, least - before), most + after)


def count_tokens(window: Window) -> Tokens:
    """The tokens of all engines of a window (``window.only(engine)`` for one)."""
    prompt, generated = window.counter("prompt_tokens"), window.counter("generation_tokens")
    lost = _is_unusable(window, "prompt_tokens_cached")
    counted = all(map(_tells_hits, window.engines))
    fresh = None if counted else _fresh(window)
    computed = _summed([_computed(engine, lost) for engine in window.engines]) if fresh is None else fresh
    first = observations(window, "ttft")
    finished = finished_requests(window)
    mean_prompt = _mean(window, "prompt_length") or _ratio(prompt, first or finished)
    mean_output = _mean(window, "generation_length") or _ratio(generated, finished or _begun(window, first))
    return Tokens(
        prompt=prompt if prompt is not None or _is_unusable(window, "prompt_tokens") else computed,
        computed=computed,
        generated=generated,
        first=first,
        finished=finished,
        mean_prompt=mean_prompt,
        mean_output=mean_output,
        in_flight=_in_flight(window, mean_prompt),
        hits_told=counted or fresh is not None or "no_cache_uncounted" in window.conventions,
        hits_counted=counted or fresh is not None,
        counted_decodes=_of_all(window, "decode_tokens"),
        outputs_in_flight=_outputs_in_flight(window, mean_output),
    )


def lengths_are_representative(window: Window, tokens: Tokens) -> bool:
    """Whether the requests that finished in the window tell how long those are that were decoded in it.

    They do where the window begins and ends idle, and in a steady load. Where far more (or fewer) tokens were generated
    than the finished requests have, most belong to requests that reach beyond the window's edges.
    """
    finished = total(window, "generation_length")
    if not finished or not tokens.generated or requests_at(window, 0) == 0 == requests_at(window, -1):
        return True
    return abs(tokens.generated / finished - 1) <= threshold("steady_lengths")


def finished_requests(window: Window) -> float | None:
    """Finished requests of all engines, however they ended; None where nothing counts them."""
    return _summed([_finished(engine) for engine in window.engines])


def observations(window: Window, histogram: str) -> float | None:
    """Observations in a histogram over all engines, None where none has it (different buckets do not matter)."""
    return _summed([engine.histograms[histogram].count for engine in window.engines if histogram in engine.histograms])


def total(window: Window, histogram: str) -> float | None:
    """Sum of a histogram's observed values over all engines, None where none has it."""
    return _summed([engine.histograms[histogram].total for engine in window.engines if histogram in engine.histograms])


def requests_at(window: Window, sample: int) -> float | None:
    """Requests in the engines (running and waiting) at the first (0) or last (-1) sample; None where no gauge tells.

    An engine whose page tells nothing of those that run leaves all of them unknown.
    """
    running = _running_at(window, sample)
    waiting = [_at_edge(window, engine, "waiting", sample) for engine in window.engines if "waiting" in engine.gauges]
    known = [count for count in waiting if count is not None]
    return None if running is None or len(known) < len(waiting) else running + sum(known)


def _running_at(window: Window, sample: int) -> float | None:
    """Requests that run in the engines at the first (0) or last (-1) sample; None where one does not tell."""
    found = [_at_edge(window, engine, "running", sample) for engine in window.engines]
    known = [count for count in found if count is not None]
    return sum(known) if known and len(known) == len(found) else None


def _at_edge(window: Window, engine: Engine, gauge: str, sample: int) -> float | None:
    """A gauge's value at the first or last sample of its engine; None where it is not on that page."""
    series = engine.gauges.get(gauge)
    if series is None or not series.values:
        return None
    times = [other.times[sample] for other in engine.gauges.values() if other.times]
    if engine.seen is None and window.progress is not None and window.progress.times:
        times.append(window.progress.times[sample])
    edge = min(times) if sample == 0 else max(times)
    return series.values[sample] if series.times[sample] == edge else None


def _fresh(window: Window) -> float | None:
    """Prompt tokens that were computed as the client knows, where it was all of the load and let no cache hold any."""
    client = window.client
    if client is None or client.computed_tokens is None or same_load(window, client) is not True:
        return None
    return client.computed_tokens


def _begun(window: Window, first: float | None) -> float | None:
    """Requests whose first output came, where these are all that were decoded: the window began idle."""
    return first if window.since_start or requests_at(window, 0) == 0 else None


def _computed(engine: Engine, lost: bool) -> float | None:
    """Prompt tokens that passed through the model, by the best source that this engine has.

    Where the cached ones are ``lost`` whole prompts would be too many.
    """
    counters, histograms = engine.counters, engine.histograms
    if "prompt_tokens_computed" in counters:
        return counters["prompt_tokens_computed"]
    prompt = counters.get("prompt_tokens")
    if prompt is not None and "prompt_tokens_cached" in counters:
        return max(0.0, prompt - counters["prompt_tokens_cached"])
    if "computed_length" in histograms and _all_counted(engine):
        return histograms["computed_length"].total
    if prompt is not None and "prefix_hits" in counters:
        return max(0.0, prompt - counters["prefix_hits"])
    rates = engine.gauges.get("prefix_hit_rate")
    if prompt is not None and rates is not None and rates.values and rates.values[-1] > 0:
        return prompt * (1 - min(1.0, rates.values[-1]))
    return None if lost else prompt


def tells_hits(window: Window) -> bool:
    """Whether every engine tells what it found in its cache, be it of late: else that nothing was is no fact."""
    return window.counter("prompt_tokens") is not None and all(map(_tells_rate, window.engines))


def _tells_rate(engine: Engine) -> bool:
    """Whether it tells how much was found. Computed prompt tokens alone do not, where whole ones are no other count."""
    counters, names = engine.counters, engine.names
    if not _tells_hits(engine):
        return "prefix_hit_rate" in engine.gauges
    told = any(name in counters for name in ("prompt_tokens_cached", "prefix_hits"))
    whole, computed = names.get("prompt_tokens"), names.get("prompt_tokens_computed")
    return told or "prompt_tokens_computed" not in counters or whole is None or whole != computed


def _tells_hits(engine: Engine) -> bool:
    """Whether it counts them. A gauge is of its last batch, or of all time: of this window it is a guess."""
    if any(name in engine.counters for name in ("prompt_tokens_computed", "prompt_tokens_cached", "prefix_hits")):
        return True
    if engine.facts.get("enable_prefix_caching") == "False":
        return True
    return "computed_length" in engine.histograms and _all_counted(engine)


def _all_counted(engine: Engine) -> bool:
    """Whether every request whose first output came has finished: the per-request histogram then misses none."""
    first = engine.histograms.get("ttft")
    return first is None or engine.histograms["computed_length"].count >= first.count


def _finished(engine: Engine) -> float | None:
    if "requests_finished" in engine.counters:
        return engine.counters["requests_finished"]
    if engine.finished:
        return sum(engine.finished.values())
    histogram = engine.histograms.get("e2e")
    return histogram.count if histogram is not None else None


def _in_flight(window: Window, mean_prompt: float | None) -> tuple[float, float]:
    """Prompt tokens that may hide at the first and at the last sample; none where an edge is idle."""
    if "whole_requests" in window.conventions:
        return 0.0, 0.0
    prompt = mean_prompt if mean_prompt is not None else _longest(window)
    first = 0.0 if window.since_start else requests_at(window, 0)
    return _hidden(first, prompt), _hidden(requests_at(window, -1), prompt)


def _outputs_in_flight(window: Window, mean_output: float | None) -> tuple[float, float]:
    """Tokens that are counted in the wrong window, at its first and its last sample: whole outputs at most."""
    if "tokens_at_finish" not in window.conventions or _of_all(window, "decode_tokens") is not None:
        return 0.0, 0.0
    output = mean_output if mean_output is not None else _longest(window)
    first = 0.0 if window.since_start else _running_at(window, 0)
    return _hidden(first, output), _hidden(_running_at(window, -1), output)


def _longest(window: Window) -> float:
    """The longest sequence ever, which no prompt and no output exceeds; infinite where nothing tells."""
    seen = [engine.gauges["longest_sequence"] for engine in window.engines if "longest_sequence" in engine.gauges]
    return max((max(gauge.values) for gauge in seen), default=math.inf) or math.inf


def _hidden(requests: float | None, tokens: float) -> float:
    """So many tokens for each request that runs at an edge; infinite where nothing tells of any."""
    if requests is None:
        return math.inf
    return requests * tokens if requests else 0.0


def _of_all(window: Window, counter: str) -> float | None:
    """A counter summed over all engines, None unless each of them has it."""
    values = [engine.counters[counter] for engine in window.engines if counter in engine.counters]
    return sum(values) if values and len(values) == len(window.engines) else None


def _is_unusable(window: Window, quantity: str) -> bool:
    """Whether an engine gave a quantity, but damaged: then no other stands for it."""
    return any(quantity in engine.unusable for engine in window.engines)


def _mean(window: Window, histogram: str) -> float | None:
    return _ratio(total(window, histogram), observations(window, histogram))


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None


def _summed(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
