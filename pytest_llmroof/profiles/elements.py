"""The elements of a long JSON array of objects in a stream of bytes, without holding the array.

Taken a megabyte at once, which mostly ends within an element: where the last whole one ends is guessed, and the guess
is right where a parser accepts what precedes it. Else it is worked out from the places of braces and quotes. So the
text's layout does not matter. What an element holds is left to the caller, a run of whole elements at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from pytest_llmroof.profiles.timeline import Bool, Int64, UInt8

_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _BRACKET = (ord(sign) for sign in '"\\{}]')
T = TypeVar("T")

_BOUNDARY: Final = re.compile(rb"\}\s*,\s*\{")
_BETWEEN: Final = re.compile(rb"[\s,]*")
_NEAR: Final = 1 << 14
"""Bytes from the end in which the boundary of two elements is looked for first."""
LONGEST: Final = 32 << 20
"""No element of a trace is longer than this: what is has lost its end."""


@dataclass(frozen=True)
class Run(Generic[T]):
    """Whole elements: their text, from the first one's opening brace, where it begins in the whole (unpacked) content,
    and what became of them; None where they are not strictly what was asked for.
    """

    text: bytes
    offset: int
    parsed: list[T] | None


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


class Elements(Generic[T]):
    """The elements after an array's opening bracket, made into something by ``parse`` (None: it refuses the text).

    After ``runs`` is exhausted, ``closed`` tells whether the array's end was found, ``rest`` holds what follows it (or
    what is left of the last element), ``offset`` where that begins in the whole content.
    """

    def __init__(
        self, pieces: Iterator[bytes], begun: bytes, offset: int, parse: Callable[[bytes], list[T] | None]
    ) -> None:
        self.closed = False
        self.rest = begun
        self.offset = offset
        self._pieces = pieces
        self._parse = parse

    def runs(self) -> Iterator[Run[T]]:
        """Runs of whole elements. Stops at the array's end, or where the content ends."""
        more = True
        while True:
            run = (self._likely() if more else None) or self._certain()
            if run is not None:
                yield run
            following = self.rest.lstrip(b" \t\r\n,")[:1]
            if following == b"]":
                self.closed = True
                self._forget(self.rest.index(b"]") + 1)
                return
            if not more or following not in (b"{", b"") or len(self.rest) > LONGEST:
                return
            piece = next(self._pieces, b"")
            more = bool(piece)
            self.rest += piece

    def _likely(self) -> Run[T] | None:
        """Up to the last place that looks like the boundary of two elements, where what precedes it can be parsed:
        only whole elements can.
        """
        near = max(0, len(self.rest) - _NEAR)
        places = [near + match.start() + 1 for match in _BOUNDARY.finditer(self.rest[near:])]
        if not places:
            return None
        begin = self._leading()
        text = self.rest[begin : places[-1]]
        parsed = self._parse(text)
        if parsed is None:
            return None
        run = Run(text, self.offset + begin, parsed)
        self._forget(places[-1])
        return run

    def _leading(self) -> int:
        """How many bytes stand before the next element."""
        match = _BETWEEN.match(self.rest)
        return match.end() if match else 0

    def _certain(self) -> Run[T] | None:
        """All whole elements, by counting braces."""
        starts, ends = whole_elements(self.rest)
        before = _array_end(self.rest, starts, ends)
        if before is not None:
            starts, ends = starts[:before], ends[:before]
        if not len(ends):
            return None
        begin, end = int(starts[0]), int(ends[-1])
        text = self.rest[begin:end]
        run = Run(text, self.offset + begin, self._parse(text))
        self._forget(end)
        return run

    def _forget(self, count: int) -> None:
        self.rest = self.rest[count:]
        self.offset += count
