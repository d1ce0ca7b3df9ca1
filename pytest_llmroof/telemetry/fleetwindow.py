"""From a fleet's servers and their series to one Window: an engine for each replica, over the time it was there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from statistics import fmean
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.difference import difference, reset_between
from pytest_llmroof.telemetry.engines import EngineNames, Target
from pytest_llmroof.telemetry.exposition import Page, Sample
from pytest_llmroof.telemetry.fleet import Key, Server, key_of, own_labels
from pytest_llmroof.telemetry.promapi import Row
from pytest_llmroof.telemetry.served import chosen_model
from pytest_llmroof.telemetry.snapshot import Identity, snapshots
from pytest_llmroof.telemetry.window import Engine, Series, SourceInfo, Window

#: Servers that are named in one note, at the most.
_NAMED: Final = 3


@dataclass(frozen=True)
class Read:
    """What a server answered: the fleet's ``servers`` by their pulse, and the ``grid`` of everything they expose.

    ``interval`` is the usual time between two scrapes. ``step`` is how far the times of the pulse lie apart where it
    is not raw (0: it is).
    """

    location: str
    engine: EngineNames
    servers: Sequence[Server]
    grid: Sequence[Row]
    interval: float
    step: float

    @cached_property
    def declared(self) -> Mapping[str, str]:
        """All metrics of the fleet as if a page declared them: what a first scrape lacks was not counted yet."""
        names = {row.labels["__name__"].removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
                 for row in self.grid}  # fmt: skip
        return dict.fromkeys(names & self.engine.families.keys(), "unknown")

    @cached_property
    def summed(self) -> frozenset[str]:
        """Gauges that count something: a server that is not there has none of it."""
        targets = (target for targets in self.engine.targets.values() for target in targets)
        return frozenset(target.quantity for target in targets if target.kind == "gauge" and target.combine == "sum")

    @property
    def slack(self) -> float:
        """How far first or last samples of servers that were there all the time may lie apart."""
        return self.step / 2 if self.step else 2 * self.interval


@dataclass
class _Counted:
    """A server, the scrapes its increases lie between, and its engines."""

    server: Server
    first: float
    last: float
    engines: list[Engine] = field(default_factory=list)


def fleet_window(
    read: Read, served_model_name: str | None, said: list[str], *, models: Collection[str] | None = None
) -> Window:
    """The window. SourceError where no server was there for two scrapes, or several models were served.

    ``models``, in lower case, are those of the engines that these stand beside: all of theirs are kept, none chosen.
    """
    rows: dict[Key, list[Row]] = {}
    for row in read.grid:
        if row.times:
            rows.setdefault(key_of(row.labels), []).append(row)
    counted = []
    for server in read.servers:
        found = _counted(read, server, rows.get(server.key, []), said)
        if found is not None and found.engines:
            counted.append(found)
    if not counted:
        reasons = "; ".join(said) or "no server was scraped twice"
        raise SourceError(f"{read.location}: {reasons}", "widen `duration`, or choose another `end`")
    if models is None:
        _of_model(read, counted, served_model_name)
    else:
        _of_models(read, counted, models)
    said[:0] = _presence(read, counted)
    return _window(read, counted, said)


def _window(read: Read, counted: Sequence[_Counted], said: Sequence[str]) -> Window:
    engine = read.engine
    first, last = min(each.first for each in counted), max(each.last for each in counted)
    # Servers are scraped one after the other: those that were there from end to end tell how long it was, on average.
    whole = [each.last - each.first for each in counted if _whole(read, each, first, last)]
    duration = fmean(whole) if whole else last - first
    error = max((abs(each - duration) for each in whole), default=0.0)
    # When a page was made is known to the time that its scrape took, at both ends.
    error += max(_scrape_seconds(each, each.first) + _scrape_seconds(each, each.last) for each in counted)
    notes = list(said)
    if read.step:
        error = max(error, 2 * read.interval)
        notes.append(
            f"too many samples to read all: read every {read.step:.3g} s, so that times are known to "
            f"{read.interval:.3g} s only, the usual time between two scrapes"
        )
    clock = max(counted, key=lambda each: (len(each.server.times), each.last)).server
    times = [time for time in clock.times if first <= time <= last]
    return Window(
        kind=engine.key,
        engines=tuple(_on_times(read, one, times) for each in counted for one in each.engines),
        sources=(SourceInfo("prometheus", read.location),),
        started=first,
        duration_seconds=duration,
        clock_error_seconds=error,
        samples=max(len(each.server.times) for each in counted),
        progress=_progress(counted, times),
        conventions=engine.conventions,
        notes=tuple(dict.fromkeys(notes)),
        title=engine.title,
        cannot=engine.cannot,
    )


def _scrape_seconds(each: _Counted, taken: float) -> float:
    return each.server.scrape_seconds.get(taken, 0.0)


def _on_times(read: Read, engine: Engine, times: Sequence[float]) -> Engine:
    """The engine with its gauges at the times of the whole fleet, so that they can be summed."""
    gauges = {
        quantity: _resampled(series, times, read.slack, 0.0 if quantity in read.summed else None)
        for quantity, series in engine.gauges.items()
    }
    return replace(engine, gauges=gauges)


def _resampled(series: Series, times: Sequence[float], slack: float, absent: float | None) -> Series:
    """The latest sample at each time, else the first one; ``absent`` (None: the nearest) where none is near."""
    values = []
    for time in times:
        index = max(0, bisect_right(series.times, time) - 1)
        near = series.times[0] - slack <= time <= series.times[-1] + slack
        values.append(series.values[index] if near or absent is None else absent)
    return Series(tuple(times), tuple(values))


def _progress(counted: Sequence[_Counted], times: Sequence[float]) -> Series:
    done = [each.server.progress(times) for each in counted]
    return Series(tuple(times), tuple(map(sum, zip(*done, strict=True))))


def _whole(read: Read, each: _Counted, first: float, last: float) -> bool:
    return each.first - first <= read.slack and last - each.last <= read.slack


def _counted(read: Read, server: Server, rows: Sequence[Row], said: list[str]) -> _Counted | None:
    """The server's engines, by the difference of two scrapes of one process; None where there are no two."""
    low, high = server.longest_run()
    span = _span(read, server, rows, low, high)
    if span is None:
        said.append(f"{server.name} has no two scrapes of one process in the window: it is left out")
        return None
    (first_at, first), (last_at, last) = span
    if restarts := server.restarts():
        times = "once" if len(restarts) == 1 else f"{len(restarts)} times"
        said.append(
            f"{server.name} restarted {times}, before {clock(restarts[0][1])} UTC ({restarts[0][2]}): only the longest "
            f"part without a restart is used, {last - first:.0f} of {server.times[-1] - server.times[0]:.0f} s"
        )
    counted = _Counted(server, first, last)
    own = [own_labels(row.labels, read.engine) for row in rows]
    page = _page(server, rows, own, first_at, first, read.declared)
    earlier = {one.identity: one for one in snapshots(page, read.engine)}
    later = snapshots(_page(server, rows, own, last_at, last, {}), read.engine)
    ranks = len({identity.rank for identity in (one.identity for one in later)}) > 1
    for index, snapshot in enumerate(later):
        identity, before = snapshot.identity, earlier.get(snapshot.identity)
        name = _engine_name(server, identity, len(later) > 1, ranks)
        if before is not None and (sign := reset_between(before, snapshot)):
            said.append(f"{name} restarted in the window ({sign}), at a time that is not known: it is left out")
            continue
        moved = difference(before, snapshot, read.engine)
        said.extend(problem for problem in moved.problems if problem not in said)
        gauges = dict(_gauges(server, identity, first, last, whole=not index))
        counted.engines.append(
            Engine(
                identity=name,
                model_name=identity.model_name,
                counters=moved.counters,
                histograms=moved.histograms,
                gauges=gauges,
                finished=moved.finished,
                names=moved.names,
                facts=snapshot.facts,
                unusable=moved.unusable,
                seen=(first, last),
                place=dict((*server.key[0], *server.key[1])),
                progress=_own_progress(server, first, last),
            )
        )
    return counted


