"""What may leave a process: exact built-in types, finite numbers, text without control characters or secrets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from numbers import Integral, Real
from typing import Any, Final
from urllib.parse import urlsplit

from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec

#: A JSON object of exact built-ins. Its keys are listed in the report's documentation, so values are left open here.
Document = dict[str, Any]

#: Control characters (new line and tab excepted), direction marks, line separators, lone surrogates, non-characters:
#: they could rewrite a terminal or break an encoder.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\ufff9-\ufffb\ufffe\uffff]"
)
_USER_INFORMATION: Final = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@'\"]*@")
_QUERY: Final = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s?#'\"<>]+)[?#][^\s'\"<>]*")

#: Shorter values of a header are words rather than secrets; taking them out would tear holes into sentences.
_SHORTEST_SECRET: Final = 6


def visible(text: str) -> str:
    r"""The text with unsafe characters written out (``\x1b``, ``\u202e``)."""
    if text.isprintable():  # nearly always, and quick
        return text
    return _UNSAFE.sub(lambda match: _spelled(ord(match.group())), text)


def _spelled(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def to_wire(value: object, clean: Callable[[str], str] = visible) -> Any:
    """The value as exact ``str``, ``int``, ``float``, ``bool``, ``None``, ``list`` and ``dict``.

    Numbers that are not finite become None (JSON has no infinity: unbounded is null), every text passes ``clean``.
    TypeError for anything that has no plain form: a report never holds the ``repr`` of an object.
    """
    # Concrete classes first: a report of many gates has a million values, and abstract ones are slow to ask.
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean(str.__str__(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101 - likewise
        return {clean(str(key)): to_wire(item, clean) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(item, clean) for item in value]
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, AbstractSet):
        return [to_wire(item, clean) for item in sorted(value)]
    raise TypeError(f"{type(value).__name__} has no place in a report")


def cleaner(spec: WindowSpec, own_words: AbstractSet[str] = frozenset()) -> Callable[[str], str]:
    """What every text of a window's document passes: control characters, credentials and foreign paths are taken out.

    Rooms that write messages leave these out themselves; this is the last door before a file that people pass on.
    A text that is one of ``own_words`` stays: it is a report's own, also where a header says the same or a part of it.
    """
    replacements = sorted(_replacements(spec), key=lambda pair: -len(pair[0]))

    @cache  # keys, units and operators come back with every gate
    def clean(text: str) -> str:
        if text in own_words:
            return text
        for secret, shown in replacements:
            text = text.replace(secret, shown)
        if "://" in text:
            text = _QUERY.sub(r"\1", _USER_INFORMATION.sub(r"\1", text))
        return visible(text)

    return clean


def _replacements(spec: WindowSpec) -> Iterator[tuple[str, str]]:
    for source in spec.telemetry:
        if source.path is not None and source.path.is_absolute():
            yield str(source.path), source.shown
        for secret in _secrets(source):
            if len(secret) >= _SHORTEST_SECRET:
                yield secret, "***"


def _secrets(source: TelemetrySource) -> Iterator[str]:
    """Values of a source's headers, whole and after the scheme (``Bearer ...``), and its files of credentials."""
    headers = source.options.get("headers")
    for value in headers.values() if isinstance(headers, Mapping) else ():
        yield str(value)
        yield str(value).rpartition(" ")[2]
    for key in ("token_file", "cert"):
        paths = source.options.get(key)
        yield from map(str, paths if isinstance(paths, list | tuple) else [paths] if paths else [])
    for key in ("url", "prometheus"):
        parts = urlsplit(str(source.options.get(key, "")))
        yield from filter(None, (parts.password, parts.query))
