"""What an engine did between two scrapes: the difference of two snapshots, and the signs that none can be taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pytest_llmroof.telemetry.agreement import hold_together, mark_lost, mark_split
from pytest_llmroof.telemetry.derived import derive
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.feeding import is_unfed, same_requests
from pytest_llmroof.telemetry.gathering import Buckets
from pytest_llmroof.telemetry.snapshot import Snapshot
from pytest_llmroof.telemetry.window import Histogram

#: A start time that differs by less is the same, printed with fewer digits.
SAME_START_SECONDS: Final = 1.0
#: A page is not written at one instant: a sum may be apart from its buckets by this share.
_TORN: Final = 0.02
#: Series that appear with the first hit: whether there had been some before the window nothing tells.
_HITS: Final = frozenset({"prefix_hits", "prompt_tokens_cached"})
_COMPUTED: Final = "prompt_tokens_computed"
#: So many prompts before the window, as a share of its hits, cannot have made much of them.
_BEFORE: Final = 0.05


@dataclass
class Difference:
    """The increase of everything that one engine exposes. ``problems`` say what could not be taken.

    ``unusable`` names the quantities of which none could be taken, each with the reason; ``resting`` those
    that are fed, though not in this window.
    """

    counters: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unusable: dict[str, str] = field(default_factory=dict)
    resting: set[str] = field(default_factory=set)

    def without(self, quantity: str, problem: str) -> None:
        """Note that a quantity's increase cannot be taken, and why: the first reason is the cause of others."""
        self.unusable.setdefault(quantity, problem)


def reset_between(earlier: Snapshot, later: Snapshot) -> str | None:
    """The sign that an engine started anew between two scrapes, in words; None where there is none."""
    for name, created in later.created.items():
        if name in earlier.created and abs(created - earlier.created[name]) > SAME_START_SECONDS:
            return f"{name} changed"
    for quantity, value in later.counters.items():
        before = earlier.counters.get(quantity)
        if before is not None and value < before and later.names[quantity] == earlier.names[quantity]:
            return f"{later.names[quantity]} went from {before:.15g} down to {value:.15g}"
    for quantity, buckets in later.histograms.items():
        earlier_buckets = earlier.histograms.get(quantity)
        if earlier_buckets is not None and buckets.count < earlier_buckets.count and (
            later.names[quantity] == earlier.names[quantity]
        ):  # fmt: skip
            return f"{later.names[quantity]}_count went from {earlier_buckets.count:.15g} down to {buckets.count:.15g}"
    for reason, value in later.finished.items():
        if value < earlier.finished.get(reason, 0.0):
            return f"{later.names['requests_finished']} went down"
    return None


def difference(earlier: Snapshot | None, later: Snapshot, engine: EngineNames) -> Difference:
    """The increase from ``earlier`` to ``later``; since the engine's start where there is no earlier snapshot."""
    found = Difference(names=dict(later.names))
    for snapshot in (later, earlier):
        for quantity, problem in (snapshot.damaged if snapshot else {}).items():
            found.without(quantity, problem)
    _gone(found, earlier, later)
    _counters(found, earlier, later, engine)
    for quantity, buckets in later.histograms.items():
        base = earlier.histograms.get(quantity) if earlier else None
        if base is not None and earlier is not None and not _same_name(earlier, later, quantity):
            base = None
        if base is None and not _starts_at_zero(earlier, later, quantity, engine):
            found.without(quantity, _not_in_both(later.names[quantity]))
        if quantity in found.unusable:
            continue
        _histogram(found, quantity, base, buckets)
    _finished(found, earlier, later, engine)
    mark_lost(found, later, engine)
    mark_split(found, earlier, later, engine)
    hold_together(found, earlier, later, engine)
    _drop_what_is_off(found, later, engine)
    derive(found, later, engine)
    kept = {*found.counters, *found.histograms, *later.gauges}
    found.problems.extend(problem for problem in found.unusable.values() if problem not in found.problems)
    found.unusable = {
        quantity: problem
        for quantity, problem in found.unusable.items()
        # Where the reasons are lost, the number of finished requests is kept alone.
        if quantity not in kept or (quantity == "requests_finished" and not found.finished)
    }
    found.names = {quantity: name for quantity, name in found.names.items() if quantity in kept}
    return found


