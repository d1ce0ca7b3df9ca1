"""One forward pass of an engine, and what it costs: the interface between the physics and everything that measures."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Prefill:
    """Prompt tokens computed in a step: ``sequences`` sequences with ``tokens`` new tokens each.

    ``cached`` tokens of each sequence stand in the KV cache already (prefix hits or earlier chunks); ``logits`` is the
    number of positions per sequence whose logits are computed (1 for the chunk that ends a prompt, 0 for others).
    All may be means, hence fractions.
    """

    tokens: float
    cached: float = 0.0
    sequences: float = 1.0
    logits: float = 1.0


@dataclass(frozen=True)
class Step:
    """What one forward pass of one replica holds: ``sequences`` decoding at a mean ``context``, and prompt chunks.

    ``draft_tokens`` (g) are verified beside the next token of each decoding sequence.
    """

    sequences: float = 0.0
    context: float = 0.0
    draft_tokens: float = 0.0
    prefills: tuple[Prefill, ...] = ()

    @property
    def tokens(self) -> float:
        """Tokens that pass through the model: B (g + 1) and the chunks."""
        return self.sequences * (1 + self.draft_tokens) + sum(chunk.sequences * chunk.tokens for chunk in self.prefills)


@dataclass(frozen=True)
class Busiest:
    """What the GPUs that have most to do need in a step: FLOPs of the one that computes most, bytes of the one that
    moves most.
    """

    flops: float
    weight_bytes: float
    kv_bytes: float

    @property
    def bytes(self) -> float:
        """All bytes that it moves."""
        return self.weight_bytes + self.kv_bytes


@dataclass(frozen=True)
class StepCost:
    """What a step of one replica needs, summed over its GPUs (replicated parts counted once per GPU that reads them).

    ``flops`` are exact (causal attention counted, logits only where computed); ``model_flops`` are 2 P_a per token.
    ``weight_bytes`` is the expected figure under even routing, ``weight_bytes_low`` that of k experts only (skewed
    routing; equal for dense models). ``kv_bytes`` are reads of the contexts and writes of the new tokens, recurrent
    state included. ``gpus`` is N. ``busiest`` is there where the GPUs are not alike (stages with more layers or with
    the head, ranks with more heads or experts): a step takes as long as they do.
    """

    flops: float
    model_flops: float
    weight_bytes: float
    weight_bytes_low: float
    kv_bytes: float
    gpus: int
    busiest: Busiest | None = None

    @property
    def bytes(self) -> float:
        """All bytes that the step moves, over the replica's GPUs."""
        return self.weight_bytes + self.kv_bytes

    @property
    def bytes_low(self) -> float:
        """The least that it can move: skewed experts."""
        return self.weight_bytes_low + self.kv_bytes

    def least(self) -> StepCost:
        """The least that it can be: skewed experts, and all work spread evenly."""
        return replace(self, weight_bytes=self.weight_bytes_low, busiest=None)

    @property
    def intensity(self) -> float:
        """FLOP per byte of the step."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Floor:
    """The least time that the roofline allows a step: seconds."""

    compute_seconds: float
    memory_seconds: float
    weights_seconds: float
    kv_seconds: float

    @property
    def seconds(self) -> float:
        """The binding one of both roofs."""
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def memory_bound(self) -> bool:
        """Whether the memory roof binds."""
        return self.memory_seconds >= self.compute_seconds


@dataclass(frozen=True)
class MemoryFit:
    """Whether a deployment fits its accelerators' memory. Bytes are those of the GPU that holds most weights.

    ``sequences`` is how many sequences of the asked context fit beside the weights (0 where the weights do not fit),
    None where no context was asked or the model keeps no figures for its cache. ``replica_bytes`` are the weights that
    all GPUs of a replica hold.
    """

    weight_bytes: float
    memory_bytes: float
    sequences: float | None
    replica_bytes: float

    @property
    def weights_fit(self) -> bool:
        """Whether the weights alone fit."""
        return self.weight_bytes <= self.memory_bytes
