"""How layers mix tokens: the cache they keep and the FLOPs of their scores."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class GroupedQueryAttention:
    """``layers`` layers of softmax attention: n_q query heads on n_kv key-value heads, multi-head where they are equal.

    ``window`` is how many tokens back (itself included) a sliding layer sees; None sees everything.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None

    @property
    def ways(self) -> float:
        """Each rank holds at least one key-value head."""
        return self.kv_heads

    @property
    def cache_elements(self) -> int:
        """Cache elements of one token: keys and values, 2 L n_kv d_h."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def held_bytes(self, context: float, element_bytes: float) -> float:
        """Keys and values of the tokens within the window."""
        return self._seen(context) * self.cache_elements * element_bytes

    def read_bytes(self, context: float, element_bytes: float) -> float:
        """Attention reads every key and value that it sees, once for all queries of the sequence."""
        return self.held_bytes(context, element_bytes)

    def written_bytes(self, tokens: float, element_bytes: float) -> float:
        """Each token's keys and values are written, sliding or not."""
        return tokens * self.cache_elements * element_bytes

    def decode_flops(self, context: float, tokens: float) -> float:
        """4 n_q d_h per layer for each pair of query and key."""
        return self._pair_flops * self._pairs(context, tokens)

    def prompt_flops(self, cached: float, tokens: float) -> float:
        """Causal: the first token sees the cached ones and itself."""
        return self._pair_flops * self._pairs(cached + 1, tokens)

    @property
    def _pair_flops(self) -> int:
        # A multiply-add per element of the head for the score, and one for the weighted sum.
        return 4 * self.layers * self.heads * self.head_dim

    def _seen(self, context: float) -> float:
        return context if self.window is None else min(context, self.window)

    def _pairs(self, first: float, queries: float) -> float:
        """Keys seen by ``queries`` queries: the first sees ``first``, each next one more, none more than the window."""
        window = math.inf if self.window is None else self.window
        rising = min(queries, max(0.0, window - first + 1))
        pairs = rising * first + rising * (rising - 1) / 2
        return pairs + (queries - rising) * window if queries > rising else pairs


@dataclass(frozen=True)
class GivenCache:
    """A cache of which only its size per token is known: no FLOPs are counted for scores, so a floor is a low one."""

    bytes_per_token: float
    ways: float = math.inf

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
