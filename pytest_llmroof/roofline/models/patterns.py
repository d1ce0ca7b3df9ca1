"""Lists of modules in quantisation configs: which paths they mean.

A plain entry means whole components of a path, wherever they stand: ``gate`` is ``...mlp.gate`` and never
``...mlp.gate_proj``; ``model.layers.0.`` is everything in that layer. ``*`` makes an entry a glob over a path from its
beginning, to its end or to the end of a component; ``re:`` a regular expression that matches from the beginning.
What wraps the decoder (``model.language_model.``, ``backbone.``) is no part of a path's identity.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Final

from pytest_llmroof.data import load

#: Stands for the number of an expert in a path that means them all.
EXPERT: Final = "{expert}"
_LAYERS: Final = "layers."
_NOBODY: Final[AbstractSet[int]] = frozenset()
_EXPERT_NUMBER: Final = re.compile(r"(?<=experts\.)\d+(?=\.|$)")
_TELLS_EXPERTS: Final = re.compile(r"experts\W*\.\W*(\d|\(|\[)")
#: The ways in which checkpoints spell the path of a decoder's module.
_SPELLINGS: Final = ("", "model.", "model.language_model.", "language_model.model.", "language_model.", "backbone.")


class Patterns:
    """A list of modules, compiled once."""

    def __init__(self, entries: Iterable[str]) -> None:
        # A name that tells experts apart, with the numbers of those it means; None: it means all of them.
        self._names: dict[str, set[int] | None] = {}
        self._expressions: list[re.Pattern[str]] = []
        prefixes, by_expert = [], False
        for entry in entries:
            if entry.startswith("re:"):
                self._expressions.append(re.compile(entry[3:]))
            elif not any(sign in entry for sign in "*?["):
                self._add_name(bare(entry.strip(".")))
                continue
            elif entry.endswith("*") and not any(sign in entry[:-1] for sign in "*?["):
                prefixes.append(bare(entry[:-1]))
            else:
                self._expressions += [re.compile(fnmatch.translate(bare(entry) + end)) for end in ("", ".*")]
            by_expert = by_expert or bool(_TELLS_EXPERTS.search(entry))
        self._names.pop("", None)
        self._prefixes = tuple(prefixes)
        # Names that begin with a layer stand at a path's beginning, others anywhere in it.
        self._anchored = _lengths(name for name in self._names if name.startswith(_LAYERS))
        self._floating = _lengths(name for name in self._names if not name.startswith(_LAYERS))
        self._by_expert = by_expert

    def match(self, path: str) -> bool:
        """Whether the list means the module at ``path``."""
        number = _EXPERT_NUMBER.search(path)
        if number is None:
            return bool(self.which(path))
        return int(number[0]) in self.which(_EXPERT_NUMBER.sub(EXPERT, path), int(number[0]) + 1)

    def which(self, path: str, experts: int = 1) -> AbstractSet[int]:
        """The experts that the list means at a path in which ``{expert}`` is left open; {0}, where there are none."""
        path = bare(path)
        named: set[int] = set()
        for name in self._parts(path):
            numbers = self._names[name]
            if numbers is None:
                return range_set(experts)
            named |= numbers
        if self._by_expert and EXPERT in path:
            places = ((number, path.replace(EXPERT, str(number))) for number in range(experts))
            return {number for number, place in places if number in named or self._spelt(place)}
        if self._spelt(path):
            return range_set(experts)
        return {number for number in named if number < experts} if named else _NOBODY

    def _add_name(self, name: str) -> None:
        number = _EXPERT_NUMBER.search(name)
        if number is None:
            self._names[name] = None
            return
        key = _EXPERT_NUMBER.sub(EXPERT, name)
        numbers = self._names.setdefault(key, set())
        if numbers is not None:
            numbers.add(int(number[0]))

    def _parts(self, path: str) -> Iterator[str]:
        """The names on the list that are whole components of the path."""
        parts = path.split(".")
        places = [(0, length) for length in self._anchored]
        places += [(start, length) for length in self._floating for start in range(len(parts) - length + 1)]
        for start, length in places:
            name = ".".join(parts[start : start + length])
            if name in self._names:
                yield name

    def _spelt(self, path: str) -> bool:
        """Whether a glob or an expression means the path, whichever way it is spelt."""
        if path.startswith(self._prefixes):
            return True
        return any(each.match(spelling + path) for each in self._expressions for spelling in _SPELLINGS)


def _lengths(names: Iterable[str]) -> frozenset[int]:
    return frozenset(name.count(".") + 1 for name in names)


def bare(path: str) -> str:
    """A path without what wraps the decoder: ``model.language_model.layers.0`` is ``layers.0``."""
    first, dot, rest = path.partition(".")
    while dot and first in _wrappers():
        path = rest
        first, dot, rest = path.partition(".")
    return path


@cache
def range_set(experts: int) -> frozenset[int]:
    """All experts of a layer."""
    return frozenset(range(experts))


@cache
def _wrappers() -> frozenset[str]:
    return frozenset(load("quantisation.yaml")["wrappers"])
