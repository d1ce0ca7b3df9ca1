"""Everything about one simulated window before it happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simulator.gpus import Gpu
from simulator.nets import Net

CommunicationKind = Literal["latency", "bandwidth"]
IdleKind = Literal["within", "between"]
SlowKind = Literal["few multiprocessors", "all multiprocessors"]
LateKind = Literal["work", "host"]
ClockCause = Literal["thermal", "power"]
Flavour = Literal["vllm 0.8.5", "vllm 0.25", "sglang 0.4.8", "sglang 0.5.20", "trtllm 1.2", "llama.cpp"]
Frame = Literal["whole", "steady"]
Planted = Literal[
    "A", "B", "C", "D", "E cache", "E slots", "E compute", "F", "G", "none", "CD", "CF", "DF",
    "late work", "late host", "clock thermal", "clock power", "hidden",
]  # fmt: skip


@dataclass(frozen=True)
class Health:
    """What even a good engine loses: fractions of peaks that kernels reach, small kernels as a fraction of the large
    ones' time, all-reduce latency (s) and the fraction of a link's bandwidth, time between steps as a fraction of a
    typical step, and how far ranks differ in each piece of work.
    """

    reach_memory: float
    reach_compute: float
    reach_attention: float
    small: float
    latency: float
    link: float
    between: float
    skew: float


@dataclass(frozen=True)
class Causes:
    """Planted losses, each as a share of a typical step; 0 where none is planted.

    For a ``late`` rank all others wait: it has more work, or its host keeps it. ``clock`` is that of the GPUs over the
    one at which their peaks hold. Exchanges that computation hides run for ``hidden`` of its time, and cost nothing.
    """

    communication: float = 0.0
    idle: float = 0.0
    slow: float = 0.0
    communication_kind: CommunicationKind = "latency"
    idle_kind: IdleKind = "within"
    slow_kind: SlowKind = "all multiprocessors"
    late: float = 0.0
    late_kind: LateKind = "work"
    clock: float = 1.0
    clock_cause: ClockCause = "thermal"
    hidden: float = 0.0


@dataclass(frozen=True)
class Traffic:
    """Requests: ``clients`` that ask again as soon as they are answered, else ``rate`` arrivals per second (Poisson).

    Lengths are tokens, uniform within ``spread`` around their means. A share ``hits`` of the prompts finds
    ``hit_share`` of itself in the prefix cache. ``requests`` in all.
    """

    prompt: int
    output: int
    requests: int
    clients: int = 0
    rate: float = 0.0
    spread: float = 0.3
    hits: float = 0.0
    hit_share: float = 0.0


@dataclass(frozen=True)
class Plan:
    """``budget`` are the most tokens of a step, ``slots`` the most sequences, ``cache`` tokens that the cache holds.

    Of ``drafted`` tokens per step each is accepted with ``acceptance`` while those before it are. ``noise`` is the
    standard deviation of a step's kernels, as a fraction. The window is the ``whole`` load with idle ends, or a
    ``steady`` stretch inside of it; servers are scraped every ``interval`` seconds.
    """

    seed: int
    planted: Planted
    gpu: Gpu
    net: Net
    split: int
    traffic: Traffic
    health: Health
    causes: Causes = field(default_factory=Causes)
    budget: int = 2048
    slots: int = 256
    cache: int = 10**9
    drafted: int = 0
    acceptance: float = 0.0
    noise: float = 0.02
    frame: Frame = "whole"
    interval: float = 1.0
    flavour: Flavour = "vllm 0.25"
    front_end: float = 0.01
    with_client: bool = False
    profiler: Literal["kineto", "nsys"] = "kineto"
    separate: bool = False
    """Whether a step computes prompts or decodes, never both: then decodes wait while prompts are computed."""
    traced_ranks: int = 0
    """Ranks that were profiled; 0: all of them."""

    @property
    def late_rank(self) -> int | None:
        """The rank that the others wait for."""
        return self.seed % self.split if self.causes.late else None
