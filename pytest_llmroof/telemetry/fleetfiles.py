"""Files beside a Prometheus server: results of load generators and tables of GPU counters, where their clocks match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.clock import Clock
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.gpubeside import hardware_beside
from pytest_llmroof.telemetry.gpujoin import joined
from pytest_llmroof.telemetry.gpuwindow import devices_of, sources_of
from pytest_llmroof.telemetry.runs import beside, same_load
from pytest_llmroof.telemetry.scrapes import Scrape, not_read, scrape_of
from pytest_llmroof.telemetry.sources import Sources
from pytest_llmroof.telemetry.window import Window

#: A run that begins or ends outside of the window by less may still be its load: seconds, and a share of the window.
_SLACK_SECONDS: Final = 5.0
_SLACK: Final = 0.02
#: Time zones lie these seconds apart, from UTC-12 to UTC+14.
_QUARTER: Final = 900.0
_ZONES: Final = range(-12 * 4, 14 * 4 + 1)
_ENDS: Final = "set `end` and `duration` of the Prometheus source to the time of the run, or leave the file out"


def with_files(
    window: Window,
    paths: Sequence[tuple[Path, str]],
    engines: Mapping[str, EngineNames] | None = None,
    elsewhere: frozenset[Path] = frozenset(),
) -> Window:
    """The window with what files tell of its time, but for files that are read ``elsewhere``.

    SourceError where they tell of another time, of engines (which would count twice), or nothing that is known.
    """
    sources = Sources(paths, engines=engines, elsewhere=elsewhere)
    servers: dict[str, list[Scrape]] = {}
    for located in sources.pages():
        servers.setdefault(located.group, []).append(scrape_of(located.page, located.source, engines))
    notes = tuple(sources.losses())
    pages = [scrape for of_server in servers.values() for scrape in of_server]
    _refuse_engines(pages)
    names = ", ".join(shown for _, shown in paths)
    clients = [client for client in sources.clients if _of_time(window, client)]
    if sources.clients and not clients:
        raise _another_time(window, sources.clients[0])
    counters = any(scrape.gpus for scrape in pages) or bool(sources.tables)
    unread = (*sources.unread_lines(), *not_read(pages), *_unused(sources))
    unread += tuple(_another_time(window, client).reason for client in sources.clients if client not in clients)
    if not clients and not counters and elsewhere and not pages:
        return replace(window, unread=(*window.unread, *unread))
    if not clients and not counters:
        raise SourceError(
            "; ".join(unread) or f"{names}: nothing that tells of this window",
            "beside a Prometheus server name a load generator's result, or a recording of GPU counters",
        )
    window = replace(window, notes=(*window.notes, *notes), unread=(*window.unread, *unread))
    if counters:
        window = _with_counters(window, servers, sources, names)
    return beside(window, clients) if clients else window


def _unused(sources: Sources) -> Iterator[str]:
    """Files that other windows are made of."""
    for location, _ in sources.engine_runs:
        yield f"{location}: llama-bench runs no server: name it alone"
    for _, export in sources.exports:
        yield f"{export.location}: what AIPerf saw of the server, which Prometheus tells"


def _refuse_engines(pages: Sequence[Scrape]) -> None:
    found = next((scrape for scrape in pages if scrape.engine is not None), None)
    if found is not None and found.engine is not None:
        raise SourceError(
            f"{found.source} holds metrics of {found.engine.title}, and so does the Prometheus server: which of them "
            "are of the same server is not told, and it would count twice",
            "name one of the two, or give each a window of its own",
        )


def _of_time(window: Window, client: Client) -> bool:
    """Whether a run may be of the window: by its clock, else by what it counted."""
    assert window.started is not None
    assert window.duration_seconds is not None
    slack = max(_SLACK_SECONDS, _SLACK * window.duration_seconds) + window.clock_error_seconds
    low, high = window.started - slack, window.started + window.duration_seconds + slack
    length = client.duration_seconds or 0.0
    if client.started is not None and client.started > _UNIX:
        return low <= client.started and client.started + length <= high
    if client.ended_local is not None:
        ends = [client.ended_local - zone * _QUARTER for zone in _ZONES]
        fitting = [end for end in ends if low <= end - length and end <= high]
        return len(fitting) == 1 or (bool(fitting) and same_load(window, client) is True)
    return length <= high - low and same_load(window, client) is True


#: Times of runs that are smaller count from some start of their own.
_UNIX: Final = 1e9


def _another_time(window: Window, client: Client) -> SourceError:
    started, length = window.started or 0.0, client.duration_seconds
    asked = f"the window is from {_utc(started)} to {_utc(started + (window.duration_seconds or 0.0))} UTC"
    if client.started is not None and client.started > _UNIX:
        return SourceError(
            f"{client.location} ran from {_utc(client.started)} to {_utc(client.started + (length or 0.0))} UTC, "
            f"{asked}",
            _ENDS,
        )
    if client.ended_local is not None:
        lasted = f" after {length:.0f} s" if length else ""
        return SourceError(
            f"{client.location} ended at {_utc(client.ended_local)} of a time zone that it does not tell{lasted}, and "
            f"{asked}: in no time zone, or in several, it lies inside",
            _ENDS,
        )
    return SourceError(
        f"{client.location} carries no clock, and its requests and tokens are not those that the servers counted; "
        f"{asked}",
        _ENDS,
    )


def _with_counters(
    window: Window, servers: Mapping[str, Sequence[Scrape]], sources: Sources, names: str
) -> Window:
    """The window with the GPU counters of its time. SourceError where there are none, or on another clock."""
    clock = Clock(window.duration_seconds, window.started, window.clock_error_seconds, True)
    said: list[str] = []
    hardware = hardware_beside(servers, sources.tables, clock, said)
    if hardware is None or not hardware.clocked:
        reason = "; ".join(said) or f"the GPU counters of {names} are not on the window's clock"
        raise SourceError(reason, _ENDS)
    pages = [scrape for of_server in servers.values() for scrape in of_server if scrape.gpus]
    parts = [hardware, *([window.hardware] if window.hardware is not None else [])]
    return replace(
        window,
        hardware=joined(parts),
        device_names=tuple(dict.fromkeys((*window.device_names, *devices_of(pages, sources.tables)))),
        sources=tuple(dict.fromkeys((*window.sources, *sources_of(pages, sources.tables)))),
        notes=(*window.notes, *said),
    )


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
