"""From the telemetry that a user names to one Window.

What makes a window: a recording's folder, two or more scrapes, or a single one, which covers the time since the
server's start; a load generator's result, beside them or alone, with what it saw of the server itself. The rules, in
order:

- Pages are told apart by server (``# endpoint``, the recorder's file name, the folder) and ordered by their clock.
- Of several served models one must be named. Every other series of the same name is an engine of its own.
- A restart cuts the window to its longest part without one; two scrapes around a restart are refused. A duration that
  was given for the whole is then not used.
- A server that did nothing gives a Window all the same, with increases of 0: that is the analysis' to say.
- The duration is the clock's. Where a duration is given too and differs by more than a tenth (a twentieth is noted),
  the two contradict each other and the window is refused; a single scrape is bounded by the server's uptime only.
  Without a clock the given duration counts; without both only ratios and means can be measured, and the times of
  gauges are the numbers of their scrapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.assembly import Servers, engines_of, progress_of
from pytest_llmroof.telemetry.beside import join_beside
from pytest_llmroof.telemetry.clock import clock_of, gaps
from pytest_llmroof.telemetry.engines import EngineNames, known_engines
from pytest_llmroof.telemetry.gpubeside import hardware_beside
from pytest_llmroof.telemetry.gputables import GpuTable
from pytest_llmroof.telemetry.gpuwindow import devices_of, gpu_window, sources_of, with_hardware
from pytest_llmroof.telemetry.llamabench import llama_bench_window
from pytest_llmroof.telemetry.runs import alone, beside
from pytest_llmroof.telemetry.scrapes import (
    Scrape,
    in_order,
    longest_run,
    not_read,
    refuse_two_servers,
    restarts,
    scrape_of,
)
from pytest_llmroof.telemetry.served import chosen_model
from pytest_llmroof.telemetry.sources import Sources
from pytest_llmroof.telemetry.warmup import client_without_warmup, clocked, refuse_tables, without_warmup
from pytest_llmroof.telemetry.window import SourceInfo, Window


def read_window(
    paths: Sequence[tuple[Path, str]],
    *,
    served_model_name: str | None = None,
    duration_seconds: float | None = None,
    engines: Mapping[str, EngineNames] | None = None,
    elsewhere: frozenset[Path] = frozenset(),
    warmup_seconds: float = 0.0,
) -> Window:
    """The window that files and folders hold. ``paths`` are (path, what messages may call it).

    Files ``elsewhere`` are read by somebody else: where they are all that there is, the window is an empty one.
    ``warmup_seconds`` are cut from the start of what they hold. Raises SourceError where there is no window in them,
    with the reason and what to do.
    """
    sources = Sources(paths, engines=engines, elsewhere=elsewhere)
    servers: dict[str, list[Scrape]] = {}
    recorded = False
    for located in sources.pages():
        servers.setdefault(located.group, []).append(scrape_of(located.page, located.source, engines))
        recorded |= located.recorded
    served = any(scrape.engine for scrapes in servers.values() for scrape in scrapes)
    for located in sources.exported(served):
        servers.setdefault(located.group, []).append(scrape_of(located.page, located.source, engines))
        recorded = True
    notes = tuple(sources.losses())
    served = any(scrape.engine for scrapes in servers.values() for scrape in scrapes)
    results = None if served else _results(sources)
    if results is not None:
        unread = not_read([scrape for scrapes in servers.values() for scrape in scrapes])
        results = replace(results, unread=(*results.unread, *unread), notes=(*results.notes, *notes))
        if warmup_seconds:
            return client_without_warmup(results, servers, sources.tables, warmup_seconds)
        return with_hardware(results, servers, sources.tables)
    if not servers and not sources.tables and elsewhere:
        return Window("", (), (), duration_seconds=duration_seconds, notes=notes, unread=sources.unread_lines())
    if not servers and not sources.tables:
        raise SourceError("; ".join(sources.unread_lines()), "name the server's metrics: a recording, or scrapes of it")
    if recorded and servers and all(len(scrapes) == 1 for scrapes in servers.values()):
        raise SourceError(
            f"{_where(servers)} holds one scrape only ({'; '.join(notes) or 'cut short'}): no difference can be taken",
            "record again; for the time since the server's start name the scrape itself",
        )
    without = tuple(f"{location}: llama-bench runs no server: name it alone" for location, _ in sources.engine_runs)
    unread = (*sources.unread_lines(), *without)
    if not served and (sources.tables or any(scrape.gpus for scrapes in servers.values() for scrape in scrapes)):
        everything = [scrape for scrapes in servers.values() for scrape in scrapes]
        window = gpu_window(servers, sources.tables, duration_seconds, [*notes, *_cut(everything)])
        window = replace(window, unread=(*unread, *not_read(everything)))
        if not warmup_seconds:
            return window
        refuse_tables(sources.tables, warmup_seconds)
        return without_warmup(window, servers, warmup_seconds, lambda kept: gpu_window(kept, (), None, [*notes]))

    window = _window(servers, served_model_name, duration_seconds, notes, unread, engines, sources.tables)
    window = beside(window, sources.clients) if sources.clients else window
    if not warmup_seconds:
        return window
    _, tables, left_out = clocked(window, {}, sources.tables)
    said = (*notes, *left_out)
    build = partial(
        _window, served_model_name=served_model_name, duration_seconds=None, notes=said, unread=unread,
        engines=engines, tables=tables,
    )  # fmt: skip
    return without_warmup(window, servers, warmup_seconds, build)


def _results(sources: Sources) -> Window | None:
    """The window that results of benchmarks make without a server's pages; None without such results."""
    unread = sources.unread_lines()
    if sources.clients:
        others = tuple(f"{location}: llama-bench, beside another benchmark" for location, _ in sources.engine_runs)
        return alone(sources.clients, (*unread, *others))
    if not sources.engine_runs:
        return None
    location = ", ".join(location for location, _ in sources.engine_runs)
    window = llama_bench_window([run for _, runs in sources.engine_runs for run in runs], location)
    return replace(window, unread=unread)


