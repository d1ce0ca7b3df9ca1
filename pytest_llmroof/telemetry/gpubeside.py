"""What exporters of GPU counters say of a window, from their pages beside an engine's or alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pytest_llmroof.telemetry.clock import Clock, clock_of
from pytest_llmroof.telemetry.exporters import exporters
from pytest_llmroof.telemetry.gpurefresh import Reading
from pytest_llmroof.telemetry.gpuseries import hardware_of
from pytest_llmroof.telemetry.hardware import Gpu, Hardware
from pytest_llmroof.telemetry.scrapes import Scrape, in_order
from pytest_llmroof.telemetry.window import SourceInfo, Window

#: Two servers that are scraped side by side are not scraped at the same instant: seconds, and a share of the window.
_APART_SECONDS: Final = 2.0
_APART: Final = 0.02


def hardware_of_pages(
    servers: Mapping[str, Sequence[Scrape]], clock: Clock, said: list[str], *, same_clock: bool = True
) -> Hardware | None:
    """The GPUs that the pages of exporters tell of; None where there are none inside the window. ``said``: notes.

    ``clock`` is the window's; ``same_clock`` says that it counts as the pages' own clock does.
    """
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
    return joined(found)


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
    if clocked and clock.started is not None and clock.duration is not None:
        apart = max(_APART_SECONDS, _APART * clock.duration)
        first, last = clock.started - apart, clock.started + clock.duration + apart
        inside = [reading for reading in readings if first <= reading.time <= last]
        if not inside:
            said.append(f"no page of {exporter.title} lies inside the window: its counters are left out")
            return None
        readings = inside
    location = ", ".join(dict.fromkeys(scrape.source for scrape in pages))
    return hardware_of(readings, exporter, location=location, clocked=clocked, timed=timed, notes=notes)


def gpu_window(servers: Mapping[str, Sequence[Scrape]], duration_seconds: float | None, said: list[str]) -> Window:
    """A window of GPU counters only: nothing tells when the GPUs had a load, and of what."""
    everything = [scrape for scrapes in servers.values() for scrape in scrapes if scrape.gpus]
    clockless = any(scrape.clock is None for scrape in everything)
    ours = {
        server: in_order([replace(scrape, clock=None) if clockless else scrape for scrape in scrapes if scrape.gpus])
        for server, scrapes in servers.items()
    }
    ours = {server: scrapes for server, scrapes in ours.items() if scrapes}
    clock = clock_of(ours, duration_seconds, all(len(scrapes) == 1 for scrapes in ours.values()))
    hardware = hardware_of_pages(ours, clock, said)
    infos = dict.fromkeys(SourceInfo(scrape.exporter, scrape.source) for scrape in everything if scrape.exporter)
    return Window(
        kind=everything[0].exporter or "",
        engines=(),
        sources=tuple(infos),
        started=clock.started,
        duration_seconds=clock.duration,
        clock_error_seconds=clock.error,
        samples=max(len(scrapes) for scrapes in ours.values()),
        device_names=devices_of(everything),
        notes=tuple(dict.fromkeys([*said, *([clock.note] if clock.note else [])])),
        title=exporters()[everything[0].exporter or ""].title,
        hardware=hardware,
    )


def with_hardware(window: Window, servers: Mapping[str, Sequence[Scrape]]) -> Window:
    """A benchmark's window with what the GPUs' counters say of it."""
    scrapes = [scrape for of_server in servers.values() for scrape in of_server if scrape.gpus]
    said: list[str] = []
    known = window.started is not None and window.duration_seconds is not None
    clock = Clock(window.duration_seconds, window.started, window.clock_error_seconds, known)
    hardware = hardware_of_pages(servers, clock, said)
    infos = dict.fromkeys(SourceInfo(scrape.exporter, scrape.source) for scrape in scrapes if scrape.exporter)
    return replace(
        window,
        hardware=hardware,
        device_names=tuple(dict.fromkeys((*window.device_names, *devices_of(scrapes)))),
        sources=(*window.sources, *infos),
        notes=(*window.notes, *said),
    )


def devices_of(scrapes: Sequence[Scrape]) -> tuple[str, ...]:
    """The names of all devices that exporters tell."""
    names = (gpu.device_name for scrape in scrapes for gpu in scrape.gpus)
    return tuple(dict.fromkeys(name for name in names if name))


def joined(parts: Sequence[Hardware]) -> Hardware | None:
    """Several tools' views of the GPUs as one: each GPU once, with what the first of them that tells it says.

    Where one is on the window's clock and another is not, the other's samples are left out.
    """
    if not parts:
        return None
    parts = sorted(parts, key=lambda one: not one.clocked)
    first = parts[0]
    gpus = list(first.gpus)
    notes = list(first.notes)
    for other in parts[1:]:
        timeless = first.clocked and not other.clocked
        if timeless:
            notes.append(f"the samples of {other.location} are on no common clock: only names and totals are used")
        for gpu in other.gpus:
            told = replace(gpu, series={}) if timeless else gpu
            same = [index for index, one in enumerate(gpus) if _same(one, gpu)]
            if len(same) == 1:
                gpus[same[0]] = _filled(gpus[same[0]], told)
            elif not same and not timeless:
                gpus.append(told)
        if not timeless:
            notes.extend(other.notes)
    averaging = [one.averaging_seconds for one in parts if one.clocked == first.clocked]
    known = [seconds for seconds in averaging if seconds is not None]
    there = {quantity for gpu in gpus for quantity in gpu.series}
    return Hardware(
        gpus=tuple(gpus),
        kinds=tuple(dict.fromkeys(kind for one in parts for kind in one.kinds)),
        location=", ".join(dict.fromkeys(one.location for one in parts if one.location)),
        averaging_seconds=max(known) if len(known) == len(averaging) else None,
        clocked=first.clocked,
        notes=tuple(dict.fromkeys(notes)),
        missing={
            quantity: why
            for one in reversed(parts) for quantity, why in one.missing.items() if quantity not in there
        },
    )  # fmt: skip


def _same(one: Gpu, other: Gpu) -> bool:
    """Whether two are the same GPU, or the same slice of it."""
    if (one.mig and one.mig.instance) != (other.mig and other.mig.instance):
        return False
    if one.uuid and other.uuid:
        return one.uuid == other.uuid
    hosts = {one.host, other.host} - {None}
    return one.index is not None and one.index == other.index and len(hosts) < 2


def _filled(gpu: Gpu, other: Gpu) -> Gpu:
    """A GPU with what another view of it tells besides."""
    series = {**other.series, **gpu.series}
    counters = {**other.counters, **gpu.counters}
    return replace(
        gpu,
        device_name=gpu.device_name or other.device_name,
        host=gpu.host or other.host,
        index=gpu.index or other.index,
        uuid=gpu.uuid or other.uuid,
        pod=gpu.pod or other.pod,
        series=series,
        counters=counters,
        throttle_reasons=gpu.throttle_reasons or other.throttle_reasons,
        names={**other.names, **gpu.names},
        unusable={
            quantity: why
            for quantity, why in {**other.unusable, **gpu.unusable}.items()
            if quantity not in series and quantity not in counters
        },
    )
