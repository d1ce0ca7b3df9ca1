"""vLLM's own count of FLOPs and bytes against what its formula gives for the deployment: like with like.

A difference says that another model, parallelism or quantisation is served than the deployment says; agreement confirms
them. It is never a utilisation: the estimator counts otherwise than the roofline does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.data import load
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.estimatedmodel import Comparable, estimated_model
from pytest_llmroof.roofline.estimator import Batch, Estimate, Parallel, Scheduled, estimate

_ENDS: Final = ("value", "low", "high")


@dataclass(frozen=True)
class EstimatorCheck:
    """A counter of the server over what its formula gives: 1 where they agree.

    ``ratio`` is an interval: how long single prompts were, and how they were cut, is not known. ``of`` is ``FLOPs`` or
    ``bytes read``; ``miscount`` names why it is not judged.
    """

    of: str
    source: str
    ratio: Bounded
    miscount: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether they may be the same, the tolerance allowed for."""
        return self.ratio.low <= 1 + _setting("tolerance") and self.ratio.high >= 1 / (1 + _setting("tolerance"))

    @property
    def confirms(self) -> bool:
        """Whether they are the same, whatever is not known, and the server is not known to miscount."""
        within = 1 / (1 + _setting("tolerance")) <= self.ratio.low and self.ratio.high <= 1 + _setting("tolerance")
        return within and self.miscount is None


def estimator_checks(facts: WindowFacts) -> tuple[EstimatorCheck, ...]:
    """Every counter of the server's estimator that can be compared; none where it is off, or the model not known."""
    window = facts.window
    if not window.counter("estimated_flops") or (comparable := estimated_model(facts.deployment)) is None:
        return ()
    steps = [*_decode_steps(facts), *_prefill_steps(facts)]
    if not steps or (facts.decode is not None and facts.decode.context is None):
        return ()
    return tuple(_checks(facts, comparable, {end: _expected(facts, comparable, steps, end) for end in _ENDS}))


def estimator_notes(facts: WindowFacts) -> tuple[str, ...]:
    """What the comparison says against the deployment, one sentence each; nothing where it agrees."""
    return tuple(_note(check, facts.deployment) for check in estimator_checks(facts) if not check.agrees)


@dataclass(frozen=True)
class _Steps:
    """``count`` steps of ``requests`` requests each, alike; the context of each is known between bounds."""

    count: float
    requests: float
    tokens: float
    context: Bounded
    prefill: bool


def _checks(facts: WindowFacts, comparable: Comparable, expected: Mapping[str, Estimate]) -> Iterator[EstimatorCheck]:
    window, judged = facts.window, {
        "FLOPs": comparable.model.weight_bytes is not None,
        "bytes read": comparable.bytes_known and _decodes(facts),
    }  # fmt: skip
    for of, counter in (("FLOPs", "estimated_flops"), ("bytes read", "estimated_read_bytes")):
        counted = window.counter(counter)
        if counted and judged[of]:
            value, *ends = (counted / (each.flops if of == "FLOPs" else each.read) for each in expected.values())
            source = window.source_name(counter) or counter
            yield EstimatorCheck(of, source, Bounded.spanning(value, *ends), _miscount(facts.deployment))


def _expected(facts: WindowFacts, comparable: Comparable, steps: Sequence[_Steps], end: str) -> Estimate:
    """What the counters would show if every context had its ``value``, ``low`` or ``high`` length."""
    model, total = comparable.model, Estimate()
    parallel = _parallel(facts.deployment)
    for each in steps:
        request = Scheduled(each.tokens, getattr(each.context, end), each.prefill)
        total = total.plus(
            estimate(model, parallel, Batch.alike(each.requests, request, model.window)).times(each.count)
        )
    return total


def _decode_steps(facts: WindowFacts) -> Iterator[_Steps]:
    decode = facts.decode
    if decode is not None and decode.context is not None:
        # Verified drafts are billed like a prompt.
        drafts = decode.draft_tokens
        yield _Steps(decode.steps, decode.batch.value, 1 + drafts, decode.context, prefill=drafts > 0)


def _prefill_steps(facts: WindowFacts) -> Iterator[_Steps]:
    prefill = facts.prefill
    if prefill is None:
        return
    for chunk in prefill.step.prefills:
        # Cut into small chunks a prompt's tokens see half of it; lengths that vary raise the mean of their squares.
        context = chunk.cached + chunk.tokens
        spread = Bounded(context, context / 2, context * 2)
        yield _Steps(prefill.steps.value, chunk.sequences, chunk.tokens, spread, prefill=True)


def _parallel(deployment: Deployment) -> Parallel:
    return Parallel(deployment.tensor_parallel, deployment.pipeline_parallel, experts=deployment.expert_parallel)


def _decodes(facts: WindowFacts) -> bool:
    """Whether next to nothing of the window's tokens are prompts: only then the estimator's bytes mean something."""
    decode, prompts = facts.decode, (facts.prefill.tokens.high if facts.prefill else 0.0)
    if decode is None or not decode.steps:
        return False
    return prompts <= _setting("prompt_share") * (prompts + decode.steps * decode.batch.value)


def _miscount(deployment: Deployment) -> str | None:
    """Why a difference is not held against the deployment."""
    if deployment.replicas > 1:
        return "data-parallel ranks"
    if deployment.expert_parallel:
        return "expert parallelism"
    return "pipeline parallelism" if deployment.pipeline_parallel > 1 else None


def _note(check: EstimatorCheck, deployment: Deployment) -> str:
    model = deployment.model.name if deployment.model is not None else ""
    what = f"{check.source} is {check.ratio.value * 100:.0f} % of what vLLM's estimator gives for {model}"
    served = f"at TP {deployment.tensor_parallel}, weights {deployment.weights}, kv_cache {deployment.kv_cache}"
    if check.miscount is not None:
        return f"{what} {served}: not judged, it is known to miscount {check.miscount}"
    suspects = "model or tensor_parallel" if check.of == "FLOPs" else "model, tensor_parallel or quantisation"
    return f"{what} {served}: {suspects} may not be what the server runs{_fitting(check, deployment)}"


def _fitting(check: EstimatorCheck, deployment: Deployment) -> str:
    """The tensor-parallel degree that would explain FLOPs."""
    if check.of != "FLOPs":
        return ""
    for degree in (1, 2, 4, 8, 16):
        explained = check.ratio.scaled(degree / deployment.tensor_parallel)
        if degree != deployment.tensor_parallel and abs(explained.value - 1) <= _setting("fit"):
            return f" (tensor_parallel {degree} would fit)"
    return ""


def _setting(name: str) -> float:
    return float(load("estimator.yaml")[name])
