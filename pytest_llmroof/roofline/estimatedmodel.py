"""A deployment as vLLM's estimator sees it: sizes of the config, and bytes from its table of quantisations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_llmroof.data import load
from pytest_llmroof.roofline.deployment import ELEMENT_BYTES, Deployment
from pytest_llmroof.roofline.estimator import EstimatedLatent, EstimatedModel
from pytest_llmroof.roofline.models.architecture import Architecture
from pytest_llmroof.roofline.models.mixers import GroupedQueryAttention, Indexer, LatentAttention
from pytest_llmroof.roofline.models.precisions import own_dtype
from pytest_llmroof.roofline.models.tensors import Role, Tensor


@dataclass(frozen=True)
class Comparable:
    """What a server's estimator is to be compared with; ``bytes_known`` unless it miscounts this quantisation."""

    model: EstimatedModel
    bytes_known: bool


def estimated_model(deployment: Deployment) -> Comparable | None:
    """The deployment's model in the estimator's terms.

    None where there is none: no model that was read from a config, or layers that it takes for something else.
    """
    model = deployment.model
    if not isinstance(model, Architecture):
        return None
    caches = [mixer for mixer in model.mixers if not isinstance(mixer, Indexer)]
    grouped = [mixer for mixer in caches if isinstance(mixer, GroupedQueryAttention)]
    latent = [mixer for mixer in caches if isinstance(mixer, LatentAttention)]
    if len(grouped) + len(latent) != len(caches) or not caches or (grouped and latent):
        return None
    shapes = [(each.kv_heads, each.head_dim) for each in grouped] or [(model.attention_heads, 0)]
    sliding = [each for each in grouped if each.window is not None and not each.chunked]
    bytes_each, known = _weight_bytes(model, deployment)
    experts, shared = _of(model, "expert"), _of(model, "shared_expert")
    expert_size = experts[-1].columns if experts else 0
    # Only models that count their shared experts by number have some in its eyes.
    counted = [each for each in shared if ".shared_experts." in each.path]
    return Comparable(
        EstimatedModel(
            layers=model.layers,
            hidden=model.hidden_size,
            heads=model.attention_heads,
            kv_heads=shapes[0][0],
            head_dim=shapes[0][1],
            vocabulary=next(each.rows for each in model.tensors if each.role in ("embedding", "head")),
            size=_width(model, "mlp"),
            activation_bytes=ELEMENT_BYTES[own_dtype(model)],
            weight_bytes=bytes_each,
            cache_bytes=ELEMENT_BYTES[deployment.kv_cache],
            window=sliding[0].window if sliding else None,
            sliding_layers=sum(each.layers for each in sliding),
            experts=model.experts,
            experts_per_token=model.experts_per_token,
            expert_size=expert_size,
            shared_experts=counted[-1].columns // expert_size if counted and expert_size else 0,
            moe_layers=len(experts[-1].layers) if experts else 0,
            latent=_latent(model, latent[0]) if latent else None,
        ),
        known,
    )


def _latent(model: Architecture, mixer: LatentAttention) -> EstimatedLatent:
    ranks = [each.rows for each in model.tensors if each.path.endswith(".q_a_proj")]
    return EstimatedLatent(mixer.latent, mixer.rope, mixer.nope, mixer.value, ranks[0] if ranks else None)


def _weight_bytes(model: Architecture, deployment: Deployment) -> tuple[float | None, bool]:
    """Bytes of a weight in its table (None: it is not there), and whether they are what such weights have."""
    data: Mapping[str, Mapping[str, float]] = load("estimator.yaml")
    if model.checkpoint is None or model.checkpoint.precision != deployment.weights:
        stated = data["stated_bytes"].get(deployment.weights, 0.5)
        return stated, deployment.weights in data["stated_bytes"]
    method = model.checkpoint.method
    table = data["weight_bytes"]
    each = table.get(f"{method}/{deployment.weights}", table.get(method))
    return each, method not in data["miscounted"] and each is not None


def _width(model: Architecture, role: Role) -> int:
    """The width of a feed-forward layer: the inputs of its last projection."""
    tensors = _of(model, role)
    return tensors[-1].columns if tensors else 0


def _of(model: Architecture, role: Role) -> list[Tensor]:
    return [each for each in model.tensors if each.role == role]
