"""How layers mix tokens by attention: the cache they keep and the FLOPs of their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmroof.roofline.models.layered import Layered

#: Bytes of an element of an index key: the indexers keep them in fp8, whatever the cache's precision.
INDEX_KEY_BYTES = 1.0


def pairs(first: float, queries: float, most: float = math.inf) -> float:
    """Keys seen by ``queries`` queries: the first sees ``first``, each next one more, none more than ``most``."""
    rising = min(queries, max(0.0, most - first + 1))
    seen = rising * first + rising * (rising - 1) / 2
    return seen + (queries - rising) * most if queries > rising else seen


def chunked_pairs(first: float, queries: float, chunk: float) -> float:
    """Keys seen by ``queries`` queries from place ``first`` on; each sees back to its chunk's beginning."""
    return _chunked(first + queries - 1, chunk) - _chunked(first - 1, chunk)


def _chunked(places: float, chunk: float) -> float:
    whole, rest = divmod(places, chunk)
    return whole * chunk * (chunk + 1) / 2 + rest * (rest + 1) / 2


@dataclass(frozen=True)
class GroupedQueryAttention(Layered):
    """``layers`` layers of softmax attention: n_q query heads on n_kv key-value heads, multi-head where they are equal.

    ``window`` is how many tokens back (itself included) a sliding layer sees; None sees everything. With ``chunked``
    the window is a chunk that begins anew after so many tokens. ``selected`` is how many tokens of the whole context
    sparse attention picks. ``value_dim`` is the size of a value where it is not that of a key.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    chunked: bool = False
    selected: int | None = None
    value_dim: int | None = None

    @property
    def ways(self) -> float:
        """Each rank holds at least one key-value head."""
        return self.kv_heads

    @property
    def token_elements(self) -> int:
        """Cache elements of one token: keys and values, 2 L n_kv d_h."""
        return self.layers * self.kv_heads * self._widths

    def held_bytes(self, context: float, element_bytes: float) -> float:
        """Keys and values of the tokens within the window. Of a chunk all: contexts are means, places unknown."""
        return min(context, self.window or math.inf) * self.token_elements * element_bytes

    def read_bytes(self, context: float, element_bytes: float) -> float:
        """Attention reads every key and value that it sees, once for all queries of the sequence."""
        return self.held_bytes(min(context, self.selected or math.inf), element_bytes)

    def written_bytes(self, tokens: float, element_bytes: float) -> float:
        """Each token's keys and values are written, sliding or not."""
        return tokens * self.token_elements * element_bytes

    def decode_flops(self, context: float, tokens: float) -> float:
        """4 n_q d_h per layer for each pair of query and key."""
        return self._pair_flops * pairs(context, tokens, min(self.window or math.inf, self.selected or math.inf))

    def prompt_flops(self, cached: float, tokens: float) -> float:
        """Causal: the first token sees the cached ones and itself."""
        if self.chunked and self.window is not None:
            return self._pair_flops * chunked_pairs(cached + 1, tokens, self.window)
        return self.decode_flops(cached + 1, tokens)

    @property
    def _pair_flops(self) -> int:
        # A multiply-add per element of the head for the score, and one for the weighted sum.
        return 2 * self.layers * self.heads * self._widths

    @property
    def _widths(self) -> int:
        return self.head_dim + (self.value_dim or self.head_dim)


@dataclass(frozen=True)
class LatentAttention(Layered):
    """``layers`` layers of multi-head latent attention (MLA): one latent and one rotary key for all heads.

    Decode works on the latents as they are (absorbed: the up-projection is applied to queries and outputs instead),
    a prompt expands them into keys and values. ``selected`` is how many tokens sparse attention (DSA) picks.
    """

    heads: int
    latent: int
    rope: int
    nope: int
    value: int
    selected: int | None = None

    @property
    def ways(self) -> float:
        """The latent serves all heads: every tensor-parallel rank keeps it whole."""
        return 1

    @property
    def token_elements(self) -> int:
        """Cache elements of one token: latent and rotary key, no factor of 2 and no heads."""
        return self.layers * (self.latent + self.rope)

    def held_bytes(self, context: float, element_bytes: float) -> float:
        """The latents of all tokens."""
        return context * self.token_elements * element_bytes

    def read_bytes(self, context: float, element_bytes: float) -> float:
        """Those that are seen, once for all heads."""
        return self.held_bytes(min(context, self.selected or math.inf), element_bytes)

    def written_bytes(self, tokens: float, element_bytes: float) -> float:
        """Each token's latent."""
        return tokens * self.token_elements * element_bytes

    def decode_flops(self, context: float, tokens: float) -> float:
        """Absorbed: scores over latent and rotary key, a weighted sum of latents."""
        return self._flops(2 * self.latent + self.rope, context, tokens)

    def prompt_flops(self, cached: float, tokens: float) -> float:
        """Expanded: scores over keys, a weighted sum of values."""
        return self._flops(self.nope + self.rope + self.value, cached + 1, tokens)

    def _flops(self, widths: int, first: float, queries: float) -> float:
        return 2 * self.layers * self.heads * widths * pairs(first, queries, self.selected or math.inf)


