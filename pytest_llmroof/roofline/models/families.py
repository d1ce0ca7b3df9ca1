"""The families of models that are understood, each a few lines over the building blocks.

A family's class defaults (for keys that a config leaves out) are data, in ``data/architectures.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pytest_llmroof.errors import ConfigError, UnknownModelError
from pytest_llmroof.roofline.models.blocks import LAYER, Block, Shape, attention, gated_mlp, mixture, norms, vocabulary
from pytest_llmroof.roofline.models.reading import Config, ConfigKeyError

Family = Callable[[Config, Shape], Block]


def _llama(config: Config, shape: Shape) -> Block:
    bias = config.flag("attention_bias")
    return attention(shape, qkv_bias=bias, output_bias=bias) + gated_mlp(
        shape, config.whole("intermediate_size"), bias=config.flag("mlp_bias")
    )


def _mistral(config: Config, shape: Shape) -> Block:
    return attention(shape, windows=_everywhere(config, shape)) + gated_mlp(shape, config.whole("intermediate_size"))


def _qwen2(config: Config, shape: Shape) -> Block:
    return attention(shape, windows=_upper_layers(config, shape), qkv_bias=True) + gated_mlp(
        shape, config.whole("intermediate_size")
    )


def _qwen3(config: Config, shape: Shape) -> Block:
    bias = config.flag("attention_bias")
    windows = _upper_layers(config, shape)
    return attention(shape, windows=windows, qkv_bias=bias, output_bias=bias, qk_norm=True) + gated_mlp(
        shape, config.whole("intermediate_size")
    )


def _mixtral(config: Config, shape: Shape) -> Block:
    experts = mixture(
        shape,
        config.whole("intermediate_size"),
        experts=config.whole("num_local_experts"),
        active=config.whole("num_experts_per_tok"),
        path=f"{LAYER}.block_sparse_moe",
        names=("w1", "w3", "w2"),
    )
    return attention(shape, windows=_everywhere(config, shape)) + experts


def _qwen3_moe(config: Config, shape: Shape) -> Block:
    bias = config.flag("attention_bias")
    windows = _everywhere(config, shape) if config.flag("use_sliding_window") else None
    # The class knows the number of experts under both names.
    experts = config.count("num_experts" if "num_experts" in config.values else "num_local_experts")
    step, dense = config.whole("decoder_sparse_step"), set(config.numbers("mlp_only_layers"))
    sparse = {layer for layer in shape.all_layers if experts and layer not in dense and (layer + 1) % step == 0}
    layers = tuple(sorted(sparse))
    block = attention(shape, windows=windows, qkv_bias=bias, output_bias=bias, qk_norm=True)
    if layers:
        size, active = config.whole("moe_intermediate_size"), config.whole("num_experts_per_tok")
        block += mixture(shape, size, experts=experts, active=active, layers=layers)
    rest = tuple(layer for layer in shape.all_layers if layer not in sparse)
    return block + gated_mlp(shape, config.whole("intermediate_size"), layers=rest) if rest else block


def _everywhere(config: Config, shape: Shape) -> list[int | None]:
    """One window for all layers; null means none."""
    window = config.whole("sliding_window") if config.get("sliding_window") is not None else None
    return [window] * shape.layers


def _upper_layers(config: Config, shape: Shape) -> list[int | None]:
    """Windows in the layers that ``layer_types`` names, else from ``max_window_layers`` upwards, if switched on."""
    if not config.flag("use_sliding_window"):
        return [None] * shape.layers
    window = _everywhere(config, shape)[0]
    kinds = config.names("layer_types")
    if kinds is None:
        first = config.count("max_window_layers")
        return [window if layer >= first else None for layer in shape.all_layers]
    if len(kinds) != shape.layers:
        raise ConfigKeyError("layer_types", f"config key 'layer_types': {len(kinds)} entries for {shape.layers} layers")
    unknown = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if unknown:
        raise UnknownModelError(f"layers of type {', '.join(unknown)} are not understood in this family")
    return [window if kind == "sliding_attention" else None for kind in kinds]


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType({
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
})  # fmt: skip


def layers_of(family: Family, config: Config) -> tuple[Shape, Block]:
    """A whole model of a family: its layers, their two norms, the norm before the head, embedding and head."""
    shape = Shape.of(config)
    inner = family(config, shape)
    if inner.experts_per_token > inner.experts:
        raise ConfigError(f"{inner.experts_per_token} experts per token of {inner.experts} experts")
    return shape, inner + norms(shape, "input_layernorm", "post_attention_layernorm") + vocabulary(shape)
