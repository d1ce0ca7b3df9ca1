"""The elements of a long JSON array of objects in a stream of bytes, without holding the array.

Which objects begin and end where is worked out from the places of braces and quotes, a megabyte at once: the text's
layout does not matter. What an element holds is left to the caller, a run of whole elements at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from pytest_llmroof.profiles.timeline import Bool, Int64, UInt8

_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _BRACKET = (ord(sign) for sign in '"\\{}]')
LONGEST: Final = 32 << 20
"""No element of a trace is longer than this: what is has lost its end."""


@dataclass(frozen=True)
class Run:
    """Whole elements: their text, from the first one's opening brace, and where each begins and ends in it."""

    text: bytes
    starts: Int64
    ends: Int64
    offset: int
    """Of the text in the whole (unpacked) content, in bytes."""


def whole_elements(text: bytes) -> tuple[Int64, Int64]:
    """Where the whole objects begin and end in a text that starts outside all of them.

    Stops at a brace that closes what was opened before the text.
    """
    signs = np.frombuffer(text, dtype=np.uint8)
    braces = np.flatnonzero((signs == _OPEN) | (signs == _CLOSE))
    quotes = np.flatnonzero(signs == _QUOTE)
    if b"\\" in text:
        quotes = quotes[~_escaped(signs, quotes)]
    braces = braces[np.searchsorted(quotes, braces) % 2 == 0]
    opening = signs[braces] == _OPEN
    depth = np.cumsum(np.where(opening, 1, -1))
    closed = np.flatnonzero(depth < 0)
    if len(closed):
        braces, opening, depth = braces[: closed[0]], opening[: closed[0]], depth[: closed[0]]
    ends = braces[~opening & (depth == 0)] + 1
    return braces[opening & (depth == 1)][: len(ends)], ends


def _array_end(text: bytes, starts: Int64, ends: Int64) -> int | None:
    """How many of the elements stand before the first closing bracket that is outside all of them, if there is one."""
    brackets = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == _BRACKET)
    before = np.searchsorted(ends, brackets, side="right")  # elements that end before the bracket
    outside = (before == np.searchsorted(starts, brackets)) & (before < len(ends))
    return int(before[outside][0]) if outside.any() else None


def _escaped(signs: UInt8, quotes: Int64) -> Bool:
    """Which quotes stand behind an odd number of backslashes."""
    slashes = np.flatnonzero(signs == _BACKSLASH)
    first = np.ones(len(slashes), dtype=np.bool_)
    first[1:] = np.diff(slashes) > 1
    begins = slashes[first]
    lengths = np.diff(np.append(np.flatnonzero(first), len(slashes)))
    behind = (begins + lengths)[lengths % 2 == 1]
    found: Bool = np.isin(quotes, behind, assume_unique=True)
    return found


class Elements:
    """The elements after an array's opening bracket.

    After ``runs`` is exhausted, ``closed`` tells whether the array's end was found, ``rest`` holds what follows it (or
    what is left of the last element), ``count`` the whole elements.
    """

    def __init__(self, pieces: Iterator[bytes], begun: bytes, offset: int) -> None:
        self.closed = False
        self.rest = begun
        self.count = 0
        self.offset = offset
        """Of ``rest`` in the whole content, in bytes."""
        self._pieces = pieces

    def runs(self) -> Iterator[Run]:
        """Runs of whole elements. Stops at the array's end, or where the content ends."""
        more = True
        while more:
            starts, ends = whole_elements(self.rest)
            before = _array_end(self.rest, starts, ends)
            if before is not None:
                starts, ends = starts[:before], ends[:before]
            if len(ends):
                begin, end = int(starts[0]), int(ends[-1])
                run = Run(self.rest[begin:end], starts - begin, ends - begin, self.offset + begin)
                self._forget(end)
                yield run
                self.count += len(ends)
            following = self.rest.lstrip(b" \t\r\n,")[:1]
            if following == b"]":
                self.closed = True
                self._forget(self.rest.index(b"]") + 1)
                return
            if following not in (b"{", b"") or len(self.rest) > LONGEST:
                return
            piece = next(self._pieces, b"")
            more = bool(piece)
            self.rest += piece

    def _forget(self, count: int) -> None:
        self.rest = self.rest[count:]
        self.offset += count
