"""Building blocks that families of models are declared over: attention, feed-forward layers, embeddings, norms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_llmroof.roofline.models.costed import Mixer
from pytest_llmroof.roofline.models.mixers import GroupedQueryAttention
from pytest_llmroof.roofline.models.reading import Config
from pytest_llmroof.roofline.models.tensors import Role, Tensor

LAYER = "model.layers.{layer}"


@dataclass(frozen=True)
class Block:
    """A part of a model: its tensors, and how it mixes tokens where it does. Blocks add up to a model."""

    tensors: tuple[Tensor, ...] = ()
    mixers: tuple[Mixer, ...] = ()
    experts: int = 0
    experts_per_token: int = 0

    def __add__(self, other: Block) -> Block:
        return Block(
            self.tensors + other.tensors,
            self.mixers + other.mixers,
            max(self.experts, other.experts),
            max(self.experts_per_token, other.experts_per_token),
        )


@dataclass(frozen=True)
class Shape:
    """The sizes that nearly every decoder has."""

    layers: int
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool

    @classmethod
    def of(cls, config: Config) -> Shape:
        """From the usual keys. No key-value heads: as many as query heads; no head_dim: the hidden size's share."""
        hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
        return cls(
            layers=config.whole("num_hidden_layers"),
            hidden=hidden,
            vocabulary=config.whole("vocab_size"),
            heads=heads,
            kv_heads=config.whole_or("num_key_value_heads", heads),
            head_dim=config.whole_or("head_dim", hidden // heads),
            tied=config.flag("tie_word_embeddings"),
        )

    @property
    def all_layers(self) -> tuple[int, ...]:
        """The layers' numbers."""
        return tuple(range(self.layers))


def vocabulary(shape: Shape) -> Block:
    """The input embedding and the head, which are one table where they are tied."""
    table = Tensor("model.embed_tokens", "embedding", shape.vocabulary, shape.hidden, tied=shape.tied)
    head = Tensor("lm_head", "head", shape.vocabulary, shape.hidden)
    return Block((table,) if shape.tied else (table, head))


def norms(shape: Shape, *paths: str) -> Block:
    """Norms over the hidden size: one in each layer for every path, and one before the head."""
    within = tuple(norm(f"{LAYER}.{path}", shape.hidden, shape.all_layers) for path in paths)
    return Block((*within, norm("model.norm", shape.hidden)))


def norm(path: str, size: int, layers: tuple[int, ...] = ()) -> Tensor:
    """One scaling vector. Every tensor-parallel rank keeps it whole."""
    return Tensor(path, "norm", size, layers=layers, ways=1)


def attention(
    shape: Shape,
    *,
    windows: Sequence[int | None] | None = None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: bool = False,
) -> Block:
    """Grouped-query attention in every layer. ``windows``: each layer's sliding window; None: no layer slides."""
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    path, layers = f"{LAYER}.self_attn", shape.all_layers

    def projection(name: str, rows: int, columns: int, bias: bool, ways: float) -> Tensor:
        elements = rows if bias else 0
        return Tensor(f"{path}.{name}", "attention", rows, columns, elements, layers, ways=ways)

    tensors = [
        projection("q_proj", query, shape.hidden, qkv_bias, shape.heads),
        projection("k_proj", key, shape.hidden, qkv_bias, shape.kv_heads),
        projection("v_proj", key, shape.hidden, qkv_bias, shape.kv_heads),
        projection("o_proj", shape.hidden, query, output_bias, shape.heads),
    ]
    if qk_norm:
        tensors += [norm(f"{path}.{name}", shape.head_dim, layers) for name in ("q_norm", "k_norm")]
    return Block(tuple(tensors), tuple(_attention_layers(shape, windows or [None] * shape.layers)))


def _attention_layers(shape: Shape, windows: Sequence[int | None]) -> Iterable[GroupedQueryAttention]:
    for window in dict.fromkeys(windows):
        yield GroupedQueryAttention(windows.count(window), shape.heads, shape.kv_heads, shape.head_dim, window)


def gated_mlp(
    shape: Shape, size: int, *, layers: tuple[int, ...] | None = None, path: str = f"{LAYER}.mlp", bias: bool = False
) -> Block:
    """Gate, up and down projections of every token."""
    layers = shape.all_layers if layers is None else layers
    return Block(_gated(path, "mlp", shape.hidden, size, layers, bias=bias)) if layers else Block()


def mixture(
    shape: Shape,
    size: int,
    *,
    experts: int,
    active: int,
    layers: tuple[int, ...] | None = None,
    path: str = f"{LAYER}.mlp",
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    shared_size: int = 0,
) -> Block:
    """A router and ``experts`` gated experts, of which each token passes through ``active``; shared experts always."""
    layers = shape.all_layers if layers is None else layers
    if not layers:
        return Block()
    router = Tensor(f"{path}.gate", "router", experts, shape.hidden, layers=layers, ways=1)
    routed = _gated(f"{path}.experts.{{expert}}", "expert", shape.hidden, size, layers, experts, active, names)
    shared = _gated(f"{path}.shared_expert", "shared_expert", shape.hidden, shared_size, layers) if shared_size else ()
    return Block((router, *routed, *shared), experts=experts, experts_per_token=active)


def _gated(
    path: str,
    role: Role,
    hidden: int,
    size: int,
    layers: tuple[int, ...],
    experts: int = 1,
    active: int = 1,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    bias: bool = False,
) -> tuple[Tensor, ...]:
    shapes = zip(names, ((size, hidden), (size, hidden), (hidden, size)), strict=True)
    return tuple(
        Tensor(f"{path}.{name}", role, rows, columns, rows if bias else 0, layers, experts, active)
        for name, (rows, columns) in shapes
    )
