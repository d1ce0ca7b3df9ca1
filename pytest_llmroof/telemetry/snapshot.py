"""One scrape of a serving engine in canonical quantities: running totals, before any difference is taken."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pytest_llmroof.telemetry.engines import EngineNames, Target
from pytest_llmroof.telemetry.exposition import Page, Sample
from pytest_llmroof.telemetry.gathering import Buckets, GatheredHistogram, Unusable

_START: Final = "process_start_time_seconds"
#: A fact is shown only where it is a plain word or number.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.+-]{1,40}")


#: What gauges cannot exceed: shares, a little rounding apart.
_MOST: Final = dict.fromkeys(("kv_usage", "prefix_hit_rate", "acceptance_rate"), 1.0 + 1e-6)


class Identity(NamedTuple):
    """What tells one engine from its siblings on a page."""

    model_name: str | None
    rank: str
    replica: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        parts = [f"engine {self.rank}"] if self.rank else []
        parts.extend(f"{label} {value}" for label, value in self.replica)
        return ", ".join(parts)


@dataclass(frozen=True)
class Snapshot:
    """One engine on one page. ``declared`` quantities have a type, though maybe no series yet.

    ``damaged`` are quantities whose series say what cannot be (negative, not a number, not cumulative), and what.
    """

    identity: Identity
    counters: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Buckets] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    finished: Mapping[str, float] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    created: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()
    declared: frozenset[str] = frozenset()
    damaged: Mapping[str, str] = field(default_factory=dict)
    largest: Mapping[str, float] = field(default_factory=dict)
    """The largest sample of gauges of which no other is known."""

    def work(self, quantities: tuple[str, ...]) -> float:
        """The running total of everything that moves when the engine works."""
        total = 0.0
        for quantity in quantities:
            if quantity in self.counters:
                total += self.counters[quantity]
            elif quantity in self.histograms:
                total += self.histograms[quantity].count
        return total


def process_start(page: Page) -> float | None:
    """When the server's process started (Unix seconds), where the page tells of exactly one."""
    starts = {sample.value for sample in page.samples if sample.name == _START and math.isfinite(sample.value)}
    return starts.pop() if len(starts) == 1 else None


def snapshots(page: Page, engine: EngineNames) -> tuple[Snapshot, ...]:
    """Every engine on a page, in order of appearance."""
    processes, known = engine.labels("process"), engine.targets
    declared = frozenset(quantity for name in page.types for quantity in engine.families.get(name, ()))
    collectors: dict[Identity, _Collector] = {}
    read = []
    identities: dict[int, Identity] = {}  # by the labels' object, which lines that write them alike share
    for sample in page.samples:
        targets = known.get(sample.name)
        if targets is None:
            continue
        identity = identities.get(id(sample.labels))
        if identity is None:
            identity = identities[id(sample.labels)] = _identity(sample.labels, engine)
        read.append((identity, targets, sample))
    for identity, targets, sample in _without_repeats(read, engine.labels("repeats")):
        collector = collectors.get(identity)
        if collector is None:
            collector = collectors[identity] = _Collector(identity, engine, processes)
        for target in targets:
            if not target.where or target.admits(sample.labels):
                collector.add(target, sample)
            elif target.kind == "counter" and target.part == "value":
                collector.unfed(target, sample)
    _fold_server_wide(collectors, engine.shares_out)
    return tuple(collector.snapshot(declared) for collector in collectors.values())


def _identity(labels: Mapping[str, str], engine: EngineNames) -> Identity:
    return Identity(
        next((labels[label] for label in engine.labels("model") if label in labels), None),
        next((labels[label] for label in engine.labels("rank") if label in labels), ""),
        tuple((label, labels[label]) for label in engine.labels("replica") if label in labels),
    )


_Read = tuple[Identity, tuple[Target, ...], Sample]


def _without_repeats(read: list[_Read], labels: tuple[str, ...]) -> list[_Read]:
    """The samples without those of ranks that repeat an engine's numbers: of each engine its lowest rank counts.

    Not rank 0: of several engines in one server the second may begin at rank 4.
    """
    if not labels:
        return read
    lowest: dict[Identity, tuple[int, ...]] = {}
    ranks = [ranks_of(sample.labels, labels) for _, _, sample in read]
    for (identity, _, _), rank in zip(read, ranks, strict=True):
        if rank is not None:
            lowest[identity] = min(lowest.get(identity, rank), rank)
    return [one for one, rank in zip(read, ranks, strict=True) if rank is None or rank == lowest[one[0]]]


