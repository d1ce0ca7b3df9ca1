"""The mean decode step of each replica: step time, batch and tokens per step, from what its engine counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.analysis.busytime import is_bound
from pytest_llmroof.analysis.facts import Busy
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.analysis.tokens import Tokens, count_tokens, requests_at
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.window import Engine, Window

#: Decode steps that fill less of the busy time are not known to be all of them.
_FILLED: Final = 0.5


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
    quantities: tuple[str, ...] = ("itl",)
    """What the step time came from."""


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
    if "itl_per_step" not in window.conventions and engine.unusable.keys() & {"draft_steps", "accepted_tokens"}:
        return None  # how many tokens an output holds nobody knows
    tokens = count_tokens(window.only(engine))
    timing = _timing(window, engine, tokens)
    if timing is None:
        return None
    seconds = timing.output_seconds
    steps = _believable_steps(engine, seconds, window.duration_seconds, deployment.pipeline_parallel)
    return Pace(
        engine=engine,
        tokens=tokens,
        output_seconds=seconds,
        sum_seconds=seconds * timing.outputs,
        outputs=timing.outputs,
        tokens_per_step=timing.tokens_per_step,
        draft_tokens=_draft_tokens(engine, timing.outputs, deployment),
        steps=steps,
        basis=timing.basis,
        quantities=timing.quantities,
    )


@dataclass(frozen=True)
class _Timing:
    """Time between two outputs of a sequence, their number, the tokens in each, and what all that came from."""

    output_seconds: float
    outputs: float
    tokens_per_step: float
    basis: str
    quantities: tuple[str, ...]


def _timing(window: Window, engine: Engine, tokens: Tokens) -> _Timing | None:
    """By the first that an engine tells: latencies between outputs, times of its steps, decode time of its requests."""
    return _by_latency(window, engine, tokens) or _by_steps(engine, tokens) or _by_requests(engine, tokens)


def _by_latency(window: Window, engine: Engine, tokens: Tokens) -> _Timing | None:
    latency = engine.histograms.get("itl")
    if latency is None or latency.count <= 0 or latency.total <= 0:
        return None
    mean = latency.total / latency.count
    if "itl_per_step" in window.conventions:
        m = _tokens_per_step(engine, tokens, latency.count)
        return _Timing(mean, latency.count, m, "mean inter-token latency", ("itl",))
    m = _tokens_per_step(engine, tokens, None)
    outputs = (tokens.counted_decodes or latency.count) / m
    basis = "mean inter-token latency" + (" times tokens per step" if m != 1 else "")
    return _Timing(mean * m, outputs, m, basis, ("itl",))


def _by_steps(engine: Engine, tokens: Tokens) -> _Timing | None:
    """From the engine's own time of its decode steps."""
    steps, seconds = engine.counters.get("decode_steps"), engine.counters.get("decode_step_seconds")
    if not steps or not seconds or not tokens.decoded:
        return None
    sequences = engine.counters.get("decode_sequences")
    m = max(1.0, tokens.decoded / sequences) if sequences else _tokens_per_step(engine, tokens, None)
    outputs = sequences or tokens.decoded / m
    return _Timing(seconds / steps, outputs, m, "the engine's own time of its decode steps", ("decode_step_seconds",))


def _by_requests(engine: Engine, tokens: Tokens) -> _Timing | None:
    """From the decode time of the requests, which finished: a histogram, or a sum over what serves them."""
    m = _tokens_per_step(engine, tokens, None)
    times = engine.histograms.get("decode_time")
    if times is not None and times.total and tokens.decoded:
        outputs = tokens.decoded / m
        basis = "decode time of the requests over their tokens"
        return _Timing(times.total / outputs, outputs, m, basis, ("decode_time",))
    seconds, generated = engine.counters.get("decode_seconds"), tokens.generated
    if seconds and generated:
        basis = "decode seconds, summed over the requests, over their tokens, first ones included"
        return _Timing(seconds / generated * m, generated / m, m, basis, ("decode_seconds", "generation_tokens"))
    return None


def replica_decode(window: Window, pace: Pace, busy: Busy | None, prompt_steps: float, stages: int) -> ReplicaDecode:
    """The mean step of one replica. ``prompt_steps`` is how many of its steps held prompt tokens, ``stages`` is p."""
    if pace.steps and "step_sequences" in pace.engine.counters:
        # Counted at every step, while tokens that count when their request ends may miss at the window's edges; but
        # some sequences in a step may still have been at their prompt.
        counted = pace.engine.counters["step_sequences"] / pace.steps
        batch = Bounded.spanning(counted, pace.outputs / pace.steps)
        basis = "batch = sequences in the engine's steps / steps"
    elif pace.steps and pace.engine.counters.get("decode_steps"):
        batch = _batch_by_outputs(window, pace, pace.steps)
        if busy is not None and _unfilled(pace, pace.steps, busy):
            # Prompts took most of the time, or series of steps were lost: then these were in more and smaller ones.
            batch = Bounded(batch.value, min(batch.low, pace.sum_seconds / busy.seconds.high), batch.high)
        basis = "batch = outputs / decode steps"
    elif pace.steps and "tokens_at_finish" in window.conventions:
        batch = _batch_by_outputs(window, pace, pace.steps)
        basis = "batch = outputs / engine steps"
    elif pace.steps:
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
        # Some engines only have a gauge of their last interval; it is 0 without speculation.
        lengths = engine.gauges.get("accept_length")
        seen = [value for value in lengths.values if value > 0] if lengths is not None else []
        return max(1.0, sum(seen) / len(seen)) if seen else 1.0
    if outputs and tokens.decoded:
        return max(1.0, tokens.decoded / outputs)  # steps without a draft emit one token, and are in here, too
    return 1.0 + accepted / drafts


