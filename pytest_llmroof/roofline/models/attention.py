"""Building blocks of attention: grouped-query (full, sliding, chunked, sparse) and latent, with or without indexers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_llmroof.roofline.models.blocks import LAYER, Block, Layers, Shape, linear, vector
from pytest_llmroof.roofline.models.mixers import GroupedQueryAttention, Indexer, LatentAttention
from pytest_llmroof.roofline.models.reading import Config, wrong
from pytest_llmroof.roofline.models.tensors import Tensor

QkNorm = Literal["head", "all"] | None
_APART = ("q_proj", "k_proj", "v_proj", "o_proj")


def attention(
    shape: Shape,
    *,
    layers: Layers | None = None,
    windows: Sequence[int | None] | None = None,
    chunked: bool = False,
    selected: int | None = None,
    value_dim: int | None = None,
    bias: bool = False,
    qkv_bias: bool = False,
    qk_norm: QkNorm = None,
    gated: bool = False,
    sinks: bool = False,
    value_is_key: bool = False,
    path: str = "self_attn",
    names: Sequence[str] = _APART,
) -> Block:
    """Grouped-query attention in ``layers`` (None: in all).

    ``windows``: each layer's sliding window (``chunked``: its chunk; None: the layer sees everything), ``selected``:
    the tokens that sparse attention picks. ``bias`` is on all projections, ``qkv_bias`` not on the output's.
    ``qk_norm``: norms on queries and keys, of one head's size or over all heads. ``gated``: queries carry a gate of
    their size. ``sinks``: a learnt logit per head. ``value_is_key``: values are projected as the keys are (and both are
    cached). Projections that a checkpoint keeps fused share a name.
    """
    layers, place = shape.all_layers if layers is None else layers, f"{LAYER}.{path}"
    if not layers:
        return Block()
    if shape.heads % shape.kv_heads:
        raise wrong("num_key_value_heads", f"a divisor of the {shape.heads} attention heads", shape.kv_heads)
    value = value_dim or shape.head_dim
    query, key, outputs = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.heads * value
    q, k, v, o = (f"{place}.{name}" for name in names)
    biased = bias or qkv_bias
    tensors = [
        linear(q, "attention", query * (2 if gated else 1), shape.hidden, layers, bias=biased, ways=shape.heads),
        linear(k, "attention", key, shape.hidden, layers, bias=biased, ways=shape.kv_heads),
        linear(v, "attention", shape.kv_heads * value, shape.hidden, layers, bias=biased, ways=shape.kv_heads),
        linear(o, "attention", shape.hidden, outputs, layers, bias=bias, ways=shape.heads),
    ]
    if value_is_key:
        del tensors[2]
    if qk_norm is not None:
        sizes = (query, key) if qk_norm == "all" else (shape.head_dim, shape.head_dim)
        named = zip(("q_norm", "k_norm"), sizes, strict=True)
        tensors += [vector(f"{place}.{name}", size, layers) for name, size in named]
    if sinks:
        tensors.append(vector(f"{place}.sinks", shape.heads, layers, ways=shape.heads))
    spans = windows or [None] * len(layers)
    return Block(tuple(tensors), tuple(_by_span(shape, layers, spans, chunked, selected, value_dim)))


def _by_span(
    shape: Shape,
    layers: Layers,
    spans: Sequence[int | None],
    chunked: bool,
    selected: int | None,
    value_dim: int | None,
) -> Iterable[GroupedQueryAttention]:
    for span in dict.fromkeys(spans):
        alike = tuple(layer for layer, own in zip(layers, spans, strict=True) if own == span)
        ends = chunked and span is not None
        yield GroupedQueryAttention(
            len(alike), shape.heads, shape.kv_heads, shape.head_dim, span, ends, selected, value_dim, numbers=alike
        )


@dataclass(frozen=True)
class Latents:
    """The sizes of latent attention. ``query``: the rank of the queries' latent; None: queries have none."""

    query: int | None
    latent: int
    nope: int
    rope: int
    value: int

    @classmethod
    def of(cls, config: Config) -> Latents:
        """From DeepSeek's keys."""
        return cls(
            query=None if config.get("q_lora_rank") is None else config.whole("q_lora_rank"),
            latent=config.whole("kv_lora_rank"),
            nope=config.whole("qk_nope_head_dim"),
            rope=config.whole("qk_rope_head_dim"),
            value=config.whole("v_head_dim"),
        )


def latent_attention(
    shape: Shape, sizes: Latents, *, layers: Layers | None = None, bias: bool = False, selected: int | None = None
) -> Block:
    """Multi-head latent attention: down-projections that every rank computes, up-projections split by heads."""
    layers, place = shape.all_layers if layers is None else layers, f"{LAYER}.self_attn"
    if not layers:
        return Block()
    heads, cached = shape.heads, sizes.latent + sizes.rope
    expanded, outputs = heads * (sizes.nope + sizes.value), heads * sizes.value
    tensors = (
        *_queries(shape, sizes, place, layers, bias),
        linear(f"{place}.kv_a_proj_with_mqa", "attention", cached, shape.hidden, layers, bias=bias, ways=1),
        vector(f"{place}.kv_a_layernorm", sizes.latent, layers),
        linear(f"{place}.kv_b_proj", "attention", expanded, sizes.latent, layers, ways=heads),
        linear(f"{place}.o_proj", "attention", shape.hidden, outputs, layers, bias=bias, ways=heads),
    )
    widths = (sizes.latent, sizes.rope, sizes.nope, sizes.value)
    mixer = LatentAttention(len(layers), heads, *widths, selected, numbers=layers)
    return Block(tensors, (mixer,))


def _queries(shape: Shape, sizes: Latents, place: str, layers: Layers, bias: bool) -> tuple[Tensor, ...]:
    heads, rows = shape.heads, shape.heads * (sizes.nope + sizes.rope)
    if sizes.query is None:
        return (linear(f"{place}.q_proj", "attention", rows, shape.hidden, layers, ways=heads),)
    return (
        linear(f"{place}.q_a_proj", "attention", sizes.query, shape.hidden, layers, bias=bias, ways=1),
        vector(f"{place}.q_a_layernorm", sizes.query, layers),
        linear(f"{place}.q_b_proj", "attention", rows, sizes.query, layers, ways=heads),
    )


def indexer(shape: Shape, config: Config, query: int, layers: Layers) -> Block:
    """The indexer of DeepSeek's sparse attention, whole on every rank; its queries come from the queries' latent."""
    if not layers:
        return Block()
    heads, dim, place = config.whole("index_n_heads"), config.whole("index_head_dim"), f"{LAYER}.self_attn.indexer"
    tensors = (
        linear(f"{place}.wq_b", "attention", heads * dim, query, layers, ways=1),
        linear(f"{place}.wk", "attention", dim, shape.hidden, layers, ways=1),
        vector(f"{place}.k_norm", dim, layers, bias=True),
        linear(f"{place}.weights_proj", "attention", heads, shape.hidden, layers, ways=1),
    )
    return Block(tensors, (Indexer(len(layers), heads, dim, numbers=layers),))
