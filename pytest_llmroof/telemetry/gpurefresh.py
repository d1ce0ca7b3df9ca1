"""How often an exporter asks its GPUs, as its pages show: which hold something new, and how far they look back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pytest_llmroof.telemetry.exporters import Exporter
from pytest_llmroof.telemetry.gpupages import GpuReading


@dataclass(frozen=True)
class Reading:
    """Everything that one source said at one time. ``source`` tells exporters of one kind apart."""

    time: float
    gpus: tuple[GpuReading, ...]
    source: str = ""


@dataclass(frozen=True)
class Averaging:
    """Over how long a sample of an activity looks back (None: nobody knows), and what to say of it."""

    seconds: float | None
    note: str | None = None


def _content(reading: Reading) -> tuple[object, ...]:
    return tuple(
        (gpu.key, tuple(sorted(gpu.gauges.items())), tuple(sorted(gpu.counters.items()))) for gpu in reading.gpus
    )


def _lively(readings: Sequence[Reading], exporter: Exporter) -> bool:
    """Whether something is told that is hardly twice the same: whole percents and clocks may repeat for long."""
    lively = {*exporter.activities, "power_watts"}
    return any(gpu.counters or lively & gpu.gauges.keys() for reading in readings for gpu in reading.gpus)


def fresh(readings: Sequence[Reading], exporter: Exporter) -> list[Reading]:
    """The readings without those that repeat the one before: an exporter shows its last collection until the next."""
    if exporter.interval_seconds is None:
        return list(readings)
    kept: list[Reading] = []
    for of_source in _by_source(readings).values():
        if not _lively(of_source, exporter):
            kept.extend(of_source)
            continue
        kept.extend(
            later
            for earlier, later in zip([None, *of_source], of_source, strict=False)
            if earlier is None or _content(earlier) != _content(later)
        )
    return kept


def _by_source(readings: Sequence[Reading]) -> dict[str, list[Reading]]:
    sources: dict[str, list[Reading]] = {}
    for reading in sorted(readings, key=lambda one: one.time):
        sources.setdefault(reading.source, []).append(reading)
    return sources


def averaging(readings: Sequence[Reading], exporter: Exporter) -> Averaging:
    """Over how long a sample of an activity looks back.

    An exporter asks its GPUs every interval for averages over that interval, and shows them until the next time. So a
    sample is an average over the interval, that ended up to a scrape (or an interval, which is less) ago. The interval
    shows in the samples where they repeat each other; where they do not, it is at most the time between them.
    """
    usual = exporter.interval_seconds
    if usual is None:
        return Averaging(exporter.sample_seconds)
    known: list[float] = []
    spacings: list[float] = []
    at_least = 0.0
    for of_source in _by_source(readings).values():
        times = [one.time for one in of_source]
        spacings.extend(later - earlier for earlier, later in pairwise(times))
        if not _lively(of_source, exporter):
            continue
        changes = [later.time for earlier, later in pairwise(of_source) if _content(earlier) != _content(later)]
        known.extend(later - earlier for earlier, later in pairwise(changes))
        ends = [times[0], *changes, times[-1]]
        at_least = max(at_least, *(later - earlier for earlier, later in pairwise(ends)))
    spacing = median(spacings) if spacings else math.inf
    if known and spacing < usual:
        interval = max(median(known), spacing)
        return Averaging(interval + min(interval, spacing))
    # A change is seen up to a scrape late.
    interval = max(usual, at_least - spacing) if math.isfinite(spacing) else usual
    note = f"how often {exporter.title} asks the GPUs does not show in these samples: {interval:.3g} s are assumed" + (
        ", as it does unless told otherwise" if interval == usual else ""
    )
    return Averaging(interval + min(interval, spacing), note)
