"""The mean decode step of each replica: step time, batch and tokens per step, from what its engine counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmroof.analysis.facts import Busy
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.analysis.tokens import Tokens, count_tokens, requests_at
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.window import Engine, Window


@dataclass(frozen=True)
class Pace:
    """What one replica's outputs tell of its steps, before its batch is known.

    ``output_seconds`` is the mean time between two outputs of a sequence (m tokens each), ``sum_seconds`` its sum over
    all ``outputs``; ``steps`` counts the engine's steps, None where they are not counted or API servers repeat them.
    """

    engine: Engine
    tokens: Tokens
    output_seconds: float
    sum_seconds: float
    outputs: float
    tokens_per_step: float
    draft_tokens: float
    steps: float | None
    basis: str


@dataclass(frozen=True)
class ReplicaDecode:
    """The mean decode step of one replica: T, B, m, g and the number of its steps."""

    step_seconds: Bounded
    batch: Bounded
    steps: float
    tokens_per_step: float
    draft_tokens: float
    basis: str


def pace_of(window: Window, engine: Engine, deployment: Deployment) -> Pace | None:
    """One replica's pace, None where it decoded nothing or nothing tells the time between outputs."""
    tokens = count_tokens(window.only(engine))
    latency = engine.histograms.get("itl")
    per_step = "itl_per_step" in window.conventions
    if latency is not None and latency.count > 0 and latency.total > 0:
        m = _tokens_per_step(engine, tokens, latency.count if per_step else None)
        outputs = latency.count if per_step else latency.count / m
        basis = "mean inter-token latency" + ("" if per_step else " times tokens per step" if m != 1 else "")
        seconds = latency.total
    else:
        decode_time = engine.histograms.get("decode_time")
        if decode_time is None or not decode_time.total or not tokens.decoded:
            return None
        m = _tokens_per_step(engine, tokens, None)
        outputs, seconds, basis = tokens.decoded / m, decode_time.total, "decode time of the requests over their tokens"
    steps = _believable_steps(engine, seconds / outputs, window.duration_seconds, deployment.pipeline_parallel)
    return Pace(
        engine=engine,
        tokens=tokens,
        output_seconds=seconds / outputs,
        sum_seconds=seconds,
        outputs=outputs,
        tokens_per_step=m,
        draft_tokens=_draft_tokens(engine, outputs, deployment),
        steps=steps,
        basis=basis,
    )


def replica_decode(window: Window, pace: Pace, busy: Busy | None, prompt_steps: float, stages: int) -> ReplicaDecode:
    """The mean step of one replica. ``prompt_steps`` is how many of its steps held prompt tokens, ``stages`` is p."""
    if pace.steps:
        value = pace.outputs / pace.steps
        # Steps that computed prompts only decoded nothing: were all those with prompts such, the batch was larger.
        fewest = max(pace.steps - prompt_steps, pace.outputs / _most_sequences(window, pace))
        batch = Bounded(value, value, max(value, pace.outputs / fewest))
        basis = "batch = outputs / engine steps"
    else:
        batch = _batch_by_time(window, pace, busy)
        basis = "batch = sum of inter-token latencies / busy time"
    return ReplicaDecode(
        step_seconds=_step_seconds(pace, busy, stages),
        batch=batch,
        steps=pace.steps or pace.outputs / batch.value,
        tokens_per_step=pace.tokens_per_step,
        draft_tokens=pace.draft_tokens,
        basis=f"{pace.basis}; {basis}",
    )


def least_busy(window: Window, pace: Pace, stages: int) -> float:
    """The time that a replica's decode steps took at the least: what its busy time cannot be shorter than."""
    if pace.steps:
        return pace.steps * pace.output_seconds / stages
    return pace.sum_seconds / _most_sequences(window, pace)


def weighted(values: Sequence[Bounded], weights: Sequence[float]) -> Bounded:
    """The mean of bounded values, weighted."""
    all_weights = sum(weights)
    means = [
        sum(weight * getattr(value, end) for value, weight in zip(values, weights, strict=True)) / all_weights
        for end in ("value", "low", "high")
    ]
    return Bounded(means[0], min(means[0], means[1]), max(means[0], means[2]))


def _tokens_per_step(engine: Engine, tokens: Tokens, outputs: float | None) -> float:
    """m: tokens that a sequence emits per step; one without speculation."""
    drafts, accepted = engine.counters.get("draft_steps"), engine.counters.get("accepted_tokens")
    if not drafts or accepted is None:
        return 1.0
    if outputs and tokens.decoded:
        return max(1.0, tokens.decoded / outputs)  # steps without a draft emit one token, and are in here, too
    return 1.0 + accepted / drafts


def _draft_tokens(engine: Engine, outputs: float, deployment: Deployment) -> float:
    """g: draft tokens verified per sequence and step, as counted, else as deployed."""
    drafted = engine.counters.get("draft_tokens")
    return drafted / outputs if drafted else float(deployment.speculative_tokens)


def _believable_steps(engine: Engine, seconds: float, duration: float | None, stages: int) -> float | None:
    """The engine's step counter, unless its steps would not fit into the window (several API servers repeat them)."""
    steps = engine.counters.get("steps")
    if not steps:
        return None
    longest = threshold("repeated_steps") * duration if duration else math.inf
    return steps if steps * seconds / stages <= longest else None


def _batch_by_time(window: Window, pace: Pace, busy: Busy | None) -> Bounded:
    """Sequences that decode at a time, on average over the busy time; at most as many as there were requests."""
    most = _most_sequences(window, pace)
    if busy is None or not busy.seconds.high:
        return Bounded(1.0, 1.0, max(1.0, most))
    value = pace.sum_seconds / busy.seconds.value if busy.seconds.value else pace.sum_seconds / busy.seconds.high
    low = pace.sum_seconds / busy.seconds.high
    high = pace.sum_seconds / busy.seconds.low if busy.seconds.low else math.inf
    return Bounded(value, low, max(value, min(high, most)))


def _most_sequences(window: Window, pace: Pace) -> float:
    """No more sequences decode in one step than samples saw running; without such, than there were requests."""
    running = pace.engine.gauges.get("running")
    if running is not None and running.values and max(running.values) > 0:
        return max(running.values)
    present = requests_at(window.only(pace.engine), 0) or 0.0
    seen = [count + present for count in (pace.tokens.first, pace.tokens.finished) if count is not None]
    return max(1.0, max(seen)) if seen else max(1.0, pace.outputs)


def _step_seconds(pace: Pace, busy: Busy | None, stages: int) -> Bounded:
    """T: the time between outputs; with p pipeline stages up to p microbatches are under way in that time."""
    if stages == 1:
        return Bounded.exactly(pace.output_seconds)
    if busy is None or not busy.seconds.high:
        under_way = 1.0
    elif pace.steps:
        under_way = pace.steps * pace.output_seconds / busy.seconds.high
    else:
        under_way = math.floor(pace.sum_seconds / busy.seconds.high)
    microbatches = min(float(stages), max(1.0, under_way))
    return Bounded(pace.output_seconds / microbatches, pace.output_seconds / stages, pace.output_seconds)
