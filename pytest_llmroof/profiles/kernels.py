"""What kernels do, by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Final

from pytest_llmroof.data import load

OTHER: Final = "other"
"""Of kernels whose name is not understood."""
_LONGEST: Final = 8192
"""Characters of a name that are looked at: the function's own name stands within them."""
_REMEMBERED: Final = 1 << 18
"""Names whose class is kept: a timeline asks for each of its own several times."""


@lru_cache(maxsize=_REMEMBERED)
def kernel_class(name: str) -> str:
    """The class of a kernel (data/kernels.yaml), OTHER where its name is not understood."""
    return _first(_patterns("classes", "class"), name) or OTHER


def kernel_classes(names: Iterable[str]) -> list[str]:
    """The class of each name."""
    return [kernel_class(name) for name in names]


def communication_classes() -> frozenset[str]:
    """The classes that are communication between devices."""
    return frozenset(load("kernels.yaml")["communication"])


def collective_kind(name: str) -> str:
    """What a communication kernel does by its name (``all-reduce``), ``communication`` where that does not tell."""
    return _first(_patterns("collectives", "kind"), name) or "communication"


def modern_attention(names: Sequence[str]) -> bool | None:
    """Whether the attention kernels among these are of a recent kind; None where they do not tell."""
    attention = [name for name in names if kernel_class(name) == "attention"]
    ages = {_first(_patterns("attention", "age"), name) for name in attention}
    return True if "modern" in ages else False if "older" in ages else None


@cache
def _patterns(table: str, title: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Titles of a table with what their names hold. (Names are looked at in lower case: to let patterns ignore the case
    takes three times as long.)
    """
    return tuple((entry[title], re.compile("|".join(entry["patterns"]))) for entry in load("kernels.yaml")[table])


def _first(patterns: Iterable[tuple[str, re.Pattern[str]]], name: str) -> str | None:
    """The first title whose pattern is found."""
    looked_at = name[:_LONGEST].lower()
    return next((title for title, pattern in patterns if pattern.search(looked_at)), None)
