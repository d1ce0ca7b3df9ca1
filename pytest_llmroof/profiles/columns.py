"""Tables that grow while a trace is read, lean in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pytest_llmroof.profiles.timeline import Int64, Step

_LONGEST: Final = 8192
"""Characters of a name."""


class Names:
    """Names, each kept once."""

    def __init__(self) -> None:
        self.place: dict[str, int] = {}

    def of(self, names: list[str]) -> Int64:
        """The place of each name; of very long ones only the beginning is kept."""
        distinct = set(names)
        if max(map(len, distinct), default=0) > _LONGEST:
            names = [name[:_LONGEST] for name in names]
            distinct = set(names)
        for name in distinct:
            self.place.setdefault(name, len(self.place))
        return np.array([self.place[name] for name in names], dtype=np.int64)


class Rows:
    """A table of whole numbers that grows by blocks of rows, each column as narrow as it may be."""

    def __init__(self, **columns: type[np.signedinteger[Any]]) -> None:
        self._blocks: dict[str, list[NDArray[np.signedinteger[Any]]]] = {name: [] for name in columns}
        self._types = columns
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, *block: Int64) -> None:
        """A block of rows, column by column."""
        for (name, narrow), column in zip(self._types.items(), block, strict=True):
            self._blocks[name].append(column.astype(narrow))
        self._count += len(block[0])

    def taken(self) -> dict[str, NDArray[np.signedinteger[Any]]]:
        """Every column, whole. The table gives them away, so that nothing is held twice."""
        empty = {name: np.zeros(0, dtype=narrow) for name, narrow in self._types.items()}
        return {name: np.concatenate([empty[name], *self._blocks.pop(name)]) for name in self._types}


@dataclass
class Columns:
    """What was read so far. Times are nanoseconds on the trace's clock.

    Calls and work refer to each other by ``correlation``, collectives to the row of their ``work``.
    """

    names: Names = field(default_factory=Names)
    work: Rows = field(
        default_factory=lambda: Rows(
            start=np.int64, end=np.int64, device=np.int32, stream=np.int32, kind=np.int8, name=np.int32,
            correlation=np.int64, size=np.int64,
        )
    )  # fmt: skip
    calls: Rows = field(
        default_factory=lambda: Rows(start=np.int64, end=np.int64, thread=np.int64, name=np.int32, correlation=np.int64)
    )
    collectives: Rows = field(default_factory=lambda: Rows(work=np.int64, sequence=np.int64, group=np.int32))
    overhead: Rows = field(default_factory=lambda: Rows(start=np.int64, end=np.int64))
    steps: list[tuple[int | None, Step]] = field(default_factory=list)
    """With the device of those on a device's clock."""
    captures: int = 0
    coarse: bool = False
    """Whether timestamps are too large for a float of microseconds to hold nanoseconds."""
    broken: int = 0
    """Events that are no JSON, of kinds that do not matter here."""
    unplaced: int = 0
    """Host calls without a usable time."""
