"""What a step reads and computes of a model, in the few terms that the cost of a step is made of.

Every description of a model (read from a config, or figures by hand) answers in these terms, so that the physics has
one road for all of them; a new kind of attention or of state is one more ``Mixer``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from pytest_llmroof.roofline.model import Model

#: always: every step reads all of it. lookup: a step reads one row per token. head: read where logits are computed.
#: expert: of each mixture the experts that the step's tokens are routed to.
Access = Literal["always", "lookup", "head", "expert"]


@dataclass(frozen=True)
class WeightPart:
    """Weights that a step reads in one manner. ``bytes`` is all of it, once.

    ``ways`` is how many tensor-parallel ranks can share it: infinitely many for a matrix that is split, the number of
    key-value heads for their projections, 1 for what each rank keeps whole (norms, routers). ``rows`` is the number of
    rows of a look-up table; ``experts`` and ``active`` are E and k of a mixture (``bytes`` holds all E, all layers).
    """

    access: Access
    bytes: float
    ways: float = math.inf
    rows: int = 0
    experts: float = 0
    active: float = 0

    def copies(self, tensor_parallel: int) -> float:
        """How often the tensor-parallel ranks hold it, together."""
        return max(1.0, tensor_parallel / self.ways)


@dataclass(frozen=True)
class Product:
    """Matrix products of the layers: active ``parameters``, and the ``ways`` in which ranks can share them.

    ``experts``: they are those of a mixture of so many, which expert parallelism spreads whole; 0: of none.
    """

    parameters: float
    ways: float = math.inf
    experts: float = 0


class Mixer(Protocol):
    """The layers of one kind that mix tokens (attention, a recurrent state), all of them together.

    ``element_bytes`` is the size of a cache element. The cost of attention scores is in FLOPs of whole layers, over
    all tensor-parallel ranks; contexts and tokens may be means, hence fractions.
    """

    @property
    def ways(self) -> float:
        """How many tensor-parallel ranks can share the cache; further ranks hold copies."""

    def within(self, stage: range) -> Sequence[Mixer]:
        """The part of it that the layers of a pipeline stage make, if any."""

    @property
    def token_elements(self) -> float:
        """Elements of keys, values or latents that a token adds to the cache, below a window; of a state none."""

    def held_bytes(self, context: float, element_bytes: float) -> float:
        """What a sequence of ``context`` tokens keeps in memory."""

    def read_bytes(self, context: float, element_bytes: float) -> float:
        """What a step reads of a sequence that has ``context`` tokens behind it."""

    def written_bytes(self, tokens: float, element_bytes: float) -> float:
        """What a step writes for ``tokens`` new tokens of a sequence."""

    def decode_flops(self, context: float, tokens: float) -> float:
        """Scores and weighted sums of ``tokens`` new tokens; the first sees ``context`` keys, each next one more."""

    def prompt_flops(self, cached: float, tokens: float) -> float:
        """The same for ``tokens`` tokens of a prompt after ``cached`` ones, causal: each sees itself and all before."""


@runtime_checkable
class Costed(Model, Protocol):
    """A model that can say what a step of it reads and computes."""

    @property
    def body_parameters(self) -> float:
        """Parameters of the matrix products that every token passes through (k experts, no look-up, no head)."""

    @property
    def head_parameters(self) -> float:
        """Parameters of the matrix product that makes logits, for the positions that need them."""

    @property
    def products(self) -> Sequence[Product]:
        """The body's matrix products by how ranks share them; their parameters add up to ``body_parameters``."""

    @property
    def attention_heads(self) -> int | None:
        """n_q: no more tensor-parallel ranks than this; None where it is not known."""

    def stages(self, number: int) -> Sequence[Costed]:
        """What each of ``number`` pipeline stages holds. A tied table stands at both ends."""

    @property
    def mixers(self) -> Sequence[Mixer]:
        """The token-mixing layers, by kind."""

    def parts(self, weights: str) -> Sequence[WeightPart]:
        """The weights at a precision, by the manner in which a step reads them."""
