"""Which call of the host submitted each piece of work: both bear one number, which is unique within a process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pytest_llmroof.profiles.timeline import UNKNOWN, Bool, Int32, Int64, Launches

_SPARSE: Final = 8
"""Numbers spread wider than this many times their count are looked up by search, not by place."""
ROOM: Final = 1 << 20
"""Unless they lie within so many of each other."""


@dataclass(frozen=True)
class Numbered:
    """Rows that bear the number of a call, and the place of their process (UNKNOWN where it is not told)."""

    number: Int64
    process: Int32


def submitted_by(work: Numbered, calls: Numbered, launching: Bool) -> tuple[Int32, bool]:
    """For each piece of work the row of its call, UNKNOWN where none is there; and whether processes were mixed up.

    Where only one process called, work without a process is its own; where several did, such work is joined by numbers
    that only one of them used.
    """
    found = np.full(len(work.number), UNKNOWN, dtype=np.int32)
    callers = _distinct(calls.process)
    owners = _distinct(work.process)
    mixed = False
    for owner in owners:
        mine = _where(work.process, owner, owners)
        if owner in callers and owner != UNKNOWN:
            rows = _where(calls.process, owner, callers)
        elif UNKNOWN in (owner, *callers) and len(callers) == 1:
            rows = None
        elif owner == UNKNOWN:
            rows, mixed = np.flatnonzero(_used_once(calls)), True
        else:
            continue
        numbers = work.number if mine is None else work.number[mine]
        call = call_of(numbers, calls.number, launching, rows)
        if mine is None:
            found = call
        else:
            found[mine] = call
    return found, mixed


def call_of(wanted: Int64, offered: Int64, launching: Bool, rows: Int64 | None = None) -> Int32:
    """For each number the row of the call that offers it, among some rows (None: all of them); UNKNOWN where none does.

    Of several calls with one number the one that launches counts, else the first. Numbers below 1 stand for none.
    """
    found = np.full(len(wanted), UNKNOWN, dtype=np.int32)
    numbered = offered > 0
    candidates = np.flatnonzero(numbered) if rows is None else rows[numbered[rows]]
    if not len(candidates):
        return found
    # What is written last stays: earlier rows, then those that launch.
    launches = launching[candidates]
    ordered = np.concatenate((candidates[~launches][::-1], candidates[launches][::-1]))
    numbers = offered[ordered]
    low, high = int(numbers.min()), int(numbers.max())
    if high - low > _SPARSE * len(numbers) + ROOM:
        known = np.unique(numbers)
        place, at = np.searchsorted(known, numbers), np.searchsorted(known, wanted)
        inside = at < len(known)
        inside[inside] = known[at[inside]] == wanted[inside]
        size = len(known)
    else:
        place, at, size = numbers - low, wanted - low, high - low + 1
        inside = (wanted >= low) & (wanted <= high)
    row = np.full(size, UNKNOWN, dtype=np.int32)
    row[place] = ordered
    found[inside] = row[at[inside]]
    return found


def with_launches(calls: Launches, call: Int32, unseen: Bool | None) -> tuple[Launches, Int32]:
    """Of all calls those that submitted work, with the ``unseen`` that launched what is not shown; and the row of each
    piece of work among them. ``call`` is its row among all.
    """
    known = call >= 0
    keep = np.zeros(len(calls), dtype=np.bool_) if unseen is None else unseen.copy()
    keep[call[known]] = True
    row = np.cumsum(keep, dtype=np.int32) - 1
    launch = np.full(len(call), UNKNOWN, dtype=np.int32)
    launch[known] = row[call[known]]
    if keep.all():
        return calls, launch
    return Launches(calls.start[keep], calls.end[keep], calls.name[keep], calls.thread[keep]), launch


def _used_once(calls: Numbered) -> Bool:
    """Calls whose number no other process used."""
    _, of = np.unique(calls.number, return_inverse=True)
    first = np.full(int(of.max(initial=-1)) + 1, UNKNOWN - 1, dtype=np.int64)
    first[of] = calls.process
    shared = np.zeros(len(first), dtype=np.bool_)
    shared[of[calls.process != first[of]]] = True
    result: Bool = ~shared[of]
    return result


def _distinct(places: Int32) -> list[int]:
    """The values of a column of places, of which there are few."""
    if not len(places):
        return []
    counts = np.bincount(places + 1)
    return [int(place) - 1 for place in np.flatnonzero(counts)]


def _where(places: Int32, value: int, values: list[int]) -> Int64 | None:
    """The rows of a value; None for all of them."""
    return None if values == [value] else np.flatnonzero(places == value)
