"""What happened in a simulated run, step by step and request by request. Seconds on the run's own clock."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.load import Request
from simulator.physics import Work
from simulator.plan import Plan
from simulator.timing import StepTime


@dataclass(frozen=True)
class Step:
    """One step: when, what it computed, how long its parts took, and the engine's state while it ran.

    ``ready`` sequences could decode, of which a step that computes prompts alone serves none. ``outputs`` of them
    emitted ``tokens``; ``first`` requests emitted their first one. ``between`` time lies before a step's work.
    """

    start: float
    end: float
    work: Work
    parts: StepTime
    ready: int
    outputs: int
    tokens: int
    first: int
    running: int
    waiting: int
    cache_used: float
    link_bytes: float


@dataclass(frozen=True)
class Latency:
    """``count`` equal observations of a latency at one moment."""

    at: float
    seconds: float
    count: int = 1


@dataclass(frozen=True)
class Run:
    """All of a run. ``opened`` and ``closed`` bound the window: the first and the last scrape."""

    plan: Plan
    steps: tuple[Step, ...]
    requests: tuple[Request, ...]
    between_outputs: tuple[Latency, ...]
    preemptions: tuple[float, ...]
    opened: float
    closed: float

    @property
    def window(self) -> tuple[Step, ...]:
        """The steps that ended inside the window: what counters counted in it."""
        return tuple(step for step in self.steps if self.opened < step.end <= self.closed)