def _window(
    servers: Servers,
    served_model_name: str | None,
    duration_seconds: float | None,
    notes: tuple[str, ...],
    unread: tuple[str, ...],
    engines: Mapping[str, EngineNames] | None,
    tables: Sequence[GpuTable],
) -> Window:
    everything = [scrape for scrapes in servers.values() for scrape in scrapes]
    engine = _engine(everything, engines)
    said = [*notes, *_cut(everything)]
    ours, other = _engine_pages(servers, engine)
    ours = _on_one_clock(_of_model(ours, served_model_name, said), said)
    ours = {server: in_order(scrapes) for server, scrapes in ours.items()}
    for scrapes in ours.values():
        refuse_two_servers(scrapes)
    if not ours:
        raise SourceError(
            f"{_where(servers)}: what is left of {engine.title}'s page tells nothing of an engine",
            "scrape the whole page, without rules that drop metrics",
        )
    since_start = all(len(scrapes) == 1 for scrapes in ours.values())
    if not since_start:
        ours = _without_single(ours, said)
        whole, ours = ours, _without_restarts(ours, said)
        if ours is not whole:
            duration_seconds = None  # was given for all of it, of which a part is left
    clock = clock_of(ours, duration_seconds, since_start)
    if clock.note:
        said.append(clock.note)
    if clock.known and not notes:
        said.extend(gaps(ours))
    found_engines = engines_of(ours, engine, clock, since_start, said)
    if not found_engines:
        raise SourceError(f"{_where(ours)}: no engine is in two scrapes", "scrape one server before and after the load")
    joined = join_beside(found_engines, servers, engine, clock, since_start, said)
    other = [scrape for scrape in other if not any(scrape is one for one in joined.used)]
    relative = any(scrape.relative_clock for scrapes in ours.values() for scrape in scrapes)
    if relative:
        clock = replace(clock, started=None)
        said.append("records carry no clock: the duration is the sum of their steps, without idle time between them")
    hardware = hardware_beside(servers, tables, clock, said, same_clock=not relative)
    return Window(
        kind=engine.key,
        engines=tuple(joined.engines),
        sources=_sources(ours, other, joined.used, engine, tables),
        started=clock.started,
        duration_seconds=clock.duration,
        clock_error_seconds=clock.error,
        since_start=since_start,
        samples=max(len(scrapes) for scrapes in ours.values()),
        progress=None if since_start else progress_of(ours, engine, clock),
        conventions=engine.conventions,
        device_names=devices_of(everything, tables),
        notes=tuple(dict.fromkeys(said)),
        unread=(*unread, *not_read(other)),
        title=engine.title,
        cannot=engine.cannot,
        hardware=hardware,
        front=joined.front,
        front_lost=joined.front_lost,
    )


def _cut(scrapes: Sequence[Scrape]) -> Iterator[str]:
    for scrape in scrapes:
        if scrape.unterminated:
            yield f"{scrape.location} does not end in a line feed: its last line may be cut"


