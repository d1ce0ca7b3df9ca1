"""From a fleet's servers and their series to one Window: an engine for each replica, over the time it was there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.everywhere import known_everywhere
from pytest_llmroof.telemetry.fleet import Key, key_of
from pytest_llmroof.telemetry.fleetengines import Counted, clock, counted_of
from pytest_llmroof.telemetry.fleetread import Read
from pytest_llmroof.telemetry.promapi import Row
from pytest_llmroof.telemetry.served import chosen_model
from pytest_llmroof.telemetry.window import Engine, Series, SourceInfo, Window

#: Servers that are named in one note, at the most.
_NAMED: Final = 3
#: Pauses between two scrapes that are so many times the usual one of that server: at least one scrape failed.
_MISSED: Final = 1.5


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
        found = counted_of(read, server, rows.get(server.key, []), said)
        if found is not None and found.engines:
            counted.append(found)
    if not counted:
        reasons = "; ".join(said) or "no server was scraped twice"
        raise SourceError(f"{read.location}: {reasons}", "widen `duration`, or choose another `end`")
    if models is None:
        _of_model(read, counted, served_model_name, said)
    else:
        _of_models(read, counted, models)
    said[:0] = [*_presence(read, counted), *_pauses(counted)]
    return _window(read, counted, said)


def _window(read: Read, counted: Sequence[Counted], said: Sequence[str]) -> Window:
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
    engines = known_everywhere([each.engines for each in counted], engine)
    return Window(
        kind=engine.key,
        engines=tuple(_on_times(read, one, times) for each in engines for one in each),
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


def _scrape_seconds(each: Counted, taken: float) -> float:
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


def _progress(counted: Sequence[Counted], times: Sequence[float]) -> Series:
    done = [each.server.progress(times) for each in counted]
    return Series(tuple(times), tuple(map(sum, zip(*done, strict=True))))


def _whole(read: Read, each: Counted, first: float, last: float) -> bool:
    return each.first - first <= read.slack and last - each.last <= read.slack


def _of_model(read: Read, counted: list[Counted], served_model_name: str | None, said: list[str]) -> None:
    """Keep the engines of one served model only."""
    names = dict.fromkeys(engine.model_name for each in counted for engine in each.engines)
    chosen = chosen_model(list(names), served_model_name, read.location)
    for each in counted:
        if all(engine.model_name is None for engine in each.engines) and chosen is not None:
            said.append(f"{each.server.name}: its series name no served model: it is left out")
        each.engines = [engine for engine in each.engines if engine.model_name == chosen]
    counted[:] = [each for each in counted if each.engines]


def _of_models(read: Read, counted: list[Counted], models: Collection[str]) -> None:
    """Keep what is of these models, some of which are written in lower case only. SourceError where nothing is."""
    for each in counted:
        each.engines = [
            engine for engine in each.engines
            if not models or engine.model_name is None or engine.model_name.casefold() in models
        ]  # fmt: skip
    counted[:] = [each for each in counted if each.engines]
    if not counted:
        raise SourceError(f"it has no series of {', '.join(sorted(models))}")


def _presence(read: Read, counted: Sequence[Counted]) -> list[str]:
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


def _pauses(counted: Sequence[Counted]) -> list[str]:
    """What to say of servers that were not scraped for a while, though they were there before and after."""
    found = []
    for each in counted:
        pauses = [(later - earlier, earlier) for earlier, later in pairwise(each.server.times)]
        usual = sorted(pause for pause, _ in pauses)[len(pauses) // 2]
        longest, since = max(pauses)
        if longest > _MISSED * usual:
            found.append((longest, since, each.server.name))
    if not found:
        return []
    if len(found) == 1:
        ((longest, since, name),) = found
        return [f"{name} was not scraped for {longest:.0f} s from {clock(since)} UTC"]
    found.sort(reverse=True)
    named = [f"{name} for {pause:.0f} s from {clock(since)} UTC" for pause, since, name in found[:_NAMED]]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return [f"{len(found)} of {len(counted)} replicas were not scraped for a while: {', '.join(named)}{more}"]


def _moved(servers: Sequence[tuple[float, str]], what: str) -> str:
    if not servers:
        return ""
    named = [f"{name} at {clock(time)} UTC" for time, name in servers[:_NAMED]]
    more = f" and {len(servers) - _NAMED} more" if len(servers) > _NAMED else ""
    if len(servers) == 1:
        return f"one replica {what} at {clock(servers[0][0])} UTC ({servers[0][1]})"
    return f"{len(servers)} replicas {what} ({', '.join(named)}{more})"
