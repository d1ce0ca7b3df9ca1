"""Where labels stand in a drawing: beside their points, on no other label and on as few lines as can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Box:
    """A rectangle in the drawing's units, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two have a point in common."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        """Whether all of it lies in the other."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True)
class Label:
    """A placed text: where its baseline starts, is centred or ends."""

    text: str
    x: float
    y: float
    anchor: Anchor
    box: Box


#: Widest characters of common sans-serif fonts, as a share of their size: a label is never wider than it is taken for.
_EM: Final = 0.66
_GAP: Final = 9.0
#: Directions to try, the best first: (side, vertical shift in lines).
_PLACES: Final[tuple[tuple[Anchor, float], ...]] = (
    ("start", 0.0), ("end", 0.0), ("middle", 1.15), ("middle", -1.0), ("start", 0.95), ("start", -0.95),
    ("end", 0.95), ("end", -0.95), ("start", 1.9), ("end", 1.9), ("middle", 2.2), ("start", -1.9), ("middle", -2.1),
)  # fmt: skip
#: How many of them are beside the point itself.
_NEAR: Final = 8


def width_of(text: str, size: float) -> float:
    """At most so many units wide; letters of other scripts can be as wide as the font is high."""
    return sum(size * (_EM if character < "\u0590" else 1.1) for character in text)


def place(
    text: str,
    x: float,
    y: float,
    size: float,
    inside: Box,
    taken: Sequence[Box],
    lines: Sequence[Box],
    near: bool = False,
) -> Label | None:
    """The label of the point at (x, y); None where there is no room beside it without covering another.

    ``taken`` must not be covered; of ``lines`` as few as can be are. A label ``near`` its point touches nothing else.
    """
    best: tuple[int, Label] | None = None
    places = _PLACES[:_NEAR] if near else _PLACES
    for label in _candidates(text, x, y, size, places):
        if not label.box.within(inside) or any(label.box.meets(box) for box in taken):
            continue
        crossed = sum(label.box.meets(box) for box in lines)
        if best is None or crossed < best[0]:
            best = crossed, label
        if not crossed:
            break
    return best[1] if best else None


def _candidates(text: str, x: float, y: float, size: float, places: Sequence[tuple[Anchor, float]]) -> Iterator[Label]:
    width = width_of(text, size)
    for anchor, shift in places:
        at = x + (_GAP if anchor == "start" else -_GAP if anchor == "end" else 0.0)
        left = at - (0.0 if anchor == "start" else width if anchor == "end" else width / 2)
        middle = y + shift * size * 1.25
        baseline = middle + size * 0.34
        yield Label(text, at, baseline, anchor, Box(left, middle - size * 0.62, left + width, middle + size * 0.62))


def around(x: float, y: float, half: float) -> Box:
    """The square about a point."""
    return Box(x - half, y - half, x + half, y + half)
