"""How a checkpoint is stored: which of its matrices in which format, and how many bytes that makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pytest_llmroof.data import load
from pytest_llmroof.errors import UnknownModelError
from pytest_llmroof.roofline.deployment import ELEMENT_BYTES
from pytest_llmroof.roofline.models.formats import Format
from pytest_llmroof.roofline.models.patterns import Patterns, range_set
from pytest_llmroof.roofline.models.tensors import LINEAR_ROLES, Tensor

#: Activations by the peak of their products, the highest first.
_FASTEST: Final = ("fp4", "fp8", "int8", None)


@dataclass(frozen=True)
class Rule:
    """The matrices that one format is used for: those that ``targets`` mean (None: every linear layer).

    ``weights`` is the deployment's word for them, ``activations`` what they are multiplied with (None: 16 bit).
    """

    format: Format
    weights: str
    activations: str | None = None
    targets: Patterns | None = None


@dataclass(frozen=True)
class Checkpoint:
    """How a checkpoint is stored. The first rule that means a module gives its format.

    What ``ignored`` means, embeddings, norms and routers stay unquantised, as does the head unless ``head`` says that
    linear layers include it. ``kv_cache`` is the cache's precision where the config states it; ``plain`` the word for
    the weights where no rule is there (only the cache is quantised). ``method`` is the config's ``quant_method``.
    """

    rules: tuple[Rule, ...]
    ignored: Patterns
    kv_cache: str | None = None
    head: bool = False
    plain: str = "bf16"
    method: str = ""

    @property
    def precision(self) -> str:
        """The deployment's word for the weights: of several, the narrowest."""
        return min((rule.weights for rule in self.rules), key=ELEMENT_BYTES.__getitem__, default=self.plain)

    @property
    def activations(self) -> str | None:
        """What the weights are multiplied with: of several, that with the highest peak, so that a floor stays one."""
        return min((rule.activations for rule in self.rules), key=_FASTEST.index, default=None)

    def matrix_bytes(self, tensor: Tensor, plain: float) -> float:
        """Bytes of all modules of a tensor, without biases; ``plain`` is the size of an unquantised element."""
        unquantised = tensor.matrix_elements * plain
        if not self.rules or not self._quantisable(tensor):
            return unquantised * tensor.count
        stored = [0] * len(self.rules)
        for path, layers in self._alike(tensor):
            for index, modules in self._meant(path, tensor.experts):
                stored[index] += layers * modules
        quantised = sum(count * rule.format.bytes(tensor) for count, rule in zip(stored, self.rules, strict=True))
        return quantised + (tensor.count - sum(stored)) * unquantised

    def _alike(self, tensor: Tensor) -> Iterator[tuple[str, int]]:
        """A path of the tensor for each kind of layers that the lists treat alike, and how many there are."""
        if not tensor.layers:
            yield tensor.path, 1
            return
        lists = [self.ignored, *(rule.targets for rule in self.rules if rule.targets is not None)]
        kinds: dict[tuple[int | None, ...], list[int]] = {}
        for layer in tensor.layers:
            kinds.setdefault(tuple([each.alike(layer) for each in lists]), []).append(layer)
        for layers in kinds.values():
            yield tensor.path.replace("{layer}", str(layers[0])), len(layers)

    def _meant(self, path: str, experts: int) -> Iterator[tuple[int, int]]:
        """How many of the modules at a path (one, or one of each expert) which rule stores."""
        left = range_set(experts) - self.ignored.which(path, experts)
        for index, rule in enumerate(self.rules):
            if not left:
                return
            meant = left if rule.targets is None else left & rule.targets.which(path, experts)
            yield index, len(meant)
            left -= meant

    def _quantisable(self, tensor: Tensor) -> bool:
        return tensor.role in LINEAR_ROLES or (self.head and tensor.role == "head")


@cache
def stock_format(name: str) -> Format:
    """A format of the table of formats."""
    entry: Mapping[str, Any] = load("quantisation.yaml")["formats"][name]
    return Format(**{**entry, "block": tuple(entry.get("block", (1, 1)))})


def names_of(block: Mapping[str, object], *keys: str) -> Patterns:
    """The modules that lists under these keys name."""
    return Patterns(str(name) for key in keys for name in sequence(block.get(key) or ()))


def sequence(value: object) -> Sequence[object]:
    """A list as it is, anything else as a list of one."""
    return value if isinstance(value, list | tuple) else (value,)


def cache_precision(scheme: object) -> str | None:
    """The precision of a cache that a config states, by name or by its scheme; None where it states none."""
    if scheme is None:
        return None
    if isinstance(scheme, Mapping):
        scheme = {(8, "float"): "FP8", (8, "int"): "INT8", (4, "float"): "NVFP4"}.get(
            (scheme.get("num_bits"), scheme.get("type", "float")), scheme  # type: ignore[arg-type]  # any JSON value
        )
    known: Mapping[str, str] = load("quantisation.yaml")["caches"]
    if not isinstance(scheme, str) or scheme.upper() not in known:
        raise refusal(f"KV cache scheme {scheme!r}")
    return known[scheme.upper()]


def group_size(block: Mapping[str, object], *keys: str, otherwise: int = 128) -> int:
    """The inputs that share a scale; 0: a whole row."""
    size = next((block[key] for key in keys if block.get(key) is not None), otherwise)
    if not isinstance(size, int) or isinstance(size, bool):
        raise refusal(f"group_size {size!r} is not a number")
    return max(0, size)


def refusal(what: str) -> UnknownModelError:
    """What is raised for a scheme that is not understood, with the way out."""
    return UnknownModelError(
        f"the checkpoint's quantisation is not understood: {what}; give its size by hand: "
        "model: {parameters: ..., active_parameters: ..., weight_bytes: ..., kv_bytes_per_token: ...}"
    )
