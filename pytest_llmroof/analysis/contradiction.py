"""A contradiction among the inputs: what it is, which of them to check, and which metrics it spoils."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmroof.roofline.deployment import Deployment


@dataclass(frozen=True)
class Contradiction:
    """What contradicts what, which inputs to check, and the utilisation that they imply, where there is one.

    ``per_gpu`` says that figures per GPU are wrong, too, not only those that rest on the physics; ``counts`` names the
    beginnings of others that are.
    """

    reason: str
    check: str
    implied: float | None = None
    per_gpu: bool = False
    counts: tuple[str, ...] = ()
    only: str | tuple[str, ...] = ()
    """The beginnings of the metrics that alone are wrong."""

    def spoils(self, metric: str, physics: bool) -> bool:
        """Whether a metric rests on what contradicts itself; ``physics``: it needs the model and the accelerator."""
        if self.only:
            return physics and metric.startswith(self.only)
        return physics or (self.per_gpu and metric.endswith(".per_gpu")) or metric.startswith(self.counts)


def said(deployment: Deployment, *facts: str, **remarks: str) -> str:
    """Facts of a deployment with their values, provenance and a remark each, the assumed ones first."""
    values = {
        "tensor_parallel": str(deployment.tensor_parallel),
        "data_parallel": str(deployment.replicas),
        "weights": deployment.weights,
        "compute": deployment.compute,
        "model": deployment.model.name if deployment.model is not None else "",
        "gpu": deployment.accelerator.name if deployment.accelerator is not None else "",
    }
    known = {fact: deployment.provenance.get(fact, "given") for fact in facts}
    order = sorted(facts, key=lambda fact: known[fact] != "assumed")
    remark = {fact: f"; {text}" for fact, text in remarks.items()}
    return ", then ".join(f"{fact} ({values[fact]}, {known[fact]}{remark.get(fact, '')})" for fact in order)