def _draft_tokens(engine: Engine, outputs: float, deployment: Deployment) -> float:
    """g: draft tokens verified per sequence and step, as counted, else as deployed."""
    drafted = engine.counters.get("draft_tokens")
    return drafted / outputs if drafted else float(deployment.speculative_tokens)


def _outputs(pace: Pace) -> Bounded:
    """Outputs of the window; some engines count tokens when their request ends, in another window maybe."""
    generated = pace.tokens.generated_bounds
    if generated is None or generated.exact or not generated.value:
        return Bounded.exactly(pace.outputs)
    return generated.scaled(pace.outputs / generated.value)


def _unfilled(pace: Pace, steps: float, busy: Busy) -> bool:
    """Whether steps that are counted, and not timed, fill less than half of the time that the engine was at work."""
    timed = "decode_step_seconds" in pace.engine.counters
    return not timed and not is_bound(busy) and steps * pace.output_seconds < _FILLED * busy.seconds.low


def _batch_by_outputs(window: Window, pace: Pace, steps: float) -> Bounded:
    """Outputs over steps; a step holds one sequence at the least, and no more than samples saw."""
    batch = _outputs(pace).scaled(1 / steps)
    low = max(batch.low, min(batch.value, 1.0))
    return Bounded(batch.value, low, max(batch.value, min(batch.high, _most_sequences(window, pace))))


def _believable_steps(engine: Engine, seconds: float, duration: float | None, stages: int) -> float | None:
    """The engine's step counter, unless its steps would not fit into the window (several API servers repeat them).

    Decode steps where they are counted apart, else all of them.
    """
    steps = engine.counters.get("decode_steps") or engine.counters.get("steps")
    if not steps:
        return None
    longest = threshold("repeated_steps") * duration if duration else math.inf
    return steps if steps * seconds / stages <= longest else None


def _batch_by_time(window: Window, pace: Pace, busy: Busy | None) -> Bounded:
    """Sequences that decode at a time, on average over the busy time; at most as many as there were requests."""
    most = _most_sequences(window, pace)
    if busy is None or not busy.seconds.high:
        return Bounded(1.0, 1.0, max(1.0, most))
    seconds = Bounded.exactly(pace.sum_seconds)
    if "itl" not in pace.quantities:
        # Latencies are observed as they pass; tokens counted when their request ends may be of another window.
        seconds = _outputs(pace).scaled(pace.output_seconds)
    value = pace.sum_seconds / (busy.seconds.value or busy.seconds.high)
    # A step that decodes holds one sequence at the least.
    low = max(seconds.low / busy.seconds.high, min(pace.sum_seconds / busy.seconds.high, 1.0))
    shortest = busy.seconds.low - _prompts_alone(pace)
    high = seconds.high / shortest if shortest > 0 else math.inf
    return Bounded(value, min(value, low), max(value, min(high, most)))


def _prompts_alone(pace: Pace) -> float:
    """How long prompts may have been computed while nothing decoded: as long as it took to compute them, at most."""
    if not pace.tokens.computed and not pace.tokens.first:
        return 0.0
    times, first = pace.engine.histograms.get("prefill_time"), pace.tokens.first or pace.tokens.finished or 0.0
    # It is observed when a request ends: those under way may have been as slow again.
    return times.total * max(1.0, first / times.count) if times is not None and times.count else math.inf


def _most_sequences(window: Window, pace: Pace) -> float:
    """No more sequences decode in one step than samples saw running; without such, than there were requests.

    Two samples that frame a load say nothing of how many ran in it: they are believed beside counted steps only.
    """
    running = pace.engine.gauges.get("running")
    if (
        running is not None
        and max(running.values) > 0
        and (pace.steps or len(running.values) >= threshold("gauge_samples"))
    ):
        return max(running.values)
    present = requests_at(window.only(pace.engine), 0) or 0.0
    seen = [count + present for count in (pace.tokens.first, pace.tokens.finished) if count is not None]
    return max(1.0, max(seen)) if seen else max(1.0, pace.outputs)


def _step_seconds(pace: Pace, busy: Busy | None, stages: int) -> Bounded:
    """T: the time between outputs; with p pipeline stages up to p microbatches are under way in that time."""
    overlapping, steps = pace.engine.counters.get("overlapping_steps"), pace.engine.counters.get("steps")
    if overlapping and steps:
        # What these steps took may span two of them.
        return Bounded(pace.output_seconds, pace.output_seconds * (1 - overlapping / steps / 2), pace.output_seconds)
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
