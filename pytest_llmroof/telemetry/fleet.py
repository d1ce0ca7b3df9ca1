"""The servers behind the series of a Prometheus: told apart by labels, each with its scrapes and its restarts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Final

from pytest_llmroof.data import load
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.difference import SAME_START_SECONDS
from pytest_llmroof.telemetry.engines import EngineNames, Target
from pytest_llmroof.telemetry.page_engines import ranks_of
from pytest_llmroof.telemetry.promapi import Row
from pytest_llmroof.telemetry.snapshot import Identity

START: Final = "process_start_time_seconds"
SCRAPE_SECONDS: Final = "scrape_duration_seconds"
#: Which server was asked, where there are several: a label that no scraped series can have, for its blank.
ASKED: Final = "Prometheus server"

#: Labels that tell servers of one name apart.
_GROUPS: Final = ("cluster", "namespace", ASKED)

#: A server's labels: those that say where it is, and those by what way it was scraped.
Place = tuple[tuple[str, str], ...]
Key = tuple[Place, Place]


@cache
def _label_roles() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    labels = load("prometheus.yaml")
    return tuple(labels["where"]), (*labels["how"], ASKED), tuple(labels["names"])


@cache
def _server_labels() -> frozenset[str]:
    """All labels that are a server's, and the one that is a metric's name."""
    where, how, _ = _label_roles()
    return frozenset((*where, *how, "__name__"))


def key_of(labels: Mapping[str, str]) -> Key:
    """Which server a series is of."""
    where, how, _ = _label_roles()
    return (
        tuple((label, labels[label]) for label in where if label in labels),
        tuple((label, labels[label]) for label in how if label in labels),
    )


def own_labels(labels: Mapping[str, str], engine: EngineNames) -> dict[str, str]:
    """The labels that the engine itself exposed: without the server's, and by the names they had there."""
    servers = _server_labels()
    own = {label: value for label, value in labels.items() if label not in servers}
    # A target's label of the same name wins, and Prometheus keeps the metric's own as `exported_...`.
    for exported in [label for label in own if label.startswith("exported_")]:
        label = exported.removeprefix("exported_")
        if label in (*engine.labels("model"), *engine.labels("rank"), engine.reason_label):
            own[label] = own.pop(exported)
    return own


def identity_of(own: Mapping[str, str], engine: EngineNames) -> Identity:
    """Which of a server's engines a series is of."""
    return Identity(
        next((own[label] for label in engine.labels("model") if label in own), None),
        next((own[label] for label in engine.labels("rank") if label in own), ""),
        tuple((label, own[label]) for label in engine.labels("replica") if label in own),
    )


def is_work(engine: EngineNames, target: Target) -> bool:
    """Whether a metric moves when the engine works."""
    return target.quantity in engine.work and target.part in ("value", "count") and target.kind != "gauge"


def beats(engine: EngineNames, target: Target) -> bool:
    """Whether a metric belongs to the pulse: gauges, and what moves when the engine works."""
    return target.kind == "gauge" or is_work(engine, target)


