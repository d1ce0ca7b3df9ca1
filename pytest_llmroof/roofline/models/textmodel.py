"""The text model of a config: which family it is of, and its keys, wherever the file keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmroof.data import load
from pytest_llmroof.errors import UnknownModelError
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.roofline.models.added import AddedArchitecture, added_architecture
from pytest_llmroof.roofline.models.families import FAMILIES, PLAIN_DECODER, Family
from pytest_llmroof.roofline.models.reading import Config, ConfigKeyError

BY_HAND: Final = "model: {parameters: 70e9, active_parameters: ..., weight_bytes: ..., kv_bytes_per_token: ...}"
#: What a user writes to vouch for a config whose model_type is not understood.
DECODER: Final = "decoder"
#: What nearly every file states.
_SIZES: Final = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
#: Keys of a text model that files also keep at the top.
_OUTER: Final = ("tie_word_embeddings", "dtype", "torch_dtype")


@dataclass(frozen=True)
class TextModel:
    """A family and the keys that it is built from; ``left_out`` is what the model has beside its text model.

    ``defaulted`` are the sizes that the file leaves to the family's class.
    """

    family: Family
    config: Config
    left_out: tuple[str, ...]
    defaulted: tuple[str, ...] = ()


def text_model(
    config: Mapping[str, object], architecture: str | None = None, *, catalogue: bool = False
) -> TextModel:
    """The text model of a config; one of the ``catalogue`` is what it is, whatever other plugins add.

    ConfigError (with the key) where it is no model's config; UnknownModelError where the architecture is not
    understood, unless ``architecture`` is "decoder" and the keys are a plain decoder's. What is understood is read as
    what it is, whatever ``architecture`` says.
    """
    data = load("architectures.yaml")
    kind, values = _kind_and_keys(config, data)
    left_out = _left_out({**config, **values}, data)
    added = None if catalogue else added_architecture(kind)
    if added is not None:
        values, kind = added.keys_of(kind, values), added.like
    family = FAMILIES.get(kind)
    if family is None:
        if architecture != DECODER:
            raise UnknownModelError(_not_understood(kind, values, data))
        return TextModel(PLAIN_DECODER, Config(_vouched_for(values, kind, data), {}), left_out)
    strange = [key for key in data["strange"].get(kind, ()) if values.get(key)]
    if strange:
        raise UnknownModelError(
            f"model_type {kind!r} with {', '.join(strange)} is not understood (keys not understood: "
            f"{', '.join(strange)}); give its figures by hand: {BY_HAND}"
        )
    defaults = data["defaults"][kind]
    if isinstance(defaults, str):
        defaults = data["defaults"][defaults]
    names = data["names"].get(kind, {})
    if added is not None:
        defaults, names = {**defaults, **added.defaults}, _with_names(names, added)
    keys = Config(values, defaults, names)
    defaulted = tuple(key for key in _SIZES if keys.given(key) is None and defaults.get(key) is not None)
    return TextModel(family, keys, left_out, defaulted)


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
    return texts.get(kind, kind), {**data["outer_defaults"].get(outer, {}), **inner, **beside}


def _with_names(names: Mapping[str, Sequence[str]], added: AddedArchitecture) -> Mapping[str, Sequence[str]]:
    """A family's other names of its keys, with those that another plugin adds before them."""
    return {key: (*added.names.get(key, ()), *names.get(key, ())) for key in {**names, **added.names}}


def _left_out(config: Mapping[str, object], data: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(what for key, what in data["left_out"].items() if config.get(key)))


def _vouched_for(values: Mapping[str, object], kind: str, data: Mapping[str, Any]) -> Mapping[str, object]:
    """The keys, if they are a plain decoder's and nothing else."""
    lacking = [key for key in data["decoder"]["needed"] if values.get(key) is None]
    strange = _strange_to_a_decoder(values, data)
    if lacking or strange:
        problems = [f"keys not understood: {', '.join(strange)}"] if strange else []
        problems += [f"keys not given: {', '.join(lacking)}"] if lacking else []
        raise UnknownModelError(
            f"model_type {kind!r} is no plain decoder ({'; '.join(problems)}); give its figures by hand: {BY_HAND}"
        )
    return values


def _strange_to_a_decoder(values: Mapping[str, object], data: Mapping[str, Any]) -> list[str]:
    """Keys that a plain decoder does not have. One that holds nothing, or switches something off, changes nothing."""
    understood = {*data["decoder"]["needed"], *data["decoder"]["understood"], *data["indifferent"]}
    return sorted(str(key) for key, value in values.items() if value and key not in understood)


def _not_understood(kind: str, values: Mapping[str, object], data: Mapping[str, Any]) -> str:
    strange = _strange_to_a_decoder(values, data)
    keys = f" (keys not understood: {', '.join(strange)})" if strange else ""
    vouch = f"; or, if its layers are Llama's, vouch for it: model: {{config: PATH, architecture: {DECODER}}}"
    return (
        f"model_type {kind!r} is not understood{keys}{did_you_mean(kind, FAMILIES)}; give its figures by hand: "
        f"{BY_HAND}{'' if strange else vouch}"
    )
