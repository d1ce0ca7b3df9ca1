"""A first gate file for a model and an accelerator, where nothing was measured yet."""

from __future__ import annotations

from typing import Any, Final

from pytest_llmroof.gates.defaults import default_gates
from pytest_llmroof.report.figures import precise
from pytest_llmroof.report.gatefile import Commented, gate_file
from pytest_llmroof.report.known import known_range
from pytest_llmroof.roofline.catalogue import accelerator
from pytest_llmroof.roofline.cost import memory_fit
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import named_model

_WIDEST: Final = 16
_LOADS: Final = {
    "decode": "record it under short prompts and long outputs:",
    "prefill": "record it under long prompts and one output token:",
}
_RECORD: Final = "python -m pytest_llmroof record --out=recordings/{phase} http://localhost:8000/metrics -- COMMAND"


def starter(model: str, gpu: str) -> str:
    """The YAML text. ConfigError, with the nearest names, where the model or the accelerator is not known."""
    deployment = _least_deployment(Deployment(model=named_model(model), accelerator=accelerator(gpu)))
    title = deployment.model.title if deployment.model else model
    product = deployment.accelerator.product if deployment.accelerator else gpu
    introduction = [
        f"Gates for {title} on {product}. The limits are defaults that nobody has checked against your server:",
        "measure once with --llmroof-report=report.json, then let `python -m pytest_llmroof init --from=report.json`",
        "write the ones that it supports.",
    ]
    head: dict[str, Any] = {"gpu": gpu, "model": model, "deployment": _parallel(deployment)}
    windows = {phase: {**head, **_window(phase, deployment)} for phase in _LOADS}
    return gate_file(introduction, windows)


def _least_deployment(deployment: Deployment) -> Deployment:
    """The least tensor parallelism at which the weights leave a tenth of the memory free."""
    tensor_parallel = 1
    while tensor_parallel <= _WIDEST:
        candidate = Deployment(
            model=deployment.model, accelerator=deployment.accelerator, tensor_parallel=tensor_parallel
        )
        fit = memory_fit(candidate)
        if fit is None or fit.weight_bytes <= 0.9 * fit.memory_bytes:
            return candidate
        tensor_parallel *= 2
    return deployment


def _parallel(deployment: Deployment) -> Commented:
    comment = "as it is served: the least tensor parallelism at which bf16 weights fit stands here"
    value = {"tensor_parallel": deployment.tensor_parallel, "weights": deployment.weights}
    return Commented(value, comment)


def _window(phase: str, deployment: Deployment) -> dict[str, Any]:
    recording = Commented(f"recordings/{phase}", f"{_LOADS[phase]} {_RECORD.format(phase=phase)}")
    gates = []
    for gate in default_gates("prefill" if phase == "prefill" else "decode"):
        known = known_range(gate.metric, deployment)
        comment = f"the default; known for {_range(known)}" if known else "the default"
        gates.append(Commented(gate.canonical, comment))
    return {"phase": phase, "telemetry": recording, "gates": gates}


def _range(known: dict[str, Any]) -> str:
    low, high = (precise(known[end], "fraction") for end in ("low", "high"))
    return f"{known['what']}: {low.removesuffix(' %')} to {high} ({known['source']})"
