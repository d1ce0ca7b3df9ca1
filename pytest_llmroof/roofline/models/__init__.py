"""Models: by catalogue name, by what a server calls them, from a config.json, or from figures given by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigError
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.roofline.models.architecture import Architecture
from pytest_llmroof.roofline.models.checkpoint import checkpoint_from_config
from pytest_llmroof.roofline.models.families import layers_of
from pytest_llmroof.roofline.models.figures import Figures, model_from_mapping
from pytest_llmroof.roofline.models.names import catalogue_keys, plain_name, precision_hint
from pytest_llmroof.roofline.models.textmodel import BY_HAND, text_model

__all__ = [
    "Architecture",
    "Figures",
    "ListedModel",
    "list_models",
    "model_from_config",
    "model_from_mapping",
    "model_names",
    "named_model",
    "precision_hint",
    "served_model",
]



@dataclass(frozen=True)
class ListedModel:
    """A line of the list of catalogue models."""

    name: str
    title: str
    parameters: float
    active_parameters: float


def named_model(name: str) -> Architecture:
    """The catalogue's model of that name; ``meta-llama/Llama-3.1-70B-Instruct`` is ``llama-3.1-70b``.

    Exact names only: ConfigError with the nearest ones otherwise.
    """
    key = catalogue_keys().get(plain_name(name))
    if key is None:
        raise ConfigError(_unknown_name(name))
    return _from_catalogue(key)


def served_model(served: str) -> Architecture | None:
    """The model that a server calls ``served``, if that is exactly a catalogue name. ``...-FP8`` is none."""
    key = catalogue_keys().get(plain_name(served))
    return None if key is None else _from_catalogue(key)


@cache
def model_names() -> Mapping[str, str]:
    """Catalogue names and their titles, in the catalogue's order."""
    return MappingProxyType({key: entry["title"] for key, entry in load("models.yaml").items()})


def list_models() -> tuple[ListedModel, ...]:
    """The catalogue, for people to choose from."""
    models = [named_model(name) for name in model_names()]
    return tuple(ListedModel(each.name, each.title, each.parameters, each.active_parameters) for each in models)


def model_from_config(config: Mapping[str, object], name: str, architecture: str | None = None) -> Architecture:
    """The model that a config.json describes.

    ``architecture`` is "decoder" where the user vouches for a model_type that is not understood. ConfigError (with the
    key) where it is not a model's config or a key holds nonsense; UnknownModelError where the architecture or the
    quantisation is not understood.
    """
    return _build(config, name, name, catalogue=False, architecture=architecture)


@cache
def _from_catalogue(key: str) -> Architecture:
    entry: Mapping[str, Any] = load("models.yaml")[key]
    return _build(entry["config"], key, entry["title"], catalogue=True)


def _build(
    config: Mapping[str, object], name: str, title: str, *, catalogue: bool, architecture: str | None = None
) -> Architecture:
    text = text_model(config, architecture, catalogue=catalogue)
    shape, block = layers_of(text.family, text.config)
    return Architecture(
        name=name,
        title=title,
        layers=shape.layers,
        hidden_size=shape.hidden,
        attention_heads=shape.heads,
        tensors=block.tensors,
        mixers=block.mixers,
        experts=block.experts,
        experts_per_token=block.experts_per_token,
        dtype=text.config.dtype(),
        checkpoint=checkpoint_from_config(config),
        catalogue=catalogue,
        left_out=text.left_out,
        class_defaults=() if catalogue else text.defaulted,
    )


def _unknown_name(name: str) -> str:
    hint = precision_hint(name)
    if hint is not None:
        base = served_model(_without(plain_name(name), hint))
        if base is not None:
            held = f"as {base.checkpoint.precision}" if base.checkpoint else "unquantised"
            return (
                f"{name!r} is no catalogue name: the catalogue holds {base.name} {held}; name that and give "
                "deployment.weights, or give the checkpoint's config.json"
            )
    return (
        f"unknown model {name!r}{did_you_mean(plain_name(name), catalogue_keys())}; --llmroof-list=models names all, "
        f"else give its config.json, or its figures: {BY_HAND}"
    )


def _without(name: str, hint: str) -> str:
    start = name.upper().find(hint)
    return plain_name(name[:start].rstrip("-_. "))
