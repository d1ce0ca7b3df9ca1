"""The text model of a config: which family it is of, and its keys, wherever the file keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmroof.data import load
from pytest_llmroof.errors import UnknownModelError
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.roofline.models.families import FAMILIES, PLAIN_DECODER, Family
from pytest_llmroof.roofline.models.reading import Config, ConfigKeyError

BY_HAND: Final = "model: {parameters: 70e9, active_parameters: ..., weight_bytes: ..., kv_bytes_per_token: ...}"
#: What a user writes to vouch for a config whose model_type is not understood.
DECODER: Final = "decoder"
#: Keys of a text model that files also keep at the top.
_OUTER: Final = ("tie_word_embeddings", "dtype", "torch_dtype")


@dataclass(frozen=True)
class TextModel:
    """A family and the keys that it is built from; ``left_out`` is what the model has beside its text model."""

    family: Family
    config: Config
    left_out: tuple[str, ...]


def text_model(config: Mapping[str, object], architecture: str | None = None) -> TextModel:
    """The text model of a config.

    ConfigError (with the key) where it is no model's config; UnknownModelError where the architecture is not
    understood, unless ``architecture`` is "decoder" and the keys are a plain decoder's.
    """
    data = load("architectures.yaml")
    kind, values = _kind_and_keys(config, data)
    left_out = _left_out({**config, **values}, data)
    if architecture == DECODER:
        return TextModel(PLAIN_DECODER, Config(_vouched_for(values, kind, data), {}), left_out)
    family = FAMILIES.get(kind)
    if family is None:
        raise UnknownModelError(_not_understood(kind, values, data))
    strange = [key for key in data["strange"].get(kind, ()) if values.get(key)]
    if strange:
        raise UnknownModelError(
            f"model_type {kind!r} with {', '.join(strange)} is not understood (keys not understood: "
            f"{', '.join(strange)}); give its figures by hand: {BY_HAND}"
        )
    defaults = data["defaults"][kind]
    if isinstance(defaults, str):
        defaults = data["defaults"][defaults]
    return TextModel(family, Config(values, defaults, data["names"].get(kind, {})), left_out)


def _kind_and_keys(config: Mapping[str, object], data: Mapping[str, Any]) -> tuple[str, Mapping[str, object]]:
    """The text model's type and keys; for a file without a text_config its own."""
    outer, inner = config.get("model_type"), config.get("text_config")
    if not isinstance(outer, str):
        raise ConfigKeyError("model_type", "not a model's config.json: it has no `model_type`")
    texts: Mapping[str, str] = data["text_models"]
    # A text_config that says no more than how it is quantised stands beside the text model's keys.
    if not isinstance(inner, Mapping) or not set(inner) - {"quantization_config"}:
        return texts.get(outer, outer), config
    kind = inner.get("model_type")
    kind = kind if isinstance(kind, str) else texts.get(outer, outer)
    beside = {key: config[key] for key in _OUTER if config.get(key) is not None and inner.get(key) is None}
    return texts.get(kind, kind), {**inner, **beside}


def _left_out(config: Mapping[str, object], data: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(what for key, what in data["left_out"].items() if config.get(key)))


def _vouched_for(values: Mapping[str, object], kind: str, data: Mapping[str, Any]) -> Mapping[str, object]:
    """The keys, if they are a plain decoder's and nothing else."""
    needed, understood = data["decoder"]["needed"], {*data["decoder"]["understood"], *data["indifferent"]}
    lacking = [key for key in needed if values.get(key) is None]
    # A key that holds nothing, or switches something off, changes nothing.
    strange = sorted(key for key, value in values.items() if value and key not in understood and key not in needed)
    if lacking or strange:
        problems = [f"keys not understood: {', '.join(strange)}"] if strange else []
        problems += [f"keys not given: {', '.join(lacking)}"] if lacking else []
        raise UnknownModelError(
            f"model_type {kind!r} is no plain decoder ({'; '.join(problems)}); give its figures by hand: {BY_HAND}"
        )
    return values


def _not_understood(kind: str, values: Mapping[str, object], data: Mapping[str, Any]) -> str:
    understood = {*data["indifferent"], *data["decoder"]["needed"], *data["decoder"]["understood"]}
    strange = sorted(str(key) for key in values if key not in understood)
    keys = f" (keys not understood: {', '.join(strange)})" if strange else ""
    return (
        f"model_type {kind!r} is not understood{keys}{did_you_mean(kind, FAMILIES)}; give its figures by hand: "
        f"{BY_HAND}; if its layers are those of a plain decoder (Llama's), say so: "
        f"model: {{config: PATH, architecture: {DECODER}}}; understood are {', '.join(FAMILIES)}"
    )
