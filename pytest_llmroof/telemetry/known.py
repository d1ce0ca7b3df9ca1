"""What pages of one server repeat: the texts in front of the values, and the order of the lines.

Both are kept across pages within bounds, so that a repeated scrape costs little more than its numbers. Only what was
written as engines and exporters write it is kept here (``name{label="value",...}``, no blanks, no escapes): whatever
else a page holds is for the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+")
#: A label up to its closing quote.
_PAIR: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*+)="([^"\\\n]*+)')

Pair = tuple[str, str]
Key = tuple[str, frozenset[Pair]]
Pick = Callable[[Sequence[str]], tuple[str, ...]]


@dataclass(frozen=True)
class Layout:
    """A page without its numbers: every line's text up to its last blank is the key that it is kept under.

    ``names`` and ``labels`` are the samples'; ``values`` picks their values from the last words of all lines, ``rest``
    those of the other lines (comments, blank ones), which must be ``rest_words``. ``own`` are the indices of our own
    comment lines, which may change.
    """

    names: tuple[str, ...]
    labels: tuple[Mapping[str, str], ...]
    values: Pick
    rest: Pick
    rest_words: tuple[str, ...]
    own: tuple[int, ...]
    types: Mapping[str, str]
    ended: bool


def pick(indices: Sequence[int]) -> Pick:
    """What takes these of many."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda words: tuple(words[index] for index in indices)


#: A block of labels read: as they are shown, and as a key that does not depend on their order.
Labels = tuple[Mapping[str, str], frozenset[Pair]]
_NONE: Final[Labels] = ({}, frozenset())


@dataclass
class KnownSeries:
    """Blocks of labels by their text, and layouts by the texts of all lines. ``limit`` bounds both, in lines.

    What is kept is forgotten as a whole beyond that: labels that change from page to page are no use to keep.
    """

    limit: int = 100_000
    layouts: dict[tuple[str, ...], Layout] = field(default_factory=dict)
    _lines: int = 0
    _names: set[str] = field(default_factory=set)
    _pairs: dict[str, Pair] = field(default_factory=dict)
    _blocks: dict[str, Labels] = field(default_factory=dict)

    def make_room(self) -> None:
        """Forget what is beyond the limit: to be called between two pages."""
        if max(len(self._names), len(self._blocks), len(self._pairs)) > self.limit:
            for kept in (self._names, self._pairs, self._blocks):
                kept.clear()
        if self._lines > self.limit:
            self.layouts.clear()
            self._lines = 0

    def keep(self, heads: tuple[str, ...], layout: Layout) -> None:
        """Keep a page's layout."""
        self.layouts[heads] = layout
        self._lines += len(heads)

    def plain(self, head: str) -> tuple[str, Labels] | None:
        """The series of a text that is ``name`` or ``name{label="value",...}``; None for any other."""
        name, brace, block = head.partition("{")
        if name not in self._names:
            if _NAME.fullmatch(name) is None:
                return None
            self._names.add(name)
        labels = (self._blocks.get(block) or self._block(block)) if brace else _NONE
        return None if labels is None else (name, labels)

    def _block(self, block: str) -> Labels | None:
        if not block.endswith('"}'):
            return None
        # No value holds a quote, as that would need an escape: each `",` is the end of a label.
        pairs = [self._pairs.get(text) or self._pair(text) for text in block[:-2].split('",')]
        known = [pair for pair in pairs if pair is not None]
        labels = dict(known)
        if len(labels) < len(pairs):  # a label twice, or what is no label
            return None
        found = self._blocks[block] = (labels, frozenset(known))
        return found

    def _pair(self, text: str) -> Pair | None:
        match = _PAIR.fullmatch(text)
        if match is None:
            return None
        pair = self._pairs[text] = (match[1], match[2])
        return pair
