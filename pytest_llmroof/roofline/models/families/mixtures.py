"""Mixtures of experts over grouped-query attention."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmroof.errors import UnknownModelError
from pytest_llmroof.roofline.models.attention import QkNorm, attention
from pytest_llmroof.roofline.models.blocks import LAYER, Block, Shape, decoder, linear, norms, vector
from pytest_llmroof.roofline.models.families.schedules import (
    CHUNKED,
    FULL,
    SLIDING,
    every,
    everywhere,
    kinds,
    marked,
    of_kind,
    rest,
    sliding,
    sparse_after_dense,
    sparse_by_step,
    window,
)
from pytest_llmroof.roofline.models.feedforward import Routing, feedforward, mixture
from pytest_llmroof.roofline.models.mixers import Indexer
from pytest_llmroof.roofline.models.reading import Config


def mixtral(config: Config, shape: Shape) -> Block:
    """Mixtral."""
    routing = Routing(
        config.whole("num_local_experts"), config.whole("num_experts_per_tok"), config.whole("intermediate_size")
    )
    experts = mixture(shape, routing, path="block_sparse_moe", names=("w1", "w3", "w2"))
    return decoder(shape, attention(shape, windows=everywhere(config, shape)), experts)


def qwen3_moe(config: Config, shape: Shape) -> Block:
    """Qwen3 MoE and the text model of Qwen3-VL MoE."""
    windows = everywhere(config, shape) if config.flag("use_sliding_window") else None
    heads = attention(shape, windows=windows, bias=config.flag("attention_bias"), qk_norm="head")
    return decoder(shape, heads, stepped_experts(config, shape))


def qwen2_moe(config: Config, shape: Shape) -> Block:
    """Qwen1.5 and Qwen2 MoE: a gated shared expert."""
    bias, windows = config.flag("qkv_bias"), None
    if config.flag("use_sliding_window"):
        last = config.count("max_window_layers")
        windows = sliding(config, shape, lambda layer: SLIDING if layer % 2 == 0 and layer < last else FULL)
    return decoder(shape, attention(shape, windows=windows, qkv_bias=bias), stepped_experts(config, shape))


def stepped_experts(config: Config, shape: Shape) -> Block:
    """Qwen's mixtures in every so-manieth layer, dense layers between them; shared experts where the class has any."""
    experts = config.count("num_experts")
    sparse = sparse_by_step(config, shape, experts)
    found = Block()
    if sparse:
        routing = Routing(experts, config.whole("num_experts_per_tok"), config.whole("moe_intermediate_size"))
        shared = config.count("shared_expert_intermediate_size")
        found += mixture(
            shape, routing, layers=sparse, shared_size=shared, shared_path="shared_expert", shared_gate=bool(shared)
        )
    dense = rest(shape, sparse)
    return found + feedforward(shape, config.whole("intermediate_size"), layers=dense) if dense else found


def olmoe(config: Config, shape: Shape) -> Block:
    """OLMoE: norms over all queries and keys."""
    heads = attention(shape, bias=config.flag("attention_bias"), qk_norm="all")
    routing = Routing(
        config.whole("num_experts"), config.whole("num_experts_per_tok"), config.whole("intermediate_size")
    )
    return decoder(shape, heads, mixture(shape, routing))


def glm4_moe(config: Config, shape: Shape) -> Block:
    """GLM-4.5 to 4.7: the first layers dense, then a mixture with corrected scores and a shared expert."""
    normed: QkNorm = "head" if config.flag("use_qk_norm") else None
    heads = attention(shape, qkv_bias=config.flag("attention_bias"), qk_norm=normed)
    return decoder(shape, heads, dense_then_experts(config, shape))


def dense_then_experts(config: Config, shape: Shape, *, correction: bool = True) -> Block:
    """DeepSeek's feed-forward layers: dense ones first, then mixtures; shared experts are one, n times as wide."""
    sparse, size = sparse_after_dense(config, shape), config.whole("moe_intermediate_size")
    routing = Routing(
        config.whole("n_routed_experts"), config.whole("num_experts_per_tok"), size, correction=correction
    )
    experts = mixture(shape, routing, layers=sparse, shared_size=size * config.count("n_shared_experts"))
    return experts + feedforward(shape, config.whole("intermediate_size"), layers=rest(shape, sparse))


