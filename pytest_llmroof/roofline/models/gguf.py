"""A model as a GGUF file stores it: what a step reads and computes of it, from the header alone."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Final

from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigError, UnknownModelError
from pytest_llmroof.roofline.deployment import ELEMENT_BYTES
from pytest_llmroof.roofline.models.costed import Access, Mixer, Product, WeightPart
from pytest_llmroof.roofline.models.ggufheader import Header, StoredTensor
from pytest_llmroof.roofline.models.layered import stage_ranges
from pytest_llmroof.roofline.models.mixers import GroupedQueryAttention, LatentAttention

_LAYER: Final = re.compile(r"blk\.(\d+)\.")
#: Before their experts were joined, files held them one by one: blk.0.ffn_gate.3.weight.
_LONE_EXPERT: Final = re.compile(r"blk\.\d+\.ffn_(gate|up|down)\.\d+\.")
#: More layers than any model has: a broken header, not to be counted through.
_MOST_LAYERS: Final = 10_000
#: What ``left_out`` calls such layers.
_PREDICTING: Final = "layers that predict further tokens"
_READ: Final[Mapping[str, Access]] = {
    "embedding": "lookup", "position": "lookup", "head": "head", "expert": "expert",
}  # fmt: skip


@dataclass(frozen=True)
class GgufModel:
    """A model in a GGUF file. Its weights have the file's size, whatever precision somebody names.

    ``weights`` is the word for the type that most bytes have (``q4_k``). ``tied``: the input embedding serves as the
    head, too: the file then holds none. Layers for multi-token prediction are in the
    file (``file_bytes``) and no part of a step.
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
        number, role = _layer(tensor), role_of(tensor.name)
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


def model_from_gguf(header: Header, name: str) -> GgufModel:
    """The model that a header describes.

    ConfigError where it is no language model's or keys are missing; UnknownModelError for an architecture whose
    attention does not follow from the header.
    """
    return _Building(header, name).model()


