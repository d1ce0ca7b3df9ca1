"""Where the step time went: shares that add up to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Cause = Literal[
    "memory floor: weights",
    "memory floor: KV",
    "compute floor",
    "interleaved prefill",
    "kernel ceiling",
    "slow kernels",
    "clock",
    "exposed communication: transport",
    "exposed communication: waiting",
    "idle: within steps",
    "idle: between steps",
    "front end",
    "queue",
    "other requests' prefill",
    "not attributed",
]

#: Which scenario a lost share speaks for. ``not attributed`` is one of C, D, F: nothing told which.
SCENARIO_OF_CAUSE: Final[dict[Cause, str]] = {
    "exposed communication: transport": "C",
    "idle: within steps": "D",
    "idle: between steps": "D",
    "slow kernels": "F",
}


@dataclass(frozen=True)
class Share:
    """One cause's part of a step: ``seconds``, ``share`` of the step, and whether it was observed or estimated."""

    cause: Cause
    seconds: float
    share: float
    observed: bool
    source: str


@dataclass(frozen=True)
class Attribution:
    """A step's (or TTFT's) time split into shares that add up to 1. ``of`` names what was split: a ``recording`` is a
    profile in which steps could not be told apart.
    """

    of: Literal["decode step", "prefill", "ttft", "recording"]
    seconds: float
    shares: tuple[Share, ...]

    def share(self, *causes: Cause) -> float:
        """The summed share of some causes."""
        return sum(part.share for part in self.shares if part.cause in causes)