def gpt_oss(config: Config, shape: Shape) -> Block:
    """gpt-oss: every other layer slides; biases on all projections, the experts' and the router's; sinks."""
    windows = sliding(config, shape, every(2))
    heads = attention(shape, windows=windows, bias=config.flag("attention_bias"), sinks=True)
    routing = Routing(
        config.whole("num_local_experts"), config.whole("num_experts_per_tok"), config.whole("intermediate_size"),
        router="router", bias=True,
    )  # fmt: skip
    names = ("gate_up_proj", "gate_up_proj", "down_proj")
    return decoder(shape, heads, mixture(shape, routing, names=names, fused=True, expert_bias=True))


def llama4(config: Config, shape: Shape) -> Block:
    """Llama 4, text: chunks in three layers of four, mixtures in every so-manieth layer."""
    step, chunk = config.whole("interleave_moe_layer_step"), window(config, "attention_chunk_size")
    spread = config.numbers("no_rope_layers")
    period = config.whole("no_rope_layer_interval")
    ropes = [bool(mark) for mark in spread] or [bool((layer + 1) % period) for layer in shape.all_layers]

    def by_rope(layer: int) -> str:
        return CHUNKED if ropes[layer] and chunk else FULL

    found = kinds(config, shape, by_rope, (FULL, CHUNKED))
    windows = [chunk if kind == CHUNKED else None for kind in found]
    given = config.numbers("moe_layers")
    sparse = tuple(given) if config.get("moe_layers") is not None else tuple(range(step - 1, shape.layers, step))
    size = config.whole("intermediate_size")
    routing = Routing(config.whole("num_local_experts"), config.whole("num_experts_per_tok"), size, router="router")
    return decoder(
        shape,
        attention(shape, windows=windows, chunked=True, bias=config.flag("attention_bias")),
        mixture(shape, routing, layers=sparse, path="feed_forward", shared_size=size, shared_path="shared_expert"),
        feedforward(shape, config.whole("intermediate_size_mlp"), layers=rest(shape, sparse), path="feed_forward"),
    )


def minimax_m2(config: Config, shape: Shape) -> Block:
    """MiniMax-M2: norms over all queries and keys, corrected scores, no shared expert."""
    routing = Routing(
        config.whole("num_local_experts"), config.whole("num_experts_per_tok"), config.whole("intermediate_size"),
        correction=True,
    )  # fmt: skip
    return decoder(shape, attention(shape, qk_norm="all"), mixture(shape, routing, path="block_sparse_moe"))


def minimax_m3(config: Config, shape: Shape) -> Block:
    """MiniMax-M3, text: in most layers an indexer picks blocks of tokens for grouped-query attention."""
    sparse = config.within("sparse_attention_config")
    picked = marked(sparse, "sparse_attention_freq", shape) if sparse.flag("use_sparse_attention") else ()
    experts = marked(config, "moe_layer_freq", shape)
    heads, dim = sparse.whole_or("sparse_num_index_heads", 1), sparse.whole_or("sparse_index_dim", shape.head_dim)
    place = f"{LAYER}.self_attn.indexer"
    chooser = (
        linear(f"{place}.q_proj", "attention", heads * dim, shape.hidden, picked, ways=1),
        linear(f"{place}.k_proj", "attention", dim, shape.hidden, picked, ways=1),
        *(vector(f"{place}.{name}", dim, picked) for name in ("q_norm", "k_norm")),
    )
    blocks = [attention(shape, layers=rest(shape, picked), qk_norm="head")]
    if picked:
        selected = sparse.whole("sparse_topk_blocks") * sparse.whole("sparse_block_size")
        blocks.append(attention(shape, layers=picked, qk_norm="head", selected=selected))
        blocks.append(Block(chooser, (Indexer(len(picked), heads, dim, numbers=picked),)))
    size = config.whole("intermediate_size")
    routing = Routing(config.whole("num_local_experts"), config.whole("num_experts_per_tok"), size, correction=True)
    shared = config.whole("shared_intermediate_size") * config.whole_or("n_shared_experts", 1)
    blocks.append(mixture(shape, routing, layers=experts, path="block_sparse_moe", shared_size=shared))
    blocks.append(feedforward(shape, config.whole("dense_intermediate_size"), layers=rest(shape, experts)))
    return decoder(shape, *blocks)