@dataclass
class Server:
    """One scraped server over the window.

    ``starts`` are its process's start at every scrape that tells it, ``scrape_seconds`` how long scrapes took.
    """

    key: Key
    name: str = ""
    times: list[float] = field(default_factory=list)
    starts: dict[float, float] = field(default_factory=dict)
    scrape_seconds: dict[float, float] = field(default_factory=dict)
    work: dict[tuple[Identity, str, int], list[Row]] = field(default_factory=dict)
    gauges: dict[tuple[Identity, str, int], list[tuple[Target, bool, Row]]] = field(default_factory=dict)

    def total(self, time: float) -> float:
        """Everything that its engines had done, as of the last scrape until ``time``."""
        return sum(row.values[at - 1] for row in self._work_rows() if (at := bisect_right(row.times, time)))

    def _work_rows(self) -> Iterable[Row]:
        """The series of every quantity of work, under its first name that is there."""
        best: dict[tuple[Identity, str], int] = {}
        for identity, quantity, rank in self.work:
            best[identity, quantity] = min(rank, best.get((identity, quantity), rank))
        return (
            row
            for (identity, quantity, rank), rows in self.work.items()
            if best[identity, quantity] == rank
            for row in rows
        )

    def restarts(self) -> list[tuple[float, float, str]]:
        """Every restart: the last scrape before it, the first one after it, and the sign."""
        found: dict[float, tuple[float, float, str]] = {}
        for (before, started), (after, later) in pairwise(sorted(self.starts.items())):
            if abs(later - started) > SAME_START_SECONDS:
                found[after] = (before, after, f"its process started at {started:.0f} before, at {later:.0f} after")
        for rows in self.work.values():
            for row in rows:
                for at, (value, later) in enumerate(pairwise(row.values)):
                    if later < value:
                        after = row.times[at + 1]
                        sign = f"{row.labels.get('__name__', 'a counter')} went down"
                        found.setdefault(after, (row.times[at], after, sign))
        return [found[after] for after in sorted(found)]

    def refuse_two_servers(self) -> None:
        """SourceError where the scrapes come from different processes by turns: an address that balances."""
        began = [round(start) for _, start in sorted(self.starts.items())]
        turns = [later for earlier, later in pairwise(began) if abs(earlier - later) > SAME_START_SECONDS]
        if len(turns) > len(set(turns)) or (turns and began[0] in turns):
            raise SourceError(
                f"{self.name} is several servers that answer by turns (processes started at "
                f"{', '.join(str(start) for start in sorted(set(began))[:3])})",
                "let Prometheus scrape the pods themselves, not an address that balances them",
            )
        restarts = 0 if self.starts else len(self.restarts())
        if restarts > max(2, len(self.times) // 5):
            raise SourceError(
                f"the counters of {self.name} went down {restarts} times in {len(self.times)} scrapes: several "
                "servers answer there by turns, or one restarts all the time",
                "let Prometheus scrape the pods themselves, not an address that balances them",
            )

    def longest_run(self) -> tuple[float, float]:
        """The longest stretch of its scrapes without a restart: first and last scrape."""
        low, runs = self.times[0], []
        for before, after, _ in self.restarts():
            runs.append((before - low, low, before))
            low = max(low, after)
        runs.append((self.times[-1] - low, low, self.times[-1]))
        _, low, high = max(runs)
        return low, high

    def progress(self, times: Sequence[float]) -> list[float]:
        """What its engines had done since their first scrape, at each of these times."""
        done = [0.0] * len(times)
        for row in self._work_rows():
            increase = [0.0, *(max(0.0, later - value) for value, later in pairwise(row.values))]
            total, at = 0.0, 0
            for index, time in enumerate(times):
                while at < len(row.times) and row.times[at] <= time:
                    total += increase[at]
                    at += 1
                done[index] += total
        return done


@dataclass(frozen=True)
class _Pulse:
    """A series of the pulse: which engine of which server it is of, and what its name stands for."""

    key: Key
    identity: Identity
    own: Mapping[str, str]
    targets: tuple[Target, ...]
    row: Row


def servers_of(rows: Iterable[Row], engine: EngineNames) -> list[Server]:
    """The servers that the series tell of, in order of their labels. Series without a sample tell of none."""
    found: dict[Key, Server] = {}
    times: dict[Key, set[float]] = {}
    pulses = []
    for row in rows:
        if not row.times:
            continue
        key, name = key_of(row.labels), row.labels.get("__name__", "")
        server = found.setdefault(key, Server(key))
        if name == START:
            server.starts.update(zip(row.times, row.values, strict=True))
        elif name == SCRAPE_SECONDS:
            server.scrape_seconds.update(zip(row.times, row.values, strict=True))
        elif (kept := _finite(row)).times:
            own = own_labels(row.labels, engine)
            targets = tuple(
                target for target in engine.targets.get(name, ()) if beats(engine, target) and target.admits(own)
            )
            pulses.append(_Pulse(key, identity_of(own, engine), own, targets, kept))
            if targets:
                times.setdefault(key, set()).update(row.times)
    for pulse in _without_repeats(pulses, engine.labels("repeats")):
        _add(found[pulse.key], pulse, engine)
    for key, scrapes in times.items():
        found[key].times = sorted(scrapes)
    return with_names([server for _, server in sorted(found.items()) if server.times])


def _without_repeats(pulses: Sequence[_Pulse], labels: tuple[str, ...]) -> Iterable[_Pulse]:
    """The series without those of ranks that repeat an engine's numbers: of each engine its lowest rank counts."""
    if not labels:
        return pulses
    lowest: dict[tuple[Key, Identity], tuple[int, ...]] = {}
    ranks = [ranks_of(pulse.own, labels) for pulse in pulses]
    for pulse, rank in zip(pulses, ranks, strict=True):
        if rank is not None:
            one = pulse.key, pulse.identity
            lowest[one] = min(lowest.get(one, rank), rank)
    return [
        pulse for pulse, rank in zip(pulses, ranks, strict=True)
        if rank is None or rank == lowest[pulse.key, pulse.identity]
    ]  # fmt: skip


def _add(server: Server, pulse: _Pulse, engine: EngineNames) -> None:
    per_process = any(label in pulse.own for label in engine.labels("process"))
    for target in pulse.targets:
        key = (pulse.identity, target.quantity, target.rank)
        if target.kind == "gauge":
            server.gauges.setdefault(key, []).append((target, per_process, pulse.row))
        else:
            server.work.setdefault(key, []).append(pulse.row)


def _finite(row: Row) -> Row:
    if all(map(math.isfinite, row.values)):
        return row
    kept = [(time, value) for time, value in zip(row.times, row.values, strict=True) if math.isfinite(value)]
    return Row(row.labels, [time for time, _ in kept], [value for _, value in kept])


def with_names(servers: list[Server]) -> list[Server]:
    """The servers, each with the shortest name that tells it from the others."""
    _, _, labels = _label_roles()
    places = [dict((*server.key[0], *server.key[1])) for server in servers]
    for first in (None, *_GROUPS):
        for label in labels:
            values = [(place.get(label), place.get(first or label)) for place in places]
            if all(name and group for name, group in values) and len(set(values)) == len(servers):
                for server, (name, group) in zip(servers, values, strict=True):
                    server.name = f"{first} {group}, {label} {name}" if first else str(name)
                return servers
    for server in servers:
        where, how = server.key
        siblings = [other for other in servers if other.key[0] == where]
        parts = [f"{label} {value}" for label, value in (*where, *(how if len(siblings) > 1 else ()))]
        server.name = ", ".join(parts) or "the only server"
    return servers


def interval_of(servers: Sequence[Server]) -> float:
    """The usual time between two scrapes of a server; 0 where no server has two."""
    pauses = sorted(later - earlier for server in servers for earlier, later in pairwise(server.times))
    return pauses[len(pauses) // 2] if pauses else 0.0
