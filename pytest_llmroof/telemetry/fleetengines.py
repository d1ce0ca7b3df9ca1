"""The engines of one server of a fleet: what they did between two scrapes of one process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pytest_llmroof.telemetry.difference import difference, reset_between
from pytest_llmroof.telemetry.engines import Target
from pytest_llmroof.telemetry.exposition import Page, Sample
from pytest_llmroof.telemetry.fleet import Server, own_labels
from pytest_llmroof.telemetry.fleetread import Read
from pytest_llmroof.telemetry.page_engines import snapshots
from pytest_llmroof.telemetry.promapi import Row
from pytest_llmroof.telemetry.snapshot import Identity
from pytest_llmroof.telemetry.window import Engine, Series


@dataclass
class Counted:
    """A server, the scrapes its increases lie between, and its engines."""

    server: Server
    first: float
    last: float
    engines: list[Engine] = field(default_factory=list)


def counted_of(read: Read, server: Server, rows: Sequence[Row], said: list[str]) -> Counted | None:
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
    counted = Counted(server, first, last)
    # Gauges need no two scrapes of one process: what they show beside a restart is no less true.
    shown = (server.times[0], server.times[-1]) if restarts else (first, last)
    own = [own_labels(row.labels, read.engine) for row in rows]
    page = _page(server, rows, own, first_at, first, read.declared)
    earlier = {one.identity: one for one in snapshots(page, read.engine)}
    later = snapshots(_page(server, rows, own, last_at, last, {}), read.engine)
    there = [one.identity for one in later]
    wide = frozenset(quantity for own, quantity, _ in server.gauges if own not in there)
    ranks = len({identity.rank for identity in (one.identity for one in later)}) > 1
    for index, snapshot in enumerate(later):
        identity, before = snapshot.identity, earlier.get(snapshot.identity)
        name = _engine_name(server, identity, len(later) > 1, ranks)
        if before is not None and (sign := reset_between(before, snapshot)):
            said.append(f"{name} restarted in the window ({sign}), at a time that is not known: it is left out")
            continue
        moved = difference(before, snapshot, read.engine)
        said.extend(problem for problem in moved.problems if problem not in said)
        gauges = dict(_gauges(server, identity, *shown, whole=not index))
        counted.engines.append(
            Engine(
                identity=name,
                model_name=identity.model_name,
                counters=moved.counters,
                histograms=moved.histograms,
                gauges=gauges,
                sampled=gauges,
                finished=moved.finished,
                names=moved.names,
                facts=snapshot.facts,
                unusable=moved.unusable,
                accounted=snapshot.server_wide | moved.resting | wide,
                seen=(first, last),
                place=dict((*server.key[0], *server.key[1])),
                progress=_own_progress(server, first, last),
            )
        )
    for identity in earlier:
        if not any(identity == one or _is_part_of(identity, one) for one in there):
            name = _engine_name(server, identity, len(earlier) > 1, ranks or bool(identity.rank))
            said.append(f"{name} left before {clock(last)} UTC: it is left out")
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
            samples.append(Sample(row.labels.get("__name__", ""), labels, row.values[index]))
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


def clock(seconds: float) -> str:
    """The time of a day, to the minute."""
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M}"
