"""Dense families: one feed-forward layer for every token."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmroof.errors import UnknownModelError
from pytest_llmroof.roofline.models.attention import attention
from pytest_llmroof.roofline.models.blocks import (
    LAYER,
    Block,
    Shape,
    decoder,
    joined,
    linear,
    norms,
    positions,
    vector,
    vocabulary,
)
from pytest_llmroof.roofline.models.families.schedules import every, everywhere, sliding, upper_layers, window
from pytest_llmroof.roofline.models.feedforward import feedforward
from pytest_llmroof.roofline.models.reading import Config, ConfigKeyError


def llama(config: Config, shape: Shape) -> Block:
    """Llama, Granite: biases where the config says."""
    mlp = feedforward(shape, config.whole("intermediate_size"), bias=config.flag("mlp_bias"))
    return decoder(shape, attention(shape, bias=config.flag("attention_bias")), mlp)


def plain_decoder(config: Config, shape: Shape) -> Block:
    """What the user vouches for: Llama's layers, with a window where the config has one that is switched on."""
    windows = everywhere(config, shape) if config.get("use_sliding_window") in (None, True) else None
    mlp = feedforward(shape, config.whole("intermediate_size"), bias=config.flag("mlp_bias"))
    return decoder(shape, attention(shape, windows=windows, bias=config.flag("attention_bias")), mlp)


def mistral(config: Config, shape: Shape) -> Block:
    """Mistral, Ministral: one window for all layers."""
    mlp = feedforward(shape, config.whole("intermediate_size"))
    return decoder(shape, attention(shape, windows=everywhere(config, shape)), mlp)


def phi3(config: Config, shape: Shape) -> Block:
    """Phi-3, Phi-4: Mistral's layers with fused projections."""
    heads = attention(shape, windows=everywhere(config, shape), names=("qkv_proj", "qkv_proj", "qkv_proj", "o_proj"))
    mlp = feedforward(shape, config.whole("intermediate_size"), names=("gate_up_proj", "gate_up_proj", "down_proj"))
    return decoder(shape, heads, mlp)


def qwen2(config: Config, shape: Shape) -> Block:
    """Qwen2, Qwen2.5 and MiMo-7B: biases on queries, keys and values."""
    heads = attention(shape, windows=upper_layers(config, shape), qkv_bias=True)
    return decoder(shape, heads, feedforward(shape, config.whole("intermediate_size")))


def qwen3(config: Config, shape: Shape) -> Block:
    """Qwen3 and the text model of Qwen3-VL: norms on queries and keys."""
    bias, windows = config.flag("attention_bias"), upper_layers(config, shape)
    heads = attention(shape, windows=windows, bias=bias, qk_norm="head")
    return decoder(shape, heads, feedforward(shape, config.whole("intermediate_size")))


def gemma(config: Config, shape: Shape) -> Block:
    """Gemma 1."""
    heads = attention(shape, bias=config.flag("attention_bias"))
    return decoder(shape, heads, feedforward(shape, config.whole("intermediate_size")))


def gemma2(config: Config, shape: Shape) -> Block:
    """Gemma 2: every other layer slides; norms before and after both halves of a layer."""
    return _gemma(config, shape, 2)


def gemma3(config: Config, shape: Shape) -> Block:
    """Gemma 3, text: five layers of six slide; norms on queries and keys."""
    return _gemma(config, shape, config.whole("sliding_window_pattern"), normed=True)


def _gemma(config: Config, shape: Shape, period: int, normed: bool = False) -> Block:
    windows, bias = sliding(config, shape, every(period)), config.flag("attention_bias")
    between = norms(shape, "pre_feedforward_layernorm", "post_feedforward_layernorm")
    # The norm before the head stands in the usual ones.
    extra = Block(between.tensors[:-1])
    heads = attention(shape, windows=windows, bias=bias, qk_norm="head" if normed else None)
    return decoder(shape, heads, feedforward(shape, config.whole("intermediate_size")), extra)


def cohere(config: Config, shape: Shape) -> Block:
    """Command R, Aya: attention and feed-forward layer side by side under one norm."""
    heads = attention(
        shape, bias=config.flag("attention_bias"), qk_norm="all" if config.flag("use_qk_norm") else None
    )
    mlp = feedforward(shape, config.whole("intermediate_size"))
    return joined((heads, mlp, norms(shape, "input_layernorm"), vocabulary(shape)))


