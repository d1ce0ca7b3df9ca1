"""One scrape of a serving engine in canonical quantities: running totals, before any difference is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_llmroof.telemetry.gathering import Buckets


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
    series: Mapping[str, int] = field(default_factory=dict)
    """How many series add up to a counter or a histogram."""
    server_wide: frozenset[str] = frozenset()
    """Quantities that the server tells of all its engines together; one of them may hold them for all."""

    def work(self, quantities: tuple[str, ...]) -> float:
        """The running total of everything that moves when the engine works."""
        total = 0.0
        for quantity in quantities:
            if quantity in self.counters:
                total += self.counters[quantity]
            elif quantity in self.histograms:
                total += self.histograms[quantity].count
        return total
