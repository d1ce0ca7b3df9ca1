"""A model as a GGUF file stores it: what a step reads and computes of it, from the header alone."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Final

from pytest_llmroof.data import load
from pytest_llmroof.roofline.deployment import ELEMENT_BYTES
from pytest_llmroof.roofline.models.costed import Access, Mixer, Product, WeightPart
from pytest_llmroof.roofline.models.ggufheader import StoredTensor
from pytest_llmroof.roofline.models.layered import stage_ranges

_LAYER: Final = re.compile(r"blk\.(\d+)\.")
#: Before their experts were joined, files held them one by one: blk.0.ffn_gate.3.weight.
LONE_EXPERT: Final = re.compile(r"blk\.\d+\.ffn_(gate|up|down)\.\d+\.")
_READ: Final[Mapping[str, Access]] = {
    "embedding": "lookup", "position": "lookup", "head": "head", "expert": "expert",
}  # fmt: skip


@dataclass(frozen=True)
class GgufModel:
    """A model in a GGUF file. Its weights have the file's size, whatever precision somebody names.

    ``weights`` is the word for the type that most bytes have (``q4_k``). ``tied``: the input embedding is the
    head, too, of which the file then holds none. Layers for multi-token prediction are in the file (``file_bytes``) and
    no part of a step.
    """

    name: str
    title: str
    layers: int
    hidden_size: int
    attention_heads: int
    tensors: tuple[StoredTensor, ...]
    mixers: tuple[Mixer, ...]
    file_bytes: int
    weights: str
    tied: bool
    experts: int = 0
    experts_per_token: int = 0
    left_out: tuple[str, ...] = ()
    _parts: list[WeightPart] = field(default_factory=list, repr=False, compare=False)

    @cached_property
    def parameters(self) -> int:
        """P: all elements of all tensors; precomputed tables of positions are none."""
        return sum(tensor.elements for tensor in self.tensors if role_of(tensor.name) != "table")

    @cached_property
    def active_parameters(self) -> float:
        """Parameters active for a token, the input embedding included."""
        inactive = sum(tensor.elements for tensor in self.tensors if role_of(tensor.name) == "expert")
        return _whole(self.parameters - inactive * (1 - self._active_share))

    @property
    def matmul_parameters(self) -> float:
        """P_a: active elements of matrices, the head's (or the tied table's) included."""
        return self.body_parameters + self.head_parameters

    @cached_property
    def body_parameters(self) -> float:
        """Active elements of the matrices in the layers."""
        return _whole(sum(product.parameters for product in self.products))

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The matrices in the layers by how ranks share them."""
        sizes: dict[tuple[float, float], float] = {}
        for tensor in self.tensors:
            role = role_of(tensor.name)
            if tensor.name.startswith("blk.") and _is_matrix(tensor, role):
                expert = role == "expert"
                kind = (self._manner(tensor)[1], self.experts if expert else 0)
                sizes[kind] = sizes.get(kind, 0) + tensor.elements * (self._active_share if expert else 1)
        return tuple(Product(size, *kind) for kind, size in sizes.items())

    @cached_property
    def head_parameters(self) -> int:
        """Elements of the matrix that makes logits."""
        role = "embedding" if self.tied else "head"
        wide = (tensor for tensor in self.tensors if len(tensor.shape) > 1)
        return sum(tensor.elements for tensor in wide if role_of(tensor.name) == role)

    @property
    def dtype(self) -> str:
        """What products run in and the cache holds where nobody says: the 16 bit of the weights, else fp16."""
        return "bf16" if self.weights == "bf16" else "fp16"

    def weight_bytes(self, weights: str) -> float:
        """Bytes of all tensors in the file, to the byte."""
        return self.file_bytes

    def kv_bytes_per_token(self, kv_cache: str) -> float:
        """Bytes that a token of context keeps in the cache, over all layers, without replication."""
        return sum(mixer.token_elements for mixer in self.mixers) * ELEMENT_BYTES[kv_cache]

    def parts(self, weights: str) -> tuple[WeightPart, ...]:
        """The weights by the manner in which a step reads them."""
        if not self._parts:
            self._parts.extend(self._grouped())
        return tuple(self._parts)

    def stages(self, number: int) -> tuple[GgufModel, ...]:
        """What each pipeline stage holds; a stage is a model of its own, with the head at the last only."""
        ranges = stage_ranges(self.layers, number)
        return (self,) if number == 1 else tuple(self._stage(layers, layers is ranges[-1]) for layers in ranges)

    def _stage(self, layers: range, last: bool) -> GgufModel:
        first = layers.start == 0
        tensors = tuple(each for each in self.tensors if self._stands(each, layers, first, last))
        return replace(
            self,
            layers=len(layers),
            tensors=tensors,
            mixers=tuple(each for mixer in self.mixers for each in mixer.within(layers)),
            file_bytes=sum(each.bytes for each in tensors),
            tied=self.tied and last,
            _parts=[],
        )

    def _stands(self, tensor: StoredTensor, layers: range, first: bool, last: bool) -> bool:
        """Whether a stage holds a tensor; outside of the layers the input's stand at the first one."""
        number, role = layer_of(tensor), role_of(tensor.name)
        if number is not None:
            return number in layers
        if role == "embedding" and self.tied:
            return first or last
        return first if role in ("embedding", "position") else last

    def _grouped(self) -> Iterable[WeightPart]:
        sizes: Counter[tuple[Access, float, int]] = Counter()
        for tensor in self.tensors:
            sizes[self._manner(tensor)] += tensor.bytes
        for (access, ways, rows), size in sizes.items():
            mixture = (self.experts, self.experts_per_token) if access == "expert" else (0, 0)
            yield WeightPart(access, size, ways, rows, *mixture)

    def _manner(self, tensor: StoredTensor) -> tuple[Access, float, int]:
        """How a step reads a tensor, how many ranks can share it, and its rows where it is a table."""
        role = role_of(tensor.name)
        if role == "embedding" and self.tied:
            return "head", math.inf, 0
        access = _READ.get(role, "always")
        rows = tensor.shape[-1] if access == "lookup" else 0
        if access == "always" and (role == "replicated" or not _is_matrix(tensor, role) or role == "router"):
            return access, 1, rows
        return access, self._key_heads if role == "keys" else math.inf, rows

    @property
    def _key_heads(self) -> float:
        return max(1.0, min((mixer.ways for mixer in self.mixers), default=1.0))

    @property
    def _active_share(self) -> float:
        return self.experts_per_token / self.experts if self.experts else 1.0


@cache
def role_of(name: str) -> str:
    """What a step does with a tensor of that name: ``matrix`` unless the data know better."""
    if LONE_EXPERT.match(name):
        return "expert"
    roles: Mapping[str, str] = load("gguf.yaml")["roles"]
    return next((role for part, role in roles.items() if part in f".{name}"), "matrix")


def _is_matrix(tensor: StoredTensor, role: str) -> bool:
    """Whether it takes part in matrix products: biases, norms and tables do not."""
    wide = len(tensor.shape) > 1 and tensor.name.endswith(".weight")
    return wide and role not in ("norm", "table", "position", "embedding")


def layer_of(tensor: StoredTensor) -> int | None:
    """The layer that a tensor stands in; None outside of the layers."""
    found = _LAYER.match(tensor.name)
    return int(found[1]) if found else None


def _whole(value: float) -> float:
    """A count of parameters: whole, unless experts do not divide evenly."""
    return int(value) if value == int(value) else value
