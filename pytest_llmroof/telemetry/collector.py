"""The samples of one engine on one page, gathered to canonical quantities: what counts once, and what adds up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from pytest_llmroof.telemetry.engines import EngineNames, Target
from pytest_llmroof.telemetry.exposition import Sample
from pytest_llmroof.telemetry.facttext import fact_text
from pytest_llmroof.telemetry.gathering import GatheredHistogram, Unusable
from pytest_llmroof.telemetry.snapshot import Identity, Snapshot

#: What gauges cannot exceed: shares, a little rounding apart.
_MOST: Final = dict.fromkeys(("kv_usage", "prefix_hit_rate", "acceptance_rate"), 1.0 + 1e-6)


class Collector:
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
        self.server_wide: set[str] = set()
        self.series: dict[tuple[str, int], int] = {}

    @property
    def quantities(self) -> set[str]:
        """What it gathered anything of."""
        keys = (*self.counters, *self.histograms, *self.gauges)
        return {quantity for quantity, _ in keys} | ({"requests_finished"} if self.finished else set())

    def take(self, other: Collector, share: float) -> None:
        """A share of the counters and histograms of the whole server, where the engine has none of its own."""
        self.damaged.update(other.damaged)
        for key, value in other.counters.items():
            if key not in self.counters:
                self.counters[key], self.exposed[key] = value * share, other.exposed[key]
                self.means |= {one: over for one, over in other.means.items() if one == key}
                self.series[key] = other.series.get(key, 0)
        for key, value in other.wholes.items():
            self.wholes.setdefault(key, value * share)
        for key, histogram in other.histograms.items():
            self.histograms.setdefault(key, histogram.part(share))
        if other.finished and not self.finished:
            self.finished = {reason: count * share for reason, count in other.finished.items()}
            self.exposed["requests_finished", 0] = other.exposed["requests_finished", 0]

    def take_gauges(self, other: Collector, held: set[str]) -> None:
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
        """A sample that counts for a quantity, by its kind."""
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
                self.series[key] = self.series.get(key, 0) + 1
        elif target.kind == "gauge":
            self._gauge(key, target, sample)
        elif target.kind == "finished":
            if self.exposed.setdefault(key, sample.name) == sample.name:
                reason = sample.labels.get(self.engine.reason_label, "")
                self.finished[reason] = self.finished.get(reason, 0.0) + value
        else:
            for fact, label in self.engine.fact_labels(target.name).items():
                if (text := fact_text(fact, sample.labels.get(label))) is not None:
                    self.facts[fact] = text

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
        """What was gathered; ``declared`` quantities have a type on the page."""
        names: dict[str, str] = {}
        counters, histograms, gauges = {}, {}, {}
        series: dict[str, int] = {}
        totals = {key: self._counted(key) for key in self.counters}
        for key in _preferred({key: bool(value) for key, value in totals.items()}):
            if math.isfinite(totals[key]):
                counters[key[0]] = totals[key]
                names[key[0]] = self.exposed[key]
                series[key[0]] = self.series.get(key, 0)
        for key in _preferred({key: histogram.fed for key, histogram in self.histograms.items()}):
            try:
                histograms[key[0]] = self.histograms[key].buckets()
                names.setdefault(key[0], self.histograms[key].name)
                series.setdefault(key[0], max(self.histograms[key].series.values(), default=1))
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
            frozenset(self.disabled), declared, self.damaged, series=series, server_wide=frozenset(self.server_wide),
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
