"""Lists of modules in quantisation configs: which paths they mean.

A plain entry means whole components of a path, wherever they stand: ``gate`` is ``...mlp.gate`` and never
``...mlp.gate_proj``; ``model.layers.0.`` is everything in that layer. ``*`` makes an entry a glob over the whole path,
``re:`` a regular expression that matches from its beginning.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import cached_property


class Patterns:
    """A list of modules, compiled once."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._names: set[tuple[str, ...]] = set()
        self._expressions: list[re.Pattern[str]] = []
        self._entries = tuple(entries)
        for entry in self._entries:
            if entry.startswith("re:"):
                self._expressions.append(re.compile(entry[3:]))
            elif any(sign in entry for sign in "*?["):
                self._expressions.append(re.compile(fnmatch.translate(entry)))
            else:
                self._names.add(tuple(part for part in entry.split(".") if part))
        self._names.discard(())

    @cached_property
    def by_expert(self) -> bool:
        """Whether an entry tells the experts of a layer apart."""
        return any(re.search(r"experts\W*\.\W*(\d|\(|\[)", entry) for entry in self._entries)

    @cached_property
    def _lengths(self) -> frozenset[int]:
        return frozenset(map(len, self._names))

    def match(self, path: str) -> bool:
        """Whether the list means the module at ``path``."""
        parts = path.split(".")
        for length in self._lengths:
            for start in range(len(parts) - length + 1):
                if tuple(parts[start : start + length]) in self._names:
                    return True
        return any(expression.match(path) for expression in self._expressions)
