"""Names of windows that tell them apart, and texts set as print is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from pytest_llmroof.report.headline import one_line
from pytest_llmroof.report.wire import Document

#: A blank between a number and its unit, where a line must not break.
_UNIT: Final = re.compile(
    r"(?<=\d) (?=(?:[mµn]?s|[kMGTP]?i?B(?:/s)?|[MGTP]?FLOP(?:/s|/B)?|tok(?:/s)?|req/s|points)\b|%)"
)
_THOUSANDS: Final = re.compile(r"(?<=\d) (?=\d{3}\b)")


def named(windows: Sequence[Document]) -> list[Document]:
    """The windows with names that are each one's own: of two `decode` each says its file, else its title or id."""
    plain = Counter(one_line(window["name"]) for window in windows)
    found = []
    for window in windows:
        name = one_line(window["name"])
        if plain[name] > 1:
            same = [other for other in windows if one_line(other["name"]) == name] if plain[name] < 50 else []
            name = f"{name} ({_apart(window, same)})"
        found.append({**window, "name": name})
    return found


def _apart(window: Document, same: Sequence[Document]) -> str:
    """The shortest thing that no other window of that name has."""
    ways: tuple[Callable[[Document], str], ...] = (_stem, lambda one: one_line(one["title"] or ""))
    for way in ways:
        text = way(window)
        if text and sum(way(other) == text for other in same) == 1:
            return text
    return one_line(window["id"])


def _stem(window: Document) -> str:
    """``a-decode`` of ``examples/failing/a-decode.llmroof.yaml::decode``."""
    file = one_line(window["id"]).partition("::")[0].rpartition("/")[2]
    return re.sub(r"(\.llmroof)?\.(ya?ml|py)$", "", file)


def set_text(text: str) -> str:
    """Text of ours as it is printed: arrows and ranges written out, numbers and their units on one line."""
    text = text.replace(" -> ", " → ").replace(" .. ", " to ").replace(" >= ", " ≥ ").replace(" <= ", " ≤ ")
    return _THOUSANDS.sub("\u202f", _UNIT.sub("\u00a0", text))