def cohere2(config: Config, shape: Shape) -> Block:
    """Command R7B, Command A: three layers of four slide."""
    windows = sliding(config, shape, every(config.whole("sliding_window_pattern")))
    heads = attention(shape, windows=windows, bias=config.flag("attention_bias"))
    mlp = feedforward(shape, config.whole("intermediate_size"))
    return joined((heads, mlp, norms(shape, "input_layernorm"), vocabulary(shape)))


def olmo2(config: Config, shape: Shape) -> Block:
    """OLMo 2: norms after each half of a layer, and on all queries and keys together."""
    return _olmo(config, shape, None)


def olmo3(config: Config, shape: Shape) -> Block:
    """OLMo 3: three layers of four slide."""
    return _olmo(config, shape, sliding(config, shape, every(4)))


def _olmo(config: Config, shape: Shape, windows: list[int | None] | None) -> Block:
    heads = attention(shape, windows=windows, bias=config.flag("attention_bias"), qk_norm="all")
    mlp = feedforward(shape, config.whole("intermediate_size"))
    after = norms(shape, "post_attention_layernorm", "post_feedforward_layernorm")
    return joined((heads, mlp, after, vocabulary(shape)))


def glm4(config: Config, shape: Shape) -> Block:
    """GLM-4: four norms a layer, a fused gate."""
    heads = attention(shape, qkv_bias=config.flag("attention_bias"))
    mlp = feedforward(shape, config.whole("intermediate_size"), names=("gate_up_proj", "gate_up_proj", "down_proj"))
    extra = Block(norms(shape, "post_self_attn_layernorm", "post_mlp_layernorm").tensors[:-1])
    return decoder(shape, heads, mlp, extra)


def starcoder2(config: Config, shape: Shape) -> Block:
    """StarCoder2: biases throughout, norms that centre, no gate."""
    bias = config.flag("use_bias")
    heads = attention(shape, windows=everywhere(config, shape), bias=bias)
    mlp = feedforward(shape, config.whole("intermediate_size"), names=("c_fc", "c_proj"), bias=bias)
    both = norms(shape, "input_layernorm", "post_attention_layernorm", bias=True)
    return joined((heads, mlp, both, vocabulary(shape)))


def gpt2(config: Config, shape: Shape) -> Block:
    """GPT-2: learnt positions, fused projections with biases."""
    heads = attention(shape, bias=True, path="attn", names=("c_attn", "c_attn", "c_attn", "c_proj"))
    size = config.whole_or("intermediate_size", 4 * shape.hidden)
    mlp = feedforward(shape, size, names=("c_fc", "c_proj"), bias=True)
    learnt = positions(shape, config.whole("max_position_embeddings"))
    return joined((heads, mlp, norms(shape, "ln_1", "ln_2", bias=True), learnt, vocabulary(shape)))


def gptj(config: Config, shape: Shape) -> Block:
    """GPT-J: one norm a layer; biases on the feed-forward layer and the head."""
    heads = attention(shape, path="attn", names=("q_proj", "k_proj", "v_proj", "out_proj"))
    size = config.whole_or("intermediate_size", 4 * shape.hidden)
    mlp = feedforward(shape, size, names=("fc_in", "fc_out"), bias=True)
    return joined((heads, mlp, norms(shape, "ln_1", bias=True), vocabulary(shape, head_bias=True)))


def phi(config: Config, shape: Shape) -> Block:
    """Phi-1.5 and Phi-2: one norm a layer, biases throughout, the head's too."""
    heads = attention(shape, bias=True, names=("q_proj", "k_proj", "v_proj", "dense"))
    if config.flag("qk_layernorm"):
        names = (f"{LAYER}.self_attn.{name}_layernorm" for name in ("q", "k"))
        heads += Block(tuple(vector(name, shape.head_dim, shape.all_layers, bias=True) for name in names))
    size = config.whole_or("intermediate_size", 4 * shape.hidden)
    mlp = feedforward(shape, size, names=("fc1", "fc2"), bias=True)
    return joined((heads, mlp, norms(shape, "input_layernorm", bias=True), vocabulary(shape, head_bias=True)))


def gpt_neox(config: Config, shape: Shape) -> Block:
    """GPT-NeoX, Pythia: fused projections."""
    fused = ("query_key_value", "query_key_value", "query_key_value", "dense")
    heads = attention(shape, bias=config.flag("attention_bias"), path="attention", names=fused)
    names = ("dense_h_to_4h", "dense_4h_to_h")
    mlp = feedforward(shape, config.whole("intermediate_size"), names=names, bias=True)
    both = norms(shape, "input_layernorm", "post_attention_layernorm", bias=True)
    return joined((heads, mlp, both, vocabulary(shape)))