def ranks_of(labels: Mapping[str, str], names: tuple[str, ...]) -> tuple[int, ...] | None:
    """The ranks of a series; one that has none of these labels belongs to no rank."""
    if not any(name in labels for name in names):
        return None
    return tuple(int(value) if (value := labels.get(name, "0")).isdecimal() else 0 for name in names)


def _fold_server_wide(collectors: dict[Identity, _Collector], shares_out: bool) -> None:
    """Series of the whole server lack a label that its engines have: they are no engine of their own.

    Facts are then every engine's; a counter goes to the first engine, or in equal parts to all, so that sums stay
    right. Gauges go to the first engine.
    """
    for identity, collector in list(collectors.items()):
        siblings = [other for key, other in collectors.items() if key != identity and _is_part_of(key, identity)]
        if not siblings:
            continue
        del collectors[identity]
        for sibling in siblings:
            sibling.facts.update(collector.facts)
            sibling.disabled |= collector.disabled
        parts = len(siblings) if shares_out else 1
        for sibling in siblings[:parts]:
            sibling.take(collector, 1 / parts)
        held = {quantity for sibling in siblings for quantity, _ in sibling.gauges}
        siblings[0].take_gauges(collector, held)


def _is_part_of(engine: Identity, server: Identity) -> bool:
    """Whether ``server`` is ``engine`` with some labels missing."""
    return (
        server.model_name in (None, engine.model_name)
        and server.rank in ("", engine.rank)
        and set(server.replica) <= set(engine.replica)
    )


