"""The engines of a window, from the scrapes of their servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from pytest_llmroof.telemetry.clock import Clock
from pytest_llmroof.telemetry.difference import difference
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.everywhere import known_everywhere
from pytest_llmroof.telemetry.scrapes import Scrape
from pytest_llmroof.telemetry.snapshot import Identity, Snapshot
from pytest_llmroof.telemetry.window import Engine, Series

Servers = Mapping[str, Sequence[Scrape]]


def engines_of(
    servers: Servers, engine: EngineNames, clock: Clock, since_start: bool, said: list[str]
) -> list[Engine]:
    """One engine of the window for every one that the scrapes tell of. ``said`` collects notes."""
    found: list[list[Engine]] = []
    several = len(servers) > 1
    for server, scrapes in servers.items():
        found.append([])
        for identity in dict.fromkeys(identity for scrape in scrapes for identity in scrape.snapshots):
            name = _engine_name(server, identity, several)
            first, last = _span(scrapes, identity, name, since_start, engine, said)
            if last is None:
                continue
            moved = difference(first, last, engine)
            said.extend(moved.problems)
            found[-1].append(
                Engine(
                    identity=name,
                    model_name=identity.model_name,
                    counters=moved.counters,
                    histograms=moved.histograms,
                    gauges=_gauges(scrapes, identity, clock),
                    finished=moved.finished,
                    names={**{name: last.names[name] for name in last.largest}, **moved.names},
                    facts=last.facts,
                    unusable=moved.unusable,
                    largest=last.largest,
                    accounted=last.server_wide | moved.resting,
                )
            )
    return [one for engines in known_everywhere(found, engine) for one in engines]


def _engine_name(server: str, identity: Identity, several: bool) -> str:
    where = (urlsplit(server).netloc or server) if several else ""
    return ", ".join(part for part in (where, str(identity)) if part) or "the only engine"


def _span(
    scrapes: Sequence[Scrape],
    identity: Identity,
    name: str,
    since_start: bool,
    engine: EngineNames,
    said: list[str],
) -> tuple[Snapshot | None, Snapshot | None]:
    """An engine's first and last snapshot. The first is None where it began at 0, the last where it is left out."""
    there = [scrape for scrape in scrapes if identity in scrape.snapshots]
    last = there[-1].snapshots[identity]
    if since_start:
        return None, last
    if not scrapes[0].snapshots and scrapes[0].start is not None and scrapes[0].start == there[-1].start:
        return None, last  # the same process, before it had any series
    if identity not in scrapes[0].snapshots and scrapes[0].unnamed_work:
        said.append(f"series of {scrapes[0].location} name no served model: {name} is left out")
        return None, None
    if engine.absent_until_fed and scrapes[0].engine is engine and identity not in scrapes[0].snapshots:
        return None, last  # nothing is there before it is counted
    if len(there) == 1:
        said.append(f"{name} is in one scrape only: it is left out")
        return None, None
    if there[0] is not scrapes[0]:
        said.append(f"{name} came during the window: counted from {there[0].location}")
    if there[-1] is not scrapes[-1]:
        said.append(f"{name} left during the window: counted until {there[-1].location}")
    return there[0].snapshots[identity], last


def _gauges(scrapes: Sequence[Scrape], identity: Identity, clock: Clock) -> dict[str, Series]:
    samples: dict[str, tuple[list[float], list[float]]] = {}
    for index, scrape in enumerate(scrapes):
        if identity not in scrape.snapshots:
            continue
        for quantity, value in scrape.snapshots[identity].gauges.items():
            times, values = samples.setdefault(quantity, ([], []))
            times.append(clock.time_of(scrape, index))
            values.append(value)
    return {quantity: Series(tuple(times), tuple(values)) for quantity, (times, values) in samples.items()}


def progress_of(servers: Servers, engine: EngineNames, clock: Clock) -> Series | None:
    """What all engines had done at every scrape, from 0 at the first. None where the times are not known."""
    longest = max(len(scrapes) for scrapes in servers.values())
    if not clock.known and (clock.duration is None or longest > 2):
        return None
    events = []
    for server, scrapes in servers.items():
        for index, scrape in enumerate(scrapes):
            for identity, snapshot in scrape.snapshots.items():
                if not snapshot.damaged.keys() & set(engine.work):
                    events.append((clock.time_of(scrape, index), server, identity, snapshot.work(engine.work)))
    latest: dict[tuple[str, Identity], float] = {}
    times: list[float] = []
    values: list[float] = []
    total = 0.0
    for time, server, identity, work in sorted(events, key=lambda event: event[0]):
        total += work - latest.get((server, identity), work)
        latest[server, identity] = work
        if times and times[-1] == time:
            values[-1] = total
        else:
            times.append(time)
            values.append(total)
    return Series(tuple(times), tuple(values))
