"""What was read of a fleet of one kind: its servers by their pulse, and the grid of everything that they expose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.fleet import Server
from pytest_llmroof.telemetry.promapi import Row


@dataclass(frozen=True)
class Read:
    """What a server answered: the fleet's ``servers`` by their pulse, and the ``grid`` of everything they expose.

    ``interval`` is the usual time between two scrapes. ``step`` is how far the times of the pulse lie apart where it
    is not raw (0: it is).
    """

    location: str
    engine: EngineNames
    servers: Sequence[Server]
    grid: Sequence[Row]
    interval: float
    step: float

    @cached_property
    def declared(self) -> Mapping[str, str]:
        """All metrics of the fleet as if a page declared them: what a first scrape lacks was not counted yet."""
        names = {row.labels.get("__name__", "").removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
                 for row in self.grid}  # fmt: skip
        return dict.fromkeys(names & self.engine.families.keys(), "unknown")

    @cached_property
    def summed(self) -> frozenset[str]:
        """Gauges that count something: a server that is not there has none of it."""
        targets = (target for targets in self.engine.targets.values() for target in targets)
        return frozenset(target.quantity for target in targets if target.kind == "gauge" and target.combine == "sum")

    @property
    def slack(self) -> float:
        """How far first or last samples of servers that were there all the time may lie apart."""
        return self.step / 2 if self.step else 2 * self.interval
