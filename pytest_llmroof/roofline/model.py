"""A model, as far as the physics needs to know it: parameters, bytes, FLOPs and cache."""

from __future__ import annotations

from typing import Protocol


class Model(Protocol):
    """What every description of a model answers, be it read from a config.json or given as figures.

    Parameters are whole numbers for a model read from its config. ``tokens`` are those that pass through the model in
    one step of one replica group; they decide how many distinct experts a step reads.
    """

    @property
    def name(self) -> str:
        """The catalogue name, or what the user called it."""

    @property
    def title(self) -> str:
        """For people: ``Llama 3.1 70B``."""

    @property
    def parameters(self) -> float:
        """P: all parameters."""

    @property
    def active_parameters(self) -> float:
        """Parameters active for a token: with k of E experts, the input embedding included."""

    @property
    def matmul_parameters(self) -> float:
        """P_a: active parameters that take part in matrix products (an untied input embedding does not)."""

    @property
    def layers(self) -> int | None:
        """L: decoder layers."""

    @property
    def hidden_size(self) -> int | None:
        """d, in elements."""

    @property
    def experts(self) -> int:
        """E: routed experts of a mixture-of-experts layer; 0 for a dense model."""

    @property
    def experts_per_token(self) -> int:
        """k; 0 for a dense model."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """What it has beside what a step of text reads, and what no figure counts: ``the vision tower``."""

    def weight_bytes(self, weights: str) -> float:
        """Bytes of the whole checkpoint at a precision (scales included); a given size wins over the precision."""

    def kv_bytes_per_token(self, kv_cache: str) -> float:
        """Bytes that a token of context keeps in the cache, over all layers, without replication."""
