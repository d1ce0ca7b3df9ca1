"""Models as their published configurations describe them: weights, cache and FLOPs from the layer shapes.

In 16 bit; or with 8-bit matrices in the layers, the head and all else being left as they are, or an 8-bit cache.
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES = 2.0


@dataclass(frozen=True)
class Net:
    """A decoder with grouped-query attention and gated feed-forward layers; ``experts`` of them where it is a MoE."""

    name: str
    served: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int
    experts: int = 1
    chosen: int = 1
    matrix_bytes: float = BYTES
    cache_bytes: float = BYTES

    @property
    def attention_weights(self) -> float:
        """Of one layer: queries, keys, values, output."""
        return self.hidden * self.head * (self.heads + 2 * self.kv_heads) + self.heads * self.head * self.hidden

    @property
    def expert_weights(self) -> float:
        """Of one expert of one layer: gate, up, down."""
        return 3.0 * self.hidden * self.inner

    @property
    def router_weights(self) -> float:
        """Of one layer."""
        return float(self.hidden * self.experts) if self.experts > 1 else 0.0

    @property
    def head_weights(self) -> float:
        """The output head: read whole, while the input embedding is a look-up."""
        return float(self.vocabulary * self.hidden)

    def experts_hit(self, tokens: float) -> float:
        """Distinct experts of a layer that so many tokens are routed to, evenly and independently: expected."""
        if self.experts == 1:
            return 1.0
        return float(self.experts * (1 - (1 - self.chosen / self.experts) ** tokens))

    def weight_bytes(self, tokens: float) -> float:
        """Read once for a step that computes ``tokens``; two norms a layer and one at the end."""
        matrices = self.attention_weights + self.experts_hit(tokens) * self.expert_weights
        beside = self.layers * (self.router_weights + 2 * self.hidden) + self.hidden + self.head_weights
        return self.matrix_bytes * self.layers * matrices + BYTES * beside

    @property
    def stored_bytes(self) -> float:
        """All weights, as they lie in memory: every expert, and the input embedding."""
        return self.weight_bytes(1e9) + BYTES * self.head_weights

    @property
    def kv_bytes(self) -> float:
        """Keys and values of one token."""
        return self.cache_bytes * 2 * self.layers * self.kv_heads * self.head

    @property
    def token_flops(self) -> float:
        """Matrix products of one token, without the output head: two FLOPs a weight."""
        layer = self.attention_weights + self.router_weights + self.chosen * self.expert_weights
        return 2.0 * self.layers * layer

    @property
    def logit_flops(self) -> float:
        """The output head for one row."""
        return 2.0 * self.head_weights

    def attention_flops(self, attended: float) -> float:
        """Scores and weighted sums over so many pairs of a query and a key."""
        return 4.0 * self.layers * self.heads * self.head * attended


LLAMA_8B = Net("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", 32, 4096, 32, 8, 128, 14336, 128256)
LLAMA_70B = Net("llama-3.1-70b", "meta-llama/Llama-3.1-70B-Instruct", 80, 8192, 64, 8, 128, 28672, 128256)
MISTRAL_7B = Net("mistral-7b-v0.3", "mistralai/Mistral-7B-Instruct-v0.3", 32, 4096, 32, 8, 128, 14336, 32768)
MIXTRAL = Net("mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1", 32, 4096, 32, 8, 128, 14336, 32000, 8, 2)

NETS = (LLAMA_8B, LLAMA_70B, MISTRAL_7B, MIXTRAL)
