"""Building blocks of feed-forward layers: gated or plain, dense or a mixture of experts with shared ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmroof.roofline.models.blocks import LAYER, Block, Layers, Shape, linear, vector
from pytest_llmroof.roofline.models.tensors import Role, Tensor

GATED = ("gate_proj", "up_proj", "down_proj")
PLAIN = ("up_proj", "down_proj")


def feedforward(
    shape: Shape,
    size: int,
    *,
    layers: Layers | None = None,
    path: str = "mlp",
    names: Sequence[str] = GATED,
    bias: bool = False,
) -> Block:
    """Projections that every token passes through: gate, up and down; two names: up and down alone."""
    layers = shape.all_layers if layers is None else layers
    if not layers:
        return Block()
    return Block(_projections(f"{LAYER}.{path}", "mlp", shape.hidden, size, layers, names, bias=bias))


@dataclass(frozen=True)
class Routing:
    """How a mixture routes. ``experts`` of ``size``, of which a token takes ``active``.

    ``bias``: the router has one; ``correction``: a vector per layer corrects its scores. ``latent``: experts work on a
    projection of the hidden state of that size.
    """

    experts: int
    active: int
    size: int
    router: str = "gate"
    bias: bool = False
    correction: bool = False
    latent: int | None = None


def mixture(
    shape: Shape,
    routing: Routing,
    *,
    layers: Layers | None = None,
    path: str = "mlp",
    names: Sequence[str] = GATED,
    fused: bool = False,
    expert_bias: bool = False,
    shared_size: int = 0,
    shared_path: str = "shared_experts",
    shared_gate: bool = False,
    bias: bool = False,
) -> Block:
    """A router and its experts, and a shared expert that every token passes through.

    ``fused``: the checkpoint keeps all experts of a layer in one tensor. ``shared_gate``: the shared expert's output
    is gated. ``bias`` is on what every token passes through, ``expert_bias`` on the routed experts.
    """
    layers, place = shape.all_layers if layers is None else layers, f"{LAYER}.{path}"
    if not layers:
        return Block()
    experts, inner = f"{place}.experts" if fused else f"{place}.experts.{{expert}}", routing.latent or shape.hidden
    tensors = [
        linear(f"{place}.{routing.router}", "router", routing.experts, shape.hidden, layers, bias=routing.bias, ways=1),
        *_projections(
            experts, "expert", inner, routing.size, layers, names, (routing.experts, routing.active), expert_bias
        ),
    ]
    if routing.correction:
        tensors.append(vector(f"{place}.{routing.router}.e_score_correction_bias", routing.experts, layers))
    if routing.latent is not None:
        tensors += [
            linear(f"{place}.fc1_latent_proj", "mlp", routing.latent, shape.hidden, layers, bias=bias),
            linear(f"{place}.fc2_latent_proj", "mlp", shape.hidden, routing.latent, layers, bias=bias),
        ]
    if shared_size:
        shared = f"{place}.{shared_path}"
        tensors += _projections(shared, "shared_expert", shape.hidden, shared_size, layers, names, bias=bias)
        if shared_gate:
            tensors.append(linear(f"{shared}_gate", "router", 1, shape.hidden, layers, ways=1))
    return Block(tuple(tensors), experts=routing.experts, experts_per_token=routing.active)


def _projections(
    path: str,
    role: Role,
    hidden: int,
    size: int,
    layers: Layers,
    names: Sequence[str],
    experts: tuple[int, int] = (1, 1),
    bias: bool = False,
) -> tuple[Tensor, ...]:
    *into, out = names
    shapes = [*((name, size, hidden) for name in into), (out, hidden, size)]
    number, active = experts
    return tuple(
        Tensor(f"{path}.{name}", role, rows, columns, rows if bias else 0, layers, number, active)
        for name, rows, columns in shapes
    )