def _without_restarts(servers: dict[str, list[Scrape]], said: list[str]) -> dict[str, list[Scrape]]:
    """The longest part of the scrapes in which every server ran through: the very same, where all of them did."""
    found = [restart for scrapes in servers.values() for restart in restarts(scrapes)]
    if not found:
        return servers
    kept, note = longest_run(servers, found)
    said.append(note)
    return _without_single(kept, said)


def _engine(scrapes: Sequence[Scrape], engines: Mapping[str, EngineNames] | None) -> EngineNames:
    """The engine that most of the pages come from; what stands beside an engine is one only where there is no other."""
    found = [scrape.engine for scrape in scrapes if scrape.engine is not None]
    if found:
        return max(found, key=lambda engine: (engine.beside is None, found.count(engine)))
    known = ", ".join(engine.title for engine in (engines or known_engines()).values())
    locations = ", ".join(dict.fromkeys(scrape.source for scrape in scrapes))
    if any(scrape.exporter for scrape in scrapes):
        raise SourceError(
            f"{locations}: counters of GPUs, but none of a GPU that is named, and no serving engine's",
            "add the server's own /metrics, and let the exporter keep its labels (gpu, UUID)",
        )
    names = ", ".join(scrapes[0].sample_names)
    raise SourceError(
        f"{locations}: metrics of no serving engine that is known here (it holds {names}, ...)",
        f"name the metrics of the server itself; known engines: {known} (--llmroof-list=engines)",
    )


def _engine_pages(servers: Servers, engine: EngineNames) -> tuple[dict[str, list[Scrape]], list[Scrape]]:
    """The engine's pages by server, and all others.

    A page of a server that still loaded its model has no series of the engine, but the same process.
    """
    ours: dict[str, list[Scrape]] = {}
    other: list[Scrape] = []
    for server, scrapes in servers.items():
        starts = {scrape.start for scrape in scrapes if scrape.engine is engine} - {None}
        for scrape in scrapes:
            if scrape.engine is engine or (scrape.engine is None and scrape.start in starts):
                ours.setdefault(server, []).append(scrape)
            else:
                other.append(scrape)
    return ours, other


def _of_model(servers: Servers, served_model_name: str | None, said: list[str]) -> dict[str, list[Scrape]]:
    """Every scrape with the engines of one served model only."""
    names = dict.fromkeys(
        identity.model_name for scrapes in servers.values() for scrape in scrapes for identity in scrape.snapshots
    )
    chosen = chosen_model(names, served_model_name, _where(servers))
    of_model = {server: [scrape.of_model(chosen) for scrape in scrapes] for server, scrapes in servers.items()}
    kept = {server: scrapes for server, scrapes in of_model.items() if any(scrape.snapshots for scrape in scrapes)}
    for server, scrapes in servers.items():
        if server not in kept and any(one.model_name is None for scrape in scrapes for one in scrape.snapshots):
            said.append(f"{scrapes[0].location}: its series name no served model: that server is left out")
    return kept


def _on_one_clock(servers: Servers, said: list[str]) -> dict[str, list[Scrape]]:
    """The same scrapes, all of them with a clock or none."""
    clocked = [scrape.clock is not None for scrapes in servers.values() for scrape in scrapes]
    if all(clocked) or not any(clocked):
        return {server: list(scrapes) for server, scrapes in servers.items()}
    said.append("some scrapes carry no clock: the others' is not used")
    return {server: [replace(scrape, clock=None) for scrape in scrapes] for server, scrapes in servers.items()}


def _where(servers: Servers) -> str:
    return ", ".join(dict.fromkeys(scrape.source for scrapes in servers.values() for scrape in scrapes))


def _without_single(servers: Servers, said: list[str]) -> dict[str, list[Scrape]]:
    kept = {}
    for server, scrapes in servers.items():
        if len(scrapes) >= 2:
            kept[server] = list(scrapes)
        elif scrapes:
            said.append(f"{scrapes[0].location} is its server's only scrape in the window: that server is left out")
    return kept


def _sources(
    servers: Servers,
    other: Sequence[Scrape],
    used: Sequence[Scrape],
    engine: EngineNames,
    tables: Sequence[GpuTable],
) -> tuple[SourceInfo, ...]:
    infos = [SourceInfo(engine.key, scrape.source) for scrapes in servers.values() for scrape in scrapes]
    infos.extend(SourceInfo(scrape.engine.key, scrape.source) for scrape in used if scrape.engine is not None)
    infos.extend(sources_of(other, tables))
    return tuple(dict.fromkeys(infos))
