"""Layers of one kind and their numbers, and which of all layers a pipeline stage holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self


def stage_ranges(layers: int, stages: int) -> tuple[range, ...]:
    """The layers of each pipeline stage, as vLLM splits them.

    What an even split leaves over goes to the stages before the last, one each, from the back: the last one computes
    the logits, and the first one holds the embedding.
    """
    each, over = divmod(layers, stages)
    sizes = [each + (stages - 1 - over <= stage < stages - 1) for stage in range(stages)]
    ends = [sum(sizes[: stage + 1]) for stage in range(stages)]
    return tuple(range(end - size, end) for end, size in zip(ends, sizes, strict=True))


@dataclass(frozen=True)
class Layered:
    """``layers`` layers of one kind. ``numbers`` says which, so that pipeline stages can be told apart."""

    layers: int
    numbers: tuple[int, ...] = field(default=(), kw_only=True, repr=False, compare=False)

    def within(self, stage: range) -> Sequence[Self]:
        """Those of its layers that a stage holds; nothing where it holds none."""
        held = tuple(number for number in self.numbers if number in stage)
        return [replace(self, layers=len(held), numbers=held)] if held else []