def _gone(found: Difference, earlier: Snapshot | None, later: Snapshot) -> None:
    """What was counted and then is not there any more has an increase that nobody knows: it is not 0."""
    if earlier is None:
        return
    there = later.counters.keys() | later.histograms.keys()
    for quantity in (*earlier.counters, *earlier.histograms):
        name = earlier.names[quantity]
        if quantity not in there:
            found.without(quantity, _not_in_both(name, "last"))
        elif _same_name(earlier, later, quantity) and later.series.get(quantity, 0) < earlier.series.get(quantity, 0):
            found.without(quantity, _not_in_both(f"a series of {name}", "last"))


def _counters(found: Difference, earlier: Snapshot | None, later: Snapshot, engine: EngineNames) -> None:
    for quantity, value in later.counters.items():
        base = earlier.counters.get(quantity) if earlier else None
        if base is not None and earlier is not None and not _same_name(earlier, later, quantity):
            base = None
        if base is None:
            if not _starts_at_zero(earlier, later, quantity, engine):
                found.without(quantity, _not_in_both(later.names[quantity]))
                continue
            base = 0.0
        elif value and earlier and _only_siblings(earlier, quantity) and not is_unfed(earlier, quantity, engine):
            # Only series of other labels are there: the one that counts was lost.
            found.without(quantity, _not_in_both(later.names[quantity]))
            continue
        if value and not base and quantity in _HITS and _too_many_before(earlier, quantity, value):
            found.without(quantity, f"{_not_in_both(later.names[quantity])}, and prompts had come before that")
            continue
        if value < base:
            fell = f"went from {base:.15g} down to {value:.15g}"
            found.without(quantity, f"{later.names[quantity]} {fell}: it is not used")
            continue
        if quantity in found.unusable:
            continue
        found.counters[quantity] = value - base


def _only_siblings(earlier: Snapshot, quantity: str) -> bool:
    """Whether a page holds a counter's name, though only with labels that do not count."""
    return earlier.counters.get(quantity) == 0 and not earlier.series.get(quantity)


def _too_many_before(earlier: Snapshot | None, quantity: str, value: float) -> bool:
    """Whether hits that the first page lacks may have been counted before it: of no more tokens than had come."""
    if earlier is None or earlier.series.get(quantity):
        return False
    came = max(earlier.counters.get(name, 0.0) for name in ("prompt_tokens", "finished_prompt_tokens", _COMPUTED))
    return came > _BEFORE * value


def _same_name(earlier: Snapshot, later: Snapshot, quantity: str) -> bool:
    return earlier.names.get(quantity) == later.names.get(quantity)


def _starts_at_zero(earlier: Snapshot | None, later: Snapshot, quantity: str, engine: EngineNames) -> bool:
    """Whether a series that the earlier page lacks was there, unfed: declared, or under a name that was not fed.

    Some engines expose nothing before they first count it: what is absent there was 0, unless the page tells of
    something that must have fed it.
    """
    if earlier is None:
        return True
    if quantity in earlier.damaged:
        return False
    if quantity in earlier.counters or quantity in earlier.histograms:
        buckets = earlier.histograms.get(quantity)
        return not earlier.counters.get(quantity) and (buckets is None or not buckets.count)
    if not engine.labels("model") and not engine.labels("rank"):
        # Series without labels are there from the start: one that is declared and has no sample was lost.
        return engine.absent_until_fed and is_unfed(earlier, quantity, engine)
    if engine.entry.get("from_start"):
        return False
    return (quantity in earlier.declared or engine.absent_until_fed) and is_unfed(earlier, quantity, engine)


def _not_in_both(name: str, missing: str = "first") -> str:
    return f"{name} is not in the {missing} scrape: its increase is not known"


