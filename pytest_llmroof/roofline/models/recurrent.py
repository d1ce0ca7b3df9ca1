"""Building blocks of recurrent layers: gated delta rules (linear attention) and state-space models (Mamba)."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmroof.roofline.models.blocks import LAYER, Block, Layers, Shape, linear, vector
from pytest_llmroof.roofline.models.states import RecurrentState
from pytest_llmroof.roofline.models.tensors import Tensor

# FLOPs of a token per element of the state: a decay, an outer product and a read-out, 2 each; the delta rule reads the
# state once more before it writes.
_SCAN = 6
_DELTA = 8


def _convolution(path: str, channels: int, kernel: int, layers: Layers, bias: bool, ways: float) -> Tensor:
    return Tensor(path, "convolution", channels, kernel, channels if bias else 0, layers, ways=ways)


@dataclass(frozen=True)
class Delta:
    """The sizes of a gated delta rule: heads of keys and of values, the kernel of its short convolution."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def keys(self) -> int:
        """Elements of a token's keys."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Elements of a token's values."""
        return self.value_heads * self.value_dim


def delta_state(sizes: Delta, layers: Layers, state_bytes: float) -> RecurrentState:
    """A matrix of key x value size in each value head, and the convolution's window over queries, keys and values."""
    channels, state = 2 * sizes.keys + sizes.values, sizes.value_heads * sizes.key_dim * sizes.value_dim
    return RecurrentState(
        len(layers),
        heads=sizes.value_heads,
        state=state,
        window=channels * (sizes.kernel - 1),
        token_flops=_DELTA * state + 2 * channels * sizes.kernel,
        state_bytes=state_bytes,
        numbers=layers,
    )


def gated_delta(shape: Shape, sizes: Delta, layers: Layers, *, fused: bool, state_bytes: float = 4.0) -> Block:
    """Gated DeltaNet. ``fused``: two projections, of queries, keys, values and gate, and of the two rates of a head."""
    if not layers:
        return Block()
    place, heads, hidden = f"{LAYER}.linear_attn", sizes.value_heads, shape.hidden
    channels = 2 * sizes.keys + sizes.values
    into = (("in_proj_qkvz", channels + sizes.values), ("in_proj_ba", 2 * heads)) if fused else (
        ("in_proj_qkv", channels), ("in_proj_z", sizes.values), ("in_proj_b", heads), ("in_proj_a", heads),
    )  # fmt: skip
    tensors = (
        *(linear(f"{place}.{name}", "attention", rows, hidden, layers, ways=heads) for name, rows in into),
        _convolution(f"{place}.conv1d", channels, sizes.kernel, layers, False, heads),
        vector(f"{place}.dt_bias", heads, layers, ways=heads),
        vector(f"{place}.A_log", heads, layers, ways=heads),
        vector(f"{place}.norm", sizes.value_dim, layers),
        linear(f"{place}.out_proj", "attention", hidden, sizes.values, layers, ways=heads),
    )
    return Block(tensors, (delta_state(sizes, layers, state_bytes),))


def kimi_delta(shape: Shape, sizes: Delta, layers: Layers, *, state_bytes: float = 4.0) -> Block:
    """Kimi Delta Attention: a decay per channel, from a projection of low rank (the head's size); a gate alike."""
    if not layers:
        return Block()
    place, heads, hidden, width = f"{LAYER}.self_attn", sizes.value_heads, shape.hidden, sizes.values
    tensors = [
        linear(f"{place}.{name}_proj", "attention", width, hidden, layers, ways=heads) for name in ("q", "k", "v")
    ]
    for name in ("f", "g"):
        tensors += [
            linear(f"{place}.{name}_a_proj", "attention", sizes.value_dim, hidden, layers, ways=1),
            linear(f"{place}.{name}_b_proj", "attention", width, sizes.value_dim, layers, ways=heads),
        ]
    tensors += [
        linear(f"{place}.b_proj", "attention", heads, hidden, layers, ways=heads),
        _convolution(f"{place}.conv1d", 3 * width, sizes.kernel, layers, False, heads),
        vector(f"{place}.dt_bias", width, layers, ways=heads),
        vector(f"{place}.A_log", heads, layers, ways=heads),
        vector(f"{place}.o_norm", sizes.value_dim, layers),
        linear(f"{place}.o_proj", "attention", hidden, width, layers, ways=heads),
    ]
    return Block(tuple(tensors), (delta_state(sizes, layers, state_bytes),))


@dataclass(frozen=True)
class Mamba:
    """The sizes of a state-space layer: ``inner`` channels with ``state`` elements each, a kernel, and biases."""

    inner: int
    state: int
    kernel: int
    convolution_bias: bool
    bias: bool


def _scan(layers: Layers, heads: int, sizes: Mamba, channels: int, state_bytes: float) -> RecurrentState:
    state = sizes.inner * sizes.state
    return RecurrentState(
        len(layers),
        heads=heads,
        state=state,
        window=channels * (sizes.kernel - 1),
        token_flops=_SCAN * state + 2 * channels * sizes.kernel,
        state_bytes=state_bytes,
        numbers=layers,
    )


def mamba(shape: Shape, sizes: Mamba, rank: int, layers: Layers, *, state_bytes: float = 4.0) -> Block:
    """Mamba 1 as Jamba has it, with norms on step, input and output matrices; ``rank`` is the step's."""
    if not layers:
        return Block()
    place, inner, state = f"{LAYER}.mamba", sizes.inner, sizes.state
    tensors = (
        linear(f"{place}.in_proj", "attention", 2 * inner, shape.hidden, layers, bias=sizes.bias),
        _convolution(f"{place}.conv1d", inner, sizes.kernel, layers, sizes.convolution_bias, inner),
        linear(f"{place}.x_proj", "attention", rank + 2 * state, inner, layers),
        linear(f"{place}.dt_proj", "attention", inner, rank, layers, bias=True),
        vector(f"{place}.A_log", inner * state, layers, ways=inner),
        vector(f"{place}.D", inner, layers, ways=inner),
        linear(f"{place}.out_proj", "attention", shape.hidden, inner, layers, bias=sizes.bias),
        vector(f"{place}.dt_layernorm", rank, layers),
        vector(f"{place}.b_layernorm", state, layers),
        vector(f"{place}.c_layernorm", state, layers),
    )
    return Block(tensors, (_scan(layers, inner, sizes, inner, state_bytes),))


def mamba2(
    shape: Shape, sizes: Mamba, heads: int, groups: int, layers: Layers, *, state_bytes: float = 4.0
) -> Block:
    """Mamba 2: heads that share their input and output matrices by groups."""
    if not layers:
        return Block()
    place, inner, channels = f"{LAYER}.mixer", sizes.inner, sizes.inner + 2 * groups * sizes.state
    tensors = (
        linear(f"{place}.in_proj", "attention", inner + channels + heads, shape.hidden, layers, bias=sizes.bias),
        _convolution(f"{place}.conv1d", channels, sizes.kernel, layers, sizes.convolution_bias, heads),
        vector(f"{place}.dt_bias", heads, layers, ways=heads),
        vector(f"{place}.A_log", heads, layers, ways=heads),
        vector(f"{place}.D", heads, layers, ways=heads),
        vector(f"{place}.norm", inner, layers, ways=heads),
        linear(f"{place}.out_proj", "attention", shape.hidden, inner, layers, bias=sizes.bias),
    )
    return Block(tensors, (_scan(layers, heads, sizes, channels, state_bytes),))
