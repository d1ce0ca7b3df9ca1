"""Measurements and the facts that they rest on, as plain data."""

from __future__ import annotations

from pytest_llmroof.analysis.attribute_ttft import own_prompt, prompt_floor
from pytest_llmroof.analysis.facts import DecodeFacts, PrefillFacts, WindowFacts
from pytest_llmroof.analysis.measurement import Measurement, Outcome
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.report.scope import whole
from pytest_llmroof.report.wire import Document
from pytest_llmroof.roofline.step import Floor, StepCost


def measurements_document(assessment: Assessment) -> Document:
    """Every metric that the sources give, gated or not, and the gated ones that no list names (``goodput(...)``)."""
    outcomes: dict[str, Outcome | None] = dict(assessment.outcomes)
    for verdict in assessment.verdicts:
        if verdict.gate.per is None:
            outcomes.setdefault(verdict.gate.metric, verdict.outcome)
    return {
        name: measurement_document(outcome) for name, outcome in outcomes.items() if isinstance(outcome, Measurement)
    }


def measurement_document(measurement: Measurement) -> Document:
    """One measurement. ``achievable`` is the value as a share of what real kernels reach (``achievable_fraction``)."""
    eta = measurement.achievable
    return {
        **bounded_document(measurement.bounded),
        "unit": measurement.unit,
        "achievable": measurement.value / eta if eta else None,
        "achievable_fraction": eta,
        "samples": measurement.samples,
        "source": measurement.source,
        "method": measurement.method,
        "bucketed": measurement.bucketed,
        "settle": str(measurement.settle) if measurement.settle else None,
        "other": _other_document(measurement.other),
        "repeats": measurement.repeats,
        "view": measurement.view,
        "alternatives": [
            {"assumption": other.assumption, "value": other.value} for other in measurement.alternatives
        ],
    }


def _other_document(other: Measurement | None) -> Document | None:
    """The view that is not judged."""
    if other is None:
        return None
    told = {"source": other.source, "method": other.method, "samples": other.samples, "view": other.view}
    return {**bounded_document(other.bounded), **told}


def bounded_document(bounded: Bounded) -> Document:
    """A value and its interval."""
    return {"value": bounded.value, "low": bounded.low, "high": bounded.high}


def facts_document(facts: WindowFacts | None) -> Document | None:
    """What happened in the window: tokens, requests, busy time, and the mean decode step."""
    if facts is None:
        return None
    return {
        "phase_given": facts.phase_given,
        "prefill_share": facts.prefill_share,
        "busy_seconds": bounded_document(facts.busy.seconds) if facts.busy else None,
        "busy_basis": facts.busy.basis if facts.busy else None,
        "replicas": len(facts.window.engines) or None,
        "prompt_tokens": _count(facts.prompt_tokens),
        "computed_prompt_tokens": _count(facts.computed_prompt_tokens),
        "generated_tokens": _count(facts.generated_tokens),
        "finished_requests": _count(facts.finished_requests),
        "prefix_hit_rate": facts.prefix_hit_rate,
        "mean_prompt_tokens": facts.mean_prompt_tokens,
        "mean_output_tokens": facts.mean_output_tokens,
        "prefill_floor_seconds": facts.prefill_floor_seconds,
        "decode_floor_seconds": facts.decode_floor_seconds,
        "own_prompt": _own_prompt_document(facts),
        "decode": _decode_document(facts.decode) if facts.decode else None,
        "prefill": _prefill_document(facts.prefill) if facts.prefill else None,
    }


def _own_prompt_document(facts: WindowFacts) -> Document | None:
    """The mean request's prompt, and its least time computed alone: what its TTFT is held against."""
    prompt = own_prompt(facts)
    if prompt is None:
        return None
    floor = prompt_floor(facts.deployment, prompt)
    return {"tokens": prompt.tokens, "cached": prompt.cached, "floor": _floor_document(floor)}


def _decode_document(decode: DecodeFacts) -> Document:
    return {
        "step_seconds": bounded_document(decode.step_seconds),
        "batch": bounded_document(decode.batch),
        "context": bounded_document(decode.context) if decode.context else None,
        "steps": decode.steps,
        "tokens_per_step": decode.tokens_per_step,
        "draft_tokens": decode.draft_tokens,
        "interleaved_seconds": decode.interleaved_seconds,
        "joint_floor_seconds": decode.joint_floor_seconds,
        "cost": _cost_document(decode.cost),
        "floor": _floor_document(decode.floor),
    }


def _prefill_document(prefill: PrefillFacts) -> Document:
    return {
        "tokens": bounded_document(prefill.tokens),
        "requests": prefill.requests,
        "steps": bounded_document(prefill.steps),
        "estimated": prefill.estimated,
        "cost": _cost_document(prefill.cost),
        "floor": _floor_document(prefill.floor),
    }


def _cost_document(cost: StepCost | None) -> Document | None:
    if cost is None:
        return None
    return {
        "flops": cost.flops,
        "model_flops": cost.model_flops,
        "bytes": cost.bytes,
        "weight_bytes": cost.weight_bytes,
        "kv_bytes": cost.kv_bytes,
        "intensity": cost.intensity,
        "gpus": cost.gpus,
        "busiest": {"flops": cost.busiest.flops, "bytes": cost.busiest.bytes} if cost.busiest else None,
    }


def _floor_document(floor: Floor | None) -> Document | None:
    if floor is None:
        return None
    return {
        "seconds": floor.seconds,
        "memory_bound": floor.memory_bound,
        "memory_seconds": floor.memory_seconds,
        "compute_seconds": floor.compute_seconds,
        "weights_seconds": floor.weights_seconds,
        "kv_seconds": floor.kv_seconds,
    }


def _count(value: float | None) -> float | None:
    return None if value is None else whole(value)
