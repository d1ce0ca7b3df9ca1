"""How layers mix tokens by a recurrent state: of constant size, read and written in every step."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmroof.roofline.models.layered import Layered

#: Bytes of an element of a convolution's window, which engines keep in 16 bits.
CONVOLUTION_BYTES = 2.0


@dataclass(frozen=True)
class RecurrentState(Layered):
    """``layers`` layers of linear attention or of a state-space model (Mamba).

    ``state`` and ``window`` are elements of one sequence in one layer: of the state, and of the short convolution's
    last inputs. ``state_bytes`` is the size of a state's element (an engine's choice, fp32 by default). A token costs
    ``token_flops`` in each layer, whatever the context. ``heads`` is how many ranks can share the state.
    """

    heads: int
    state: int
    window: int
    token_flops: int
    state_bytes: float
    token_elements: int = 0  # a context's tokens add nothing to it

    @property
    def ways(self) -> float:
        """Ranks share the heads."""
        return self.heads

    @property
    def sequence_bytes(self) -> float:
        """What a sequence keeps, however long it is."""
        return self.layers * (self.state * self.state_bytes + self.window * CONVOLUTION_BYTES)

    def held_bytes(self, context: float, element_bytes: float) -> float:
        """The state, whatever the cache's precision."""
        return self.sequence_bytes

    def read_bytes(self, context: float, element_bytes: float) -> float:
        """All of it, where there is something before the step."""
        return self.sequence_bytes if context > 0 else 0.0

    def written_bytes(self, tokens: float, element_bytes: float) -> float:
        """All of it, once for all tokens of a step."""
        return self.sequence_bytes if tokens > 0 else 0.0

    def decode_flops(self, context: float, tokens: float) -> float:
        """The state's update and its read-out, and the short convolution."""
        return self.layers * self.token_flops * tokens

    def prompt_flops(self, cached: float, tokens: float) -> float:
        """The same for each token: what chunked kernels compute beside it is theirs, not the model's."""
        return self.layers * self.token_flops * tokens
