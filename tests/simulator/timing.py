"""How long a step takes, by parts: floor, kernels beyond it, communication, idle time."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cached_property

from simulator.nets import BYTES
from simulator.physics import Cost, Floor, Work, cost_of, exchange_seconds, floor_of, kernel_seconds
from simulator.plan import Plan

#: The mean of the largest of so many standard normal values: how long the last of the ranks is behind the mean one.
LAST = {1: 0.0, 2: 0.5642, 4: 1.0294, 8: 1.4236}


@dataclass(frozen=True)
class StepTime:
    """Seconds, but for ``cost``. ``floor`` is that of all work together, ``decode_floor`` of the decodes alone.

    ``kernels`` are what healthy ones take, ``slow`` what is beyond that, ``clock`` what a low one costs; ``waiting`` is
    for the last rank, ``late_work`` and ``late_host`` for one that has more to do or is kept by its host.
    """

    cost: Cost
    floor: Floor
    decode_floor: Floor
    kernels: float
    slow: float
    transport: float
    waiting: float
    within: float
    between: float
    clock: float = 0.0
    late_work: float = 0.0
    late_host: float = 0.0

    @property
    def work(self) -> float:
        return self.kernels + self.slow + self.clock

    @property
    def late(self) -> float:
        return self.late_work + self.late_host

    @property
    def communication(self) -> float:
        """Exchanges and waiting in them: better balance helps against the latter, as against a host that is late."""
        return self.transport + self.waiting + self.late_work

    @property
    def idle(self) -> float:
        """For want of the host: where it keeps one rank all lose what that one is idle."""
        return self.within + self.between + self.late_host

    @cached_property
    def total(self) -> float:
        return self.work + self.communication + self.idle


class Timer:
    """Times the steps of a plan. Planted causes are shares of a typical step; their seconds follow from that one."""

    def __init__(self, plan: Plan, typical: Work) -> None:
        self.plan = plan
        health, causes = plan.health, plan.causes
        kernels = self._kernels(cost_of(plan.net, typical), causes.clock)
        natural = self._transport(typical, health.latency, plan.gpu.link * health.link)
        between = health.between * kernels
        planted = causes.communication + causes.idle + causes.slow + causes.late
        rest = kernels
        rest += 0.0 if causes.communication else natural
        rest += 0.0 if causes.idle else between
        total = rest / (1 - planted)
        self.slowness = causes.slow * total / kernels
        self.idle_within = causes.idle * total if causes.idle_kind == "within" else 0.0
        self.idle_between = between
        if causes.idle and causes.idle_kind == "between":
            self.idle_between = causes.idle * total
        elif causes.idle:
            self.idle_between = 0.0
        self.late = causes.late * total
        self.latency, self.bandwidth = health.latency, plan.gpu.link * health.link
        if causes.communication and plan.split > 1:
            self._slow_links(typical, causes.communication * total)

    def time(self, work: Work, random_: random.Random) -> StepTime:
        """One step, with noise: kernels vary a little, communication and the host more."""
        plan = self.plan
        cost = cost_of(plan.net, work)
        alone = cost if not work.chunks else cost_of(plan.net, work.decode_only)
        noise = _around(random_, plan.noise)
        kernels = self._kernels(cost) * noise
        clock = self._kernels(cost, plan.causes.clock) * noise - kernels
        slow = kernels * self.slowness
        waiting = (kernels + slow) * plan.health.skew * LAST[plan.split]
        late = self.late * _around(random_, 2 * plan.noise) if self.late else 0.0
        return StepTime(
            cost=cost,
            floor=floor_of(plan.gpu, plan.split, cost),
            decode_floor=floor_of(plan.gpu, plan.split, alone),
            kernels=kernels,
            slow=slow,
            transport=self._transport(work, self.latency, self.bandwidth) * _around(random_, 2 * plan.noise),
            waiting=waiting,
            within=self.idle_within * _around(random_, 2 * plan.noise),
            between=self.idle_between * _around(random_, 2 * plan.noise),
            clock=clock,
            late_work=late if plan.causes.late_kind == "work" else 0.0,
            late_host=late if plan.causes.late_kind == "host" else 0.0,
        )

    def link_bytes(self, work: Work) -> float:
        """What each GPU sends in a step, in exchanges that it waits for."""
        split = self.plan.split
        return 0.0 if split == 1 else 2 * (split - 1) / split * self._size(work) * self._count

    def hidden_bytes(self, parts: StepTime) -> float:
        """What it sends beside computing."""
        return self.plan.causes.hidden * parts.work * self.bandwidth

    @property
    def _count(self) -> int:
        """All-reduces of a step: after attention and after the feed-forward part of each layer."""
        return 2 * self.plan.net.layers

    def _size(self, work: Work) -> float:
        return work.tokens * self.plan.net.hidden * BYTES

    def _kernels(self, cost: Cost, clock: float = 1.0) -> float:
        plan, health = self.plan, self.plan.health
        large = kernel_seconds(
            plan.gpu, plan.split, cost, health.reach_memory, health.reach_compute, health.reach_attention, clock
        )
        return large * (1 + health.small)

    def _transport(self, work: Work, latency: float, bandwidth: float) -> float:
        return self._count * exchange_seconds(self.plan.split, self._size(work), latency, bandwidth)

    def _slow_links(self, typical: Work, seconds: float) -> None:
        """The latency or the bandwidth with which the typical step communicates for so long; never a better one."""
        each = seconds / self._count
        moving = exchange_seconds(self.plan.split, self._size(typical), 0.0, self.bandwidth)
        if self.plan.causes.communication_kind == "latency":
            self.latency = max(self.latency, each - moving)
        else:
            self.bandwidth *= min(1.0, moving / max(1e-12, each - self.latency))


def _around(random_: random.Random, deviation: float) -> float:
    """A factor of mean 1."""
    if not deviation:
        return 1.0
    return math.exp(random_.gauss(-deviation * deviation / 2, deviation))
