"""Hybrids: recurrent layers with attention between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pytest_llmroof.errors import UnknownModelError
from pytest_llmroof.roofline.models.attention import attention
from pytest_llmroof.roofline.models.blocks import Block, Shape, decoder, joined, norms, vocabulary
from pytest_llmroof.roofline.models.families.mixtures import stepped_experts
from pytest_llmroof.roofline.models.families.schedules import FULL, LINEAR, kinds, of_kind, rest
from pytest_llmroof.roofline.models.feedforward import PLAIN, Routing, feedforward, mixture
from pytest_llmroof.roofline.models.reading import Config, ConfigKeyError, wrong
from pytest_llmroof.roofline.models.recurrent import Delta, Mamba, gated_delta, mamba, mamba2

_STATE_BYTES: Final = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
_NEMOTRON: Final = {
    "M": "mamba", "E": "moe", "*": "attention", "-": "mlp", "linear_attention": "mamba", "full_attention": "attention",
}  # fmt: skip


def qwen3_next(config: Config, shape: Shape) -> Block:
    """Qwen3-Next: three layers of four are gated delta rules; mixtures with a gated shared expert."""
    return decoder(shape, _delta_and_attention(config, shape, fused=True), stepped_experts(config, shape))


def qwen3_5(config: Config, shape: Shape) -> Block:
    """Qwen3.5 and 3.6, dense."""
    mlp = feedforward(shape, config.whole("intermediate_size"))
    return decoder(shape, _delta_and_attention(config, shape, fused=False), mlp)


def qwen3_5_moe(config: Config, shape: Shape) -> Block:
    """Qwen3.5 and 3.6 with a mixture in every layer."""
    routing = Routing(
        config.whole("num_experts"), config.whole("num_experts_per_tok"), config.whole("moe_intermediate_size")
    )
    shared = config.whole("shared_expert_intermediate_size")
    experts = mixture(shape, routing, shared_size=shared, shared_path="shared_expert", shared_gate=True)
    return decoder(shape, _delta_and_attention(config, shape, fused=False), experts)


def _delta_and_attention(config: Config, shape: Shape, *, fused: bool) -> Block:
    period = config.whole_or("full_attention_interval", 4)
    found = kinds(config, shape, lambda layer: LINEAR if (layer + 1) % period else FULL, (FULL, LINEAR))
    sizes = Delta(
        config.whole("linear_num_key_heads"), config.whole("linear_num_value_heads"),
        config.whole("linear_key_head_dim"), config.whole("linear_value_head_dim"),
        config.whole("linear_conv_kernel_dim"),
    )  # fmt: skip
    state = state_bytes(config, "mamba_ssm_dtype")
    heads = attention(
        shape, layers=of_kind(found, FULL), bias=config.flag("attention_bias"), qk_norm="head", gated=True
    )
    return gated_delta(shape, sizes, of_kind(found, LINEAR), fused=fused, state_bytes=state) + heads


def state_bytes(config: Config, key: str) -> float:
    """Bytes of a recurrent state's element: fp32 unless the config says otherwise."""
    stated = config.word(key) or "float32"
    if stated not in _STATE_BYTES:
        raise wrong(key, "float32, float16 or bfloat16", stated)
    return _STATE_BYTES[stated]


def jamba(config: Config, shape: Shape) -> Block:
    """Jamba: one layer of eight attends, every other one is a mixture."""
    period, offset = config.whole("attn_layer_period"), config.count("attn_layer_offset")
    attends = tuple(layer for layer in shape.all_layers if layer % period == offset)
    experts = config.whole("num_experts")
    step, first = config.whole("expert_layer_period"), config.count("expert_layer_offset")
    sparse = tuple(layer for layer in shape.all_layers if experts > 1 and layer % step == first)
    sizes = Mamba(
        config.whole("mamba_expand") * shape.hidden, config.whole("mamba_d_state"), config.whole("mamba_d_conv"),
        config.flag("mamba_conv_bias"), config.flag("mamba_proj_bias"),
    )  # fmt: skip
    automatic = config.get("mamba_dt_rank") == "auto"
    rank = -(-shape.hidden // 16) if automatic else config.whole("mamba_dt_rank")
    size, path = config.whole("intermediate_size"), "feed_forward"
    routing = Routing(experts, config.whole("num_experts_per_tok"), size, router="router")
    return joined((
        mamba(shape, sizes, rank, rest(shape, attends)),
        attention(shape, layers=attends),
        mixture(shape, routing, layers=sparse, path=path),
        feedforward(shape, size, layers=rest(shape, sparse), path=path),
        norms(shape, "input_layernorm", "pre_ff_layernorm"),
        vocabulary(shape),
    ))  # fmt: skip


def nemotron_h_shape(config: Config) -> Shape:
    """As many layers as the pattern has letters: the file's own number is not needed, and may be missing."""
    found = _pattern(config)
    return Shape.of(Config({**config.values, "num_hidden_layers": len(found)}, config.defaults, config.other))


def nemotron_h(config: Config, shape: Shape) -> Block:
    """Nemotron-H and Nemotron 3: each layer is one thing only: Mamba 2, attention, a dense layer or a mixture."""
    found, bias = _pattern(config), config.flag("mlp_bias")
    heads = config.whole("mamba_num_heads")
    sizes = Mamba(
        heads * config.whole("mamba_head_dim"), config.whole("ssm_state_size"), config.whole("conv_kernel"),
        config.flag("use_conv_bias"), config.flag("use_bias"),
    )  # fmt: skip
    state = state_bytes(config, "mamba_ssm_cache_dtype")
    blocks = [
        mamba2(shape, sizes, heads, config.whole("n_groups"), of_kind(found, "mamba"), state_bytes=state),
        attention(shape, layers=of_kind(found, "attention"), path="mixer"),
    ]
    plain, sparse = of_kind(found, "mlp"), of_kind(found, "moe")
    if plain:
        size = config.whole("intermediate_size")
        blocks.append(feedforward(shape, size, layers=plain, path="mixer", names=PLAIN, bias=bias))
    if sparse:
        routing = Routing(
            config.whole("n_routed_experts"), config.whole("num_experts_per_tok"),
            config.whole("moe_intermediate_size"), correction=True, latent=config.count("moe_latent_size") or None,
        )  # fmt: skip
        shared = config.count("moe_shared_expert_intermediate_size")
        blocks.append(
            mixture(shape, routing, layers=sparse, path="mixer", names=PLAIN, shared_size=shared, bias=bias)
        )
    # Whatever a file says: the class ties nothing.
    return joined((*blocks, norms(shape, "norm"), vocabulary(replace(shape, tied=False))))


def _pattern(config: Config) -> list[str]:
    listed, letters = config.names("layers_block_type"), config.word("hybrid_override_pattern")
    if listed is None and letters is None:
        raise ConfigKeyError(
            "hybrid_override_pattern", "config key 'hybrid_override_pattern' (or layers_block_type): not given"
        )
    found = [_NEMOTRON.get(each, each) for each in (listed if listed is not None else letters or "")]
    strange = sorted(set(found) - set(_NEMOTRON.values()))
    if strange:
        raise UnknownModelError(f"layers of type {', '.join(strange)} are not understood in this family")
    return found
