"""How a quantised matrix is stored: bytes of its elements, scales and zero points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pytest_llmroof.roofline.models.tensors import Tensor

#: What one scale covers: the whole matrix, an output channel, a group of inputs of one output, a block of both.
Scales = Literal["tensor", "channel", "group", "block"]


@dataclass(frozen=True)
class Format:
    """A storage format of matrices. ``bits`` of an element, ``scale_bytes`` of a scale, ``zero_bits`` of a zero point.

    ``group`` is the group size (0: one group is a whole row), ``block`` the block's rows and columns. ``index_bytes``
    are stored per input channel (GPTQ's ``g_idx``), ``tensor_bytes`` once per matrix (NVFP4's second scale).
    """

    bits: float
    scales: Scales
    scale_bytes: float
    group: int = 0
    block: tuple[int, int] = (1, 1)
    zero_bits: float = 0.0
    index_bytes: float = 0.0
    tensor_bytes: float = 0.0

    def bytes(self, tensor: Tensor) -> float:
        """Bytes of one module's matrix, without its bias."""
        elements = tensor.matrix_elements * self.bits / 8
        scales = self._scales(tensor) * (self.scale_bytes + self.zero_bits / 8)
        return elements + scales + tensor.columns * self.index_bytes + self.tensor_bytes

    def _scales(self, tensor: Tensor) -> int:
        if self.scales == "tensor":
            return 1
        if self.scales == "channel":
            return tensor.rows
        if self.scales == "group":
            return tensor.rows * math.ceil(tensor.columns / (self.group or tensor.columns))
        rows, columns = self.block
        return math.ceil(tensor.rows / rows) * math.ceil(tensor.columns / columns)
