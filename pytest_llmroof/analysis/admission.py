"""Load and admission: why requests queue, and whether there was load at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pytest_llmroof.analysis.clientfacts import belongs
from pytest_llmroof.analysis.constants import threshold
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.telemetry.window import Engine
from pytest_llmroof.units import grouped

QueueCause = Literal["cache", "slots", "compute"]


@dataclass(frozen=True)
class Saturation:
    """Why requests wait: one statement with its source."""

    cause: QueueCause
    statement: str
    source: str


@dataclass(frozen=True)
class Idleness:
    """How much of a window passed without requests, and what tells it."""

    share: float
    statement: str
    source: str


@dataclass(frozen=True)
class _Sample:
    """One engine at one moment with waiting requests; ``full`` is running over its maximum."""

    usage: float | None
    full: float | None


def saturation(facts: WindowFacts) -> Saturation | None:
    """The cause of a queue as far as samples and counters tell it: the cache, the slots, or prefill's computing."""
    samples = [sample for engine in facts.window.engines for sample in _waiting(engine)]
    cache = _cache(facts, samples)
    if cache is not None:
        return cache
    slots = _slots(facts, samples)
    if slots is not None:
        return slots
    share = facts.prefill_share
    if share is not None and share >= threshold("prefill_majority"):
        statement = f"prefill makes {share * 100:.0f} % of the work: requests wait for prompts to be computed"
        return Saturation("compute", statement, "roofline" if facts.prefill_floor_seconds else "token counters")
    return None


def most_running(facts: WindowFacts) -> float | None:
    """The most requests that one replica was seen to run at once; None where nothing sampled it."""
    series = [engine.gauges["running"] for engine in facts.window.engines if "running" in engine.gauges]
    return max((max(one.values, default=0.0) for one in series), default=None)


def idleness(facts: WindowFacts, whole: bool = False) -> Idleness | None:
    """The share of the window that was certainly without requests; None where nothing tells.

    ``whole``: also of what lies before and after a benchmark that is all of the load.

    Busy time counts by its high end: two scrapes around an idle stretch do not tell how long it was.
    """
    if belongs(facts.window) and not whole:
        # A benchmark's rates are over its own time: what the window held before and after it is nobody's.
        return _idle_by_samples(facts, within_load=True)
    found = [one for one in (_idle_by_busy_time(facts), _idle_by_samples(facts)) if one is not None]
    return max(found, key=lambda one: one.share, default=None)


def _cache(facts: WindowFacts, samples: list[_Sample]) -> Saturation | None:
    usages = [sample.usage for sample in samples if sample.usage is not None]
    full = [usage for usage in usages if usage > threshold("cache_full")]
    name = facts.window.source_name
    if usages and len(full) >= len(usages) / 2:
        statement = (
            f"the KV cache was over {threshold('cache_full') * 100:.0f} % used in {len(full)} of {len(usages)} samples "
            f"with waiting requests"
        )
        return Saturation("cache", statement, name("kv_usage") or "samples")
    preemptions = facts.window.counter("preemptions")
    if preemptions:
        statement = f"{grouped(preemptions)} requests were thrown out of the KV cache and computed again"
        return Saturation("cache", statement, name("preemptions") or "counters")
    return None


def _slots(facts: WindowFacts, samples: list[_Sample]) -> Saturation | None:
    known = [sample.full for sample in samples if sample.full is not None]
    if len(known) < threshold("waiting_samples"):
        return None
    at_maximum = [full for full in known if full >= threshold("at_maximum")]
    if len(at_maximum) < threshold("at_maximum_samples") * len(known):
        return None
    statement = (
        f"running requests stood at their maximum of {most_running(facts) or 0:.0f} in {len(at_maximum)} of "
        f"{len(known)} samples with waiting requests, and the KV cache was not full"
    )
    return Saturation("slots", statement, facts.window.source_name("running") or "samples")


def _waiting(engine: Engine) -> Iterator[_Sample]:
    """The engine's samples in which requests waited."""
    waiting = engine.gauges.get("waiting")
    if waiting is None:
        return
    usage, running = _by_time(engine, "kv_usage"), _by_time(engine, "running")
    most = max(running.values(), default=0.0)
    for time, value in zip(waiting.times, waiting.values, strict=True):
        if value > 0:
            full = running[time] / most if time in running and most else None
            yield _Sample(usage.get(time), full)


def _by_time(engine: Engine, gauge: str) -> dict[float, float]:
    series = engine.gauges.get(gauge)
    return dict(zip(series.times, series.values, strict=True)) if series else {}


def _idle_by_busy_time(facts: WindowFacts) -> Idleness | None:
    if facts.busy is None or not facts.duration_seconds:
        return None
    share = max(0.0, 1 - facts.busy.seconds.high / facts.duration_seconds)
    statement = f"the engine worked for {facts.busy.seconds.high:.1f} s of {facts.duration_seconds:.1f} s"
    return Idleness(share, statement, facts.busy.basis)


def _idle_by_samples(facts: WindowFacts, within_load: bool = False) -> Idleness | None:
    """Samples in which no engine had a request; ``within_load``: between the first and the last that had one."""
    load: dict[float, float] = {}
    for engine in facts.window.engines:
        for gauge in ("running", "waiting"):
            for time, value in _by_time(engine, gauge).items():
                load[time] = load.get(time, 0.0) + value
    # The first and the last sample frame the load and are expected to be idle.
    inside = [load[time] for time in sorted(load)][1:-1]
    if within_load:
        loaded = [number for number, value in enumerate(inside) if value]
        inside = inside[loaded[0] : loaded[-1] + 1] if loaded else []
    if len(inside) < threshold("idle_samples"):
        return None
    idle = sum(1 for value in inside if value == 0)
    statement = f"no request ran or waited in {idle} of {len(inside)} samples"
    return Idleness(idle / len(inside), statement, facts.window.source_name("running") or "samples")
