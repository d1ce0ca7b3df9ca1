"""What profiles, GPU counters and engines observed of a step, as fractions of it: it takes the place of estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ObservedBy = Literal["profile", "gpu counters", "engine"]
WaitingCause = Literal["host gaps", "imbalance", "pipeline bubble"]
ClockCause = Literal["thermal", "power"]
Rest = Literal["C", "F"]


@dataclass(frozen=True)
class Sign:
    """What a source says in its own figures, and the scenarios that it may be."""

    letters: tuple[str, ...]
    statement: str
    source: str


@dataclass(frozen=True)
class Observed:
    """Fractions of a step, None where this was not observed.

    They are fractions of the source's *own* median step, ``step_seconds``, and are applied to the window's step.
    ``transport`` and ``waiting`` are exposed communication (what computation hides is ``hidden_communication`` and no
    share); ``waiting_cause`` is the late rank's largest loss, None where its rank was not captured. ``idle_within`` and
    ``idle_between`` are time without any kernel or graph replay. ``slow_kernels`` is only given by a source that
    tells it directly; else it follows from the rest. ``clock`` is the SM clock over the datasheet's. ``distortions``
    are reasons to trust the source less (profiler overhead, a trimmed trace, the capture phase), as phrases.
    """

    source: str
    by: ObservedBy = "profile"
    step_seconds: float | None = None
    decoding_seconds: float | None = None
    """The median of a profile's steps that only decode, where it tells which do."""
    recorded_seconds: float | None = None
    """How long a profile is whose fractions are of all of it: its steps could not be told apart."""
    transport: float | None = None
    waiting: float | None = None
    waiting_cause: WaitingCause | None = None
    hidden_communication: float | None = None
    idle_within: float | None = None
    idle_between: float | None = None
    unnamed: float = 0.0
    """What kernels whose names are not understood would add to exposed communication, if they were some."""
    pauses: float = 0.0
    """Idle time beside these: the device's own pauses between kernels that were submitted in time, part of the work."""
    slow_kernels: float | None = None
    clock: float | None = None
    clock_cause: ClockCause | None = None
    ranks: int = 1
    modern_attention: bool | None = None
    """Whether the attention kernels seen are FlashAttention-3 or FlashInfer; None where kernels were not seen."""
    distortions: tuple[str, ...] = ()
    rest: Rest | None = None
    """What is left of the step besides floor, ceiling and idle time, where a source tells that and no more: exposed
    communication (C) or slow kernels (F)."""
    signs: tuple[Sign, ...] = ()
    collective: str | None = None
    """What most of the communication seen does: ``all-reduce``."""
    late_rank: int | None = None
    """The rank that most of the waiting was for."""
    waited: float = 0.0
    """What the rank that waits most waits for the late one, where the time is seen from that."""
    ranks_of: int = 1
    """How many ranks wait for each other, of which ``ranks`` were seen."""
    captured: tuple[int, ...] = ()
    """The numbers of the ranks seen, where the source tells them."""
    graph_launched: float | None = None
    """The fraction of kernel time that graph replays launched."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Field name -> source, where it is another one than ``source``."""

    def source_of(self, name: str) -> str:
        """Where a field comes from."""
        return self.sources.get(name, self.source)

    @property
    def communication_known(self) -> bool:
        """Whether exposed communication was observed."""
        return self.transport is not None

    @property
    def idle_known(self) -> bool:
        """Whether all idle time was observed.

        An engine times each forward pass from its first kernel to its last one: gaps of the host within it are no idle
        time there.
        """
        between = self.idle_between is not None and self.by != "engine"
        return self.idle_within is not None or between

    @property
    def partial(self) -> bool:
        """Whether a profile shows some of the ranks that wait for each other, and not all."""
        return self.by == "profile" and self.ranks < self.ranks_of

    def sees(self, letter: str) -> bool:
        """Whether what a scenario loses was observed by this source itself: C, D, or F, which is what both leave."""
        return {
            "C": self.communication_known,
            "D": self.idle_known,
            "F": self.idle_known and self.communication_known,
        }[letter]

    def total(self) -> float:
        """The sum of the observed losses, as a fraction of the step."""
        parts = (self.transport, self.waiting, self.idle_within, self.idle_between, self.slow_kernels)
        return sum(part for part in parts if part is not None)

    def mismatch(self, step_seconds: float | None) -> float:
        """By which fraction the source's own step differs from the window's; 0 where one of them is not known."""
        return abs(self.step_seconds / step_seconds - 1) if self.step_seconds and step_seconds else 0.0
