"""Families with latent attention: DeepSeek, Kimi, GLM-5."""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_llmroof.errors import UnknownModelError
from pytest_llmroof.roofline.models.attention import Latents, indexer, latent_attention
from pytest_llmroof.roofline.models.blocks import LAYER, Block, Layers, Shape, decoder, linear, vector
from pytest_llmroof.roofline.models.families.mixtures import dense_then_experts
from pytest_llmroof.roofline.models.families.schedules import FULL, LINEAR, kinds, of_kind, rest, sparse_after_dense
from pytest_llmroof.roofline.models.feedforward import Routing, feedforward, mixture
from pytest_llmroof.roofline.models.mixers import CompressedAttention, Indexer
from pytest_llmroof.roofline.models.reading import Config, ConfigKeyError
from pytest_llmroof.roofline.models.recurrent import Delta, kimi_delta
from pytest_llmroof.roofline.models.tensors import Tensor


def deepseek_v2(config: Config, shape: Shape) -> Block:
    """DeepSeek-V2."""
    heads = latent_attention(shape, Latents.of(config), bias=config.flag("attention_bias"))
    return decoder(shape, heads, dense_then_experts(config, shape, correction=False))


def deepseek_v3(config: Config, shape: Shape) -> Block:
    """DeepSeek-V3 and R1, Kimi K2: routers with corrected scores."""
    heads = latent_attention(shape, Latents.of(config), bias=config.flag("attention_bias"))
    return decoder(shape, heads, dense_then_experts(config, shape))


def deepseek_sparse(config: Config, shape: Shape) -> Block:
    """DeepSeek-V3.2, GLM-5: an indexer picks the tokens. Layers of type ``shared`` use what one below them picked."""
    sizes = Latents.of(config)
    if sizes.query is None:
        raise UnknownModelError("sparse attention without a latent of the queries (q_lora_rank: null)")
    types = config.names("indexer_types") or ["full"] * shape.layers
    strange = sorted(set(types) - {"full", "shared"})
    if strange:
        raise UnknownModelError(f"indexers of type {', '.join(strange)} are not understood in this family")
    own = tuple(layer for layer, kind in enumerate(types[: shape.layers]) if kind == "full")
    heads = latent_attention(
        shape, sizes, bias=config.flag("attention_bias"), selected=config.whole("index_topk")
    )
    return decoder(shape, heads, indexer(shape, config, sizes.query, own), dense_then_experts(config, shape))


def glm_sparse(config: Config, shape: Shape) -> Block:
    """GLM-5: where the indexers' types are not listed, a frequency says which layers have one."""
    every, offset = config.whole_or("index_topk_freq", 1), config.count("index_skip_topk_offset")
    pattern = config.word("index_topk_pattern")
    types = [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern] if pattern else [
        "full" if max(layer - offset + 1, 0) % every == 0 else "shared" for layer in shape.all_layers
    ]  # fmt: skip
    listed = config.names("indexer_types") or types
    return deepseek_sparse(Config({**config.values, "indexer_types": listed}, config.defaults, config.other), shape)


def kimi_linear(config: Config, shape: Shape) -> Block:
    """Kimi Linear: delta attention in most layers, latent attention in the others."""
    linear_config, found = config.within("linear_attn_config"), _kimi_kinds(config, shape)
    heads = linear_config.whole_or("num_heads", config.whole("linear_num_heads"))
    dim = linear_config.whole_or("head_dim", config.whole("linear_head_dim"))
    kernel = linear_config.whole_or("short_conv_kernel_size", config.whole("linear_conv_kernel_dim"))
    sizes = Delta(heads, heads, dim, dim, kernel)
    sparse, size = sparse_after_dense(config, shape), config.whole("moe_intermediate_size")
    routing = Routing(
        config.whole("num_local_experts"), config.whole("num_experts_per_tok"), size, correction=True
    )
    return decoder(
        replace(shape, tied=False),  # whatever a file says: the class ties nothing
        kimi_delta(shape, sizes, of_kind(found, LINEAR)),
        latent_attention(shape, Latents.of(config), layers=of_kind(found, FULL)),
        mixture(shape, routing, layers=sparse, shared_size=size * config.count("n_shared_experts")),
        feedforward(shape, config.whole("intermediate_size"), layers=rest(shape, sparse)),
    )


def _kimi_kinds(config: Config, shape: Shape) -> list[str]:
    full = config.within("linear_attn_config").numbers("full_attn_layers")
    if full:
        # The file counts layers from one.
        return [FULL if layer + 1 in full else LINEAR for layer in shape.all_layers]
    return kinds(config, shape, lambda layer: FULL if layer and layer % 4 == 0 else LINEAR, (FULL, LINEAR))


