"""A model read from its config: its tensors and mixers, and everything that follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from pytest_llmroof.roofline.deployment import ELEMENT_BYTES
from pytest_llmroof.roofline.models.checkpoint import Checkpoint
from pytest_llmroof.roofline.models.costed import Access, Mixer, Product, WeightPart
from pytest_llmroof.roofline.models.layered import stage_ranges
from pytest_llmroof.roofline.models.mixers import Indexer
from pytest_llmroof.roofline.models.states import RecurrentState
from pytest_llmroof.roofline.models.tensors import LINEAR_ROLES, Tensor

#: Bytes of an element that quantisation leaves alone.
SIXTEEN_BIT = 2.0
PLAIN_PRECISIONS = frozenset({"fp32", "tf32", "bf16", "fp16"})


@dataclass(frozen=True)
class Architecture:
    """A model as its class allocates it. Parameters are counted tensor by tensor and are exact.

    ``dtype`` is what the config says about its elements (None: it says nothing), ``checkpoint`` how it is quantised
    (None: it is not). ``catalogue`` marks a description that is ours and not the served checkpoint's, so that its
    precisions are assumptions. ``left_out`` says what the model has beside its text model, which no step of text reads,
    ``class_defaults`` which sizes the config leaves to the class.
    """

    name: str
    title: str
    layers: int
    hidden_size: int
    attention_heads: int
    tensors: tuple[Tensor, ...]
    mixers: tuple[Mixer, ...]
    experts: int = 0
    experts_per_token: int = 0
    dtype: str | None = None
    checkpoint: Checkpoint | None = None
    catalogue: bool = False
    left_out: tuple[str, ...] = ()
    class_defaults: tuple[str, ...] = ()
    _parts: dict[str, tuple[WeightPart, ...]] = field(default_factory=dict, repr=False, compare=False)
    _stages: dict[int, tuple[Architecture, ...]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def parameters(self) -> int:
        """P: all parameters."""
        return sum(tensor.elements * tensor.count for tensor in self.tensors)

    @cached_property
    def active_parameters(self) -> int:
        """Parameters active for a token, input embedding and norms included."""
        return sum(tensor.elements * tensor.active_count for tensor in self.tensors)

    @property
    def matmul_parameters(self) -> int:
        """P_a: active elements of matrices, the head's included, an untied input embedding's not."""
        return self.body_parameters + self.head_parameters

    @cached_property
    def body_parameters(self) -> int:
        """Active elements of the matrices in the layers."""
        body = (tensor for tensor in self.tensors if tensor.is_matrix and tensor.role not in ("embedding", "head"))
        return sum(tensor.matrix_elements * tensor.active_count for tensor in body)

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The body's matrices by how ranks share them."""
        sizes: dict[tuple[float, float], float] = {}
        for tensor in self.tensors:
            if tensor.is_matrix and tensor.role not in ("embedding", "head"):
                kind = (tensor.ways, tensor.experts if tensor.role == "expert" else 0)
                sizes[kind] = sizes.get(kind, 0) + tensor.matrix_elements * tensor.active_count
        return tuple(Product(size, *kind) for kind, size in sizes.items())

    @cached_property
    def head_parameters(self) -> int:
        """Elements of the matrix that makes logits: the head's, or the tied table's."""
        return sum(tensor.matrix_elements for tensor in self.tensors if tensor.role == "head" or tensor.tied)

    def weight_bytes(self, weights: str) -> float:
        """Bytes of the whole checkpoint at a precision, scales and zero points included."""
        return sum(part.bytes for part in self.parts(weights))

    def kv_bytes_per_token(self, kv_cache: str) -> float:
        """Bytes that a token of context keeps in the cache, over all layers, without replication."""
        return sum(mixer.token_elements for mixer in self.mixers) * ELEMENT_BYTES[kv_cache]

    @cached_property
    def state_bytes_per_sequence(self) -> float:
        """Bytes of recurrent state that a sequence keeps, however long it is; 0 for attention alone."""
        return sum(mixer.sequence_bytes for mixer in self.mixers if isinstance(mixer, RecurrentState))

    def kv_bytes_per_sequence(self, context: float, kv_cache: str) -> float:
        """Bytes of keys and values (or latents) of a sequence: windows applied, without index keys and states."""
        caches = (mixer for mixer in self.mixers if not isinstance(mixer, RecurrentState | Indexer))
        return sum(mixer.held_bytes(context, ELEMENT_BYTES[kv_cache]) for mixer in caches)

    def parts(self, weights: str) -> tuple[WeightPart, ...]:
        """The weights by the manner in which a step reads them."""
        if weights not in self._parts:
            self._parts[weights] = tuple(_merged(self._part(tensor, weights) for tensor in self.tensors))
        return self._parts[weights]

    def stages(self, number: int) -> tuple[Architecture, ...]:
        """What each pipeline stage holds; a stage is a model of its own, with the head at the last only."""
        if number == 1:
            return (self,)
        if number not in self._stages:
            ranges = stage_ranges(self.layers, number)
            self._stages[number] = tuple(self._stage(layers, last=layers is ranges[-1]) for layers in ranges)
        return self._stages[number]

    def _stage(self, layers: range, *, last: bool) -> Architecture:
        first = layers.start == 0
        return replace(
            self,
            layers=len(layers),
            tensors=tuple(each for tensor in self.tensors for each in tensor.within(layers, first=first, last=last)),
            mixers=tuple(each for mixer in self.mixers for each in mixer.within(layers)),
            _parts={},
            _stages={},
        )

    def _part(self, tensor: Tensor, weights: str) -> WeightPart:
        size = self._bytes(tensor, weights)
        if tensor.role == "expert":
            return WeightPart("expert", size, experts=tensor.experts, active=tensor.active, ways=tensor.ways)
        if tensor.role == "position" or (tensor.role == "embedding" and not tensor.tied):
            return WeightPart("lookup", size, rows=tensor.rows)
        access: Access = "head" if tensor.role == "head" or tensor.tied else "always"
        return WeightPart(access, size, ways=tensor.ways)

    def _bytes(self, tensor: Tensor, weights: str) -> float:
        """Bytes of all modules of a tensor. Biases, norms, embeddings and routers keep 16 bits under quantisation."""
        if weights in PLAIN_PRECISIONS:
            return tensor.elements * tensor.count * ELEMENT_BYTES[weights]
        if self.checkpoint is not None and self.checkpoint.precision == weights:
            matrices = self.checkpoint.matrix_bytes(tensor, SIXTEEN_BIT)
        else:
            each = ELEMENT_BYTES[weights] if tensor.role in LINEAR_ROLES else SIXTEEN_BIT
            matrices = tensor.matrix_elements * tensor.count * each
        return matrices + tensor.bias * tensor.count * SIXTEEN_BIT


def _merged(parts: Iterable[WeightPart]) -> Iterable[WeightPart]:
    """Parts that differ in nothing but their size, as one."""
    sizes: dict[tuple[Access, float, int, float, float], float] = {}
    for part in parts:
        kind = (part.access, part.ways, part.rows, part.experts, part.active)
        sizes[kind] = sizes.get(kind, 0.0) + part.bytes
    return (
        WeightPart(access, size, ways, rows, experts, active)
        for (access, ways, rows, experts, active), size in sizes.items()
    )
