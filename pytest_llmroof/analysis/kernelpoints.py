"""Profiled kernels as points on the roofline, with what the profiler tells of each as evidence: for reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pytest_llmroof.analysis.kernelwork import (
    bytes_of,
    compute_utilisation,
    figure,
    flops_of,
    memory_utilisation,
    other_device,
    precision_of,
    seconds_of,
)
from pytest_llmroof.data import load
from pytest_llmroof.profiles.kernel_names import short_name
from pytest_llmroof.profiles.kernel_table import KernelTable, Launch, Rule
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.roof import attainable

Reading = Literal["memory", "compute", "balanced", "latency", "small grid"]

_LABEL: int = 80
_NAME: int = 240
_STALLS: int = 4


@dataclass(frozen=True)
class KernelPoint:
    """All launches of one kernel. Rates are per second of its own time; None is what was not counted.

    ``intensity`` is FLOPs per byte of device memory, ``regime`` the side of the ridge it lies on, ``of_roof`` what was
    reached of the roof there. ``reading`` is the profiler's own, of its two shares of peak. ``lower_bound``: not all
    operations or bytes were counted. Stalls are shares of the cycles that a warp spends per instruction, the largest.
    """

    label: str
    kernel: str
    scope: str
    launches: int
    seconds: float
    time_share: float
    flops_per_second: float | None
    bytes_per_second: float | None
    intensity: float | None
    lower_bound: bool
    precision: str | None
    mfu: float | None
    mbu: float | None
    regime: Literal["memory", "compute"] | None
    of_roof: float | None
    reading: Reading | None
    l2_hit_rate: float | None
    occupancy: float | None
    waves: float | None
    bank_conflict_share: float | None
    stalls: tuple[tuple[str, float], ...]
    rules: tuple[Rule, ...]


def kernel_points(table: KernelTable, gpu: Accelerator | None) -> tuple[KernelPoint, ...]:
    """The kernels that took most of the profiled time, longest first; those without a time are left out.

    Without an accelerator, and against one that the table's device is not, points carry no utilisation and no regime.
    """
    if gpu is not None and other_device(table, gpu) is not None:
        gpu = None
    groups: dict[tuple[str, str], list[Launch]] = {}
    for launch in table.launches:
        if launch.seconds:
            groups.setdefault((launch.scope, launch.name), []).append(launch)
    times = {key: seconds_of(launches) or 0.0 for key, launches in groups.items()}
    whole = sum(times.values())
    longest = sorted(groups, key=lambda key: -times[key])[: int(figure("points"))]
    return tuple(_point(groups[key], times[key], whole, gpu) for key in longest)


def kernels_document(table: KernelTable, gpu: Accelerator | None) -> dict[str, Any]:
    """The points as a report's document holds them, with what they are of."""
    points = kernel_points(table, gpu)
    quoted = int(figure("rules"))
    return {
        "source": table.location,
        "launches": len(table.launches),
        "seconds": table.seconds,
        "devices": [device.name for device in table.devices if device.name is not None],
        "notes": list(table.notes),
        "points": [
            {
                **asdict(point),
                "stalls": [{"waits_for": what, "share": share} for what, share in point.stalls],
                "rules": [asdict(rule) for rule in point.rules] if at < quoted else [],
            }
            for at, point in enumerate(points)
        ],
    }


def rule_quotes(points: Sequence[KernelPoint]) -> tuple[str, ...]:
    """What the profiler's own rules say of the longest kernels, as quotations: never as findings of this tool's."""
    most = int(figure("rules"))
    quotes = (
        f'Nsight Compute says of {point.label} ({rule.name}): "{rule.text}"'
        for point in points
        for rule in point.rules
        if rule.kind == "OPT"
    )
    return tuple(dict.fromkeys(quotes))[:most]