def mimo_v2(config: Config, shape: Shape) -> Block:
    """MiMo-V2-Flash: sliding layers with key-value heads and sinks of their own, keys wider than values."""
    pattern = config.get("hybrid_layer_pattern")
    slides = marked(config, "hybrid_layer_pattern", shape) if pattern is not None else of_kind(
        kinds(config, shape, lambda layer: FULL if layer == 0 or (layer + 1) % 6 == 0 else SLIDING), SLIDING
    )  # fmt: skip
    listed = config.get("moe_layer_freq") is not None
    sparse = marked(config, "moe_layer_freq", shape) if listed else sparse_after_dense(config, shape)
    before = config.get("sliding_window_size")
    span = config.whole("sliding_window_size") + 1 if before is not None else window(config)
    own = replace(
        shape,
        heads=config.whole_or("swa_num_attention_heads", shape.heads),
        kv_heads=config.whole("swa_num_key_value_heads"),
        head_dim=config.whole_or("swa_head_dim", shape.head_dim),
    )
    values, bias = config.whole("v_head_dim"), config.flag("attention_bias")
    size, own_values = config.whole("moe_intermediate_size"), config.whole_or("swa_v_head_dim", values)
    sinks, own_sinks = config.flag("add_full_attention_sink_bias"), config.flag("add_swa_attention_sink_bias")
    spans = [span] * len(slides)
    routing = Routing(config.whole("n_routed_experts"), config.whole("num_experts_per_tok"), size, correction=True)
    return decoder(
        shape,
        attention(shape, layers=rest(shape, slides), value_dim=values, qkv_bias=bias, sinks=sinks),
        attention(own, layers=slides, windows=spans, value_dim=own_values, qkv_bias=bias, sinks=own_sinks),
        mixture(shape, routing, layers=sparse, shared_size=size * config.count("n_shared_experts")),
        feedforward(shape, config.whole("intermediate_size"), layers=rest(shape, sparse)),
    )


def step3(config: Config, shape: Shape) -> Block:
    """Step 3.5 and 3.7 Flash: a gate per head, sliding layers that may have heads of their own."""
    found = kinds(config, shape, lambda layer: FULL)
    slides = of_kind(found, SLIDING)
    others = config.within("attention_other_setting")
    heads = config.whole_or("num_sliding_attention_heads", others.whole_or("num_attention_heads", shape.heads))
    sparse = sparse_after_dense(config, shape)
    routing = Routing(
        config.whole("n_routed_experts"), config.whole("num_experts_per_tok"), config.whole("moe_intermediate_size"),
        correction=True,
    )  # fmt: skip
    blocks = []
    sliding_shape = replace(shape, heads=heads)
    for own, layers, span in ((shape, rest(shape, slides), None), (sliding_shape, slides, window(config))):
        gate = linear(f"{LAYER}.self_attn.g_proj", "attention", own.heads, own.hidden, layers, ways=own.heads)
        blocks.append(attention(own, layers=layers, windows=[span] * len(layers), qk_norm="head"))
        blocks.append(Block((gate,) if layers else ()))
    return decoder(
        shape,
        *blocks,
        mixture(shape, routing, layers=sparse, shared_size=config.whole("share_expert_dim")),
        feedforward(shape, config.whole("intermediate_size"), layers=rest(shape, sparse)),
    )


def gemma4(config: Config, shape: Shape) -> Block:
    """Gemma 4, text: full layers with fewer and wider heads; a dense layer and, beside it, a mixture."""
    if config.count("hidden_size_per_layer_input") or config.count("num_kv_shared_layers"):
        raise UnknownModelError(
            "Gemma 4 with embeddings of its own for each layer or caches that layers share is not understood (keys "
            "hidden_size_per_layer_input, num_kv_shared_layers)"
        )
    found = kinds(config, shape, every(6))
    found[-1] = FULL
    slides, whole = of_kind(found, SLIDING), of_kind(found, FULL)
    same = config.flag("attention_k_eq_v")
    heads = config.whole_or("num_global_key_value_heads", shape.kv_heads) if same else shape.kv_heads
    wide = replace(shape, head_dim=config.whole("global_head_dim"), kv_heads=heads)
    bias, names = config.flag("attention_bias"), ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    blocks = [
        attention(shape, layers=slides, windows=[window(config)] * len(slides), bias=bias, qk_norm="head"),
        attention(wide, layers=whole, bias=bias, qk_norm="head", value_is_key=same),
        feedforward(shape, config.whole("intermediate_size")),
    ]
    if config.flag("enable_moe_block"):
        routing = Routing(
            config.whole("num_experts"), config.whole("top_k_experts"), config.whole("moe_intermediate_size"),
            router="router.proj",
        )  # fmt: skip
        names += ["post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"]
        scales = (("scale", shape.hidden), ("per_expert_scale", routing.experts))
        blocks.append(mixture(shape, routing, path="moe"))
        blocks.append(Block(tuple(vector(f"{LAYER}.router.{name}", size, shape.all_layers) for name, size in scales)))
    return decoder(shape, *blocks, Block(norms(shape, *names).tensors[:-1]))
