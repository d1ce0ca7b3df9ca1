"""What each window rests on: sources, notes, and every measurement with its interval and method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.report.figures import quantity
from pytest_llmroof.report.headline import one_line
from pytest_llmroof.report.html.tested import gpu_text, model_text, moment
from pytest_llmroof.report.wire import Document

#: Windows whose measurements are in the page; of more, the JSON report holds them.
MOST_WINDOWS: Final = 60


@dataclass(frozen=True)
class MeasurementRow:
    """One metric: value, interval, samples, and where it comes from."""

    metric: str
    value: str
    interval: str
    samples: str
    source: str
    method: str
    other: str


@dataclass(frozen=True)
class KernelRow:
    """One profiled kernel, with what the profiler reads it as and what its warps wait for."""

    name: str
    launches: int
    time_share: str
    of_roof: str
    remark: str


@dataclass(frozen=True)
class Details:
    """One window: what it rests on, its profiled kernels, and all of its measurements."""

    name: str
    id: str
    facts: tuple[tuple[str, str], ...]
    sources: tuple[tuple[str, str], ...]
    rows: tuple[MeasurementRow, ...]
    kernels: tuple[KernelRow, ...]
    kernel_source: str


@dataclass(frozen=True)
class Note:
    """A remark, and the windows that it is about."""

    text: str
    windows: tuple[str, ...]


def details(window: Document) -> Details:
    """A window's texts."""
    seconds, kernels = window["duration_seconds"], window.get("kernels")
    facts = {
        "Model": model_text(window),
        "Accelerator": gpu_text(window),
        "Phase": window["phase"] or "",
        "Started": moment(window["started"]),
        "Length": quantity(seconds, "seconds") if seconds is not None else "",
        "Labels": ", ".join(f"{one_line(key)}={one_line(str(value))}" for key, value in window["labels"].items()),
        "Not measured": one_line(window["failure"] or ""),
        "Not read": ", ".join(map(one_line, window["unread"])),
    }
    return Details(
        name=one_line(window["name"]),
        id=one_line(window["id"]),
        facts=tuple((label, text) for label, text in facts.items() if text),
        sources=tuple((one_line(one["kind"]), one_line(one["location"])) for one in window["sources"]),
        rows=tuple(_row(metric, one) for metric, one in window["measurements"].items()),
        kernels=tuple(_kernel(one) for one in kernels["points"]) if kernels else (),
        kernel_source=one_line(kernels["source"] or "") if kernels else "",
    )


def _kernel(point: Document) -> KernelRow:
    stalls = ", ".join(
        f"{quantity(one['share'], 'fraction', 2)} {one_line(one['waits_for'])}" for one in point["stalls"][:2]
    )
    parts = [f"reads as {point['reading']}" if point["reading"] else "", f"warps wait: {stalls}" if stalls else ""]
    least = "≥ " if point["lower_bound"] else ""
    return KernelRow(
        name=one_line(point["label"]),
        launches=point["launches"],
        time_share=quantity(point["time_share"], "fraction"),
        of_roof=f"{least}{quantity(point['of_roof'], 'fraction')}" if point["of_roof"] is not None else "",
        remark="; ".join(filter(None, parts)),
    )


def notes(windows: Sequence[Document]) -> list[Note]:
    """Every remark once, with the windows that it is about."""
    found: dict[str, dict[str, None]] = {}
    for window in windows:
        for note in window["notes"]:
            found.setdefault(one_line(note), {})[one_line(window["name"])] = None
    return [Note(text, tuple(names)) for text, names in found.items()]


def _row(metric: str, measurement: Document) -> MeasurementRow:
    unit, low, high = measurement["unit"], measurement["low"], measurement["high"]
    other = measurement["other"]
    samples = measurement["samples"]
    return MeasurementRow(
        metric=metric,
        value=quantity(measurement["value"], unit),
        interval="" if low == high else f"{quantity(low, unit)} to {quantity(high, unit)}",
        samples="" if samples is None else f"{samples:,.0f}".replace(",", "\u202f"),
        source=one_line(measurement["source"] or ""),
        method=one_line(measurement["method"] or ""),
        other=f"{quantity(other['value'], unit)} by {one_line(other['source'] or '')}" if other else "",
    )
