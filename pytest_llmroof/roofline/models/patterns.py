"""Lists of modules in quantisation configs: which paths they mean.

A plain entry means whole components of a path, wherever they stand: ``gate`` is ``...mlp.gate`` and never
``...mlp.gate_proj``; ``model.layers.0.`` is everything in that layer. ``*`` makes an entry a glob over a path from its
beginning, to its end or to the end of a component; ``re:`` a regular expression that matches from the beginning.
What wraps the decoder (``model.language_model.``, ``backbone.``) is no part of a path's identity, and some components
go by several names (``w1``, ``gate_proj``).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Final

from pytest_llmroof.data import load

#: Stands for the number of an expert in a path that means them all.
EXPERT: Final = "{expert}"
_LAYERS: Final = "layers."
#: What of an expression takes any layer's number, or none.
_ANY_NUMBER: Final = re.compile(r"\.[*+]|\\d[*+]|\\\.")
_LAYER: Final = re.compile(r"layers\.(\d+)(?=[.*]|$)")
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
        # What is said of one layer alone, by its number; irregular: something is said of some layers in another way.
        self._of_layer: dict[int, set[str]] = {}
        self._irregular = False
        prefixes, by_expert = [], False
        for entry in entries:
            if entry.startswith("re:"):
                self._expressions.append(re.compile(entry[3:]))
            elif not any(sign in entry for sign in "*?["):
                self._add_name(bare(entry.strip(".")))
                continue
            elif entry.endswith("*") and not any(sign in entry[:-1] for sign in "*?["):
                prefixes.append(bare(entry[:-1]))
                if self._note_layer(bare(entry)):
                    by_expert = by_expert or bool(_TELLS_EXPERTS.search(entry))
                    continue
            else:
                self._expressions += [re.compile(fnmatch.translate(bare(entry) + end)) for end in ("", ".*")]
            by_expert = by_expert or bool(_TELLS_EXPERTS.search(entry))
            self._irregular = self._irregular or _may_tell_layers(entry)
        self._names.pop("", None)
        self._prefixes = tuple(prefixes)
        # Names that begin with a layer stand at a path's beginning, others anywhere in it.
        self._anchored = _lengths(name for name in self._names if name.startswith(_LAYERS))
        self._floating = _lengths(name for name in self._names if not name.startswith(_LAYERS))
        self._by_expert = by_expert
        said: dict[frozenset[str], int] = {}
        self._kinds = {layer: said.setdefault(frozenset(rest), layer) for layer, rest in self._of_layer.items()}

    def alike(self, layer: int) -> int | None:
        """The same for layers of which the list means the same modules."""
        return layer if self._irregular else self._kinds.get(layer)

    def match(self, path: str) -> bool:
        """Whether the list means the module at ``path``."""
        number = _EXPERT_NUMBER.search(path)
        if number is None:
            return bool(self.which(path))
        return int(number[0]) in self.which(_EXPERT_NUMBER.sub(EXPERT, path), int(number[0]) + 1)

    def which(self, path: str, experts: int = 1) -> AbstractSet[int]:
        """The experts that the list means at a path in which ``{expert}`` is left open; {0}, where there are none."""
        named: set[int] = set()
        for name in self._parts(bare(path)):
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

    def _note_layer(self, entry: str) -> bool:
        """Keep what an entry says of one layer; False where it is not of one."""
        found = _LAYER.match(entry)
        if found is None:
            return False
        rest = entry[found.end() :]
        if rest == "*" and found[1] != "0":
            return False  # layers.1* means layer 10, too
        self._of_layer.setdefault(int(found[1]), set()).add(rest)
        return True

    def _add_name(self, name: str) -> None:
        number = _EXPERT_NUMBER.search(name)
        # Any other number in a name stands behind what is in no decoder's path (``mtp.layers.0``).
        self._irregular = self._irregular or (not self._note_layer(name) and name[:1].isdigit())
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
        known = bare(path)
        if known.startswith(self._prefixes):
            return True
        if not self._expressions:
            return False
        ways = {spelling + each for spelling in _SPELLINGS for each in (known, _unwrapped(path))}
        return any(each.match(way) for each in self._expressions for way in ways)


def _may_tell_layers(entry: str) -> bool:
    """Whether a glob or an expression may mean a module in some layers only: where in doubt, it may."""
    if entry.startswith("re:"):
        return bool(re.search(r"[\d.\\\[?{]", _ANY_NUMBER.sub("", entry[3:])))
    beginning = re.split(r"[*\[?]", bare(entry))[0]
    reaches = beginning.startswith(_LAYERS) or _LAYERS.startswith(beginning)
    return reaches and bool(re.search(r"[\d\[?]", entry))


def _lengths(names: Iterable[str]) -> frozenset[int]:
    return frozenset(name.count(".") + 1 for name in names)


def bare(path: str) -> str:
    """A path without what wraps the decoder, its components by the names used here.

    ``model.language_model.layers.0.ffn`` is ``layers.0.mlp``.
    """
    names = _components()
    return ".".join([names.get(part, part) for part in _unwrapped(path).split(".")])


def _unwrapped(path: str) -> str:
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


@cache
def _components() -> Mapping[str, str]:
    names: Mapping[str, str] = load("quantisation.yaml")["components"]
    return names
