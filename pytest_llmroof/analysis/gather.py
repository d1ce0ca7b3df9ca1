"""From a window's telemetry and its deployment to the facts that measuring, attribution and diagnosis share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from pytest_llmroof.analysis.busytime import busy_time
from pytest_llmroof.analysis.clientfacts import client_busy, client_decode, client_notes, client_tokens
from pytest_llmroof.analysis.contradicted_facts import fact_notes
from pytest_llmroof.analysis.decoding import Pace, least_busy, pace_of, replica_decode, weighted
from pytest_llmroof.analysis.estimated import estimator_notes
from pytest_llmroof.analysis.facts import Busy, DecodeFacts, Phase, PrefillFacts, WindowFacts
from pytest_llmroof.analysis.floors import (
    WorkFloors,
    with_decode_floors,
    with_prefill_floors,
    with_prompts_apart,
    work_floors,
)
from pytest_llmroof.analysis.gaugecheck import gauge_notes
from pytest_llmroof.analysis.hardware_notes import hardware_notes
from pytest_llmroof.analysis.lengths import UNKNOWN_CV, coefficient_of_variation, mean_context
from pytest_llmroof.analysis.phases import contradiction, find_phase, prefill_share, prefill_token_share
from pytest_llmroof.analysis.profile_notes import profile_notes
from pytest_llmroof.analysis.profiled import profiled_phase
from pytest_llmroof.analysis.prompts import counted_prompt_steps, prompt_work
from pytest_llmroof.analysis.requestnotes import request_notes
from pytest_llmroof.analysis.residency import context_from_blocks
from pytest_llmroof.analysis.sources import cannot
from pytest_llmroof.analysis.steady import kept_full, steady_decode
from pytest_llmroof.analysis.tokens import Tokens, count_tokens, lengths_are_representative, requests_at, tells_hits
from pytest_llmroof.analysis.unseen import steps_of_one, unseen_decode, unseen_note
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.profiles.profile import Profile
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.window import Histogram, Window

_Value = TypeVar("_Value")


def gather(
    window: Window, deployment: Deployment, phase: Phase | None = None, profile: Profile | None = None
) -> WindowFacts:
    """Everything that is known of a window before any metric; ``phase`` is the written one, found where it is None.

    ``profile`` is what profilers recorded of it; where no tokens were counted, its steps tell the phase.
    """
    window = known_of_all(window)
    deployment = _with_replicas(deployment, window)
    # A load generator's result alone: no engine tells anything.
    client = window.client if not window.engines else None
    tokens = count_tokens(window) if client is None else client_tokens(client)
    paces = [pace for engine in window.engines if (pace := pace_of(window, engine, deployment)) is not None]
    busy = client_busy(window) or busy_time(window, _least_busy(window, paces, deployment))
    prefill = prompt_work(window, tokens, _decode_tokens(paces))
    if prefill is not None:
        prefill = with_prefill_floors(prefill, deployment)
    decode = _decode(window, tokens, paces, busy, deployment)
    if client is not None:
        decode = steady_decode(client, deployment) or client_decode(client, deployment)
    elif decode is not None:
        decode = kept_full(decode, window, deployment)
    if decode is not None:
        # Where decode steps are timed apart, no prefill is in their time.
        decode = with_decode_floors(decode, None if _timed_apart(window, decode) else prefill, deployment)
    floors = work_floors(decode, prefill, apart=decode is not None and _timed_apart(window, decode))
    if decode is not None and "prompts_apart" in window.conventions and not _timed_apart(window, decode):
        # Of the least time of all work nothing changes: the engine might have joined its steps.
        decode = with_prompts_apart(decode, prefill, deployment)
    unseen = decode is None and bool(tokens.decoded) and not _prompts_alone(tokens, prefill, deployment)
    reckoned = unseen_decode(window, tokens, busy) if unseen and client is None else None
    if unseen:
        # Of the decode steps nothing is known; that is not to say that they were no work.
        priced = with_decode_floors(reckoned, prefill, deployment) if reckoned is not None else None
        floors = work_floors(priced, prefill) if priced is not None else None
    counted = bool(floors and floors.joint) or prefill_token_share(tokens) is not None
    found = phase or (profiled_phase(profile) if not counted else None) or find_phase(floors, tokens)
    if unseen and client is None and reckoned is None and phase is None and found == "prefill":
        found = "mixed"  # a share of tokens says little of time
    share = prefill_share(floors, tokens, found)
    facts = WindowFacts(
        window=window,
        deployment=deployment,
        phase=found,
        phase_given=phase is not None,
        prefill_share=share,
        duration_seconds=window.duration_seconds,
        busy=busy,
        prompt_tokens=tokens.prompt,
        computed_prompt_tokens=tokens.computed if client is None else client.computed_tokens,
        generated_tokens=tokens.generated,
        finished_requests=tokens.finished,
        prefix_hit_rate=tokens.hit_rate if client is None and tells_hits(window) else None,
        mean_prompt_tokens=tokens.mean_prompt,
        mean_output_tokens=tokens.mean_output,
        decode=decode,
        prefill=prefill,
        profile=profile,
        contradiction=contradiction(phase, share, floors is not None) if phase and not _apart(window, decode) else None,
    )
    notes = (
        *client_notes(window), *estimator_notes(facts), *gauge_notes(facts), *hardware_notes(facts),
        *profile_notes(facts), *fact_notes(facts),
        *((unseen_note(tokens, reckoned),) if unseen and client is None else ()), *request_notes(window, tokens),
    )  # fmt: skip
    return _with_floors(replace(facts, notes=notes), floors)


def _apart(window: Window, decode: DecodeFacts | None) -> bool:
    """Whether prompts and decode steps ran at different times, each with a clock of its own."""
    return (decode is not None and decode.apart) or window.counter("prefill_step_seconds") is not None


def _timed_apart(window: Window, decode: DecodeFacts) -> bool:
    return decode.apart or ("decode_steps_apart" in window.conventions and "decode_step_seconds" in decode.quantities)


def known_of_all(window: Window) -> Window:
    """The window without the quantities that one of its engines gave, but damaged: sums would lack its part."""
    unusable = {quantity for engine in window.engines for quantity in engine.unusable}
    if not unusable:
        return window
    engines = [
        replace(
            engine,
            counters=_without(engine.counters, unusable),
            histograms=_without(engine.histograms, unusable),
            finished={} if "requests_finished" in unusable else engine.finished,
        )
        for engine in window.engines
    ]
    return replace(window, engines=tuple(engines))


def _without(known: Mapping[str, _Value], unusable: set[str]) -> dict[str, _Value]:
    return {quantity: value for quantity, value in known.items() if quantity not in unusable}


def _with_replicas(deployment: Deployment, window: Window) -> Deployment:
    """The deployment with the replicas that were seen, where nobody gave their number."""
    if deployment.data_parallel is not None or not window.engines:
        return deployment
    provenance = {**deployment.provenance, "data_parallel": "telemetry"}
    return replace(deployment, data_parallel=window.replicas_at_once, provenance=provenance)


def _with_floors(facts: WindowFacts, floors: WorkFloors | None) -> WindowFacts:
    if floors is None:
        return facts
    replicas = facts.deployment.replicas
    return replace(
        facts,
        prefill_floor_seconds=floors.prefill / replicas,
        decode_floor_seconds=floors.decode / replicas,
        joint_floor_seconds=floors.joint / replicas,
    )


def _prompts_alone(tokens: Tokens, prefill: PrefillFacts | None, deployment: Deployment) -> bool:
    """Whether prompts are all but all of the work, had even each decoded token taken a step of its own."""
    floors = work_floors(with_decode_floors(steps_of_one(tokens), prefill, deployment), prefill)
    return floors is not None and floors.prefill > 0 and find_phase(floors, tokens) == "prefill"


def _least_busy(window: Window, paces: list[Pace], deployment: Deployment) -> float | None:
    """Mean over the replicas of the time that their decode steps took at the least."""
    if not paces:
        return None
    return sum(least_busy(window, pace, deployment.pipeline_parallel) for pace in paces) / len(window.engines)


def _decode_tokens(paces: list[Pace]) -> float | None:
    """Tokens that a decode step emits, on average; 0 where nothing decoded, None where steps cannot be believed."""
    steps = [pace.steps for pace in paces if pace.steps]
    if len(steps) < len(paces):
        return None
    return sum(pace.outputs * pace.tokens_per_step for pace in paces) / sum(steps) if steps else 0.0


def _decode(
    window: Window, tokens: Tokens, paces: list[Pace], busy: Busy | None, deployment: Deployment
) -> DecodeFacts | None:
    """The mean decode step, over the replicas weighted by their steps."""
    if not paces:
        return None
    emitted = _decode_tokens(paces)
    replicas = [
        replica_decode(
            window,
            pace,
            busy,
            (counted_prompt_steps(pace.engine, emitted) or 0.0) if emitted is not None else 0.0,
            deployment.pipeline_parallel,
        )
        for pace in paces
    ]
    weights = [replica.steps for replica in replicas]
    outputs = [pace.outputs for pace in paces]
    context = _context(window, tokens)
    longest = _longest_sequence(window) if context is None else None
    return DecodeFacts(
        step_seconds=weighted([replica.step_seconds for replica in replicas], weights),
        batch=weighted([replica.batch for replica in replicas], weights),
        context=context if longest is None else Bounded(0.0, 0.0, longest),
        steps=sum(weights),
        tokens_per_step=_mean([pace.tokens_per_step for pace in paces], outputs),
        draft_tokens=_mean([pace.draft_tokens for pace in paces], outputs),
        basis=replicas[0].basis,
        quantities=paces[0].quantities,
        only_longest=_why_no_context(window) if longest is not None else None,
    )


def _context(window: Window, tokens: Tokens) -> Bounded | None:
    """Mean context of a decoding sequence: as counted in steps, from lengths, the cache's blocks, else unknown."""
    contexts, sequences = window.counter("decode_context_tokens"), window.counter("decode_sequences")
    if contexts and sequences:
        return Bounded.exactly(contexts / sequences)
    if tokens.mean_prompt is None or tokens.mean_output is None:
        return context_from_blocks(window, tokens.hit_rate)
    if lengths_are_representative(window, tokens):
        return mean_context(tokens.mean_prompt, tokens.mean_output, coefficient_of_variation(_output_lengths(window)))
    if tokens.first and requests_at(window, 0) == 0 and tokens.prompt and tokens.generated:
        # It began idle and ended under load: every output stands behind a prompt of this window, most of them cut off.
        return mean_context(tokens.prompt / tokens.first, tokens.generated / tokens.first, UNKNOWN_CV)
    return context_from_blocks(window, tokens.hit_rate)


def _longest_sequence(window: Window) -> float | None:
    """The longest sequence that any engine ever held: no context was longer."""
    seen = [gauge.values for engine in window.engines if (gauge := engine.gauges.get("longest_sequence")) is not None]
    longest = max((value for values in seen for value in values), default=0.0)
    return longest if longest > 0 and len(seen) == len(window.engines) else None


def _why_no_context(window: Window) -> str:
    reason = cannot(window, "decode.context")
    return reason.reason if reason is not None else "context is not measurable: between weights only and the longest"


def _output_lengths(window: Window) -> Histogram | None:
    try:
        return window.histogram("generation_length")
    except ValueError:  # replicas with different buckets: how lengths vary over all of them is not known
        return None


def _mean(values: list[float], weights: list[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