@dataclass(frozen=True)
class Indexer(Layered):
    """``layers`` indexers of sparse attention: each scores every key of the context to pick those that are attended.

    ``ratio``: index keys stand for so many tokens each.
    """

    heads: int
    dim: int
    ratio: int = 1
    token_elements: int = 0  # index keys are no keys and values: they are read and held, and counted apart

    @property
    def ways(self) -> float:
        """All heads share one key: every rank keeps it."""
        return 1

    def held_bytes(self, context: float, element_bytes: float) -> float:
        """A key of a byte per element for each token (or ``ratio`` of them)."""
        return context / self.ratio * self.layers * self.dim * INDEX_KEY_BYTES

    def read_bytes(self, context: float, element_bytes: float) -> float:
        """All keys: it is they that tell which tokens matter."""
        return self.held_bytes(context, element_bytes)

    def written_bytes(self, tokens: float, element_bytes: float) -> float:
        """Each new token's key."""
        return self.held_bytes(tokens, element_bytes)

    def decode_flops(self, context: float, tokens: float) -> float:
        """A score per head and key, and no weighted sum."""
        return 2 * self.layers * self.heads * self.dim * pairs(context, tokens) / self.ratio

    def prompt_flops(self, cached: float, tokens: float) -> float:
        """The same, causal."""
        return self.decode_flops(cached + 1, tokens)


@dataclass(frozen=True)
class CompressedAttention(Layered):
    """``layers`` layers that see a window of tokens, and beyond it one compressed entry for each ``ratio`` tokens.

    One vector of ``head_dim`` is key and value of all heads. ``selected`` is how many entries an indexer picks. An
    infinite ``ratio``: there are no entries.
    """

    heads: int
    head_dim: int
    window: int
    ratio: float
    selected: int | None = None

    @property
    def ways(self) -> float:
        """One vector serves all heads."""
        return 1

    @property
    def token_elements(self) -> float:
        """A token's own vector, which the window forgets, and its share of an entry, which stays."""
        return self.layers * self.head_dim * (1 + 1 / self.ratio)

    def held_bytes(self, context: float, element_bytes: float) -> float:
        """The window and all entries."""
        return (min(context, self.window) + context / self.ratio) * self._vector_bytes(element_bytes)

    def read_bytes(self, context: float, element_bytes: float) -> float:
        """The window and the entries picked."""
        entries = min(context / self.ratio, self.selected or math.inf)
        return (min(context, self.window) + entries) * self._vector_bytes(element_bytes)

    def written_bytes(self, tokens: float, element_bytes: float) -> float:
        """Each token's own vector, and an entry for every ``ratio``."""
        return (tokens + tokens / self.ratio) * self._vector_bytes(element_bytes)

    def decode_flops(self, context: float, tokens: float) -> float:
        """Scores and weighted sums over the window and the entries seen."""
        most = (self.selected or math.inf) * self.ratio
        seen = pairs(context, tokens, self.window) + pairs(context, tokens, most) / self.ratio
        return 4 * self.layers * self.heads * self.head_dim * seen

    def prompt_flops(self, cached: float, tokens: float) -> float:
        """The same, causal."""
        return self.decode_flops(cached + 1, tokens)

    def _vector_bytes(self, element_bytes: float) -> float:
        return self.layers * self.head_dim * element_bytes


@dataclass(frozen=True)
class GivenCache:
    """A cache of which only its size per token is known: no FLOPs are counted for scores, so a floor is a low one."""

    bytes_per_token: float
    ways: float = math.inf
    token_elements: int = 0

    def within(self, stage: range) -> Sequence[GivenCache]:
        """Layers are not told apart."""
        return [self]

    def held_bytes(self, context: float, element_bytes: float) -> float:
        """As given, whatever the precision."""
        return context * self.bytes_per_token

    def read_bytes(self, context: float, element_bytes: float) -> float:
        """All of it."""
        return context * self.bytes_per_token

    def written_bytes(self, tokens: float, element_bytes: float) -> float:
        """Each new token's."""
        return tokens * self.bytes_per_token

    def decode_flops(self, context: float, tokens: float) -> float:
        """Not known: none."""
        return 0.0

    def prompt_flops(self, cached: float, tokens: float) -> float:
        """Not known: none."""
        return 0.0
