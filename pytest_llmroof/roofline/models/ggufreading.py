"""From the header of a GGUF file to the model that it describes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigError, UnknownModelError
from pytest_llmroof.roofline.models.costed import Mixer
from pytest_llmroof.roofline.models.gguf import LONE_EXPERT, GgufModel, layer_of, role_of
from pytest_llmroof.roofline.models.ggufheader import Header, StoredTensor
from pytest_llmroof.roofline.models.mixers import GroupedQueryAttention, LatentAttention

#: More layers than any model has: a broken header, not to be counted through.
_MOST_LAYERS: Final = 10_000
#: What ``left_out`` calls such layers.
_PREDICTING: Final = "layers that predict further tokens"


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
        predicting = {layer_of(each) for each in self.tensors if ".nextn." in each.name}
        stepped = tuple(each for each in self.tensors if layer_of(each) not in predicting)
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
            attention_heads=max(self.bylayer_of("attention.head_count", layers)),
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
        heads, keys = self.bylayer_of("attention.head_count", layers), self.kv_heads(layers)
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
        return self.bylayer_of("attention.head_count" if stated is None else "attention.head_count_kv", layers)

    def bylayer_of(self, key: str, layers: int) -> list[int]:
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
            joined = role_of(tensor.name) == "expert" and not LONE_EXPERT.match(tensor.name)
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


def _main_type(tensors: Iterable[StoredTensor]) -> str:
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.type] += tensor.bytes
    main = sizes.most_common(1)[0][0]
    plain: Mapping[str, str] = load("gguf.yaml")["plain_types"]
    return plain.get(main, main.lower())
