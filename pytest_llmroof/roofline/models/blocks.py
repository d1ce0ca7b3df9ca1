"""What families of models are declared over: sizes, linear layers, norms, vocabulary. Blocks add up to a model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_llmroof.roofline.models.costed import Mixer
from pytest_llmroof.roofline.models.reading import Config
from pytest_llmroof.roofline.models.tensors import Role, Tensor

LAYER = "model.layers.{layer}"
Layers = tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """A part of a model: its tensors, and how it mixes tokens where it does."""

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
    def all_layers(self) -> Layers:
        """The layers' numbers."""
        return tuple(range(self.layers))


def linear(
    path: str, role: Role, rows: int, columns: int, layers: Layers = (), *, bias: bool = False, ways: float = math.inf
) -> Tensor:
    """A linear layer, out x in, in each of ``layers``."""
    return Tensor(path, role, rows, columns, rows if bias else 0, layers, ways=ways)


def vector(path: str, size: int, layers: Layers = (), *, bias: bool = False, ways: float = 1) -> Tensor:
    """A norm (with a bias, where it centres) or another vector. Every tensor-parallel rank keeps a norm whole."""
    return Tensor(path, "norm", size, bias=size if bias else 0, layers=layers, ways=ways)


def norms(shape: Shape, *names: str, bias: bool = False, final: str = "model.norm") -> Block:
    """Norms over the hidden size: one in each layer for every name, and one before the head."""
    within = tuple(vector(f"{LAYER}.{name}", shape.hidden, shape.all_layers, bias=bias) for name in names)
    return Block((*within, vector(final, shape.hidden, bias=bias)))


def vocabulary(shape: Shape, *, head_bias: bool = False, width: int | None = None) -> Block:
    """The input embedding and the head, which are one table where they are tied; a bias of the head stays its own.

    ``width``: not the hidden size.
    """
    width = width or shape.hidden
    table = Tensor("model.embed_tokens", "embedding", shape.vocabulary, width, tied=shape.tied)
    if shape.tied:
        return Block((table, *([vector("lm_head.bias", shape.vocabulary, ways=math.inf)] if head_bias else [])))
    return Block((table, linear("lm_head", "head", shape.vocabulary, width, bias=head_bias)))


def positions(shape: Shape, number: int) -> Block:
    """A table of learnt positions, of which a token takes a row."""
    return Block((Tensor("model.embed_positions", "position", number, shape.hidden),))


def decoder(shape: Shape, *blocks: Block) -> Block:
    """Blocks of layers under the usual two norms a layer, the norm before the head, embedding and head."""
    usual = norms(shape, "input_layernorm", "post_attention_layernorm") + vocabulary(shape)
    return joined((*blocks, usual))


def joined(blocks: Iterable[Block]) -> Block:
    """All blocks, as one."""
    whole = Block()
    for block in blocks:
        whole += block
    return whole
