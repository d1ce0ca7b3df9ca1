"""What stands beside an engine, joined to it: a frontend's latencies, records of its steps. Nothing counts twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.assembly import Servers, engines_of
from pytest_llmroof.telemetry.clock import Clock, clock_of
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.scrapes import Scrape, in_order, restarts
from pytest_llmroof.telemetry.window import Engine, Front, Histogram, merged

#: Counts of requests, which are one account: never some of the engine's and some of another's.
_REQUESTS: Final = frozenset({"requests_finished", "requests_succeeded", "requests_aborted", "requests_errored"})


@dataclass
class Joined:
    """Engines with what stands beside them, the frontend among that, and the scrapes that were used for it."""

    engines: list[Engine]
    front: Front | None = None
    front_lost: str | None = None
    used: list[Scrape] = field(default_factory=list)

    def join(self, kind: EngineNames, whole: Engine) -> None:
        """Join one kind of what stands beside: everything of it as one."""
        if is_front(kind):
            prefer = frozenset((kind.beside or {}).get("prefer", ()))
            self.front = Front(whole, tuple(self.engines), prefer, kind.title)
        self.engines = filled(self.engines, kind, whole)


def join_beside(
    found: Sequence[Engine], servers: Servers, engine: EngineNames, clock: Clock, since_start: bool, said: list[str]
) -> Joined:
    """The engines with what stands beside them, on pages of its own or on theirs.

    What an engine lacks is filled in, and a few quantities are preferred to its own (data/engines.yaml says which).
    Figures of all that stands beside belong to all engines in equal parts, as nothing tells whose they are.
    """
    joined = Joined(list(found))
    everything = {server: with_parts(scrapes) for server, scrapes in servers.items()}
    scraped = [scrape.engine for scrapes in everything.values() for scrape in scrapes if scrape.engine is not None]
    kinds = {one.key: one for one in scraped if one.beside is not None and one is not engine}
    for kind in kinds.values():
        theirs: dict[str, list[Scrape]] = {}
        for server, scrapes in everything.items():
            if of_kind := [scrape for scrape in scrapes if scrape.engine is kind]:
                theirs[server] = of_kind
        whole = _whole(kind, theirs, found, clock, since_start, said)
        if isinstance(whole, str):
            said.append(whole)
            joined.front_lost = whole if is_front(kind) else joined.front_lost
        elif whole is not None:
            joined.join(kind, whole)
            joined.used.extend(scrape for scrapes in theirs.values() for scrape in scrapes)
    return joined


def is_front(kind: EngineNames) -> bool:
    """Whether a kind stands before engines and counts how requests ended."""
    return "errors" in (kind.beside or {}).get("prefer", ())


def with_parts(scrapes: Sequence[Scrape]) -> list[Scrape]:
    """Scrapes, and what of each page is not its engine's."""
    return [one for scrape in scrapes for one in (scrape, *scrape.parts)]


def _whole(
    kind: EngineNames,
    servers: Servers,
    engines: Sequence[Engine],
    clock: Clock,
    since_start: bool,
    said: list[str],
) -> Engine | str | None:
    """Everything of one kind that stands beside the engines, as one, or why it cannot be used; None of other models."""
    ours = {server: in_order(_of_models(of_server, engines)) for server, of_server in servers.items()}
    if any(restarts(of_server) for of_server in ours.values()):
        return f"{kind.title} restarted inside the window: its figures are left out"
    if any(len(of_server) == 1 for of_server in ours.values()) and not since_start:
        return f"{kind.title} is in one scrape only: its figures are left out"
    try:
        own_clock = clock_of(ours, None, since_start)
    except SourceError as error:
        return f"{kind.title} is left out: {error.reason}"
    parts = engines_of(ours, kind, own_clock, since_start, said)
    if not parts:
        return None
    relative = any(scrape.relative_clock for scrapes in ours.values() for scrape in scrapes)
    same_clock = own_clock.known == clock.known and not relative
    return as_one(parts, same_clock, kind, said)


