"""Words for precisions, and what a model and an accelerator make of them where nobody said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pytest_llmroof.data import load
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.deployment import ELEMENT_BYTES, element_bytes
from pytest_llmroof.roofline.model import Model
from pytest_llmroof.roofline.models.architecture import Architecture
from pytest_llmroof.roofline.models.gguf import GgufModel

#: The precision that products run in, best guess first; the first one whose peak is known is taken.
_COMPUTE: Final[Mapping[str, tuple[str, ...]]] = {
    "fp8": ("fp8", "bf16", "fp16"), "nvfp4": ("fp4", "bf16"), "fp16": ("fp16", "bf16"),
    "fp32": ("fp32", "tf32", "bf16"), "tf32": ("tf32", "fp32"),
}  # fmt: skip
_BY_ACTIVATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "fp8": ("fp8", "bf16"), "fp4": ("fp4", "bf16"), "int8": ("int8", "bf16"),
}  # fmt: skip
_SIXTEEN_BIT: Final = ("bf16", "fp16")


def precision_name(text: str) -> str | None:
    """The deployment's name of a precision that somebody wrote (``bfloat16``, ``fp8_e4m3``); None: no such word."""
    word = text.strip().casefold().replace("_", "-")
    known: Mapping[str, str] = load("precisions.yaml")["aliases"]
    aliases = {key.replace("_", "-"): name for key, name in known.items()}
    return word if word in ELEMENT_BYTES else aliases.get(word)


def quantised(word: str) -> bool:
    """Whether an engine's word for its quantisation says that there is one."""
    return word.casefold() not in load("precisions.yaml")["unquantised"]


def quantisation_name(word: str) -> str | None:
    """The precision of the weights under a quantisation, as engines call it; None where the word does not tell."""
    known: Mapping[str, str] = load("precisions.yaml")["quantisations"]
    return next((known[part] for part in _beginnings(word) if part in known), None)


def cache_name(word: str) -> str | None:
    """The precision of a cache as engines call it, layouts of it included (``fp8_ds_mla``); None: no such word."""
    return next((name for part in _beginnings(word) if (name := precision_name(part)) is not None), None)


def bits_of(precision: str) -> int:
    """How wide an element is, scales apart: 32, 16, 8 or 4 bits."""
    stored = element_bytes(precision)
    return next((bits for bits in (32, 16, 8) if stored * 8 >= bits), 4)


def _beginnings(word: str) -> Iterator[str]:
    """The word, and what it begins with, word by word, the longest first."""
    parts = word.strip().casefold().replace("-", "_").split("_")
    yield from ("_".join(parts[:count]) for count in range(len(parts), 0, -1))


def stated_weights(model: Model | None) -> str | None:
    """The precision of the weights that a model's config states; None where it states none."""
    if isinstance(model, GgufModel):
        return model.weights
    if not isinstance(model, Architecture):
        return None
    return model.checkpoint.precision if model.checkpoint else model.dtype


def stated_cache(model: Model | None) -> str | None:
    """The precision of the cache that a model's config states; None where it states none."""
    return model.checkpoint.kv_cache if isinstance(model, Architecture) and model.checkpoint else None


def own_precision(model: Model) -> str:
    """The precision of a model's weights where nothing but the model tells: what its config states, else bf16."""
    return stated_weights(model) or "bf16"


def own_dtype(model: Model | None) -> str:
    """The precision of what quantisation leaves alone: the config's dtype, else bf16."""
    return (model.dtype if isinstance(model, Architecture | GgufModel) else None) or "bf16"


def own_cache_dtype(model: Model | None) -> str:
    """The precision of a cache that has the model's own; models of 32 bit are served in 16."""
    dtype = own_dtype(model)
    return dtype if dtype in _SIXTEEN_BIT else "bf16"


def default_compute(model: Model | None, weights: str, accelerator: Accelerator | None) -> str:
    """The precision that matrix products run in: fp8 (fp4) where weights and activations are, else 16 bit.

    Of those that fit, the first whose peak the accelerator states: a part without bf16 runs fp16.
    """
    choices = _choices(model, weights)
    if accelerator is None:
        return choices[0]
    return next((choice for choice in choices if accelerator.peak(choice) is not None), choices[0])


def _choices(model: Model | None, weights: str) -> tuple[str, ...]:
    if isinstance(model, Architecture) and model.checkpoint and model.checkpoint.precision == weights:
        # A config that states 16-bit activations (weight-only quantisation) means 16-bit products.
        return _BY_ACTIVATIONS.get(model.checkpoint.activations or "", _plain(model))
    if weights == "bf16":
        return _SIXTEEN_BIT
    return _COMPUTE.get(weights, _plain(model))


def _plain(model: Model | None) -> tuple[str, ...]:
    return _COMPUTE.get(own_dtype(model), _SIXTEEN_BIT)
