"""From what a user wrote to a deployment: catalogue names, files and figures looked up, defaults filled in.

Nothing is downloaded and nothing is guessed: what was not named is missing, with the reason, and every fact says
whether it was given, read from the config, seen in telemetry, or assumed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from pytest_llmroof.analysis.hardware_serving import devices_at_work
from pytest_llmroof.errors import ConfigError, ConfigErrors, Position, UnknownModelError
from pytest_llmroof.gates.document import Document
from pytest_llmroof.gates.document import read as read_text
from pytest_llmroof.gates.schema import document_schema
from pytest_llmroof.gates.sources import path_from
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.resolve.keys import KEYS, read_keys
from pytest_llmroof.resolve.modelfile import model_of
from pytest_llmroof.resolve.told import cache_in_use, experts_told, facts_told
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerator, accelerator_for_device, accelerator_from_mapping
from pytest_llmroof.roofline.deployment import Deployment, Provenance
from pytest_llmroof.roofline.model import Model
from pytest_llmroof.roofline.models import Architecture, model_from_mapping, served_model
from pytest_llmroof.roofline.models.costed import Costed
from pytest_llmroof.roofline.models.precisions import (
    default_compute,
    own_cache_dtype,
    precision_name,
    stated_cache,
    stated_weights,
)
from pytest_llmroof.telemetry.window import Window

_Found = TypeVar("_Found")

# What to write is said where somebody asks for it.
_NO_GPU: Final = "no accelerator is named, and the telemetry names no device"
_NO_MODEL: Final = "no model is named, and the telemetry serves none under a catalogue name"


def resolve(spec: WindowSpec) -> Deployment:
    """The deployment that a window names. What it does not name is in ``missing``; telemetry may still tell.

    ConfigError (ConfigErrors for several) with positions for wrong names, values and files. An architecture that is
    not understood is missing too: the gates that need the model have no data.
    """
    fields, errors = read_keys(spec.deployment, lambda path: _position(spec, path))
    missing: dict[str, str] = {}
    chip = _collected(errors, lambda: _accelerator(spec))
    model = _collected(errors, lambda: _model(spec.model, spec, "model", missing))
    drafter = spec.deployment.get("draft_model")
    draft = _collected(errors, lambda: _model(drafter, spec, "deployment.draft_model", missing))
    provenance: dict[str, Provenance] = dict.fromkeys(spec.deployment, "given")
    if chip is not None:
        provenance["gpu"] = "given"
    else:
        missing.setdefault("gpu", _NO_GPU)
    if model is not None:
        provenance["model"] = "given"
    else:
        missing.setdefault("model", _NO_MODEL)
    deployment = Deployment(
        model=None if "model" in missing else model,
        accelerator=chip,
        draft=draft,
        flops=spec.flops,
        provenance=provenance,
        missing=missing,
    )
    deployment = replace(deployment, **fields)  # type: ignore[arg-type]  # read_keys checks each field's type
    for path, problem in _too_wide(deployment):
        errors.append(ConfigError(f"{path}: {problem}", _position(spec, path)))
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(_flat(errors))
    return _with_defaults(deployment)


def with_telemetry(deployment: Deployment, window: Window, spec: WindowSpec) -> Deployment:
    """The deployment with what the telemetry tells and nobody gave: device, model, its split, precisions."""
    told, provenance, missing = dict[str, Any](), dict(deployment.provenance), dict(deployment.missing)
    if deployment.accelerator is None and spec.gpu is None:
        told["accelerator"] = _device(window, missing, provenance)
    undrafted = deployment.draft is None and spec.deployment.get("draft_model") is not None
    if deployment.model is None and spec.model is None and not undrafted:
        told["model"] = _served(window, spec, deployment, missing, provenance)
    facts = facts_told(deployment, window)
    cache = cache_in_use(window) if provenance.get("kv_cache") != "given" else None
    if cache is not None and cache != "auto":
        facts["kv_cache"] = precision_name(cache)
    known = replace(deployment, **told, **facts, missing=missing)
    # More ranks than the model can have are not taken over: then what was assumed contradicts them.
    facts = {key: value for key, value in facts.items() if f"deployment.{key}" not in dict(_too_wide(known))}
    known = replace(deployment, **told, **facts, missing=missing)
    experts = experts_told(known, window)
    provenance |= dict.fromkeys({**facts, **experts}, "telemetry")
    known = replace(known, **experts, provenance=provenance)
    return _with_defaults(known, own_cache=cache == "auto")


def _position(spec: WindowSpec, path: str) -> Position | None:
    """Where a key path stands, else its nearest parent that is known."""
    while path:
        if path in spec.positions:
            return spec.positions[path]
        path = path.rpartition(".")[0]
    return None


def _at_key(key: str, problem: str, place: Position | None) -> ConfigError:
    """The problem with its key, where the place is one in a file: an option's place names it already."""
    return ConfigError(f"{key}: {problem}" if place and place.line else problem, place)


def _collected(errors: list[ConfigError], read: Callable[[], _Found | None]) -> _Found | None:
    try:
        return read()
    except ConfigError as error:
        errors.append(error)
        return None


def _flat(errors: list[ConfigError]) -> list[ConfigError]:
    return [each for error in errors for each in (error.errors if isinstance(error, ConfigErrors) else [error])]


def _model(value: object, spec: WindowSpec, path: str, missing: dict[str, str]) -> Model | None:
    """A named model; None where none is named, or where it is not understood: then the reason is in ``missing``."""
    if value is None:
        return None
    try:
        return model_of(value, spec.base, lambda key: _position(spec, f"{path}.{key}" if key else path))
    except UnknownModelError as error:
        # Without its draft a step's floor would be too low: then there is none.
        missing["model"] = str(error) if path == "model" else f"draft model: {error}"
        return None