def _of_models(scrapes: Sequence[Scrape], engines: Sequence[Engine]) -> list[Scrape]:
    """The scrapes with the models of these engines only; some frontends write them in lower case."""
    names = {engine.model_name.casefold() for engine in engines if engine.model_name}
    if not names:
        return list(scrapes)
    return [
        replace(
            scrape,
            snapshots={
                identity: snapshot
                for identity, snapshot in scrape.snapshots.items()
                if identity.model_name is None or identity.model_name.casefold() in names
            },
        )
        for scrape in scrapes
    ]


def as_one(parts: Sequence[Engine], with_gauges: bool, kind: EngineNames, said: list[str]) -> Engine:
    """Several engines as one: counters and histograms added up. Gauges only of a single one on the window's clock.

    What one of them exposes, but cannot be used, is no sum of the others. ``said`` collects notes.
    """
    lost = {quantity for part in parts for quantity in part.unusable}
    counters: dict[str, float] = {}
    finished: dict[str, float] = {}
    histograms: dict[str, Histogram] = {}
    names: dict[str, str] = {}
    for part in parts:
        for quantity, value in part.counters.items():
            counters[quantity] = counters.get(quantity, 0.0) + value
        for reason, count in part.finished.items():
            finished[reason] = finished.get(reason, 0.0) + count
        names = {**part.names, **names}
    for quantity in dict.fromkeys(name for part in parts for name in part.histograms):
        try:
            whole = merged([part.histograms[quantity] for part in parts if quantity in part.histograms])
        except ValueError:
            said.append(f"{names.get(quantity, quantity)} of {kind.title} has other buckets on other pages: left out")
            continue
        if whole is not None:
            histograms[quantity] = whole
    gauges = dict(parts[0].gauges) if with_gauges and len(parts) == 1 else {}
    return replace(
        parts[0],
        counters={quantity: value for quantity, value in counters.items() if quantity not in lost},
        histograms={quantity: one for quantity, one in histograms.items() if quantity not in lost},
        gauges=gauges,
        finished={} if "requests_finished" in lost else finished,
        names=names,
    )


def filled(engines: Sequence[Engine], kind: EngineNames, whole: Engine) -> list[Engine]:
    """The engines with the figures of what stands beside them, in equal parts."""
    return [_filled(one, kind, whole, index, len(engines)) for index, one in enumerate(engines)]


def _filled(engine: Engine, kind: EngineNames, whole: Engine, index: int, engines: int) -> Engine:
    prefer = set((kind.beside or {}).get("prefer", ()))
    share = 1 / engines

    counts_requests = bool(engine.finished) or not _REQUESTS.isdisjoint(engine.counters)

    def fills(quantity: str, own: Mapping[str, object]) -> bool:
        if quantity in _REQUESTS and counts_requests:
            return False
        return quantity not in own or quantity in prefer

    counters = {name: value * share for name, value in whole.counters.items() if fills(name, engine.counters)}
    histograms = {name: _part(one, share) for name, one in whole.histograms.items() if fills(name, engine.histograms)}
    # Gauges are one whole's: they stand at the first engine, beside which no other has them.
    gauges = {name: one for name, one in whole.gauges.items() if index == 0 and name not in engine.gauges}
    finished = {} if counts_requests else whole.finished
    taken = {*counters, *histograms, *gauges}
    by_reason = {"requests_finished"} if finished else set()
    return replace(
        engine,
        counters={**engine.counters, **counters},
        histograms={**engine.histograms, **histograms},
        gauges={**engine.gauges, **gauges},
        finished=engine.finished or {reason: count * share for reason, count in finished.items()},
        names={**engine.names, **{name: text for name, text in whole.names.items() if name in taken}},
        shared={**engine.shared, **dict.fromkeys(sorted(taken | by_reason), kind.title)},
        unusable={name: why for name, why in engine.unusable.items() if name not in taken | by_reason},
    )


def _part(histogram: Histogram, share: float) -> Histogram:
    if share == 1:
        return histogram
    return Histogram(histogram.bounds, tuple(count * share for count in histogram.counts), histogram.total * share)
