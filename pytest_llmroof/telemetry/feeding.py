"""What must have been counted, by what else was: data/feeding.yaml has the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pytest_llmroof.data import load
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.snapshot import Snapshot
from pytest_llmroof.telemetry.window import Engine

#: A page is not written at one instant: two counts of the same requests may be apart by this share and this number.
APART_SHARE: Final = 0.02
APART: Final = 2


def must_be_fed(counts: Mapping[str, float]) -> frozenset[str]:
    """The quantities that cannot be 0 beside these counts (by quantity; observations of a histogram)."""
    rules = load("feeding.yaml")["rules"]
    return frozenset(quantity for rule in rules if _happened(rule, counts) for quantity in rule["feeds"])


def _happened(rule: Mapping[str, Any], counts: Mapping[str, float]) -> bool:
    if any(counts.get(quantity, 0.0) > 0 for quantity in rule.get("shown_by", ())):
        return True
    requests = [counts[quantity] for quantity in rule.get("more_than", ()) if quantity in counts]
    tokens = max((counts.get(quantity, 0.0) for quantity in rule.get("tokens", ())), default=0.0)
    return bool(requests) and tokens > max(requests)


def counts_of(counted: Snapshot | Engine, kind: EngineNames) -> dict[str, float]:
    """What was counted, on one page or in a window, by quantity."""
    return dict(_counts(counted, kind))


def _counts(counted: Snapshot | Engine, kind: EngineNames) -> Iterator[tuple[str, float]]:
    yield from counted.counters.items()
    for quantity, histogram in counted.histograms.items():
        yield quantity, histogram.count
    failed = frozenset().union(*kind.finished_reasons)
    yield "requests_served", sum(count for reason, count in counted.finished.items() if reason not in failed)


def is_unfed(page: Snapshot, quantity: str, kind: EngineNames) -> bool:
    """Whether nothing on a page shows that a quantity, which it lacks, had been counted."""
    return quantity not in must_be_fed(counts_of(page, kind))


def same_requests(finished: Mapping[str, float], observed: float, failed: frozenset[str]) -> bool:
    """Whether latencies of ``observed`` requests are of those that finished; those that failed may have none."""
    served = sum(count for reason, count in finished.items() if reason not in failed)
    return (
        served <= observed * (1 + APART_SHARE) + APART
        and observed <= sum(finished.values()) * (1 + APART_SHARE) + APART
    )
