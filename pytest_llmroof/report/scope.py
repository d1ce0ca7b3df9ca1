"""What was tested: accelerator, model, deployment, and where each fact comes from."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.report.wire import Document
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models.architecture import Architecture


def gpu_document(deployment: Deployment) -> Document | None:
    """The accelerator's roofs at the precision that MFU is measured against; None where it was not named."""
    accelerator = deployment.accelerator
    if accelerator is None:
        return None
    return {
        "name": accelerator.name,
        "product": full_product(accelerator),
        "short": short_product(accelerator),
        "also": accelerator.also,
        "count": deployment.gpus,
        "precision": deployment.compute,
        "peak_flops_per_second": deployment.peak_flops_per_second,
        "peaks": dict(accelerator.peaks),
        "memory_bandwidth_bytes_per_second": accelerator.memory_bandwidth_bytes_per_second,
        "memory_bytes": accelerator.memory_bytes,
        "ridge_flops_per_byte": accelerator.ridge(deployment.compute),
        "achievable": accelerator.achievable,
        "confidence": accelerator.confidence,
    }


def model_document(deployment: Deployment) -> Document | None:
    """The model's figures; ``kv_bytes_per_token`` is the whole model's, without replication. None without a model."""
    model = deployment.model
    if model is None:
        return None
    return {
        "name": model.name,
        "title": model.title,
        "parameters": whole(model.parameters),
        "active_parameters": whole(model.active_parameters),
        "matmul_parameters": whole(model.matmul_parameters),
        "weight_bytes": whole(model.weight_bytes(deployment.weights)),
        "kv_bytes_per_token": whole(model.kv_bytes_per_token(deployment.kv_cache)),
        "layers": model.layers,
        "experts": model.experts,
        "experts_per_token": model.experts_per_token,
        "left_out": model.left_out,
        "class_defaults": model.class_defaults if isinstance(model, Architecture) else (),
    }


def deployment_document(deployment: Deployment) -> Document:
    """Parallelism and precisions, resolved."""
    return {
        "tensor_parallel": deployment.tensor_parallel,
        "pipeline_parallel": deployment.pipeline_parallel,
        "data_parallel": deployment.replicas,
        "expert_parallel": deployment.expert_parallel,
        "weights": deployment.weights,
        "kv_cache": deployment.kv_cache,
        "compute": deployment.compute,
        "interconnect": deployment.interconnect,
        "gpus_per_node": deployment.gpus_per_node,
        "internode_bytes_per_second": deployment.internode_bytes_per_second,
        "speculative_tokens": deployment.speculative_tokens,
        "draft_model": deployment.draft.name if deployment.draft else None,
        "flops": deployment.flops,
        "gpus": deployment.gpus,
        "missing": deployment.missing,
    }


def asked_document(spec: WindowSpec, *, clocked: bool) -> Document:
    """What the user wrote to name the hardware and the model, so that a gate file can be written from a report.

    An absolute path is left out: it belongs to one machine. So is an option's duration that files which carry a clock
    of their own (``clocked``) did not use.
    """
    return {
        "gpu": _portable(spec.gpu),
        "model": _portable(spec.model),
        "deployment": {key: value for key, value in spec.deployment.items() if _portable(value) is not None},
        "phase": spec.phase,
        "flops": spec.flops,
        "served_model_name": spec.served_model_name,
        "duration_seconds": None if spec.duration_fallback and clocked else spec.duration_seconds,
    }


def _portable(value: object) -> object:
    return None if isinstance(value, str) and Path(value).expanduser().is_absolute() else value


def full_product(accelerator: Accelerator) -> str:
    """``NVIDIA H100 SXM5 80GB``."""
    vendor = accelerator.vendor
    own = accelerator.product == accelerator.name  # a mapping's: called as its user calls it
    if not vendor or own or accelerator.product.casefold().startswith(vendor.casefold()):
        return accelerator.product
    return f"{vendor} {accelerator.product}"


def short_product(accelerator: Accelerator) -> str:
    """``H100 SXM``: what people call it, without vendor, memory size and socket generation."""
    name = full_product(accelerator)
    if accelerator.vendor:
        name = name[len(accelerator.vendor) :] if name.casefold().startswith(accelerator.vendor.casefold()) else name
    name = re.sub(r"\b\d+\s?GB\b", "", name)
    name = re.sub(r"\bSXM\d\b", "SXM", name)
    return " ".join(name.split()) or accelerator.name


def whole(value: float) -> float:
    """A whole number as an integer, so that counts of parameters and bytes print every digit."""
    return int(value) if float(value).is_integer() else value