def deepseek_v4(config: Config, shape: Shape) -> Block:
    """DeepSeek-V4: a window of tokens, beyond it compressed entries, which in some layers an indexer picks.

    Hyper-connections mix its residual streams; the first layers route by token.
    """
    size = config.whole("moe_intermediate_size")
    hashed = min(config.count("num_hash_layers"), shape.layers)
    experts, active = config.whole("n_routed_experts"), config.whole("num_experts_per_tok")
    shared = size * config.count("n_shared_experts")
    return decoder(
        shape,
        _compressed(config, shape),
        _hyper_connections(shape, config.whole("hc_mult")),
        mixture(shape, Routing(experts, active, size), layers=tuple(range(hashed)), shared_size=shared),
        mixture(
            shape, Routing(experts, active, size, correction=True), layers=tuple(range(hashed, shape.layers)),
            shared_size=shared,
        ),
    )  # fmt: skip


def _compressed(config: Config, shape: Shape) -> Block:
    place, layers, rank = f"{LAYER}.self_attn", shape.all_layers, config.whole("q_lora_rank")
    groups, out = config.whole("o_groups"), config.whole("o_lora_rank")
    heads, dim, span = shape.heads, shape.head_dim, config.whole("sliding_window")
    tensors = [
        linear(f"{place}.q_a_proj", "attention", rank, shape.hidden, layers, ways=1),
        vector(f"{place}.q_a_norm", rank, layers),
        linear(f"{place}.q_b_proj", "attention", heads * dim, rank, layers, ways=heads),
        linear(f"{place}.kv_proj", "attention", dim, shape.hidden, layers, ways=1),
        vector(f"{place}.kv_norm", dim, layers),
        vector(f"{place}.sinks", heads, layers, ways=heads),
        linear(f"{place}.o_a_proj", "attention", groups * out, heads * dim // groups, layers, ways=groups),
        linear(f"{place}.o_b_proj", "attention", shape.hidden, groups * out, layers, ways=groups),
    ]
    ratios = config.numbers("compress_ratios")[: shape.layers]
    if len(ratios) != shape.layers or set(ratios) - {0, 4, 128}:
        expected = f"expected 0, 4 or 128 for each of {shape.layers} layers"
        raise ConfigKeyError("compress_ratios", f"config key 'compress_ratios': {expected}")
    found = Block(tuple(tensors))
    for ratio in sorted(set(ratios)):
        chosen = tuple(layer for layer in layers if ratios[layer] == ratio)
        if ratio == 0:
            found += Block((), (CompressedAttention(len(chosen), heads, dim, span, math.inf, numbers=chosen),))
        else:
            found += _compressor(config, shape, chosen, ratio, span)
    return found


def _compressor(config: Config, shape: Shape, layers: Layers, ratio: int, span: int) -> Block:
    """Entries for ``ratio`` tokens; those of 4 overlap (twice the width) and are picked by an indexer."""
    picks, dim, heads = ratio == 4, shape.head_dim, shape.heads
    path = f"{LAYER}.self_attn.compressor"
    selected = config.whole("index_topk") if picks else None
    found = Block(
        _pooling(path, dim * (2 if picks else 1), dim, shape, layers, ratio),
        (CompressedAttention(len(layers), heads, dim, span, ratio, selected, numbers=layers),),
    )
    if not picks:
        return found
    own, width, place = config.whole("index_n_heads"), config.whole("index_head_dim"), f"{path}.indexer"
    rank = config.whole("q_lora_rank")
    tensors = (
        *_pooling(place, 2 * width, width, shape, layers, ratio),
        linear(f"{place}.q_b_proj", "attention", own * width, rank, layers, ways=1),
        linear(f"{place}.weights_proj", "attention", own, shape.hidden, layers, ways=1),
    )
    return found + Block(tensors, (Indexer(len(layers), own, width, ratio, numbers=layers),))


def _pooling(path: str, width: int, dim: int, shape: Shape, layers: Layers, ratio: int) -> tuple[Tensor, ...]:
    return (
        linear(f"{path}.kv_proj", "attention", width, shape.hidden, layers, ways=1),
        linear(f"{path}.gate_proj", "attention", width, shape.hidden, layers, ways=1),
        vector(f"{path}.position_bias", ratio * width, layers),
        vector(f"{path}.kv_norm", dim, layers),
    )


def _hyper_connections(shape: Shape, streams: int) -> Block:
    """Small matrices, in full precision on every rank, that mix ``streams`` residual streams before each half."""
    rows, wide, tensors = streams * (2 + streams), streams * shape.hidden, []
    for name in ("attn_hc", "ffn_hc"):
        tensors.append(linear(f"{LAYER}.{name}", "router", rows, wide, shape.all_layers, ways=1))
        tensors.append(vector(f"{LAYER}.{name}.base", rows, shape.all_layers))
        tensors.append(vector(f"{LAYER}.{name}.scale", 3, shape.all_layers))
    last = (
        linear("model.hc_head", "router", streams, wide, ways=1),
        vector("model.hc_head.base", streams),
        vector("model.hc_head.scale", 1),
    )
    return Block((*tensors, *last))
