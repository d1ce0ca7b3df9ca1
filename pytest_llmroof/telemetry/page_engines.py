"""The engines on one page: which samples are whose, and what is the whole server's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from pytest_llmroof.telemetry.collector import Collector
from pytest_llmroof.telemetry.engines import EngineNames, Target
from pytest_llmroof.telemetry.exposition import Page, Sample
from pytest_llmroof.telemetry.snapshot import Identity, Snapshot
from pytest_llmroof.units import whole_of

_START: Final = "process_start_time_seconds"
#: Above every rank that a label can hold.
_LAST_RANK: Final = 1 << 62
#: Roles of labels that number ranks.
_RANKS: Final = ("tensor_ranks", "pipeline_ranks", "expert_ranks")


def process_start(page: Page) -> float | None:
    """When the server's process started (Unix seconds), where the page tells of exactly one."""
    starts = {sample.value for sample in page.samples if sample.name == _START and math.isfinite(sample.value)}
    return starts.pop() if len(starts) == 1 else None


def snapshots(page: Page, engine: EngineNames) -> tuple[Snapshot, ...]:
    """Every engine on a page, in order of appearance."""
    processes, known = engine.labels("process"), engine.targets
    declared = frozenset(quantity for name in page.types for quantity in engine.families.get(name, ()))
    collectors: dict[Identity, Collector] = {}
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
            collector = collectors[identity] = Collector(identity, engine, processes)
        for target in targets:
            if not target.where or target.admits(sample.labels):
                collector.add(target, sample)
            elif target.kind == "counter" and target.part == "value":
                collector.unfed(target, sample)
    _fold_server_wide(collectors, engine.shares_out)
    for identity, facts in _ranks(read, engine).items():
        if identity in collectors:
            collectors[identity].facts.update(facts)
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


def _ranks(read: list[_Read], engine: EngineNames) -> dict[Identity, dict[str, str]]:
    """How many ranks of each kind have series: experts are shared by all engines of a server, the rest is of each."""
    seen: dict[tuple[str, Identity], set[str]] = {}
    for role in _RANKS:
        labels = engine.labels(role)
        for identity, _, sample in read if labels else ():
            for label in labels:
                if whole_of(sample.labels.get(label, "")) is not None:
                    seen.setdefault((role, _sharing(role, identity)), set()).add(sample.labels[label])
    found: dict[Identity, dict[str, str]] = {}
    for identity in {identity for identity, _, _ in read} if seen else ():
        counts = {role: len(seen.get((role, _sharing(role, identity)), ())) for role in _RANKS}
        found[identity] = {role: str(count) for role, count in counts.items() if count}
    return found


def _sharing(role: str, identity: Identity) -> Identity:
    return identity._replace(rank="") if role == "expert_ranks" else identity


def ranks_of(labels: Mapping[str, str], names: tuple[str, ...]) -> tuple[int, ...] | None:
    """The ranks of a series; one that has none of these labels belongs to no rank.

    A rank that is no number comes after all others: it may repeat what they count, and must not count twice.
    """
    if not any(name in labels for name in names):
        return None
    ranks = (whole_of(labels.get(name, "0")) for name in names)
    return tuple(_LAST_RANK if rank is None else rank for rank in ranks)


def _fold_server_wide(collectors: dict[Identity, Collector], shares_out: bool) -> None:
    """Series of the whole server lack a label that its engines have: they are no engine of their own.

    Facts are then every engine's; a counter goes to the first engine, or in equal parts to all, so that sums stay
    right. Gauges go to the first engine.
    """
    for identity, collector in list(collectors.items()):
        siblings = [other for key, other in collectors.items() if key != identity and _is_part_of(key, identity)]
        if not siblings:
            continue
        del collectors[identity]
        # A series that lost its engine's label, beside others that have theirs, is no series of the whole server.
        wide = collector.quantities.difference(*(sibling.quantities for sibling in siblings))
        for sibling in siblings:
            sibling.facts.update(collector.facts)
            sibling.disabled |= collector.disabled
            sibling.server_wide |= wide
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
