"""The canonical Window: a stretch of time whose telemetry we hold, whatever engine it came from.

Everything is a difference over the window unless it says otherwise. Quantities have canonical names, independent of
the engine's; ``names`` keeps what the engine called them, for reports. Canonical names (unit):

counters   prompt_tokens (whole prompts, cached tokens included), prompt_tokens_computed, prompt_tokens_cached,
           prompt_tokens_recomputed, finished_prompt_tokens (of requests that finished), prefix_queries, prefix_hits,
           external_prefix_queries, external_prefix_hits (tokens); generation_tokens, decode_tokens (those that decode
           steps emitted: all but the first of each request), finished_generation_tokens (tokens);
           steps, prefill_steps, decode_steps, step_tokens (tokens computed in steps), step_sequences (sequences in
           them), decode_sequences (sequences in decode steps), decode_context_tokens (their contexts);
           step_number (the engine's own count, which falls in a restart);
           step_seconds, decode_step_seconds, prefill_step_seconds (of the steps; the last two where each kind of step
           runs apart), prefill_seconds, decode_seconds (of the requests, which
           overlap), forward_seconds (the GPU computed), timed_step_seconds (of
           the steps of which that is known), unloaded_seconds (nothing was there to compute),
           overlapping_steps (steps whose time may span two);
           preemptions, requests_finished (whatever the reason), requests_succeeded, requests_aborted,
           requests_errored, requests_rejected, draft_steps, draft_tokens, accepted_tokens,
           estimated_flops, estimated_read_bytes (per GPU, the engine's own estimate)
histograms ttft, itl, tpot, e2e, queue, prefill_time, decode_time, inference_time, forward_time, execute_time (seconds);
           step_tokens, prompt_length, generation_length, computed_length (tokens)
gauges     running, waiting, swapped (requests), kv_usage, prefix_hit_rate, acceptance_rate (fraction), accept_length
           (tokens per verify step), longest_sequence (tokens, since the server's start)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.telemetry.client import Client

if TYPE_CHECKING:
    from pytest_llmroof.telemetry.hardware import Hardware


@dataclass(frozen=True)
class Histogram:
    """A histogram's increase: ``counts[i]`` observations lie in ``(bounds[i-1], bounds[i]]``; the last bound is inf.

    Counts are per bucket (not cumulative). ``total`` is the sum of the observed values in the quantity's unit.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @cached_property
    def count(self) -> float:
        """Observations."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Exact mean of the observations, None without any."""
        return self.total / self.count if self.count else None


@dataclass(frozen=True)
class Series:
    """Samples in order of time: ``times`` in Unix seconds (or seconds of another common clock), ``values`` beside.

    Where the scrapes carry no clock, times are 0, 1, 2, ... (evenly spaced over the duration where one is given).
    """

    times: tuple[float, ...]
    values: tuple[float, ...]

    def between(self, first: float, last: float) -> Series:
        """The samples from one time to another."""
        kept = [index for index, time in enumerate(self.times) if first <= time <= last]
        return Series(tuple(self.times[index] for index in kept), tuple(self.values[index] for index in kept))


@dataclass(frozen=True)
class Engine:
    """One engine (replica, data-parallel rank): everything that its series told about the window."""

    identity: str
    """Where it was seen: the label values that tell it from its siblings, for messages (``engine 0``)."""
    model_name: str | None
    counters: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    gauges: Mapping[str, Series] = field(default_factory=dict)
    """Of several engines with ``seen`` at common times: where one was not there, it has no requests, or its nearest
    value."""
    finished: Mapping[str, float] = field(default_factory=dict)
    """Finished requests by reason (stop, length, abort, error)."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Canonical quantity -> the name under which the source exposed it."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """The few harmless configuration facts that are used (block_size, cache_dtype, num_gpu_blocks, ...). Never more."""
    seen: tuple[float, float] | None = None
    """First and last sample of this engine alone (Unix seconds), where that is not the whole window's."""
    progress: Series | None = None
    """``Window.progress`` of this engine alone, where it is known."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Quantities that it exposes, but of which no increase could be taken, each with the reason."""
    place: Mapping[str, str] = field(default_factory=dict)
    """Labels that say where it was scraped (pod, node, instance, namespace), where a Prometheus tells them."""
    largest: Mapping[str, float] = field(default_factory=dict)
    """The largest sample of gauges of which the source holds no other: what lay between is not known."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Quantities that are an equal part of what stands beside all engines, each with whose they are."""
    accounted: frozenset[str] = frozenset()
    """Quantities that it may lack and yet has not lost: its server tells them of all its engines together (one of which
    holds them), or they are fed, though not in this window."""
    sampled: Mapping[str, Series] = field(default_factory=dict)
    """The gauges as this engine itself was sampled, also beyond a restart, where ``gauges`` are on another clock."""


@dataclass(frozen=True)
class Unavailable:
    """Why an engine cannot tell something, and what can."""

    reason: str
    remedy: AnyAdvice | None = None


@dataclass(frozen=True)
class SourceInfo:
    """One source: its ``kind`` (``vllm``, ``prometheus``, ...) and ``location``, shown in reports; no secrets."""

    kind: str
    location: str