class _Building:
    """Reads one header as a model."""

    def __init__(self, header: Header, name: str) -> None:
        self.metadata = header.metadata
        self.tensors = header.tensors
        self.name = name
        architecture = self.metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise ConfigError("not a model: the header has no general.architecture")
        self.architecture = architecture

    def model(self) -> GgufModel:
        """The model."""
        if self.metadata.get("general.type", "model") != "model" or not self._has("token_embd"):
            raise ConfigError(f"not a language model: {self.architecture} without token_embd.weight")
        predicting = {_layer(each) for each in self.tensors if ".nextn." in each.name}
        stepped = tuple(each for each in self.tensors if _layer(each) not in predicting)
        layers = self.whole("block_count") - len(predicting)
        if not 0 < layers <= _MOST_LAYERS:
            raise ConfigError(f"{self.architecture}.block_count: {layers} layers are no model")
        experts = self.whole("expert_count", 0)
        active = self.whole("expert_used_count", 0) if experts else 0
        if experts and not 0 < active <= experts:
            raise ConfigError(f"{self.architecture}.expert_used_count is {active} of {experts} experts")
        self.check_experts(stepped, experts)
        return GgufModel(
            name=self.name,
            title=str(self.metadata.get("general.name") or self.name),
            layers=layers,
            hidden_size=self.whole("embedding_length"),
            attention_heads=max(self.by_layer("attention.head_count", layers)),
            tensors=stepped,
            mixers=tuple(self.mixers(layers)),
            file_bytes=sum(each.bytes for each in self.tensors),
            weights=_main_type(stepped),
            tied=not any(role_of(each.name) == "head" for each in stepped),
            experts=experts,
            experts_per_token=active,
            left_out=(_PREDICTING,) if predicting else (),
        )

    def mixers(self, layers: int) -> Iterable[Mixer]:
        """The attention of all layers, alike ones together."""
        known: Mapping[str, Mapping[str, Any]] = load("gguf.yaml")["architectures"]
        if self.architecture not in known:
            raise UnknownModelError(
                f"how the GGUF architecture {self.architecture!r} keeps its context is not known here; give its "
                f"figures by hand, of which the header tells these: {self.figures()}"
            )
        heads, keys = self.by_layer("attention.head_count", layers), self.kv_heads(layers)
        latent = self.whole("attention.kv_lora_rank", 0)
        if latent:
            yield self.latent(layers, max(heads), latent)
            return
        width = self.whole("attention.key_length", self.whole("embedding_length") // max(heads))
        value = self.whole("attention.value_length", width)
        windows = self.windows(known[self.architecture], layers)
        chunked = bool(known[self.architecture].get("chunked"))
        kinds: dict[tuple[int, int, int], list[int]] = {}
        for layer, kind in enumerate(zip(heads, keys, windows, strict=True)):
            kinds.setdefault(kind, []).append(layer)
        for (n, k, window), alike in kinds.items():
            if k:
                ends = chunked and bool(window)
                yield GroupedQueryAttention(
                    len(alike), n, k, width, window or None, ends, value_dim=value, numbers=tuple(alike)
                )

    def latent(self, layers: int, heads: int, latent: int) -> LatentAttention:
        """Multi-head latent attention: its head sizes have keys of their own in files that keep latents."""
        rope = self.whole("rope.dimension_count")
        key = self.whole("attention.key_length_mla", self.whole("attention.key_length", 0) or None)
        value = self.whole("attention.value_length_mla", self.whole("attention.value_length", 0) or None)
        return LatentAttention(layers, heads, latent, rope, key - rope, value, numbers=tuple(range(layers)))

    def windows(self, known: Mapping[str, Any], layers: int) -> list[int]:
        """Every layer's sliding window; 0 where it sees everything."""
        window, stated = self.whole("attention.sliding_window", 0), self.get("attention.sliding_window_pattern")
        if not window:
            return [0] * layers
        if isinstance(stated, list) and len(stated) >= layers:
            return [window if slides else 0 for slides in stated[:layers]]
        slides = self.whole("attention.sliding_window_pattern", 0) or known.get("slides")
        if slides is None:
            raise UnknownModelError(
                f"the header states a sliding window of {window} tokens and not which layers of {self.architecture} "
                f"slide; give its figures by hand, of which it tells these: {self.figures()}"
            )
        return [window if slides == 1 or layer % slides < slides - 1 else 0 for layer in range(layers)]

    def kv_heads(self, layers: int) -> list[int]:
        """Every layer's key-value heads: as many as query heads where they are not stated."""
        stated = self.get("attention.head_count_kv")
        return self.by_layer("attention.head_count" if stated is None else "attention.head_count_kv", layers)

    def by_layer(self, key: str, layers: int) -> list[int]:
        """A number for each layer: the file holds one for all, or a list."""
        value = self.get(key)
        if not isinstance(value, list):
            return [self.whole(key)] * layers
        if len(value) < layers or not all(isinstance(each, int) and each >= 0 for each in value) or not any(value):
            raise ConfigError(f"{self.architecture}.{key}: expected a number for each of {layers} layers")
        return value[:layers]

    def check_experts(self, tensors: Iterable[StoredTensor], experts: int) -> None:
        """Joined experts are the last dimension; a header that says otherwise contradicts itself."""
        for tensor in tensors:
            joined = role_of(tensor.name) == "expert" and not _LONE_EXPERT.match(tensor.name)
            if joined and tensor.shape[-1] != experts:
                raise ConfigError(f"the tensor {tensor.name!r} has {tensor.shape[-1]} experts, the header {experts}")

    def figures(self) -> str:
        """What the header tells of the figures that a user would have to give."""
        parameters = sum(each.elements for each in self.tensors if role_of(each.name) != "table")
        size = sum(each.bytes for each in self.tensors)
        return f"model: {{parameters: {parameters}, weight_bytes: {size}, kv_bytes_per_token: ...}}"

    def whole(self, key: str, otherwise: int | None = None) -> int:
        """A whole number under the architecture's key."""
        value = self.get(key)
        if value is None and otherwise is not None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int) or value < 0 or (value == 0 and otherwise is None):
            raise ConfigError(f"{self.architecture}.{key}: expected a positive number, not {value!r}")
        return value

    def get(self, key: str) -> Any:
        """What stands under the architecture's key; None where it is absent."""
        return self.metadata.get(f"{self.architecture}.{key}")

    def _has(self, part: str) -> bool:
        return any(tensor.name.startswith(part) for tensor in self.tensors)


@cache
def role_of(name: str) -> str:
    """What a step does with a tensor of that name: ``matrix`` unless the data know better."""
    if _LONE_EXPERT.match(name):
        return "expert"
    roles: Mapping[str, str] = load("gguf.yaml")["roles"]
    return next((role for part, role in roles.items() if part in f".{name}"), "matrix")


def _is_matrix(tensor: StoredTensor, role: str) -> bool:
    """Whether it takes part in matrix products: biases, norms and tables do not."""
    wide = len(tensor.shape) > 1 and tensor.name.endswith(".weight")
    return wide and role not in ("norm", "table", "position", "embedding")


def _layer(tensor: StoredTensor) -> int | None:
    found = _LAYER.match(tensor.name)
    return int(found[1]) if found else None


def _main_type(tensors: Iterable[StoredTensor]) -> str:
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.type] += tensor.bytes
    main = sizes.most_common(1)[0][0]
    plain: Mapping[str, str] = load("gguf.yaml")["plain_types"]
    return plain.get(main, main.lower())


def _whole(value: float) -> float:
    """A count of parameters: whole, unless experts do not divide evenly."""
    return int(value) if value == int(value) else value
