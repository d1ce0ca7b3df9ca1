"""The scrapes of one server in order, and the stretch of them in which it ran through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.difference import SAME_START_SECONDS, reset_between
from pytest_llmroof.telemetry.engines import EngineNames, known_engines, recognised
from pytest_llmroof.telemetry.exposition import Page
from pytest_llmroof.telemetry.gpupages import GpuReading, page_readings
from pytest_llmroof.telemetry.page_engines import process_start, snapshots
from pytest_llmroof.telemetry.snapshot import Identity, Snapshot

#: Clocks of two machines may differ by this much before a process counts as older than a scrape.
_CLOCK_TOLERANCE_SECONDS: Final = 30.0
_AGAIN: Final = "measure again, over a time in which the server does not restart"


@dataclass(frozen=True)
class Scrape:
    """One page, reduced to what a window needs of it.

    ``clock`` is Unix seconds (None without), ``start`` when the server's process started. ``engine`` is None for a
    page without any engine's metrics; ``sample_names`` are then a few of its names, for messages. ``exporter`` is the
    key of the exporter of GPU counters that wrote it, ``gpus`` what it says of each GPU.
    """

    location: str
    source: str
    clock: float | None
    scrape_seconds: float
    start: float | None
    engine: EngineNames | None
    snapshots: Mapping[Identity, Snapshot]
    exporter: str | None = None
    gpus: tuple[GpuReading, ...] = ()
    sample_names: tuple[str, ...] = ()
    unterminated: bool = False
    relative_clock: bool = False
    unnamed_work: bool = False
    """Whether series that name no served model, and so are nobody's here, counted work."""
    parts: tuple[Scrape, ...] = ()
    """What else the page holds that stands before its engine: a frontend, where both are on one page."""

    @property
    def work(self) -> float:
        """The running total of everything that moves when its engines work."""
        work = self.engine.work if self.engine else ()
        return sum(snapshot.work(work) for snapshot in self.snapshots.values())

    def of_model(self, model_name: str | None) -> Scrape:
        """The same scrape with the engines of one served name."""
        kept = {key: snapshot for key, snapshot in self.snapshots.items() if key.model_name == model_name}
        work = self.engine.work if self.engine else ()
        others = [one for key, one in self.snapshots.items() if key.model_name is None and key not in kept]
        return replace(self, snapshots=kept, unnamed_work=any(one.work(work) for one in others))


def scrape_of(page: Page, source: str, engines: Mapping[str, EngineNames] | None) -> Scrape:
    """What a window needs of a page."""
    engine = recognised(page, engines)
    exporter, gpus = page_readings(page)
    found = _with_largest(snapshots(page, engine), page, engine) if engine else ()
    whole = Scrape(
        location=page.location,
        source=source,
        clock=page.clock,
        scrape_seconds=page.scrape_seconds,
        start=process_start(page),
        engine=engine,
        snapshots={snapshot.identity: snapshot for snapshot in found},
        exporter=exporter.key if exporter else None,
        gpus=gpus,
        sample_names=() if engine else tuple(dict.fromkeys(sample.name for sample in page.samples))[:3],
        unterminated=page.unterminated,
        relative_clock=page.relative_clock,
    )
    return replace(whole, parts=_fronts(page, whole, engines))


def _fronts(page: Page, whole: Scrape, engines: Mapping[str, EngineNames] | None) -> tuple[Scrape, ...]:
    """Frontends whose series are on the page beside those of an engine."""
    if whole.engine is None:
        return ()
    parts = []
    for kind in (engines or known_engines()).values():
        if kind is whole.engine or not (kind.beside or {}).get("prefer") or kind.records:
            continue
        if found := snapshots(page, kind):
            # The process of a page of several is nobody's.
            parts.append(replace(whole, engine=kind, snapshots={one.identity: one for one in found}, start=None))
    return tuple(parts)


def _with_largest(found: tuple[Snapshot, ...], page: Page, engine: EngineNames) -> tuple[Snapshot, ...]:
    """The snapshots with the largest samples of gauges, where a page holds nothing else of them."""
    if not page.largest:
        return found
    tops = {one.identity: one for one in snapshots(replace(page, samples=page.largest), engine)}
    return tuple(
        replace(one, largest=tops[one.identity].gauges, names={**tops[one.identity].names, **one.names})
        if one.identity in tops
        else one
        for one in found
    )


def in_order(scrapes: Sequence[Scrape]) -> list[Scrape]:
    """By their clock; without one by the process's start and what it had done; else as given.

    A file's modification time is no clock: copying a recording changes it.
    """
    if all(scrape.clock is not None for scrape in scrapes):
        return sorted(scrapes, key=lambda scrape: scrape.clock or 0.0)
    if all(scrape.start is not None for scrape in scrapes):
        return sorted(scrapes, key=lambda scrape: (scrape.start or 0.0, scrape.work))
    return list(scrapes)


def refuse_two_servers(scrapes: Sequence[Scrape]) -> None:
    """SourceError where pages of one address (or without one) come from different servers, taken by turns."""
    starts: list[float] = []
    for earlier, scrape in zip([None, *scrapes], scrapes, strict=False):
        if scrape.start is None or (starts and _same(starts[-1], scrape.start)):
            continue
        older = earlier is not None and earlier.clock is not None and (
            scrape.start < earlier.clock - _CLOCK_TOLERANCE_SECONDS
        )  # fmt: skip
        if any(_same(start, scrape.start) for start in starts) or (starts and older):
            raise SourceError(
                f"{scrapes[0].location} and {scrape.location} come from two servers: their processes started at "
                f"{starts[-1]:.0f} and {scrape.start:.0f} and both ran on",
                "scrape pods, or ask Prometheus; files of several servers need a folder each or an `# endpoint` line",
            )
        starts.append(scrape.start)
    _refuse_turns([scrape for scrape in scrapes if scrape.start is None])


