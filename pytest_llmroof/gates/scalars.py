"""What a scalar means: by what its place takes, from its source text, and with variables of the environment filled in.

YAML's own guesses (``no`` as false, ``60:30`` as 3630, ``010`` as 8, a date) are never asked for.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.schema import Path, types

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {
    **dict.fromkeys(["true", "yes", "on"], True),
    **dict.fromkeys(["false", "no", "off"], False),
}
#: Decimal only, and no leading zeros: YAML 1.1 reads 010 as 8.
_NUMBER: Final = re.compile(r"[+-]?(?:(0|[1-9][0-9]*(?:_[0-9]+)*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_VARIABLE: Final = re.compile(r"(\$?)\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\})?")


@dataclass
class Variables:
    """The variables that were met: what was written at which place, and which of them have no value."""

    written: dict[Path, str] = field(default_factory=dict)
    unset: dict[Path, tuple[str, ...]] = field(default_factory=dict)

    def shown(self, path: Path) -> str | None:
        """What may be printed for the value of a place, None where the value itself may be."""
        return self.written.get(path)


def scalar(text: str, schema: Mapping[str, Any], path: Path, variables: Variables, *, plain: bool) -> object:
    """The value of a scalar's text at a place; ``plain``: it stood without quotes. ConfigError for a bad variable."""
    if "${" in text and "x-literal" not in schema:
        filled = _expanded(text, schema, path, variables)
        return text if path in variables.unset else _typed(filled, schema)
    if not plain:
        return text
    return None if text in _NULL else _typed(text, schema)


def _typed(text: str, schema: Mapping[str, Any]) -> object:
    allowed = types(schema)
    if "boolean" in allowed and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if "number" in allowed or "integer" in allowed:
        return _number(text)
    return text


def _number(text: str) -> object:
    """A decimal number (``4``, ``8.03e9``, ``1e3``, ``1_000``), else the text for others to judge."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    whole, fraction, exponent = match.groups()
    if whole and fraction is None and exponent is None and len(text) <= 18:
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else text


def _expanded(text: str, schema: Mapping[str, Any], path: Path, variables: Variables) -> str:
    """The text with its variables filled in; ConfigError where ``${`` starts no variable.

    An unset variable without default stays as it is written and is noted: it is no error, but its window has no data.
    """
    unset: list[str] = []
    result = _VARIABLE.sub(_filler(unset), text)
    variables.written[path] = text
    if unset:
        variables.unset[path] = tuple(dict.fromkeys(unset))
    if unset and "x-expression" in schema:
        default = f"${{{unset[0]}:-DEFAULT}}"
        raise ConfigError(f"${{{unset[0]}}} is not set, and a gate must be known when it is collected: write {default}")
    return text if unset else result


def _filler(unset: list[str]) -> Callable[[re.Match[str]], str]:
    def fill(match: re.Match[str]) -> str:
        escaped, name, _, default = match.groups()
        if escaped:
            return match.group()[1:]
        if name is None:
            raise ConfigError("'${' starts no variable: write ${NAME} or ${NAME:-default}, and $${ for the characters")
        value = os.environ.get(name)
        if value:
            return value
        if default is not None:
            return default
        if value is None:
            unset.append(name)
        return ""

    return fill
