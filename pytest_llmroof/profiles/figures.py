"""What a timeline says, as fractions: the result of its analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pytest_llmroof.profiles.timeline import Int64, Phase

WaitingCause = Literal["host gaps", "imbalance", "pipeline bubble"]


@dataclass(frozen=True)
class Shares:
    """How a stretch of time was spent, as fractions of ``seconds``; None where the timeline does not tell.

    ``busy`` and ``idle`` add up to 1. ``communication`` is the time in which communication kernels ran, ``exposed``
    that in which nothing else did: it is ``transport`` + ``waiting`` (for other ranks). ``hidden`` ran beside
    computation. Idle time is ``host_bound`` (nothing had been submitted when the device had finished),
    ``launch_in_flight`` (the launching call was on its way), ``back_to_back`` (a few microseconds between kernels that
    had been submitted), ``queued`` (submitted work that waited for something longer than that) and ``unknown`` (no
    launch was recorded); also ``idle_within`` steps and ``idle_between`` them.
    """

    seconds: float
    busy: float
    idle: float
    communication: float | None
    exposed: float | None
    transport: float | None
    waiting: float | None
    hidden: float | None
    host_bound: float
    launch_in_flight: float
    back_to_back: float
    queued: float
    unknown: float
    idle_within: float | None = None
    idle_between: float | None = None
    unnamed: float = 0.0
    """By how much ``communication`` would grow if every kernel whose name is not understood were communication."""
    unnamed_exposed: float = 0.0
    """By how much ``exposed`` would."""

    @property
    def causes_known(self) -> bool:
        """Whether the causes of idle time may be judged: most of it has one."""
        return self.unknown <= 0.5 * self.idle


@dataclass(frozen=True)
class StepFigures:
    """The typical steps of one phase (None: of all phases): the middle half of them by duration.

    ``count`` steps were measured, ``median_seconds`` is their median from one start to the next. Requests and tokens
    are those of the median step, where annotations tell. ``spread`` holds the least and the largest share of single
    ones of them: of ``busy``, ``communication``, ``exposed``, ``host`` (bound by the host, or launch in flight), and of
    the first two of communication with all kernels whose names are not understood (``communication most``).
    """

    phase: Phase | None
    count: int
    median_seconds: float
    shares: Shares
    prefill_requests: float | None = None
    prefill_tokens: float | None = None
    decode_requests: float | None = None
    decode_tokens: float | None = None
    spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class HostTime:
    """What the host did in host-bound idle time, as fractions of it: it waited for the device, was in another call of
    the GPU's API (launches, settings), or in neither (Python, the scheduler).
    """

    waiting: float
    calling: float
    elsewhere: float


@dataclass(frozen=True)
class TimelineFigures:
    """What one device's timeline says.

    ``whole`` is from the first work to the last, ``steps`` the typical steps by phase (key None: all of them; empty
    where steps could not be told). ``classes`` are fractions of the summed time of kernels and copies, ``other`` among
    them is what no name told; ``graph_launched`` is the fraction of kernel time that graph replays launched.
    ``collective`` names what most of its communication does (``all-reduce``). ``trimmed_seconds`` are holes of the
    recording, ``gaps_ns`` the lengths of all other idle gaps, sorted. ``late`` is the fraction of its group's waiting
    that was for this rank. ``distortions`` are phrases on why to trust it less; ``abstain`` says why it must not be
    judged at all.
    """

    location: str
    whole: Shares
    steps: Mapping[Phase | None, StepFigures] = field(default_factory=dict)
    steps_by: str | None = None
    classes: Mapping[str, float] = field(default_factory=dict)
    kernels: int = 0
    copies: int = 0
    graph_replays: int = 0
    graph_launched: float = 0.0
    gaps_ns: Int64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    host: HostTime | None = None
    modern_attention: bool | None = None
    collective: str | None = None
    unnamed_kernel: str | None = None
    """Of the kernels whose names are not understood the one that took most of the time."""
    trimmed_seconds: float = 0.0
    device_name: str | None = None
    device: int | None = None
    rank: int | None = None
    world_size: int | None = None
    ranks: int = 1
    started: float | None = None
    """Unix seconds of the first work; None where the recording tells no date."""
    waiting_cause: WaitingCause | None = None
    late: float | None = None
    distortions: tuple[str, ...] = ()
    abstain: str | None = None
    notes: tuple[str, ...] = ()

    def typical(self, phase: Phase | None = None) -> Shares:
        """The shares to judge: of the phase's typical steps, else of all steps, else of the whole timeline."""
        found = self.steps.get(phase) or self.steps.get(None)
        return found.shares if found is not None else self.whole

    @property
    def unknown_kernels(self) -> float:
        """The fraction of work whose names are not understood."""
        return self.classes.get("other", 0.0)
