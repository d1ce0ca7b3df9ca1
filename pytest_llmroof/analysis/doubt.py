"""Inputs in doubt: where most of a step is unexplained, another parallelism or precision may explain it better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.constants import threshold
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.fitting import refused
from pytest_llmroof.analysis.floors import decode_costs
from pytest_llmroof.roofline.cost import memory_fit
from pytest_llmroof.roofline.deployment import Deployment, element_bytes

_KNOWN_ONLY_BY_WORD = ("given", "assumed")


def doubtful_inputs(facts: WindowFacts, step: Attribution) -> str | None:
    """Which inputs to check first, and what decode MBU would be with others; None where nothing else would do.

    A narrower split or wider weights make each GPU read more in the same time. Nothing is said of facts that the
    telemetry or a config.json tells.
    """
    if facts.decode is None or step.share("not attributed") <= threshold("doubtful_rest"):
        return None
    readings = []
    for said, changed in _others(facts.deployment):
        share = _utilisation(facts, changed)
        if share is not None and threshold("plausible_mbu") <= share <= 1:
            readings.append(f"with {said} decode MBU would read {share * 100:.0f} %")
    return f"check the inputs first: {', '.join(readings)}" if readings else None


def _others(deployment: Deployment) -> Iterator[tuple[str, Deployment]]:
    """The deployment with each smaller tensor parallelism, and with wider weights."""
    known = deployment.provenance
    if known.get("tensor_parallel", "given") in _KNOWN_ONLY_BY_WORD:
        degree = deployment.tensor_parallel // 2
        while degree >= 1:
            if not refused(deployment, degree):
                yield f"tensor_parallel {degree}", replace(deployment, tensor_parallel=degree)
            degree //= 2
    if known.get("weights", "assumed") in _KNOWN_ONLY_BY_WORD:
        for wider in ("fp8", "bf16"):
            if element_bytes(wider) > element_bytes(deployment.weights):
                yield f"weights {wider}", replace(deployment, weights=wider)


def _utilisation(facts: WindowFacts, deployment: Deployment) -> float | None:
    """Bytes of the mean decode step over what memory moves in its time; None where that deployment cannot be."""
    fit, bandwidth = memory_fit(deployment), deployment.bandwidth_bytes_per_second
    if facts.decode is None or fit is None or not fit.weights_fit or bandwidth is None:
        return None
    cost = decode_costs(deployment, facts.decode)["value"]
    return cost.bytes / (bandwidth * cost.gpus * facts.decode.step_seconds.value)
