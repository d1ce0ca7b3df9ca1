"""Counts of the same events under several names: those that differ are not of all of them.

A series that was lost from the first page, or a figure that became another, shows nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING

from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.feeding import APART, APART_SHARE, counts_of, must_be_fed
from pytest_llmroof.telemetry.snapshot import Snapshot

if TYPE_CHECKING:
    from pytest_llmroof.telemetry.difference import Difference


def hold_together(found: Difference, earlier: Snapshot | None, later: Snapshot, engine: EngineNames) -> None:
    """Of each group of counts that must agree, take those away that most of the others contradict; of two, both.

    Requests that failed may be in some counts and not in others.
    """
    failed = sum(found.counters.get(name, 0.0) for name in ("requests_aborted", "requests_errored"))
    for group in engine.entry.get("agree", ()):
        counted = dict(_counted(found, later, group))
        odd = _odd(counted, failed)
        names = {name: _said(found, name, value) for name, value in counted.items()}
        for name in odd:
            other = next((one for one in counted if one not in odd), next(one for one in counted if one != name))
            _take(found, name.partition(".")[0], f"{names[name]}, and {names[other]}: they do not agree")
    for begun, ended in engine.entry.get("begun", {}).items():
        _begun(found, earlier, later, engine, (begun, ended), failed)


def mark_lost(found: Difference, later: Snapshot, engine: EngineNames) -> None:
    """What every release exposes once it is fed, where the last page tells what fed it, and lacks it: it was lost."""
    always = engine.entry.get("always", ())
    fed = must_be_fed(counts_of(later, engine)) if always else frozenset()
    for quantity in always:
        if quantity in fed and not _is_fed(later, quantity) and quantity not in found.unusable:
            problem = f"{_name_of(engine, quantity)} is not in the last scrape, though it must have been counted"
            _take(found, quantity, problem)


def mark_split(found: Difference, earlier: Snapshot | None, later: Snapshot, engine: EngineNames) -> None:
    """What has a series for each kind of requests: one with fewer of them than others on its page lost some."""
    split = engine.entry.get("split", ())
    for page, which in ((earlier, "first"), (later, "last")):
        series = {quantity: page.series[quantity] for quantity in split if page and page.series.get(quantity)}
        most = max(series.values(), default=0)
        for quantity, count in series.items():
            if count < most:
                name = _name_of(engine, quantity)
                _take(found, quantity, f"{name} has {count} series in the {which} scrape, others of its kind {most}")


def _counted(found: Difference, later: Snapshot, group: list[str]) -> Iterator[tuple[str, float]]:
    for name in group:
        quantity, _, part = name.partition(".")
        if not _is_fed(later, quantity):
            continue
        histogram = found.histograms.get(quantity)
        if histogram is not None:
            yield name, histogram.total if part == "sum" else histogram.count
        elif quantity in found.counters and not part:
            yield name, found.counters[quantity]


def _is_fed(later: Snapshot, quantity: str) -> bool:
    """Whether anything was ever counted: some releases expose what they never feed."""
    histogram = later.histograms.get(quantity)
    return bool(later.counters.get(quantity) or (histogram is not None and histogram.count))


def _odd(counted: Mapping[str, float], failed: float) -> list[str]:
    """Those that differ from what most say; all where no two agree."""
    if len(counted) < 2:
        return []
    values = list(counted.values())
    usual = median(values) if len(values) > 2 else max(values)
    odd = [name for name, value in counted.items() if not _agree(value, usual, failed)]
    return list(counted) if len(counted) - len(odd) < 2 and odd else odd


def _agree(one: float, other: float, slack: float) -> bool:
    return abs(one - other) <= max(one, other) * APART_SHARE + APART + slack


def _begun(
    found: Difference, earlier: Snapshot | None, later: Snapshot, engine: EngineNames, pair: tuple[str, str],
    failed: float,
) -> None:  # fmt: skip
    """What is counted when a request begins differs from what is when it ends by those that are under way, at most.

    The latter is believed where others agree with it.
    """
    begun, ended = pair
    first, last = found.histograms.get(begun), found.histograms.get(ended)
    if first is None or last is None or not _is_fed(later, ended) or {begun, ended} & later.server_wide:
        return
    edges = [_present(snapshot) for snapshot in (earlier, later)]
    before, after = edges
    if before is None or after is None:
        return
    low, high = last.count - before - failed, last.count + after + failed
    if low * (1 - APART_SHARE) - APART <= first.count <= high * (1 + APART_SHARE) + APART:
        return
    under_way = f"with {before:.15g} requests under way before and {after:.15g} after"
    said = f"{_said(found, begun, first.count)}, and {_said(found, ended, last.count)} {under_way}: they do not agree"
    confirmed = any(
        ended in group and len(dict(_counted(found, later, group))) > 1 for group in engine.entry.get("agree", ())
    )
    for quantity in (begun,) if confirmed else (begun, ended):
        _take(found, quantity, said)


def _present(snapshot: Snapshot | None) -> float | None:
    """Requests that run or wait on a page; none before a server's start."""
    if snapshot is None:
        return 0.0
    running = snapshot.gauges.get("running")
    return None if running is None else running + snapshot.gauges.get("waiting", 0.0)


def _name_of(engine: EngineNames, quantity: str) -> str:
    """What an engine calls a quantity, as its entry has it first."""
    entry = engine.entry
    spec = next(entry[kind][quantity][0] for kind in ("counters", "histograms") if quantity in entry.get(kind, ()))
    return f"{engine.prefixes[0]}{spec['name'] if isinstance(spec, Mapping) else spec}"


def _said(found: Difference, name: str, value: float) -> str:
    quantity, _, part = name.partition(".")
    exposed = found.names.get(quantity, quantity)
    suffix = f"_{part or 'count'}" if quantity in found.histograms else ""
    return f"{exposed}{suffix} grew by {value:.15g}"


def _take(found: Difference, quantity: str, problem: str) -> None:
    found.without(quantity, problem)
    found.counters.pop(quantity, None)
    found.histograms.pop(quantity, None)