def opt(config: Config, shape: Shape) -> Block:
    """OPT: learnt positions (two more than there are), and a table that may be narrower than the layers."""
    bias, affine = config.flag("enable_bias"), config.flag("layer_norm_elementwise_affine")
    width = config.whole_or("word_embed_proj_dim", shape.hidden)
    blocks = [
        attention(shape, bias=bias, names=("q_proj", "k_proj", "v_proj", "out_proj")),
        feedforward(shape, config.whole("ffn_dim"), path="", names=("fc1", "fc2"), bias=bias),
        positions(shape, config.whole("max_position_embeddings") + 2),
        vocabulary(shape, width=width),
    ]
    if width != shape.hidden:
        into = linear("model.project_in", "mlp", shape.hidden, width)
        blocks.append(Block((into, linear("model.project_out", "mlp", width, shape.hidden))))
    if affine:
        both = norms(shape, "self_attn_layer_norm", "final_layer_norm", bias=True)
        last = config.flag("do_layer_norm_before") and not config.flag("_remove_final_layer_norm")
        blocks.append(both if last else Block(both.tensors[:-1]))
    return joined(blocks)


def falcon(config: Config, shape: Shape) -> Block:
    """Falcon: one key-value head unless the new decoder says how many; `num_kv_heads` alone says nothing."""
    new, bias = config.flag("new_decoder_architecture"), config.flag("bias")
    heads = config.whole_or("num_kv_heads", shape.heads) if new else 1 if config.flag("multi_query") else shape.heads
    shape = replace(shape, kv_heads=heads, head_dim=shape.hidden // shape.heads)
    fused = ("query_key_value", "query_key_value", "query_key_value", "dense")
    names = ("dense_h_to_4h", "dense_4h_to_h")
    mlp = feedforward(shape, config.whole_or("ffn_hidden_size", 4 * shape.hidden), names=names, bias=bias)
    several = config.count("num_ln_in_parallel_attn") == 2 or (new and config.get("num_ln_in_parallel_attn") is None)
    before = ("ln_attn", "ln_mlp") if several else ("input_layernorm",)
    if not config.flag("parallel_attn"):
        before = ("input_layernorm", "post_attention_layernorm")
    whole = attention(shape, bias=bias, path="self_attention", names=fused)
    return joined((whole, mlp, norms(shape, *before, bias=True), vocabulary(shape)))


def nemotron_nas(config: Config, shape: Shape) -> Block:
    """Llama-Nemotron from architecture search: each layer has its own key-value heads and width, or lacks a half."""
    choices = config.get("block_configs")
    if not isinstance(choices, list) or len(choices) != shape.layers:
        raise ConfigKeyError("block_configs", f"config key 'block_configs': expected a list of {shape.layers} layers")
    blocks = [_searched(shape, layer, Config({"block": choice}, {})) for layer, choice in enumerate(choices)]
    return joined((*blocks, norms(shape), vocabulary(shape)))


def _searched(shape: Shape, layer: int, config: Config) -> Block:
    block, layers = config.within("block"), (layer,)
    heads, mlp = block.within("attention"), block.within("ffn")
    if heads.flag("replace_with_linear") or mlp.flag("replace_with_linear") or heads.get("sparsify"):
        raise UnknownModelError("layers that a linear map replaces (replace_with_linear, sparsify) are not understood")
    found = Block()
    if not heads.flag("no_op"):
        own = replace(shape, kv_heads=shape.heads // heads.whole("n_heads_in_group"))
        spans = [window(heads, "window_length")]
        found += attention(own, layers=layers, windows=spans)
        found += Block((vector(f"{LAYER}.input_layernorm", shape.hidden, layers),))
    if not mlp.flag("no_op"):
        found += feedforward(shape, _width(mlp, shape.hidden), layers=layers)
        found += Block((vector(f"{LAYER}.post_attention_layernorm", shape.hidden, layers),))
    return found


def _width(mlp: Config, hidden: int) -> int:
    factor = mlp.get("ffn_mult")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or factor <= 0:
        raise ConfigKeyError("ffn_mult", f"config key 'ffn_mult': expected a positive number, not {factor!r}")
    # Two thirds of the width, as a gate adds a third matrix, rounded up to whole blocks of 256.
    return -(-int(2 * factor * hidden / 3) // 256) * 256