def _own_progress(server: Server, first: float, last: float) -> Series:
    times = [time for time in server.times if first <= time <= last]
    return Series(tuple(times), tuple(server.progress(times)))


def _engine_name(server: Server, identity: Identity, several: bool, ranks: bool) -> str:
    parts = [server.name]
    if ranks and identity.rank:
        parts.append(f"engine {identity.rank}")
    parts.extend(f"{label} {value}" for label, value in identity.replica)
    if several and not ranks and not identity.replica and identity.model_name:
        parts.append(identity.model_name)
    return ", ".join(parts)


def _span(
    read: Read, server: Server, rows: Sequence[Row], low: float, high: float
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """First and last of the times that were asked for whose sample is of this run, each with when it was taken."""
    found: list[tuple[float, float]] = []
    for at in sorted({time for row in rows for time in row.times}):
        index = bisect_right(server.times, at)
        # Without raw samples it is only known that it was taken within an interval before.
        taken = at if read.step else server.times[index - 1] if index else None
        if taken is not None and low <= taken <= high:
            found.append((at, taken))
    if not found or found[0][1] >= found[-1][1]:
        return None
    last = next(pair for pair in found if pair[1] == found[-1][1])
    return found[0], last


def _page(
    server: Server,
    rows: Sequence[Row],
    own: Sequence[Mapping[str, str]],
    at: float,
    taken: float,
    declared: Mapping[str, str],
) -> Page:
    """One scrape, put together again from the series' samples ``at`` a time; ``own`` are the labels beside them."""
    samples = []
    for row, labels in zip(rows, own, strict=True):
        index = bisect_right(row.times, at) - 1
        if index >= 0 and row.times[index] == at:
            samples.append(Sample(row.labels["__name__"], labels, row.values[index]))
    return Page(location=server.name, samples=tuple(samples), types=declared, scraped_at=taken)


def _gauges(
    server: Server, identity: Identity, first: float, last: float, *, whole: bool
) -> Iterator[tuple[str, Series]]:
    """Each gauge of an engine, under the first of its names that is there; with ``whole`` those of its server, too.

    What a server says of all its engines stands at one of them, so that sums stay right.
    """
    found: dict[str, list[tuple[Target, bool, Row]]] = {}
    own_first = sorted(server.gauges.items(), key=lambda item: (item[0][0] != identity, item[0][2]))
    for (own, quantity, _), samples in own_first:
        if own == identity or (whole and _is_part_of(own, identity)):
            found.setdefault(quantity, samples)
    for quantity, samples in found.items():
        series = _combined(samples, first, last)
        if series.times:
            yield quantity, series


def _is_part_of(server: Identity, engine: Identity) -> bool:
    """Whether a series of the whole server, which lacks some of the engine's labels, tells of the engine, too."""
    return server.model_name in (None, engine.model_name) and server.rank in ("", engine.rank) and not server.replica


def _combined(samples: Sequence[tuple[Target, bool, Row]], first: float, last: float) -> Series:
    """One series of several: processes repeat each other, others add up or the largest counts."""
    target = samples[0][0]
    adds = target.combine == "sum" and not any(per_process for _, per_process, _ in samples)
    values: dict[float, float] = {}
    for _, _, row in samples:
        for time, value in zip(row.times, row.values, strict=True):
            if value == target.disabled or not first <= time <= last:
                continue
            scaled = value * target.scale
            known = values.get(time)
            values[time] = scaled if known is None else known + scaled if adds else max(known, scaled)
    times = sorted(values)
    return Series(tuple(times), tuple(values[time] for time in times))


def _of_model(read: Read, counted: list[_Counted], served_model_name: str | None) -> None:
    """Keep the engines of one served model only."""
    names = dict.fromkeys(engine.model_name for each in counted for engine in each.engines)
    chosen = chosen_model(list(names), served_model_name, read.location)
    for each in counted:
        each.engines = [engine for engine in each.engines if engine.model_name == chosen]
    counted[:] = [each for each in counted if each.engines]


def _of_models(read: Read, counted: list[_Counted], models: Collection[str]) -> None:
    """Keep what is of these models, some of which are written in lower case only. SourceError where nothing is."""
    for each in counted:
        each.engines = [
            engine for engine in each.engines
            if not models or engine.model_name is None or engine.model_name.casefold() in models
        ]  # fmt: skip
    counted[:] = [each for each in counted if each.engines]
    if not counted:
        raise SourceError(f"it has no series of {', '.join(sorted(models))}")


def _presence(read: Read, counted: Sequence[_Counted]) -> list[str]:
    """What to say of servers that came or left inside the window."""
    first = min(each.server.times[0] for each in counted)
    last = max(each.server.times[-1] for each in counted)
    slack = read.slack
    came = sorted((each.server.times[0], each.server.name) for each in counted if each.server.times[0] > first + slack)
    left = sorted((each.server.times[-1], each.server.name) for each in counted if each.server.times[-1] < last - slack)
    if not came and not left:
        return []
    absent = {name for _, name in (*came, *left)}
    parts = [part for part in (_moved(left, "left"), _moved(came, "came")) if part]
    return [f"{len(counted) - len(absent)} of {len(counted)} replicas for the whole window: {', '.join(parts)}"]


def _moved(servers: Sequence[tuple[float, str]], what: str) -> str:
    if not servers:
        return ""
    named = [f"{name} at {clock(time)} UTC" for time, name in servers[:_NAMED]]
    more = f" and {len(servers) - _NAMED} more" if len(servers) > _NAMED else ""
    if len(servers) == 1:
        return f"one replica {what} at {clock(servers[0][0])} UTC ({servers[0][1]})"
    return f"{len(servers)} replicas {what} ({', '.join(named)}{more})"


def clock(seconds: float) -> str:
    """The time of a day, to the minute."""
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M}"
