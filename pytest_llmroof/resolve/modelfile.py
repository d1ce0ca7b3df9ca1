"""Models that stand in files: a config.json, the folder that holds it and what stands beside it, a GGUF file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pytest_llmroof.errors import ConfigError, LlmroofError, Position, UnknownModelError
from pytest_llmroof.gates.sources import path_from, there
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.resolve.gguffile import gguf_model
from pytest_llmroof.roofline.model import Model
from pytest_llmroof.roofline.models import model_from_config, model_from_mapping, named_model
from pytest_llmroof.roofline.models.checkpoint import quantisation_block
from pytest_llmroof.roofline.models.reading import ConfigKeyError
from pytest_llmroof.roofline.models.textmodel import DECODER

#: What to do about a file that describes no model (a tokeniser's, an adapter's, the weights themselves).
_NAME_INSTEAD = "name the checkpoint's own config.json or its folder, or a .gguf file"
#: More than any configuration holds: published ones take up to some hundred kilobytes.
MOST_BYTES = 16 * 2**20
#: How the files begin that Git LFS leaves in place of large ones.
_POINTER = "version https://git-lfs"
_VOUCHED_KEYS = ("config", "architecture")


def model_of(
    value: object, base: Path, position: Callable[[str], Position | None] = lambda key: None
) -> Model:
    """The model that a user named: a catalogue name, a config.json or its folder, a .gguf file, a mapping of figures.

    A path is relative to ``base``; ``position`` tells where a key of the mapping (empty: the whole value) stands.
    ConfigError where it is wrong, UnknownModelError where it is no model that is understood.
    """
    if isinstance(value, Mapping):
        return _vouched_for(value, base, position) if "config" in value else model_from_mapping(value, position)
    if not isinstance(value, str) or not value.strip():
        expected = "a catalogue name, a config.json or its folder, a .gguf file, or a mapping"
        raise ConfigError(f"model: expected {expected}", position(""))
    path = _path(base, value, position(""))
    if _names_a_file(value, path):
        return _from_path(path, value, position(""))
    try:
        return named_model(value)
    except ConfigError as error:
        if there(path):
            return _from_path(path, value, position(""))
        place = position("")
        raise ConfigError(f"model: {error.problem}" if place and place.line else error.problem, place) from None


def _vouched_for(value: Mapping[str, object], base: Path, position: Callable[[str], Position | None]) -> Model:
    """``{config: PATH, architecture: decoder}``: a config.json whose model_type is not understood, with its layers."""
    for key in value:
        if key not in _VOUCHED_KEYS:
            near = did_you_mean(str(key), _VOUCHED_KEYS) or f"; beside a config there may stand {_VOUCHED_KEYS[1]}"
            raise ConfigError(f"unknown key {str(key)!r} of a model{near}", position(str(key)) or position(""))
    path, architecture = value["config"], value.get("architecture")
    if not isinstance(path, str) or not path.strip() or path.endswith(".gguf"):
        raise ConfigError(f"config: expected a config.json or its folder, not {path!r}", position("config"))
    if architecture not in (None, DECODER):
        raise ConfigError(f"architecture: expected {DECODER!r}, not {architecture!r}", position("architecture"))
    decoder = DECODER if architecture is not None else None
    return _from_path(_path(base, path, position("config")), path, position("config"), decoder)


def _path(base: Path, written: str, position: Position | None) -> Path:
    try:
        return path_from(base, written)
    except ConfigError as error:
        raise ConfigError(f"model: {error.problem}", position) from None


def _names_a_file(value: str, path: Path) -> bool:
    """A folder of the same name does not hide a catalogue name: what surely is a path has a separator or a suffix."""
    if value.endswith((".json", ".gguf")) or value.startswith((".", "/", "~")):
        return True
    return "/" in value.replace("\\", "/") and there(path)


def _from_path(path: Path, shown: str, position: Position | None, architecture: str | None = None) -> Model:
    if shown.endswith(".gguf"):
        return gguf_model(path, shown, position)
    folder = os.path.isdir(path)  # never an OSError, as pathlib's
    file = path / "config.json" if folder else path
    if folder:
        shown = f"{shown.rstrip('/')}/config.json"
    try:
        stamp = file.stat()
    except OSError as error:
        raise ConfigError(f"model: {shown} cannot be read: {error.strerror}", position) from None
    if not file.is_file():  # a pipe would be waited for, a device read for ever
        raise ConfigError(f"model: {shown} is not a file", position)
    outcome = _read(file, shown, stamp.st_mtime_ns, stamp.st_size, _sidecar_stamp(file), architecture)
    if isinstance(outcome, LlmroofError):
        raise outcome.with_traceback(None)
    return outcome


@cache
def _read(
    file: Path, shown: str, modified: int, size: int, sidecar: int, architecture: str | None
) -> Model | LlmroofError:
    """Read once for all windows that name it, as long as the files stay the same; what went wrong is kept too."""
    try:
        text = _text(file)
        if text.startswith(_POINTER):
            raise ConfigError(f"a pointer of Git LFS, not the file itself: fetch it (git lfs pull), {_NAME_INSTEAD}")
        config = _object(text, shown)
        if "model_type" not in config:
            problem = f"not a model's config.json: it has no `model_type`; {_NAME_INSTEAD}"
            raise ConfigError(problem, Position(shown, 1, 1))
        beside = _sidecar(file)
        if beside is not None and quantisation_block(config) is None:
            config = {**config, "quantization_config": beside}
        try:
            return model_from_config(config, _name(file), architecture)
        except ConfigKeyError as error:
            return ConfigError(error.problem, _place(text, error.key, shown))
    except ConfigError as error:
        return error if error.position else ConfigError(error.problem, Position(shown))
    except UnknownModelError as error:
        return UnknownModelError(f"{shown}: {error}")
    except OSError as error:
        return ConfigError(f"cannot be read: {error.strerror}", Position(shown))
    except UnicodeDecodeError:
        return ConfigError(f"not a config.json: it is not UTF-8 text; {_NAME_INSTEAD}", Position(shown))


def forget_models() -> None:
    """Read files again: what they are depends on what other plugins say of their model types."""
    _read.cache_clear()


def _object(text: str, shown: str) -> dict[str, Any]:
    # Python's reader takes the Infinity and NaN that some published files hold.
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"not a config.json: it is not JSON: {error.msg}; {_NAME_INSTEAD}"
        raise ConfigError(problem, Position(shown, error.lineno, error.colno)) from None
    except RecursionError:
        raise ConfigError("not a config.json: nested too deeply", Position(shown)) from None
    except ValueError:  # a whole number of thousands of digits
        raise ConfigError("not a config.json: it holds a number that is none", Position(shown)) from None
    if not isinstance(config, dict):
        raise ConfigError(f"not a config.json: its top level is no object; {_NAME_INSTEAD}", Position(shown, 1, 1))
    return config


def _text(file: Path) -> str:
    """What a file holds. ConfigError where that is more than any configuration, OSError, UnicodeDecodeError."""
    with file.open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ConfigError(f"larger than {MOST_BYTES // 2**20} MiB: this is no config.json; {_NAME_INSTEAD}")
    return content.decode("utf-8-sig")


def _place(text: str, key: str, shown: str) -> Position:
    """Where a key stands; the beginning of the object where it does not."""
    found = re.search(rf'"{re.escape(key)}"\s*:', text)
    if found is None:
        return Position(shown, 1, 1)
    before = text[: found.start()]
    return Position(shown, before.count("\n") + 1, found.start() - before.rfind("\n"))


def _name(file: Path) -> str:
    """What reports call it: a folder's name for its config.json, else the file's own."""
    if file.name == "config.json":
        return file.absolute().parent.name or file.name
    return file.stem


def _sidecar_stamp(file: Path) -> int:
    try:
        return (file.parent / "hf_quant_config.json").stat().st_mtime_ns if file.name == "config.json" else 0
    except OSError:
        return 0


def _sidecar(file: Path) -> dict[str, Any] | None:
    """ModelOpt checkpoints of 2024-25 state their quantisation beside a config that looks unquantised."""
    path = file.parent / "hf_quant_config.json"
    if file.name != "config.json" or not path.is_file():
        return None
    block = _object(_text(path), path.name).get("quantization")
    if not isinstance(block, dict):
        raise UnknownModelError("hf_quant_config.json beside it has no `quantization`")
    return {**block, "quant_method": "modelopt"}
