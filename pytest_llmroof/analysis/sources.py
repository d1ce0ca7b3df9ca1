"""Words that measurements share: where a figure came from, what was not exported, and the roofs of a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pytest_llmroof.advice import AnyAdvice, behind
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.analysis.thresholds import remedy, threshold
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.model import Model
from pytest_llmroof.roofline.step import StepCost
from pytest_llmroof.telemetry.window import Unavailable, Window

NO_CLOCK: Final = "the sources carry no clock, so the window's duration is not known"

_TOKENS: Final = ("itl", "steps", "step_tokens", "prompt", "generation", "computed_length", "draft", "accept")
#: Beginnings of metrics' names, and of the quantities' that they rest on; tokens and steps for all others.
_RESTS_ON: Final[dict[str, tuple[str, ...]]] = {
    **{name: (name,) for name in ("ttft", "tpot", "itl", "e2e", "queue", "running", "waiting", "preemptions")},
    "kv_cache": ("kv_usage",),
    "prefix_cache": ("prefix", "prompt_tokens"),
    "speculative": ("draft", "accept"),
    "requests": ("requests", "e2e"),
    "errors": ("requests",),
    "output": ("generation",),
    "input": ("prompt",),
}


@dataclass(frozen=True)
class Roofs:
    """Model, accelerator and both peaks of one GPU, all of them known."""

    model: Model
    accelerator: Accelerator
    peak: float
    bandwidth: float
    deployment: Deployment


def roofs(metric: str, deployment: Deployment) -> Roofs | NoData:
    """What utilisations are measured against, or what is missing for it."""
    for key in ("gpu", "model"):
        if (lacking := lacks(metric, deployment, key)) is not None:
            return lacking
    model, accelerator = deployment.model, deployment.accelerator
    peak, bandwidth = deployment.peak_flops_per_second, deployment.bandwidth_bytes_per_second
    if model is None or accelerator is None:
        raise AssertionError("checked above")
    if peak is None:
        known = ", ".join(accelerator.peaks) or "none"
        return NoData(
            metric,
            f"the dense {deployment.compute} peak of {accelerator.product} is not known (known: {known})",
            f"write it: `gpu: {{name: {accelerator.name}, peaks: {{{deployment.compute}: ...TFLOP/s}}, ...}}`",
        )
    if bandwidth is None:
        return NoData(
            metric,
            f"the memory bandwidth of {accelerator.product} is not known",
            f"write it: `gpu: {{name: {accelerator.name}, memory_bandwidth: ...TB/s, ...}}`",
        )
    return Roofs(model, accelerator, peak, bandwidth, deployment)


def lacks(metric: str, deployment: Deployment, key: str) -> NoData | None:
    """No data where the deployment lacks ``gpu`` or ``model``: why, and what to write."""
    if (deployment.accelerator if key == "gpu" else deployment.model) is not None:
        return None
    reason = deployment.missing.get(key) or f"no {key} is named, and the telemetry tells none"
    return NoData(metric, reason, None if _says_what_to_give(reason) else remedy(key))


def with_remedy(key: str, reason: str) -> AnyAdvice:
    """Why ``gpu`` or ``model`` is missing, and what to write: said once, by the reason itself where it knows better."""
    return reason if _says_what_to_give(reason) else behind(f"{reason}; ", remedy(key))


def _says_what_to_give(reason: str) -> bool:
    return ": give " in reason or "; give " in reason


def source(window: Window, *quantities: str) -> str:
    """What the engine calls the first of these quantities that it exports; its kind where it has names for none."""
    names = [name for quantity in quantities if (name := window.source_name(quantity)) is not None]
    return names[0] if names else window.kind


def sources(window: Window, *quantities: str) -> str:
    """What the engine calls all of these quantities, which a figure came from together."""
    return ", ".join(dict.fromkeys(source(window, quantity) for quantity in quantities))


def not_exported(facts: WindowFacts, metric: str, what: str, key: str) -> NoData:
    """No data where the sources do not export a quantity; what an engine never can tell has its own words."""
    if (never := cannot(facts.window, metric)) is not None:
        return NoData(metric, never.reason, never.remedy)
    where = ", ".join(dict.fromkeys(info.location for info in facts.window.sources)) or "the sources"
    if unusable := _unusable(facts.window, metric):
        found = f"{facts.window.engine_title} gives no usable {what}: {'; '.join(unusable[:2])} ({where})"
        return NoData(metric, found, "scrape the server again, whole pages as they come")
    return NoData(metric, f"{facts.window.engine_title} exports no {what} in {where}", remedy(key, facts.window.kind))


def _unusable(window: Window, metric: str) -> list[str]:
    """What is wrong with the series that a metric rests on, each once."""
    rests_on = next((kinds for head, kinds in _RESTS_ON.items() if metric.startswith(head)), _TOKENS)
    return list(
        dict.fromkeys(
            problem
            for engine in window.engines
            for quantity, problem in engine.unusable.items()
            if quantity.startswith(rests_on)
        )
    )


def cannot(window: Window, metric: str) -> Unavailable | None:
    """Why an engine never tells a metric (``ttft.p99`` by ``ttft``), None where it may."""
    parts = metric.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((window.cannot[name] for name in names if name in window.cannot), None)


def over_duration(amount: Bounded, facts: WindowFacts) -> Bounded | None:
    """An amount per second of the whole window, with the error of its clock; None without a clock."""
    duration = facts.duration_seconds
    if not duration:
        return None
    error = min(facts.window.clock_error_seconds, duration / 2)
    return Bounded(amount.value / duration, amount.low / (duration + error), amount.high / (duration - error))


def clock_error(facts: WindowFacts) -> float:
    """The error of the window's clock as a share of the window."""
    return facts.window.clock_error_seconds / facts.duration_seconds if facts.duration_seconds else 0.0


def fits_cache(against: Roofs, cost: StepCost) -> bool:
    """Whether a step's bytes per GPU are so few that the last-level cache, not memory, may serve them."""
    l2 = against.accelerator.l2_bytes
    return l2 is not None and cost.bytes / cost.gpus < threshold("l2_multiple") * l2


def in_cache(metric: str, against: Roofs) -> NoData:
    """No verdict on memory bandwidth where the caches may hold it all."""
    return NoData(
        metric,
        f"weights and cache per GPU are within {threshold('l2_multiple'):.0f} times the L2 cache of "
        f"{against.accelerator.product}: memory bandwidth is not what limits them",
        "measure a larger model, or gate latencies and decode.step_time instead",
    )


def convention(facts: WindowFacts, exact: StepCost) -> str:
    """How an MFU counts: convention, the peak's precision, and what the other convention would make of it."""
    ratio = exact.model_flops / exact.flops if exact.flops else 1.0
    flops, compute = facts.deployment.flops, facts.deployment.compute
    counted = "2 x active parameters a token" if flops == "model" else "causal attention counted"
    return f"convention {flops} ({counted}), dense {compute} peak, 2P / exact = {ratio:.3f}"
