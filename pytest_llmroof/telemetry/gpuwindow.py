"""Windows with GPU counters where no engine is: of counters alone, and beside a benchmark's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_llmroof.telemetry.clock import Clock, clock_of
from pytest_llmroof.telemetry.exporters import exporters
from pytest_llmroof.telemetry.gpubeside import hardware_beside
from pytest_llmroof.telemetry.gpuclock import on_the_clock
from pytest_llmroof.telemetry.gputables import GpuTable
from pytest_llmroof.telemetry.scrapes import Scrape, in_order
from pytest_llmroof.telemetry.window import SourceInfo, Window

Servers = Mapping[str, Sequence[Scrape]]


def gpu_window(servers: Servers, tables: Sequence[GpuTable], duration_seconds: float | None, said: list[str]) -> Window:
    """A window of GPU counters only: nothing tells when the GPUs had a load, and of what."""
    pages = [scrape for scrapes in servers.values() for scrape in scrapes if scrape.gpus]
    clockless = any(scrape.clock is None for scrape in pages)
    ours = {
        server: in_order([replace(scrape, clock=None) if clockless else scrape for scrape in scrapes if scrape.gpus])
        for server, scrapes in servers.items()
    }
    ours = {server: scrapes for server, scrapes in ours.items() if scrapes}
    if ours:
        clock = clock_of(ours, duration_seconds, all(len(scrapes) == 1 for scrapes in ours.values()))
    else:
        clock = _clock_of_tables(tables, duration_seconds)
    hardware = hardware_beside(ours, tables, clock, said)
    key = (pages[0].exporter or "") if pages else tables[0].exporter.key
    seen = [len(scrapes) for scrapes in ours.values()] or [len(table.readings) for table in tables]
    return Window(
        kind=key,
        engines=(),
        sources=sources_of(pages, tables),
        started=clock.started,
        duration_seconds=clock.duration,
        clock_error_seconds=clock.error,
        samples=max(seen),
        device_names=devices_of(pages, tables),
        notes=tuple(dict.fromkeys([*said, *([clock.note] if clock.note else [])])),
        title=exporters()[key].title,
        hardware=hardware,
    )


def _clock_of_tables(tables: Sequence[GpuTable], duration_seconds: float | None) -> Clock:
    """From the first row to the last, of the tables that tell a time."""
    found = [on_the_clock(table, None) for table in tables]
    times = [reading.time for readings, unix, _ in found if unix for reading in readings]
    if times and max(times) > min(times):
        return Clock(max(times) - min(times), min(times), 0.0, True)
    local = [table.span for table in tables if table.clock == "local"]
    if local and (length := max(last - first for first, last in local)) > 0:
        return Clock(length, None, 0.0, False)
    return Clock(duration_seconds, None, 0.0, False)


def with_hardware(window: Window, servers: Servers, tables: Sequence[GpuTable]) -> Window:
    """A benchmark's window with what the GPUs' counters say of it."""
    pages = [scrape for of_server in servers.values() for scrape in of_server if scrape.gpus]
    said: list[str] = []
    known = window.started is not None and window.duration_seconds is not None
    clock = Clock(window.duration_seconds, window.started, window.clock_error_seconds, known)
    hardware = hardware_beside(servers, tables, clock, said)
    return replace(
        window,
        hardware=hardware,
        device_names=tuple(dict.fromkeys((*window.device_names, *devices_of(pages, tables)))),
        sources=(*window.sources, *sources_of(pages, tables)),
        notes=(*window.notes, *said),
    )


def sources_of(pages: Sequence[Scrape], tables: Sequence[GpuTable]) -> tuple[SourceInfo, ...]:
    """The sources of GPU counters among these."""
    infos = [SourceInfo(scrape.exporter, scrape.source) for scrape in pages if scrape.exporter]
    infos.extend(SourceInfo(table.exporter.key, table.location) for table in tables)
    return tuple(dict.fromkeys(infos))


def devices_of(pages: Sequence[Scrape], tables: Sequence[GpuTable]) -> tuple[str, ...]:
    """The names of all devices that exporters and tools tell."""
    told = [gpu for scrape in pages for gpu in scrape.gpus]
    told.extend(gpu for table in tables for reading in table.readings for gpu in reading.gpus)
    return tuple(dict.fromkeys(gpu.device_name for gpu in told if gpu.device_name))
