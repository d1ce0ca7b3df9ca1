"""Tensors of a model: where they stand, what shape they have, and how tensor parallelism treats them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Role = Literal[
    "embedding", "head", "norm", "attention", "mlp", "expert", "shared_expert", "router", "convolution", "position"
]

#: Matrices of these roles pass through every token's product; quantisation schemes apply to them.
LINEAR_ROLES: frozenset[Role] = frozenset({"attention", "mlp", "expert", "shared_expert"})
#: What stands before the first layer; everything else outside of the layers stands behind the last one.
_AT_THE_INPUT: frozenset[str] = frozenset({"model.embed_tokens", "model.embed_positions", "model.project_in"})
#: Vectors (of norms, gates, biases that stand alone), short convolutions along the tokens, tables of learnt positions.
_NO_MATRIX: frozenset[Role] = frozenset({"norm", "convolution", "position"})


@dataclass(frozen=True)
class Tensor:
    """One module per layer (and expert) of the same shape, under a path like ``model.layers.{layer}.mlp.up_proj``.

    ``rows`` x ``columns`` is out x in of a matrix; a vector (a norm) has one column and is no matrix. ``bias`` counts
    the elements of its bias. ``layers`` are the layers it stands in, empty for what stands outside of them. A routed
    expert's module is there ``experts`` times in each layer, of which a token passes through ``active``. ``ways`` is
    how many tensor-parallel ranks can share it. ``tied`` marks an input embedding that serves as the head too.
    """

    path: str
    role: Role
    rows: int
    columns: int = 1
    bias: int = 0
    layers: tuple[int, ...] = ()
    experts: int = 1
    active: int = 1
    ways: float = math.inf
    tied: bool = False

    @property
    def is_matrix(self) -> bool:
        """Whether it takes part in matrix products."""
        return self.role not in _NO_MATRIX

    @property
    def count(self) -> int:
        """How many modules there are, over layers and experts."""
        return max(1, len(self.layers)) * self.experts

    @property
    def active_count(self) -> int:
        """How many modules a token passes through, over layers and experts."""
        return max(1, len(self.layers)) * self.active

    @property
    def matrix_elements(self) -> int:
        """Elements of one module without its bias."""
        return self.rows * self.columns

    @property
    def elements(self) -> int:
        """Elements of one module, its bias included."""
        return self.matrix_elements + self.bias

    def within(self, layers: range, *, first: bool, last: bool) -> Sequence[Tensor]:
        """What the pipeline stage with these layers holds of it. Of a tied table the first stage only looks rows up."""
        if self.layers:
            held = tuple(layer for layer in self.layers if layer in layers)
            return [replace(self, layers=held)] if held else []
        if self.tied:
            return [*([replace(self, tied=False)] if first else []), *([self] if last else [])]
        return [self] if (first if self.path in _AT_THE_INPUT else last) else []
