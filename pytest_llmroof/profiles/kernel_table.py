"""Profiled kernels as a table: each launch with its time, and the operations and bytes that the hardware counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_llmroof.bounded import Bounded

Scope = Literal["kernel", "graph", "range"]
"""What one row is: a kernel, a whole CUDA graph (one replay), or a range of the application."""


@dataclass(frozen=True)
class Operations:
    """Operations counted (a multiply-add is two). ``precisions``: whose peak they have; several where unknown."""

    precisions: tuple[str, ...]
    count: Bounded
    unit: Literal["tensor cores", "CUDA cores"]


@dataclass(frozen=True)
class Rule:
    """What a rule of the tool itself says of a launch, cleaned and cut: to be quoted, as its own words."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True)
class KernelDevice:
    """A device as the tool describes it. None is what it does not tell."""

    index: str
    name: str | None = None
    compute_capability: float | None = None
    multiprocessors: float | None = None
    clock_hertz: float | None = None
    memory_clock_hertz: float | None = None
    bus_bits: float | None = None

    @property
    def bandwidth_bytes_per_second(self) -> float | None:
        """Bus width / 8 x memory clock x 2 (both edges): 1935.36 GB/s of an A100 PCIe (5120 bits, 1512 MHz)."""
        if not self.memory_clock_hertz or not self.bus_bits:
            return None
        return self.bus_bits / 8 * self.memory_clock_hertz * 2


@dataclass(frozen=True)
class Launch:
    """One profiled launch. None is what was not measured, never zero; shares are fractions of 1.

    ``operations`` is None where they cannot be told (``operations_lacking`` says why); ``uncounted`` names work that
    no counter was there for, ``partial`` that it may be much of it. ``dram_bytes`` has no upper bound where only
    reads or writes were counted. ``compute_share`` and ``memory_share`` are the tool's shares of peak ("Speed Of
    Light"; the latter of whichever memory is busiest, caches included), ``stalls`` shares of the cycles that a warp
    spends per instruction, largest first. ``bank_conflicts`` counts, ``bank_conflict_share`` is of the wavefronts.
    """

    name: str
    scope: Scope
    device: str
    line: int
    seconds: float | None = None
    operations: tuple[Operations, ...] | None = None
    operations_lacking: str | None = None
    uncounted: tuple[str, ...] = ()
    partial: bool = False
    dram_bytes: Bounded | None = None
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None
    dram_share: float | None = None
    compute_share: float | None = None
    memory_share: float | None = None
    tensor_share: float | None = None
    l2_hit_rate: float | None = None
    waves: float | None = None
    occupancy: float | None = None
    sm_clock_hertz: float | None = None
    stalls: tuple[tuple[str, float], ...] = ()
    bank_conflicts: float | None = None
    bank_conflict_share: float | None = None
    rules: tuple[Rule, ...] = ()
    counters: tuple[str, ...] = ()
    """Raw names that operations and bytes came from."""


@dataclass(frozen=True)
class KernelTable:
    """All launches of an export, in its order. ``location`` is what reports call the file; ``notes`` are sentences."""

    location: str
    launches: tuple[Launch, ...]
    devices: tuple[KernelDevice, ...]
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float | None:
        """Time of all launches, None where that of one is not known."""
        times = [launch.seconds for launch in self.launches]
        return sum(time for time in times if time is not None) if None not in times else None


def joined(tables: Sequence[KernelTable]) -> KernelTable:
    """Several exports of one window as one table. ValueError for none."""
    if not tables:
        raise ValueError("no table to join")
    if len(tables) == 1:
        return tables[0]
    return KernelTable(
        ", ".join(table.location for table in tables),
        tuple(launch for table in tables for launch in table.launches),
        tuple(dict.fromkeys(device for table in tables for device in table.devices)),
        tuple(dict.fromkeys(note for table in tables for note in table.notes)),
    )
