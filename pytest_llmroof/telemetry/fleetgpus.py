"""GPU counters that a Prometheus holds: three questions, however many GPUs there are.

1. Which series there are.
2. How often one of their names was scraped.
3. The samples themselves, all of them, or at fewer times where they would be too many.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from pytest_llmroof.telemetry.exporters import Exporter, exporters
from pytest_llmroof.telemetry.fleet import key_of
from pytest_llmroof.telemetry.gpujoin import joined
from pytest_llmroof.telemetry.gpupages import Labelled, readings_of
from pytest_llmroof.telemetry.gpurefresh import Reading
from pytest_llmroof.telemetry.gpuseries import hardware_of
from pytest_llmroof.telemetry.hardware import Hardware
from pytest_llmroof.telemetry.promapi import MOST_TIMES, PrometheusApi, Row
from pytest_llmroof.telemetry.promql import milliseconds, named, spelled
from pytest_llmroof.telemetry.promrefusals import TooMany

#: How many samples are read before fewer times are asked for.
SAMPLES: Final = 300_000
_FEWEST_TIMES: Final = 3


def fleet_gpus(api: PrometheusApi, selector: str, start: float, end: float) -> Hardware | None:
    """The GPUs whose counters match a selector, from ``start`` to ``end`` (Unix seconds); None where none does.

    SourceError where the server does not answer.
    """
    query = spelled(_names(), selector)
    window = milliseconds(end - start)
    there = api.instant(f"last_over_time({query}[{window}])", end)
    names = Counter(row.labels.get("__name__", "") for row in there)
    if not names:
        return None
    probe = named([names.most_common(1)[0][0]], selector)
    counted = [row.values[0] for row in api.instant(f"max(count_over_time({probe}[{window}]))", end) if row.values]
    scrapes = max((count for count in counted if 0 < count < math.inf), default=1.0)
    notes: list[str] = []
    rows = _raw(api, f"{query}[{window}]", end) if len(there) * scrapes <= SAMPLES else None
    recent = 0.0
    if rows is None:
        # The latest sample before each time, where it is recent: how old it is at the most counts as looked back over.
        recent = 2 * (end - start) / max(1.0, scrapes - 1)
        times = max(_FEWEST_TIMES, min(int(SAMPLES / len(there)), int(scrapes), MOST_TIMES))
        rows, step = _at_times(api, f"last_over_time({query}[{milliseconds(recent)}])", start, end, times)
        known = f"read every {step:.3g} s, their times known to {recent:.3g} s"
        notes.append(f"too many samples of GPU counters to read all: {known}")
    return joined([_looked_back(one, recent) for one in _of_rows(rows, api.endpoint.shown, notes)])


def _at_times(api: PrometheusApi, query: str, start: float, end: float, times: int) -> tuple[list[Row], float]:
    """A query's answers at so many times, fewer where the server allows no more, and how far they lie apart."""
    while True:
        step = max(0.001, int((end - start) / times * 1000) / 1000)
        try:
            return api.range(query, end - step * (times - 1), end, step), step
        except TooMany:
            if times <= _FEWEST_TIMES:
                raise
            times = max(_FEWEST_TIMES, times // 4)


def _looked_back(hardware: Hardware, seconds: float) -> Hardware:
    """The counters, whose samples were taken up to so many seconds before the times that they are told of."""
    if hardware.averaging_seconds is None:
        return hardware
    return replace(hardware, averaging_seconds=hardware.averaging_seconds + seconds)


def device_names(hardware: Hardware | None) -> list[str]:
    """The names of the devices, sorted."""
    return sorted({gpu.device_name for gpu in hardware.gpus if gpu.device_name}) if hardware is not None else []


def _raw(api: PrometheusApi, query: str, end: float) -> list[Row] | None:
    """All samples; None where the server allows fewer only."""
    try:
        return api.instant(query, end)
    except TooMany:
        return None


def _names() -> list[str]:
    return [name for exporter in exporters().values() if not exporter.tables for name in exporter.spelled]


def _of_rows(rows: Sequence[Row], location: str, notes: Sequence[str]) -> Iterator[Hardware]:
    for exporter in exporters().values():
        ours = [row for row in rows if not exporter.tables and exporter.writes(row.labels.get("__name__", ""))]
        if not ours:
            continue
        hardware = hardware_of(list(_readings(exporter, ours)), exporter, location=location, clocked=True, notes=notes)
        if hardware is not None:
            yield hardware


def _readings(exporter: Exporter, rows: Sequence[Row]) -> Iterator[Reading]:
    """The series of each scraped exporter as its pages were: everything of one time together."""
    pages: dict[tuple[str, float], list[Labelled]] = {}
    for row in rows:
        source = row.labels.get("instance") or str(key_of(row.labels))
        name = row.labels.get("__name__", "")
        for time, value in zip(row.times, row.values, strict=True):
            pages.setdefault((source, time), []).append((name, row.labels, value))
    for (source, time), samples in pages.items():
        gpus = readings_of(exporter, samples)
        if gpus:
            yield Reading(time, gpus, source)