def _histogram(found: Difference, quantity: str, base: Buckets | None, buckets: Buckets) -> None:
    name = found.names[quantity]
    bounds, counts, total = buckets.bounds, list(buckets.counts), buckets.total
    if base is not None:
        if base.bounds != bounds:
            # Cumulative counts at the bounds that both have stay true: the buckets only get wider.
            bounds = tuple(sorted(set(base.bounds) & set(bounds)))
            found.problems.append(
                f"{name} has other buckets in the last scrape than in the first: the common ones are used"
            )
        last, first = dict(zip(buckets.bounds, counts, strict=True)), dict(zip(base.bounds, base.counts, strict=True))
        counts = [last[bound] - first[bound] for bound in bounds]
        total -= base.total
    increases = tuple(high - low for low, high in zip([0.0, *counts], counts, strict=False))
    if any(increase < 0 for increase in increases) or (total < 0 and counts[-1] > 0):
        found.without(quantity, f"{name} decreased in a bucket or in its sum: it is not used")
        return
    increase = Histogram(bounds, increases, total if counts[-1] else 0.0)
    if (low := _least_sum(increase)) > total * (1 + _TORN) or _greatest_sum(increase) < total * (1 - _TORN):
        side = "less" if low > total else "more"
        found.without(quantity, f"{name} has {side} in its sum than its buckets allow: it is not used")
        return
    found.histograms[quantity] = increase


def _least_sum(histogram: Histogram) -> float:
    """The least that a histogram's sum can be: every observation at the lower bound of its bucket."""
    lows = (0.0, *(max(0.0, bound) for bound in histogram.bounds))
    return sum(count * low for count, low in zip(histogram.counts, lows, strict=False) if count)


def _greatest_sum(histogram: Histogram) -> float:
    """The most that it can be: every observation at the upper bound of its bucket."""
    return sum(count * bound for count, bound in zip(histogram.counts, histogram.bounds, strict=True) if count)


def _finished(found: Difference, earlier: Snapshot | None, later: Snapshot, engine: EngineNames) -> None:
    before: Mapping[str, float] = earlier.finished if earlier else {}
    lost = [found.unusable[name] for name in ("requests_aborted", "requests_errored") if name in found.unusable]
    if earlier and before.keys() - later.finished.keys():
        lost.append(_not_in_both(f"a reason of {earlier.names['requests_finished']}", "last"))
    if lost:
        # What failed would be missing from the sum, and look as if nothing had.
        found.without("requests_finished", lost[0])
        found.counters.pop("requests_finished", None)
    if not later.finished or "requests_finished" in found.unusable:
        return
    if earlier and not earlier.finished and not _starts_at_zero(earlier, later, "requests_finished", engine):
        found.without("requests_finished", _not_in_both(later.names["requests_finished"]))
        return
    if any(later.finished.get(reason, 0.0) < count for reason, count in before.items()):
        found.without("requests_finished", f"{later.names['requests_finished']} went down: it is not used")
        return
    found.finished = {reason: value - before.get(reason, 0.0) for reason, value in later.finished.items()}
    aborted, errored = engine.finished_reasons
    observed = found.histograms.get("e2e")
    if observed is not None and not same_requests(found.finished, observed.count, aborted | errored):
        problem = f"{found.names['requests_finished']} and {found.names['e2e']} count different requests"
        for quantity in ("requests_finished", "e2e"):
            found.without(quantity, problem)
        found.finished = {}
        found.histograms.pop("e2e")
        return
    # Some count those that failed apart from those that finished.
    apart = {name: found.counters.get(name, 0.0) for name in ("requests_aborted", "requests_errored")}
    found.counters["requests_finished"] = sum(found.finished.values()) + sum(apart.values())
    found.counters["requests_aborted"] = sum(found.finished.get(reason, 0.0) for reason in aborted)
    found.counters["requests_errored"] = sum(found.finished.get(reason, 0.0) for reason in errored)
    for name, count in apart.items():
        found.counters[name] += count
    apart_only = "requests_errored" in engine.entry["counters"] and "requests_errored" not in later.counters
    if apart_only and not found.counters["requests_errored"]:
        # Its series appears with the first error: that there was none, and that none is counted, look alike.
        del found.counters["requests_errored"]


def _drop_what_is_off(found: Difference, later: Snapshot, engine: EngineNames) -> None:
    """A counter that is registered but never fed is no measurement of 0."""
    moved = any(
        found.counters.get(quantity, 0.0) > 0
        or (quantity in found.histograms and found.histograms[quantity].count > 0)
        for quantity in (*engine.work, "prompt_tokens", "generation_tokens")
    )
    for quantity in engine.zero_means_off & found.counters.keys():
        if found.counters[quantity] == 0 and (moved or later.counters[quantity] == 0):
            del found.counters[quantity]
            if later.counters[quantity]:
                found.resting.add(quantity)
            if quantity not in found.histograms:
                found.names.pop(quantity, None)