class _Collector:
    """Gathers the samples of one engine."""

    def __init__(self, identity: Identity, engine: EngineNames, processes: tuple[str, ...]) -> None:
        self.identity = identity
        self.engine = engine
        self.processes = processes
        self.counters: dict[tuple[str, int], float] = {}
        self.wholes: dict[tuple[str, int], float] = {}
        self.means: dict[tuple[str, int], str] = {}
        self.exposed: dict[tuple[str, int], str] = {}
        self.histograms: dict[tuple[str, int], GatheredHistogram] = {}
        self.gauges: dict[tuple[str, int], list[tuple[Target, bool, float]]] = {}
        self.finished: dict[str, float] = {}
        self.created: dict[str, float] = {}
        self.facts: dict[str, str] = {}
        self.disabled: set[str] = set()
        self.damaged: dict[str, str] = {}

    def take(self, other: _Collector, share: float) -> None:
        """A share of the counters and histograms of the whole server, where the engine has none of its own."""
        self.damaged.update(other.damaged)
        for key, value in other.counters.items():
            if key not in self.counters:
                self.counters[key], self.exposed[key] = value * share, other.exposed[key]
                self.means |= {one: over for one, over in other.means.items() if one == key}
        for key, value in other.wholes.items():
            self.wholes.setdefault(key, value * share)
        for key, histogram in other.histograms.items():
            self.histograms.setdefault(key, histogram.part(share))
        if other.finished and not self.finished:
            self.finished = {reason: count * share for reason, count in other.finished.items()}
            self.exposed["requests_finished", 0] = other.exposed["requests_finished", 0]

    def take_gauges(self, other: _Collector, held: set[str]) -> None:
        """The gauges of the whole server that none of its engines has (``held``): they stand at one of them."""
        for key, samples in other.gauges.items():
            if key[0] not in held:
                self.gauges[key], self.exposed[key] = samples, other.exposed[key]

    def unfed(self, target: Target, sample: Sample) -> None:
        """A counter of which only series with other label values are there: it was never counted, and is 0."""
        key = (target.quantity, target.rank)
        if self.exposed.setdefault(key, sample.name) == sample.name:
            self.counters.setdefault(key, 0.0)

    def add(self, target: Target, sample: Sample) -> None:
        key = (target.quantity, target.rank)
        value = sample.value
        if target.part == "created":
            if math.isfinite(value):
                self.created[sample.name] = min(value, self.created.get(sample.name, math.inf))
        elif target.kind == "histogram":
            if key not in self.histograms:
                self.histograms[key] = GatheredHistogram(sample.name.rpartition("_")[0], target.scale)
            self.histograms[key].add(target, sample)
        elif target.kind in ("counter", "finished") and not 0 <= value < math.inf:
            self.damaged[target.quantity] = f"{sample.name} is {value:g}, which no count can be"
        elif target.kind == "counter":
            if self.exposed.setdefault(key, sample.name) == sample.name:  # not `x` beside `x_total`
                self._count(key, target, sample)
        elif target.kind == "gauge":
            self._gauge(key, target, sample)
        elif target.kind == "finished":
            if self.exposed.setdefault(key, sample.name) == sample.name:
                reason = sample.labels.get(self.engine.reason_label, "")
                self.finished[reason] = self.finished.get(reason, 0.0) + value
        else:
            for label in self.engine.fact_labels:
                fact = sample.labels.get(label, "None")
                if _PLAIN.fullmatch(fact) and fact != "None":
                    self.facts[label] = fact

    def _count(self, key: tuple[str, int], target: Target, sample: Sample) -> None:
        value = sample.value * target.scale
        if target.times is not None:
            self.means[key] = target.times
        if target.whole is not None and sample.labels.get(target.whole[0]) == target.whole[1]:
            self.wholes[key] = self.wholes.get(key, 0.0) + value
            self.counters.setdefault(key, 0.0)
        else:
            self.counters[key] = self.counters.get(key, 0.0) + value

    def _counted(self, key: tuple[str, int]) -> float:
        """A counter's total: its series' sum, or what one of them says of all; a mean times what it is a mean over."""
        value = max(self.counters[key], self.wholes.get(key, 0.0))
        if key not in self.means:
            return value
        over = [count for (quantity, _), count in self.counters.items() if quantity == self.means[key]]
        return value * over[0] if over else math.nan

    def _gauge(self, key: tuple[str, int], target: Target, sample: Sample) -> None:
        if target.disabled is not None and sample.value == target.disabled:
            self.disabled.add(target.quantity)
        elif not 0 <= sample.value * target.scale <= _MOST.get(target.quantity, math.inf):
            if not math.isnan(sample.value):  # which says that it has no value yet
                self.damaged[target.quantity] = f"{sample.name} is {sample.value:g}, which it cannot be"
        elif math.isfinite(sample.value):
            self.exposed.setdefault(key, sample.name)
            per_process = any(label in sample.labels for label in self.processes)
            self.gauges.setdefault(key, []).append((target, per_process, sample.value * target.scale))

    def snapshot(self, declared: frozenset[str]) -> Snapshot:
        names: dict[str, str] = {}
        counters, histograms, gauges = {}, {}, {}
        totals = {key: self._counted(key) for key in self.counters}
        for key in _preferred({key: bool(value) for key, value in totals.items()}):
            if math.isfinite(totals[key]):
                counters[key[0]] = totals[key]
                names[key[0]] = self.exposed[key]
        for key in _preferred({key: histogram.fed for key, histogram in self.histograms.items()}):
            try:
                histograms[key[0]] = self.histograms[key].buckets()
                names.setdefault(key[0], self.histograms[key].name)
            except Unusable as error:
                self.damaged[key[0]] = f"{self.histograms[key].name} {error}"
        for key in _preferred(dict.fromkeys(self.gauges, True)):
            gauges[key[0]] = _combined(self.gauges[key])
            names[key[0]] = self.exposed[key]
        for quantity in self.damaged:
            for kept in (counters, histograms, gauges):
                kept.pop(quantity, None)
        finished = {} if "requests_finished" in self.damaged else self.finished
        if finished:
            names["requests_finished"] = self.exposed["requests_finished", 0]
        return Snapshot(
            self.identity, counters, histograms, gauges, finished, names, self.created, self.facts,
            frozenset(self.disabled), declared, self.damaged,
        )  # fmt: skip


def _preferred(fed: Mapping[tuple[str, int], bool]) -> Iterator[tuple[str, int]]:
    """Of several names for one quantity the first that is fed, else the first."""
    best: dict[str, tuple[bool, int]] = {}
    for (quantity, rank), is_fed in fed.items():
        best[quantity] = min(best.get(quantity, (True, rank)), (not is_fed, rank))
    yield from ((quantity, rank) for quantity, (_, rank) in best.items())


def _combined(samples: list[tuple[Target, bool, float]]) -> float:
    """One value of a gauge's series: processes repeat each other, other labels add up or the largest counts."""
    values = [value for _, _, value in samples]
    repeated = any(per_process for _, per_process, _ in samples)
    return sum(values) if samples[0][0].combine == "sum" and not repeated else max(values)
