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


@lru_cache(maxsize=16384)
def kernel_class(name: str) -> str:
    """The class of a kernel (data/kernels.yaml), OTHER where its name is not understood."""
    for title, pattern in _classes():
        if pattern.search(name, 0, _LONGEST):
            return title
    return OTHER


def kernel_classes(names: Iterable[str]) -> list[str]:
    """The class of each name."""
    return [kernel_class(name) for name in names]


def communication_classes() -> frozenset[str]:
    """The classes that are communication between devices."""
    return frozenset(load("kernels.yaml")["communication"])


def collective_kind(name: str) -> str:
    """What a communication kernel does by its name (``all-reduce``), ``communication`` where that does not tell."""
    for entry in load("kernels.yaml")["collectives"]:
        if re.search(entry["pattern"], name, re.IGNORECASE):
            return str(entry["kind"])
    return "communication"


def modern_attention(names: Sequence[str]) -> bool | None:
    """Whether the attention kernels among these are of a recent kind; None where they do not tell."""
    attention = [name for name in names if kernel_class(name) == "attention"]
    kinds = load("kernels.yaml")
    if any(re.search(kinds["modern_attention"], name, re.IGNORECASE) for name in attention):
        return True
    return False if any(re.search(kinds["older_attention"], name, re.IGNORECASE) for name in attention) else None


@cache
def _classes() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (entry["class"], re.compile("|".join(f"(?:{pattern})" for pattern in entry["patterns"]), re.IGNORECASE))
        for entry in load("kernels.yaml")["classes"]
    )
