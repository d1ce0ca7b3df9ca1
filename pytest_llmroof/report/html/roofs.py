"""What the roofline chart shows, from report documents: roofs of an accelerator, and what was measured under them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pytest_llmroof.report.headline import one_line
from pytest_llmroof.report.wire import Document

Kind = Literal["decode", "prefill", "kernel"]

#: Peaks that serving engines compute at; a deployment's own precision is drawn whatever it is.
_DRAWN: Final = ("bf16", "fp16", "fp8", "fp4")
_KERNELS: Final = re.compile(r"(kernels\((.*)\))\.mfu", re.DOTALL)


@dataclass(frozen=True)
class Ceiling:
    """A compute roof: FLOP/s of one GPU, dense. ``own`` is the one that MFU is measured against."""

    precisions: tuple[str, ...]
    flops_per_second: float
    own: bool


@dataclass(frozen=True)
class Point:
    """One measured phase or kernel: FLOPs per byte, and FLOP/s of one GPU with the ends of its interval.

    ``of_roof`` is a kernel's share of the roof at its own precision; ``at_least`` where not everything was counted.
    """

    kind: Kind
    label: str
    window: str
    intensity: float
    flops_per_second: float
    low: float | None = None
    high: float | None = None
    of_roof: float | None = None
    at_least: bool = False


@dataclass(frozen=True)
class Roofline:
    """The roofs of one GPU of a kind, and every point under them. ``reach`` is what fraction real kernels reach."""

    gpu: str
    name: str
    bandwidth: float
    ceilings: tuple[Ceiling, ...]
    memory_reach: float | None
    compute_reach: float | None
    points: tuple[Point, ...]

    @property
    def own(self) -> Ceiling:
        """The ceiling at the precision that MFU is measured against."""
        return next(ceiling for ceiling in self.ceilings if ceiling.own)

    def attainable(self, intensity: float) -> float:
        """min(F, I W), in FLOP/s (Williams, Waterman, Patterson 2009)."""
        return min(self.own.flops_per_second, intensity * self.bandwidth)

    def roof(self, point: Point) -> float:
        """The FLOP/s that a point is held against."""
        if point.of_roof:
            return point.flops_per_second / point.of_roof
        return self.attainable(point.intensity)

    def share(self, point: Point) -> float:
        """What a point reached of its roof."""
        return point.flops_per_second / self.roof(point)


def rooflines(windows: Sequence[Document]) -> list[Roofline]:
    """One for each accelerator and precision, in the order of the windows; none where nothing lies under its roofs."""
    groups: dict[tuple[object, ...], list[Document]] = {}
    for window in windows:
        gpu = window["gpu"]
        if gpu and gpu["peak_flops_per_second"] and gpu["memory_bandwidth_bytes_per_second"]:
            key = (gpu["name"], gpu["precision"], gpu["peak_flops_per_second"],
                   gpu["memory_bandwidth_bytes_per_second"])  # fmt: skip
            groups.setdefault(key, []).append(window)
    found = (_roofline(group, several=len(windows) > 1) for group in groups.values())
    return [roofline for roofline in found if roofline.points]


def _roofline(windows: Sequence[Document], several: bool) -> Roofline:
    gpu = windows[0]["gpu"]
    reach = gpu["achievable"] or {}
    return Roofline(
        gpu=gpu["product"],
        name=gpu["name"],
        bandwidth=gpu["memory_bandwidth_bytes_per_second"],
        ceilings=_ceilings(gpu),
        memory_reach=reach.get("memory"),
        compute_reach=reach.get(gpu["precision"]),
        points=tuple(point for window in windows for point in _points(window, gpu, several)),
    )


def _ceilings(gpu: Document) -> tuple[Ceiling, ...]:
    """The highest first; precisions of one peak share a line."""
    own = gpu["precision"]
    # Reports of earlier versions hold the peak of the deployment's precision only.
    peaks: Mapping[str, float | None] = {own: gpu["peak_flops_per_second"], **(gpu.get("peaks") or {})}
    by_height: dict[float, list[str]] = {}
    for precision, peak in peaks.items():
        if peak is not None and (precision == own or precision in _DRAWN):
            by_height.setdefault(peak, []).append(precision)
    return tuple(
        Ceiling(tuple(precisions), peak, own in precisions)
        for peak, precisions in sorted(by_height.items(), reverse=True)
    )


def _points(window: Document, gpu: Document, several: bool) -> Iterator[Point]:
    measurements, name = window["measurements"], one_line(window["name"])
    bandwidth = gpu["memory_bandwidth_bytes_per_second"]
    for kind in _phases(window):
        intensity, used = measurements.get(f"{kind}.intensity"), measurements.get(f"{kind}.mbu")
        if intensity is None or used is None or not (_positive(intensity) and _positive(used)):
            continue
        # Bytes per second times FLOPs per byte: the exact count, whatever convention MFU is printed in.
        scale = intensity["value"] * bandwidth
        label = kind if not several else name if len(_phases(window)) == 1 else f"{name}: {kind}"
        low, high = (end * scale if end else None for end in (used["low"], used["high"]))
        yield Point(kind, label, name, intensity["value"], used["value"] * scale, low, high)
    yield from _profiled(window, several) if window.get("kernels") else _kernels(window, gpu, several)


def _phases(window: Document) -> tuple[Literal["decode", "prefill"], ...]:
    """The phase that a window is about; both of a mixed one."""
    if window["phase"] == "decode":
        return ("decode",)
    return ("prefill",) if window["phase"] == "prefill" else ("decode", "prefill")


def _profiled(window: Document, several: bool) -> Iterator[Point]:
    """The kernels that were profiled on this accelerator, by what was counted of each."""
    name = one_line(window["name"])
    for one in window["kernels"]["points"]:
        if one["mfu"] and one["intensity"] and one["flops_per_second"]:
            label = f"{name}: {one_line(one['label'])}" if several else one_line(one["label"])
            yield Point(
                "kernel", label, name, one["intensity"], one["flops_per_second"],
                of_roof=one["of_roof"], at_least=bool(one["lower_bound"]),
            )  # fmt: skip


def _kernels(window: Document, gpu: Document, several: bool) -> Iterator[Point]:
    """Kernels that a gate names by a pattern; one without FLOPs has no place on a logarithmic scale."""
    measurements = window["measurements"]
    for metric, mfu in measurements.items():
        match = _KERNELS.fullmatch(metric)
        used = measurements.get(f"{match[1]}.mbu") if match else None
        if match is None or used is None or not (_positive(mfu) and _positive(used)):
            continue
        achieved = mfu["value"] * gpu["peak_flops_per_second"]
        intensity = achieved / (used["value"] * gpu["memory_bandwidth_bytes_per_second"])
        name = one_line(window["name"])
        label = f"{name}: {one_line(match[2])}" if several else one_line(match[2])
        yield Point("kernel", label, name, intensity, achieved)


def _positive(measurement: Document) -> bool:
    value = measurement["value"]
    return value is not None and value > 0
