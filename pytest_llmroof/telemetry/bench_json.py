"""JSON as load generators write it: one value, or lines; runs that were appended; ``Infinity``; twice the key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pytest_llmroof.errors import SourceError

#: More than nanoseconds since 1970, and than any count.
_MOST: Final = 1e20
_AGAIN: Final = "run the benchmark again, to its end"


def json_values(text: str, location: str) -> list[Any]:
    """The JSON values of a file, one behind the other. SourceError says where one is damaged or cut off."""
    return list(_values(text, location))


def at(value: Any, path: str) -> Any:
    """What stands at a path of keys (``metrics.ttft``; numbers are places in lists), None where there is nothing."""
    for key in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, Sequence) and not isinstance(value, str) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def number(value: Any) -> float | None:
    """A finite number, None for anything else: texts, ``Infinity``, what is missing. Nothing here is ever negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        return None
    return float(value)


def numbers(value: Any) -> list[float | None]:
    """A list's numbers; a single one is a list of its own."""
    return [number(one) for one in value] if isinstance(value, list) else [number(value)]


def texts(value: Any) -> list[str]:
    """The texts of a list, or the keys of a mapping; nothing where it is neither."""
    found = list(value) if isinstance(value, list | Mapping) else []
    return [text[:300] for text in found[:20] if isinstance(text, str) and text.isprintable()]


def _values(text: str, location: str) -> Iterator[Any]:
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    place = _next(text, 0)
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            failed = error.pos if isinstance(error, json.JSONDecodeError) else place
            line, column = text.count("\n", 0, failed) + 1, failed - text.rfind("\n", 0, failed)
            what = "was cut off" if failed >= len(text.rstrip()) or _open_string(error) else "is damaged"
            raise SourceError(f"{location}:{line}:{column}: this JSON {what}", _AGAIN) from None
        yield value
        place = _next(text, place)


def _open_string(error: Exception) -> bool:
    return isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys may repeat: metadata of the user's (texts) never hides a figure, else the last counts."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if isinstance(value, str) and isinstance(found.get(key), int | float):
            continue
        found[key] = value
    return found


def _next(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n\ufeff,":
        place += 1
    return place
