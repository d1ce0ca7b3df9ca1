"""What profiled kernels did against an accelerator's peaks: shares of the time that their work takes at the peak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmroof.advice import AnyAdvice, as_advice
from pytest_llmroof.analysis.slices import mapping
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.data import load
from pytest_llmroof.profiles.kernel_table import KernelDevice, KernelTable, Launch, Operations
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerator_for_device
from pytest_llmroof.roofline.devicenames import kinship


@dataclass(frozen=True)
class Utilisation:
    """A utilisation over some launches: ``value`` over those that are ``known``, the interval over all of them.

    ``unknown`` counts launches of which the work is not known at all, or only in part: the interval then reaches from
    none of it to the whole peak.
    """

    bounded: Bounded
    known: int
    unknown: int


def figure(name: str) -> float:
    """A threshold of data/ncu.yaml."""
    return float(load("ncu.yaml")[name])


def advice(name: str) -> AnyAdvice:
    """A remedy of data/ncu.yaml."""
    return as_advice(load("ncu.yaml")["remedies"][name])


def seconds_of(launches: Sequence[Launch]) -> float | None:
    """Their time, None where that of one is not known."""
    times = [launch.seconds for launch in launches if launch.seconds is not None]
    return sum(times) if len(times) == len(launches) else None


def compute_utilisation(launches: Sequence[Launch], gpu: Accelerator) -> Utilisation | None:
    """Operations over (the dense peak of their precision x time); None where nothing of it is known."""
    return _utilisation(launches, [_at_peak(launch, gpu) for launch in launches])


def memory_utilisation(launches: Sequence[Launch], gpu: Accelerator) -> Utilisation | None:
    """Bytes of device memory over (bandwidth x time); None where nothing of it, or no bandwidth, is known."""
    bandwidth = gpu.memory_bandwidth_bytes_per_second
    if bandwidth is None:
        return None
    spans = [None if one.dram_bytes is None else one.dram_bytes.scaled(1 / bandwidth) for one in launches]
    return _utilisation(launches, spans)


def _utilisation(launches: Sequence[Launch], spans: Sequence[Bounded | None]) -> Utilisation | None:
    """From the time that each launch's work takes at the peak; one without it may have used none or all of its own."""
    whole = seconds_of(launches)
    sure = [(one, span) for one, span in zip(launches, spans, strict=True) if span is not None]
    if not whole or not sure:
        return None
    low = sum(span.low for _, span in sure)
    high = sum(span.high if math.isfinite(span.high) else max(span.value, one.seconds or 0.0) for one, span in sure)
    high += whole - sum(one.seconds or 0.0 for one, _ in sure)
    value = sum(span.value for _, span in sure) / sum(one.seconds or 0.0 for one, _ in sure)
    partly = sum(not math.isfinite(span.high) for _, span in sure)
    bounded = Bounded(value, min(value, low / whole), max(value, high / whole))
    return Utilisation(bounded, len(sure) - partly, len(launches) - len(sure) + partly)


def _at_peak(launch: Launch, gpu: Accelerator) -> Bounded | None:
    """Seconds that a launch's operations take at the peaks of their precisions, None where they are not known."""
    if launch.operations is None:
        return None
    total, open_ended = Bounded.exactly(0.0), launch.partial
    known = False
    for operations in launch.operations:
        span = _span(operations, gpu)
        if span is None:
            open_ended = True
            continue
        known = True
        total = Bounded(total.value + span.value, total.low + span.low, total.high + span.high)
    if not known and launch.operations:
        return None
    return Bounded(total.value, total.low, math.inf) if open_ended else total


def _span(operations: Operations, gpu: Accelerator) -> Bounded | None:
    peaks = [peak for precision in operations.precisions if (peak := gpu.peak(precision)) is not None]
    if not peaks:
        return None
    count = operations.count
    return Bounded(count.value / max(peaks), count.low / max(peaks), count.high / min(peaks))


def flops_of(launches: Sequence[Launch]) -> Bounded | None:
    """Operations of all of them, None where those of one are not known."""
    total = Bounded.exactly(0.0)
    for launch in launches:
        if launch.operations is None:
            return None
        for one in launch.operations:
            total = Bounded(total.value + one.count.value, total.low + one.count.low, total.high + one.count.high)
        if launch.partial:
            total = Bounded(total.value, total.low, math.inf)
    return total


def bytes_of(launches: Sequence[Launch]) -> Bounded | None:
    """Bytes of all of them, None where those of one are not known."""
    parts = [launch.dram_bytes for launch in launches if launch.dram_bytes is not None]
    if len(parts) < len(launches):
        return None
    return Bounded(sum(one.value for one in parts), sum(one.low for one in parts), sum(one.high for one in parts))


def precision_of(launches: Sequence[Launch], gpu: Accelerator) -> str | None:
    """The precision whose operations take most of the time at their peak: whose roof the launches are under."""
    spans: dict[str, float] = {}
    for launch in launches:
        for operations in launch.operations or ():
            fitting = [one for one in operations.precisions if gpu.peak(one) is not None]
            span = _span(operations, gpu)
            if span is not None and fitting:
                spans[fitting[0]] = spans.get(fitting[0], 0.0) + span.value
    return max(spans, key=lambda one: spans[one]) if spans else None


def _other_architecture(device: KernelDevice, gpu: Accelerator) -> str | None:
    """The architecture of a device by its compute capability, where that is another one than the accelerator's."""
    known: Mapping[str, list[float]] = load("ncu.yaml")["architectures"]
    if gpu.architecture not in known or device.compute_capability is None:
        return None
    fitting = [name for name, each in known.items() if device.compute_capability in each]
    return fitting[0] if fitting and gpu.architecture not in fitting else None


def other_device(table: KernelTable, gpu: Accelerator) -> tuple[str, str] | None:
    """What a table says of its device that another accelerator was named for, and what to check; None where it fits."""
    for device in table.devices:
        named = accelerator_for_device(device.name) if device.name else None
        given = gpu.confidence == "given" and device.name not in gpu.device_names
        sliced = device.name is not None and " MIG " in device.name
        if device.name and not given and not sliced and kinship(device.name, gpu) == "other":
            called = f"{device.name} ({named.name})" if named is not None else device.name
            shows = f"{named.name} is what the profile shows" if named is not None else "the catalogue lacks that one"
            return (
                f"the kernels of {table.location} ran on {called}, the gpu given is {gpu.name}",
                f"`gpu:` ({shows}), and that the profile is of this machine",
            )
        if (older := _other_architecture(device, gpu)) is not None and device.name not in gpu.device_names:
            return (
                f"the device of {table.location} has compute capability {device.compute_capability} ({older}), "
                f"{gpu.name} is of {gpu.architecture}",
                "`gpu:`, and that the profile is of this machine",
            )
        if device.name and " MIG " in device.name and device.name not in gpu.device_names and gpu.confidence != "given":
            return (
                f"the kernels of {table.location} ran on a slice of a GPU ({device.name}), which has not the peaks of "
                f"{gpu.name}",
                f"describe the slice, with its own peaks: {mapping(device.name.partition(' MIG ')[2], gpu)}",
            )
        seen, bandwidth = device.bandwidth_bytes_per_second, gpu.memory_bandwidth_bytes_per_second
        if seen is None or bandwidth is None or named is not None:
            continue
        if abs(seen / bandwidth - 1) > figure("other_bandwidth"):
            return (
                f"the device of {table.location} moves {seen / 1e9:.0f} GB/s (memory clock x bus width), {gpu.name} "
                f"{bandwidth / 1e9:.0f} GB/s",
                "`gpu:`, and that the profile is of this machine",
            )
    return None
