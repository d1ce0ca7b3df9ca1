"""What counters of the GPUs themselves saw of a window: DCGM, nvidia-smi, AMD's exporter. One entry for each GPU.

Canonical quantities of ``Gpu.series`` (unit), each at the times at which its exporter was read:

gr_engine         time in which any engine of the GPU ran (fraction)
sm_active         cycles in which a multiprocessor held work, mean over them (fraction)
sm_occupancy      resident warps over the most there can be (fraction)
tensor            cycles in which the tensor pipe was active (fraction)
dram              cycles in which the memory interface moved data (fraction)
utilization       what nvidia-smi calls GPU utilization: samples in which any kernel ran (fraction)
memory_utilization  samples in which memory was read or written (fraction)
nvlink_bytes_per_second, pcie_bytes_per_second   both directions together; each direction as
                  nvlink_sent_bytes_per_second, nvlink_received_bytes_per_second, pcie_sent_..., pcie_received_...
sm_clock_hertz, memory_clock_hertz
power_watts, power_limit_watts, temperature_celsius, memory_used_bytes, memory_total_bytes

Canonical quantities of ``Gpu.counters`` (increase over the window): energy_joules, thermal_seconds, power_seconds
(time throttled for that reason), nvlink_bytes, xid_errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pytest_llmroof.telemetry.window import Series

#: Parts of reasons why figures cannot be used that were measured, so that no right or package is missing.
WRONG: Final = ("more than the whole", "more than a GPU can do", "which it cannot be")


@dataclass(frozen=True)
class MigSlice:
    """A slice of a GPU: ``profile`` as ``1g.10gb``, ``instance`` its number on the GPU, where they are told."""

    profile: str | None = None
    instance: str | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one slice of it, over the window. ``identity`` names it in messages (``gpu 0 of host-3``)."""

    identity: str
    device_name: str | None = None
    host: str | None = None
    index: str | None = None
    uuid: str | None = None
    mig: MigSlice | None = None
    series: Mapping[str, Series] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    throttle_reasons: Mapping[str, float] = field(default_factory=dict)
    """Reason (``thermal``, ``power``, ``other``) -> share of the samples in which it held, where samples tell."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Canonical quantity -> the name under which the source exposed it."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Quantities that the source exposes, but that cannot be used, each with the reason."""
    pod: str | None = None
    """The pod that holds the GPU, where the source tells."""


@dataclass(frozen=True)
class Hardware:
    """The counters of all GPUs that the sources tell of.

    ``kinds`` are the exporters (``dcgm``, ``nvidia-smi``, ``amd``). ``averaging_seconds`` is over how long a sample of
    an activity looks back, None where nobody knows: a sample counts for the load only where all of that lies inside it.
    ``clocked`` says whether the series' times are on the window's clock. ``notes`` are said with every figure of it.
    """

    gpus: tuple[Gpu, ...]
    kinds: tuple[str, ...] = ()
    location: str = ""
    averaging_seconds: float | None = None
    clocked: bool = True
    notes: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
