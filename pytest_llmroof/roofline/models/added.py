"""Architectures of other plugins: a ``model_type`` that is built like one of the families here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmroof.errors import ConfigError, UnknownModelError
from pytest_llmroof.foreign import Raised, called
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.roofline.models.families import FAMILIES

_KEYS: Final = ("like", "defaults", "names", "keys")
#: What a translation need not repeat.
_KEPT: Final = ("dtype", "torch_dtype")


@dataclass(frozen=True)
class AddedArchitecture:
    """A model type that is built like the family ``like``.

    ``defaults`` are its class's for keys that a file leaves out, ``names`` other names of keys; both go before the
    family's. ``translate`` makes the family's keys of a file's. ``plugin`` gave it.
    """

    like: str
    defaults: Mapping[str, object]
    names: Mapping[str, Sequence[str]]
    translate: Callable[[Mapping[str, object]], Mapping[str, object]] | None
    plugin: str

    def keys_of(self, kind: str, values: Mapping[str, object]) -> Mapping[str, object]:
        """A file's keys as the family has them. UnknownModelError, with the plugin, where its function fails."""
        if self.translate is None:
            return values
        given: object = called(self.translate, values)
        if isinstance(given, Raised):
            raise UnknownModelError(f"model_type {kind!r}: `keys` of {self.plugin} raised {given.said}")
        if not isinstance(given, Mapping):
            what = type(given).__name__
            raise UnknownModelError(f"model_type {kind!r}: `keys` of {self.plugin} gave {what}, not a mapping of keys")
        return {**{key: values[key] for key in _KEPT if key in values}, **given}


_ADDED: Final[dict[str, AddedArchitecture]] = {}


def added_architecture(kind: str) -> AddedArchitecture | None:
    """What another plugin says of a model type."""
    return _ADDED.get(kind)


def set_architectures(added: Mapping[str, AddedArchitecture]) -> None:
    """Know these, and no others. Whoever keeps models that were read must forget them."""
    _ADDED.clear()
    _ADDED.update(added)


def architecture_from_entry(entry: object, plugin: str) -> AddedArchitecture:
    """An entry of the hook. ConfigError says what is wrong with it."""
    if not isinstance(entry, Mapping):
        raise ConfigError(f"expected a mapping with {', '.join(_KEYS)}, not {type(entry).__name__}")
    for key in entry:
        if key not in _KEYS:
            raise ConfigError(f"unknown key {key!r}{did_you_mean(str(key), _KEYS)}: one of {', '.join(_KEYS)}")
    like = entry.get("like")
    if not isinstance(like, str) or like not in FAMILIES:
        hint = did_you_mean(str(like), FAMILIES)
        raise ConfigError(f"like: expected the model_type of a known family, not {like!r}{hint}: {', '.join(FAMILIES)}")
    translate: Any = entry.get("keys")
    if translate is not None and not callable(translate):
        raise ConfigError(f"keys: expected a function of a config's keys, not {type(translate).__name__}")
    return AddedArchitecture(like, _defaults(entry.get("defaults")), _names(entry.get("names")), translate, plugin)


def _defaults(value: object) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"defaults: expected a mapping of config keys to values, not {value!r}")
    return dict(value)


def _names(value: object) -> Mapping[str, Sequence[str]]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(map(_name_list, value.values())):
        raise ConfigError(f"names: expected a mapping of the family's keys to lists of other names, not {value!r}")
    return {str(key): tuple(names) for key, names in value.items()}


def _name_list(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
