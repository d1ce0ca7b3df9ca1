"""Reading a config.json: keys with the model class's defaults, where absent is not null."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pytest_llmroof.errors import ConfigError, Position

_DTYPES: Final[Mapping[str, str]] = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32",
}  # fmt: skip
#: More than any size of a model: of its vocabulary, a layer, or a context.
_MOST: Final = 1 << 40
#: Layers and experts are counted one by one. Published models have some hundreds.
_MOST_PARTS: Final = 10_000
_PARTS: Final = re.compile("(?:layers?|experts?)$")


class Config:
    """The keys of one config. ``defaults`` are the model class's, for keys that are absent; null is a value.

    ``names`` are other names that the class takes a key under; the key itself comes first.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        defaults: Mapping[str, object],
        names: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.values = values
        self.defaults = defaults
        self.other = names

    def given(self, key: str) -> str | None:
        """The name that the config holds a key under; None where it is absent."""
        return next((name for name in (key, *self.other.get(key, ())) if name in self.values), None)

    def get(self, key: str) -> object:
        """A key's value, else the class's default, else None."""
        name = self.given(key)
        return self.defaults.get(key) if name is None else self.values[name]

    def within(self, key: str) -> Config:
        """The config that a key holds; an empty one where it is absent or null."""
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise wrong(key, "a mapping", value)
        return Config(value or {}, {})

    def whole(self, key: str) -> int:
        """A positive whole number. ConfigError otherwise."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(key, "a whole number", value)
        if not abs(value) <= _MOST or value != int(value):
            raise wrong(key, "a whole number", value)
        if value > _MOST_PARTS and _PARTS.search(key):
            raise wrong(key, f"at most {_MOST_PARTS}", value)
        if value < 1:
            raise wrong(key, "a positive number", value)
        return int(value)

    def whole_or(self, key: str, otherwise: int) -> int:
        """A positive whole number; ``otherwise`` where it is absent or null, which means the same for this key."""
        return otherwise if self.get(key) is None else self.whole(key)

    def count(self, key: str) -> int:
        """A whole number that may be 0; null means 0."""
        return self.whole(key) if self.get(key) else 0

    def flag(self, key: str) -> bool:
        """A truth value; null means no."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise wrong(key, "true or false", value)
        return bool(value)

    def names(self, key: str) -> Sequence[str] | None:
        """A list of texts, None where it is absent or null."""
        value = self.get(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            raise wrong(key, "a list of texts", value)
        return value

    def numbers(self, key: str) -> Sequence[int]:
        """A list of whole numbers; absent or null means none."""
        value = self.get(key)
        if value is None:
            return ()
        if not (isinstance(value, list) and all(isinstance(each, int) for each in value)):
            raise wrong(key, "a list of whole numbers", value)
        return value

    def word(self, key: str) -> str | None:
        """A text, None where it is absent or null."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise wrong(key, "a text", value)
        return value

    def dtype(self) -> str | None:
        """The precision of the elements: ``dtype``, in older files ``torch_dtype``. None where it is not stated."""
        stated = self.values.get("dtype") or self.values.get("torch_dtype")
        if stated is None or stated == "auto":
            return None
        name = _DTYPES.get(str(stated).removeprefix("torch."))
        if name is None:
            raise wrong("dtype" if "dtype" in self.values else "torch_dtype", "bfloat16, float16 or float32", stated)
        return name


class ConfigKeyError(ConfigError):
    """A key of a config.json that does not hold what it should. ``key`` names it."""

    def __init__(self, key: str, problem: str, position: Position | None = None) -> None:
        super().__init__(problem, position)
        self.key = key


def wrong(key: str, expected: str, value: object) -> ConfigKeyError:
    """The error for a key with a value of the wrong kind."""
    found = "null" if value is None else repr(value)
    return ConfigKeyError(key, f"config key {key!r}: expected {expected}, not {found}")
