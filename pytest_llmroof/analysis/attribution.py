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


#: What an unattributed share may be beside a loss: the step's reads of the cache, where no context is known; what steps
#: that also compute prompts add, where the profile's typical step only decodes; and these prompts' floor, where nothing
#: counts such steps.
Maybe = Literal["cache reads", "unprofiled steps", "prompts' floor"]


@dataclass(frozen=True)
class Share:
    """One cause's part of a step: ``seconds``, ``share`` of the step, and whether it was observed or estimated.

    ``maybe`` is what of it may be no loss.
    """

    cause: Cause
    seconds: float
    share: float
    observed: bool
    source: str
    maybe: frozenset[Maybe] = frozenset()


@dataclass(frozen=True)
class Attribution:
    """A step's (or TTFT's) time split into shares that add up to 1. ``of`` names what was split: a ``recording`` is a
    profile in which steps could not be told apart.
    """

    of: Literal["decode step", "prefill", "ttft", "recording"]
    seconds: float
    shares: tuple[Share, ...]

    @property
    def step_seconds(self) -> float | None:
        """The step that a source's own one can be held against; None where a busy time or a latency was split."""
        return self.seconds if self.of == "decode step" else None

    def may_be(self, what: Maybe) -> bool:
        """Whether what is not attributed may be this, and no loss."""
        return any(what in part.maybe for part in self.shares)

    def share(self, *causes: Cause) -> float:
        """The summed share of some causes."""
        return sum(part.share for part in self.shares if part.cause in causes)
