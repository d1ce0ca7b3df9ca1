"""What exporters of GPU counters say of a window, from their pages beside an engine's or alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pytest_llmroof.telemetry.clock import Clock
from pytest_llmroof.telemetry.exporters import exporters
from pytest_llmroof.telemetry.gpuclock import on_the_clock
from pytest_llmroof.telemetry.gpujoin import joined
from pytest_llmroof.telemetry.gpurefresh import Reading
from pytest_llmroof.telemetry.gpuseries import hardware_of
from pytest_llmroof.telemetry.gputables import GpuTable
from pytest_llmroof.telemetry.hardware import Hardware
from pytest_llmroof.telemetry.scrapes import Scrape, in_order

#: Two servers that are scraped side by side are not scraped at the same instant: seconds, and a share of the window.
_APART_SECONDS: Final = 2.0
_APART: Final = 0.02


def hardware_beside(
    servers: Mapping[str, Sequence[Scrape]],
    tables: Sequence[GpuTable],
    clock: Clock,
    said: list[str],
    *,
    same_clock: bool = True,
) -> Hardware | None:
    """The GPUs that exporters' pages and tools' tables tell of; None where none does inside the window.

    ``clock`` is the window's; ``same_clock`` says that it counts as theirs do. ``said`` collects notes.
    """
    return joined([*_of_pages(servers, clock, said, same_clock), *_of_tables(tables, clock, said, same_clock)])


def _of_pages(
    servers: Mapping[str, Sequence[Scrape]], clock: Clock, said: list[str], same_clock: bool
) -> list[Hardware]:
    found = []
    scrapes = [scrape for of_server in servers.values() for scrape in of_server]
    for key in dict.fromkeys(scrape.exporter for scrape in scrapes if scrape.gpus and scrape.exporter):
        ours = {
            server: in_order([scrape for scrape in of_server if scrape.exporter == key and scrape.gpus])
            for server, of_server in servers.items()
        }
        hardware = _of_exporter(
            key, {server: pages for server, pages in ours.items() if pages}, clock, said, same_clock
        )
        if hardware is not None:
            found.append(hardware)
    return found


def _of_exporter(
    key: str, servers: Mapping[str, Sequence[Scrape]], clock: Clock, said: list[str], same_clock: bool
) -> Hardware | None:
    exporter = exporters()[key]
    pages = [scrape for of_server in servers.values() for scrape in of_server]
    timed = all(scrape.clock is not None for scrape in pages)
    clocked = timed and clock.known and same_clock
    notes = [] if clocked or len(pages) == len(servers) else [
        f"{exporter.title}'s pages are not on the window's clock: which of its samples lie inside the load is not known"
    ]  # fmt: skip
    readings = [
        Reading((scrape.clock or 0.0) if timed else index * clock.spacing, scrape.gpus, server)
        for server, of_server in servers.items()
        for index, scrape in enumerate(of_server)
    ]
    if clocked:
        readings = _inside(readings, clock)
        if not readings:
            said.append(f"no page of {exporter.title} lies inside the window: its counters are left out")
            return None
    location = ", ".join(dict.fromkeys(scrape.source for scrape in pages))
    return hardware_of(readings, exporter, location=location, clocked=clocked, timed=timed, notes=notes)


def _inside(readings: Sequence[Reading], clock: Clock) -> list[Reading]:
    """The readings of the window's time; all of them where that is not known."""
    if clock.started is None or clock.duration is None:
        return list(readings)
    apart = max(_APART_SECONDS, _APART * clock.duration)
    first, last = clock.started - apart, clock.started + clock.duration + apart
    return [reading for reading in readings if first <= reading.time <= last]


def _of_tables(tables: Sequence[GpuTable], clock: Clock, said: list[str], same_clock: bool) -> list[Hardware]:
    span = None
    if clock.known and same_clock and clock.started is not None and clock.duration is not None:
        span = clock.started, clock.started + clock.duration
    found = []
    for table in tables:
        readings, unix, note = on_the_clock(table, span)
        clocked = unix and span is not None
        if clocked:
            readings = tuple(_inside(readings, clock))
            if not readings:
                said.append(f"no row of {table.location} lies inside the window: it is left out")
                continue
        several = sum(other.exporter.key == table.exporter.key for other in tables) > 1
        notes = [*table.notes, *([note] if note else [])]
        hardware = hardware_of(
            [_of_host(reading, table.location) for reading in readings] if several else readings,
            table.exporter,
            location=table.location,
            clocked=clocked,
            timed=table.clock != "none",
            notes=notes,
        )
        found.extend([hardware] if hardware is not None else [])
    return found


def _of_host(reading: Reading, location: str) -> Reading:
    """Of several files of one tool, GPUs of the same number are those of different machines."""
    gpus = tuple(
        gpu if gpu.uuid or gpu.host else replace(gpu, host=location, key=replace(gpu.key, host=location))
        for gpu in reading.gpus
    )
    return replace(reading, gpus=gpus)