@dataclass(frozen=True)
class Front:
    """What stands before the engines and counts requests as their clients see them: a frontend, all of it as one.

    ``prefer`` are the quantities (and ``errors``) that are its to tell; ``own`` the engines as they count themselves.
    """

    seen: Engine
    own: tuple[Engine, ...]
    prefer: frozenset[str]
    title: str = ""


@dataclass(frozen=True)
class Window:
    """A stretch of time whose telemetry we hold.

    ``started`` is Unix seconds of its first sample, None where the source has no clock. ``duration_seconds`` is from
    first to last sample (None: no clock: only ratios and means can be measured). ``clock_error_seconds`` is how far it
    may be off (two scrape durations). ``since_start`` marks a single scrape: counters since the server's start, where
    gauges are one sample. ``progress`` holds the running total of all work counters at every sample: where it moves,
    the engine worked. ``notes`` are said with every verdict (a restart cut the window, a scrape failed);
    ``unread`` are files of a recording that no reader knows, each with the reason.
    """

    kind: str
    engines: tuple[Engine, ...]
    sources: tuple[SourceInfo, ...]
    started: float | None = None
    duration_seconds: float | None = None
    clock_error_seconds: float = 0.0
    since_start: bool = False
    samples: int = 2
    progress: Series | None = None
    conventions: frozenset[str] = frozenset()
    """How this engine counts: ``itl_per_step`` (else per token), ``tokens_at_finish`` (unless it has decode_tokens)."""
    device_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    title: str = ""
    """What people call the engine, where ``kind`` is its key."""
    cannot: Mapping[str, Unavailable] = field(default_factory=dict)
    """Metrics (``ttft``, ``kv_cache.usage``) that this engine never exports."""
    client: Client | None = None
    """What a load generator saw of this window. Without engines it is all that there is."""
    hardware: Hardware | None = None
    """What counters of the GPUs saw of this window. It may stand without engines, too."""
    front: Front | None = None
    """A frontend before the engines, where there is one."""
    front_lost: str | None = None
    """Why the figures of a frontend that is there are not used: what it alone counted is then not known."""

    @property
    def engine_title(self) -> str:
        """The engine as sentences name it."""
        return self.title or self.kind

    @property
    def model_names(self) -> tuple[str, ...]:
        """The served names in this window, in order of appearance."""
        served = [engine.model_name for engine in self.engines]
        if self.client is not None and not any(served):
            served.append(self.client.model_name)
        return tuple(dict.fromkeys(name for name in served if name))

    def counter(self, name: str) -> float | None:
        """A counter's increase summed over the engines, None where none of them has it."""
        values = [engine.counters[name] for engine in self.engines if name in engine.counters]
        return sum(values) if values else None

    def histogram(self, name: str) -> Histogram | None:
        """A histogram's increase merged over the engines, None where none has it. ValueError if the buckets differ."""
        return merged([engine.histograms[name] for engine in self.engines if name in engine.histograms])

    def source_name(self, quantity: str) -> str | None:
        """What the source calls a canonical quantity, for reports."""
        return next((engine.names[quantity] for engine in self.engines if quantity in engine.names), None)

    def only(self, engine: Engine) -> Window:
        """The same window seen from one engine: over the time in which it was there.

        What was told of several engines together says nothing of this one.
        """
        if len(self.engines) > 1:
            if engine.shared:
                engine = _own(engine)
            if self.front is not None or self.front_lost is not None:
                return replace(self, front=None, front_lost=None).only(engine)
        if engine.seen is None:
            return replace(self, engines=(engine,), progress=engine.progress or self.progress)
        first, last = engine.seen
        gauges = {name: engine.sampled.get(name, series) for name, series in engine.gauges.items()}
        there = {name: series.between(first, last) for name, series in gauges.items()}
        return replace(
            self,
            engines=(replace(engine, gauges=there),),
            progress=engine.progress or self.progress,
            started=first,
            duration_seconds=last - first,
        )

    @property
    def replicas_at_once(self) -> int:
        """The most engines that were there at a time: of replicas that follow each other only one counts."""
        spans = [engine.seen for engine in self.engines if engine.seen is not None]
        others = len(self.engines) - len(spans)
        return others + max((sum(one <= first < end for one, end in spans) for first, _ in spans), default=0)


def _own(engine: Engine) -> Engine:
    """The engine without what is told of all engines together."""
    shared = engine.shared
    reasons = {name: f"{whose} tells it of all engines together, not of each" for name, whose in shared.items()}
    return replace(
        engine,
        counters={name: value for name, value in engine.counters.items() if name not in shared},
        histograms={name: value for name, value in engine.histograms.items() if name not in shared},
        gauges={name: value for name, value in engine.gauges.items() if name not in shared},
        finished={} if "requests_finished" in shared else engine.finished,
        unusable={**engine.unusable, **reasons},
        shared={},
    )


def merged(histograms: list[Histogram]) -> Histogram | None:
    """One histogram of several with equal bounds; None of none. ValueError where the bounds differ."""
    if not histograms:
        return None
    bounds = histograms[0].bounds
    if any(other.bounds != bounds for other in histograms):
        raise ValueError("histograms with different buckets cannot be merged")
    counts = tuple(map(sum, zip(*(histogram.counts for histogram in histograms), strict=True)))
    return Histogram(bounds, counts, sum(histogram.total for histogram in histograms))