def _point(launches: Sequence[Launch], seconds: float, whole: float, gpu: Accelerator | None) -> KernelPoint:
    flops, moved = flops_of(launches), bytes_of(launches)
    precision = precision_of(launches, gpu) if gpu is not None else None
    rate = flops.value / seconds if flops is not None else None
    intensity = flops.value / moved.value if flops is not None and moved is not None and moved.value else None
    compute = compute_utilisation(launches, gpu) if gpu is not None else None
    memory = memory_utilisation(launches, gpu) if gpu is not None else None
    roof = _roof(gpu, precision, intensity)
    ridge = gpu.ridge(precision) if gpu is not None and precision is not None else None
    regime: Literal["memory", "compute"] | None = None
    if ridge is not None and intensity is not None:
        regime = "memory" if intensity < ridge else "compute"
    first = launches[0]
    return KernelPoint(
        label=_cut(short_name(first.name), _LABEL),
        kernel=_cut(first.name, _NAME),
        scope=first.scope,
        launches=len(launches),
        seconds=seconds,
        time_share=seconds / whole,
        flops_per_second=rate,
        bytes_per_second=moved.value / seconds if moved is not None else None,
        intensity=intensity,
        lower_bound=any(one is not None and not one.exact for one in (flops, moved)),
        precision=precision,
        mfu=compute.bounded.value if compute is not None else None,
        mbu=memory.bounded.value if memory is not None else None,
        regime=regime,
        of_roof=rate / roof if rate is not None and roof else None,
        reading=reading_of(
            _mean(launches, lambda one: one.compute_share),
            _mean(launches, lambda one: one.memory_share),
            _mean(launches, lambda one: one.waves),
        ),
        l2_hit_rate=_mean(launches, lambda one: one.l2_hit_rate),
        occupancy=_mean(launches, lambda one: one.occupancy),
        waves=_mean(launches, lambda one: one.waves),
        bank_conflict_share=_mean(launches, lambda one: one.bank_conflict_share),
        stalls=_stalls(launches),
        rules=_rules(launches),
    )


def _roof(gpu: Accelerator | None, precision: str | None, intensity: float | None) -> float | None:
    if gpu is None or precision is None or intensity is None or gpu.memory_bandwidth_bytes_per_second is None:
        return None
    return attainable(gpu, precision, intensity)


def reading_of(compute: float | None, memory: float | None, waves: float | None) -> Reading | None:
    """What limits a kernel by its shares of the compute and memory peaks, as the profiler's own rule decides it."""
    if compute is None or memory is None:
        return None
    limits = load("ncu.yaml")["reading"]
    if max(compute, memory) < limits["latency"]:
        return "small grid" if waves is not None and waves < limits["waves"] else "latency"
    if max(compute, memory) < limits["high"] and abs(compute - memory) < limits["balanced"]:
        return "balanced"
    return "compute" if compute > memory else "memory"


def _mean(launches: Sequence[Launch], of: Callable[[Launch], float | None]) -> float | None:
    """Weighted by time, over the launches that tell."""
    told = [(value, one.seconds or 0.0) for one in launches if (value := of(one)) is not None]
    time = sum(seconds for _, seconds in told)
    return sum(value * seconds for value, seconds in told) / time if time else None


def _stalls(launches: Sequence[Launch]) -> tuple[tuple[str, float], ...]:
    told = [launch for launch in launches if launch.stalls]
    time = sum(launch.seconds or 0.0 for launch in told)
    sums: dict[str, float] = {}
    for launch in told:
        for what, share in launch.stalls:
            sums[what] = sums.get(what, 0.0) + share * (launch.seconds or 0.0) / time
    return tuple(sorted(sums.items(), key=lambda item: -item[1])[:_STALLS])


def _rules(launches: Sequence[Launch]) -> tuple[Rule, ...]:
    """What the profiler found to be improvable, each said once."""
    said = dict.fromkeys(rule for launch in launches for rule in launch.rules if rule.kind != "INF")
    return tuple(said)[: int(figure("rules"))]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."