def _accelerator(spec: WindowSpec) -> Accelerator | None:
    if spec.gpu is None:
        return None
    if isinstance(spec.gpu, Mapping):
        return accelerator_from_mapping(spec.gpu, lambda key: _position(spec, f"gpu.{key}" if key else "gpu"))
    if spec.gpu.endswith((".yaml", ".yml")):
        return _accelerator_file(spec.base, spec.gpu, _position(spec, "gpu"))
    try:
        return accelerator(spec.gpu)
    except ConfigError as error:
        raise _at_key("gpu", error.problem, _position(spec, "gpu")) from None


def _accelerator_file(base: Path, shown: str, named_at: Position | None) -> Accelerator:
    try:
        path = path_from(base, shown)
    except ConfigError as error:
        raise _at_key("gpu", error.problem, named_at) from None
    if not os.path.isfile(path):
        raise ConfigError(f"gpu: there is no file {shown}", named_at)
    document = Document(read_text(path, shown), shown, document_schema()["properties"]["gpu"])
    if document.errors:
        raise document.errors[0] if len(document.errors) == 1 else ConfigErrors(document.errors)
    if not isinstance(document.value, dict):
        raise ConfigError("an accelerator is a mapping, like {name: ..., peaks: {...}}", document.position(()))
    return accelerator_from_mapping(document.value, lambda key: document.position(tuple(key.split(".")) if key else ()))


def _too_wide(deployment: Deployment) -> list[tuple[str, str]]:
    """More ranks than there is to share: key path and problem."""
    model, found = deployment.model, []
    heads = model.attention_heads if isinstance(model, Costed) else None
    if model is not None and heads is not None and deployment.tensor_parallel > heads:
        problem = f"{deployment.tensor_parallel} ranks cannot share the {heads} attention heads of {model.name}"
        found.append(("deployment.tensor_parallel", problem))
    if model is not None and model.layers is not None and deployment.pipeline_parallel > model.layers:
        problem = f"{deployment.pipeline_parallel} stages cannot share the {model.layers} layers of {model.name}"
        found.append(("deployment.pipeline_parallel", problem))
    return found


def _with_defaults(deployment: Deployment, *, own_cache: bool = False) -> Deployment:
    """Precisions and links that nobody gave: from the model's config, else assumed.

    ``own_cache``: the engine said that its cache has the model's own precision.
    """
    model, given = deployment.model, deployment.provenance
    provenance: dict[str, Provenance] = {key: "assumed" for key in (*KEYS, "draft_model") if key not in given}
    fields: dict[str, Any] = {}
    ours = isinstance(model, Architecture) and model.catalogue
    if _open(given, "weights"):
        stated = stated_weights(model)
        fields["weights"] = stated or "bf16"
        provenance["weights"] = "config" if stated and not ours else "assumed"
    weights = fields.get("weights", deployment.weights)
    if own_cache or _open(given, "kv_cache"):
        fields["kv_cache"] = stated_cache(model) or own_cache_dtype(model)
        provenance["kv_cache"] = "telemetry" if own_cache else "config" if stated_cache(model) else "assumed"
    if _open(given, "compute"):
        fields["compute"] = default_compute(model, weights, deployment.accelerator)
        provenance["compute"] = "config" if provenance.get("weights") == "config" else "assumed"
    if _open(given, "interconnect") and deployment.accelerator is not None:
        fields["interconnect"] = "nvlink" if deployment.accelerator.link_bytes_per_second else "pcie"
    return replace(deployment, **fields, provenance={**given, **provenance})


def _open(provenance: Mapping[str, Provenance], key: str) -> bool:
    return provenance.get(key, "assumed") in ("assumed", "config")


def _device(window: Window, missing: dict[str, str], provenance: dict[str, Provenance]) -> Accelerator | None:
    names = devices_at_work(window)
    found = accelerator_for_device(names[0]) if len(names) == 1 else None
    if found is not None:
        provenance["gpu"] = "telemetry"
        missing.pop("gpu", None)
    elif len(names) == 1:
        missing["gpu"] = f"the telemetry names the device {names[0]!r}, which is none we know: give `gpu:`"
    elif names:
        missing["gpu"] = f"the telemetry names several devices ({', '.join(names)}): give `gpu:`"
    return found


def _served(
    window: Window, spec: WindowSpec, deployment: Deployment, missing: dict[str, str], provenance: dict[str, Provenance]
) -> Model | None:
    names = (spec.served_model_name,) if spec.served_model_name else window.model_names
    figures = [engine.facts for engine in window.engines if "weight_bytes" in engine.facts]
    if not names and len(figures) == 1:
        provenance["model"] = "telemetry"
        missing.pop("model", None)
        told = {key: float(figures[0][key]) for key in ("parameters", "weight_bytes")}
        return model_from_mapping(told, lambda path: None)
    if len(names) != 1:
        if names:
            missing["model"] = f"several models are served ({', '.join(names)}): give `model:` and served_model_name"
        return None
    model = served_model(names[0])
    if model is None:
        missing["model"] = f"the served name {names[0]!r} is no catalogue name: give `model:`, or its config.json"
        return None
    wide = _too_wide(replace(deployment, model=model))
    if wide:
        missing["model"] = f"the served name {names[0]!r} does not fit the deployment: {wide[0][0]}: {wide[0][1]}"
        return None
    provenance["model"] = "telemetry"
    missing.pop("model", None)
    return model