def _refuse_turns(scrapes: Sequence[Scrape]) -> None:
    """SourceError where counters fall and then, in one step, are back where they were: another server's, by turns.

    A server that starts anew first loads its model, and makes up for what it had done little by little.
    """
    fallen: Scrape | None = None
    for earlier, later in pairwise(scrapes):
        if fallen is None and _restart_sign(earlier, later):
            fallen = earlier
        elif fallen is not None and earlier.work < fallen.work / 2 and later.work >= fallen.work:
            raise SourceError(
                f"{earlier.location} and {later.location} come from two servers: their counters fall, and are back at "
                "once",
                "scrape pods, or ask Prometheus; files of several servers need a folder each or an `# endpoint` line",
            )


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= SAME_START_SECONDS


@dataclass(frozen=True)
class Restart:
    """The server started anew between two scrapes; ``sign`` is how that is known."""

    before: Scrape
    after: Scrape
    sign: str


def restarts(scrapes: Sequence[Scrape]) -> list[Restart]:
    """Every restart between the scrapes of one server."""
    found: list[Restart] = []
    known: Scrape | None = None
    for earlier, later in pairwise(scrapes):
        known = _latest(known, earlier)
        if sign := _restart_sign(known, later):
            found.append(Restart(earlier, later, sign))
            known = None
    return found


def _latest(known: Scrape | None, scrape: Scrape) -> Scrape:
    """A scrape with the latest of what it lacks itself: an engine may be gone from a page, and come back anew."""
    if known is None:
        return scrape
    start = scrape.start if scrape.start is not None else known.start
    return replace(scrape, start=start, snapshots={**known.snapshots, **scrape.snapshots})


def _restart_sign(earlier: Scrape, later: Scrape) -> str | None:
    if earlier.start is not None and later.start is not None and not _same(earlier.start, later.start):
        return f"its process started at {earlier.start:.0f} before, at {later.start:.0f} after"
    for identity, snapshot in later.snapshots.items():
        before = earlier.snapshots.get(identity)
        if before is not None and (sign := reset_between(before, snapshot)):
            return sign
    return None


def longest_run(
    servers: Mapping[str, Sequence[Scrape]], found: Sequence[Restart]
) -> tuple[dict[str, list[Scrape]], str]:
    """The longest stretch without any server's restart, and what to say of it. SourceError where there is none."""
    if all(scrape.clock is not None for scrapes in servers.values() for scrape in scrapes):
        kept, note = _longest_by_clock(servers, found)
    elif len(servers) == 1:
        kept, note = _longest_by_number(servers, found)
    else:
        kept, note = {}, ""
    if not any(len(scrapes) >= 2 for scrapes in kept.values()):
        first = found[0]
        raise SourceError(
            f"the server restarted between {first.before.location} and {first.after.location} ({first.sign}): "
            "no difference can be taken",
            f"{_AGAIN}; scrapes without `# scraped_at` must be given in their order",
        )
    return kept, note


def _longest_by_clock(
    servers: Mapping[str, Sequence[Scrape]], found: Sequence[Restart]
) -> tuple[dict[str, list[Scrape]], str]:
    clocks = [scrape.clock or 0.0 for scrapes in servers.values() for scrape in scrapes]
    start, end = min(clocks), max(clocks)
    low, runs = start, []
    for before, after in sorted((cut.before.clock or 0.0, cut.after.clock or 0.0) for cut in found):
        if before > low:
            runs.append((before - low, low, before))
        low = max(low, after)
    runs.append((end - low, low, end))
    length, low, high = max(runs)
    kept = {
        server: [scrape for scrape in scrapes if low <= (scrape.clock or 0.0) <= high]
        for server, scrapes in servers.items()
    }
    return kept, f"{_restarted(found)}: only the longest part without one is used, {length:.1f} of {end - start:.1f} s"


def _longest_by_number(
    servers: Mapping[str, Sequence[Scrape]], found: Sequence[Restart]
) -> tuple[dict[str, list[Scrape]], str]:
    ((server, scrapes),) = servers.items()
    runs: list[list[Scrape]] = [[]]
    cuts = {id(cut.after) for cut in found}
    for scrape in scrapes:
        if id(scrape) in cuts:
            runs.append([])
        runs[-1].append(scrape)
    longest = max(reversed(runs), key=len)
    note = f"{_restarted(found)}: only the longest part without one is used, {len(longest)} of {len(scrapes)} scrapes"
    return {server: longest}, note


def _restarted(found: Sequence[Restart]) -> str:
    times = "once" if len(found) == 1 else f"{len(found)} times"
    clock = found[0].after.clock
    when = f", before {datetime.fromtimestamp(clock, UTC):%H:%M:%S} UTC" if clock is not None else ""
    return f"the server restarted {times} inside the window{when} ({found[0].sign})"


def not_read(other: Sequence[Scrape]) -> tuple[str, ...]:
    """Pages that are not this engine's, each with the reason."""
    lines: dict[str, list[str]] = {}
    for scrape in other:
        if scrape.gpus:
            continue
        if scrape.exporter:
            reason = "GPU counters without a label that names the GPU"
        elif scrape.engine is not None:
            reason = f"{scrape.engine.title}'s metrics beside another engine's"
        else:
            reason = f"metrics of no engine that is known here ({', '.join(scrape.sample_names)}, ...)"
        lines.setdefault(reason, []).append(scrape.location)
    return tuple(
        f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}: {reason}"
        for reason, names in lines.items()
    )
