"""Writing PromQL: selectors of series by name, durations, and the label matchers that a user gave."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pytest_llmroof.errors import ConfigError

_STRING: Final = r""""(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+'|`[^`]*+`"""
_MATCHER: Final = re.compile(
    rf"\s*+(?:[a-zA-Z_][a-zA-Z0-9_]*+|\"(?:[^\"\\\n]|\\.)++\")\s*+(?:=~|!~|!=|=)\s*+(?:{_STRING})\s*+"
)
_SPECIAL: Final = re.compile(r"[^a-zA-Z0-9_:]")


def matchers(selector: str) -> str:
    """The label matchers of a selector as they stand between braces. ConfigError where they are none.

    ``namespace="prod", pod=~"llm-.*"``, with or without braces round it.
    """
    text = selector.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = text.strip().removesuffix(",")
    at, found = 0, []
    while at < len(text):
        match = _MATCHER.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            place = text[at:].strip()[:40]
            raise ConfigError(f'expected label matchers like namespace="prod", pod=~"llm-.*"; cannot read {place!r}')
        found.append(match[0].strip())
        at = match.end() + 1
    return ",".join(found)


def named(names: Iterable[str], given: str) -> str:
    """The selector of all series that have one of these names and match what was given."""
    return f'{{__name__=~"{_any_of(names)}"{"," if given else ""}{given}}}'


def spelled(names: Iterable[str], given: str) -> str:
    """The same, of names in whatever case they are spelled."""
    return f'{{__name__=~"(?i:{_any_of(names)})"{"," if given else ""}{given}}}'


def prefixed(prefixes: Iterable[str], given: str) -> str:
    """The selector of all series whose name starts with one of these."""
    return f'{{__name__=~"(?:{_any_of(prefixes)}).+"{"," if given else ""}{given}}}'


def _any_of(names: Iterable[str]) -> str:
    """A pattern of these texts, as it stands between quotes."""
    return "|".join(_SPECIAL.sub(lambda match: "\\\\" + match[0], name) for name in names)


def milliseconds(seconds: float) -> str:
    """A duration in the only unit that needs no fractions."""
    return f"{max(1, round(seconds * 1000))}ms"
