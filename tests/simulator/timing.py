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

    ``kernels`` are what healthy ones take, ``slow`` what is beyond that; ``waiting`` is for the last rank.
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

    @property
    def work(self) -> float:
        return self.kernels + self.slow

    @property
    def communication(self) -> float:
        return self.transport + self.waiting

    @property
    def idle(self) -> float:
        return self.within + self.between

    @cached_property
    def total(self) -> float:
        return self.work + self.communication + self.idle


class Timer:
    """Times the steps of a plan. Planted causes are shares of a typical step; their seconds follow from that one."""

    def __init__(self, plan: Plan, typical: Work) -> None:
        self.plan = plan
        health, causes = plan.health, plan.causes
        kernels = self._kernels(cost_of(plan.net, typical))
        natural = self._transport(typical, health.latency, plan.gpu.link * health.link)
        between = health.between * kernels
        planted = causes.communication + causes.idle + causes.slow
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
        self.latency, self.bandwidth = health.latency, plan.gpu.link * health.link
        if causes.communication and plan.split > 1:
            self._slow_links(typical, causes.communication * total)

    def time(self, work: Work, random_: random.Random) -> StepTime:
        """One step, with noise: kernels vary a little, communication and the host more."""
        plan = self.plan
        cost = cost_of(plan.net, work)
        alone = cost if not work.chunks else cost_of(plan.net, work.decode_only)
        kernels = self._kernels(cost) * _around(random_, plan.noise)
        slow = kernels * self.slowness
        waiting = (kernels + slow) * plan.health.skew * LAST[plan.split]
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
        )

    def link_bytes(self, work: Work) -> float:
        """What each GPU sends in a step."""
        split = self.plan.split
        return 0.0 if split == 1 else 2 * (split - 1) / split * self._size(work) * self._count

    @property
    def _count(self) -> int:
        """All-reduces of a step: after attention and after the feed-forward part of each layer."""
        return 2 * self.plan.net.layers

    def _size(self, work: Work) -> float:
        return work.tokens * self.plan.net.hidden * BYTES

    def _kernels(self, cost: Cost) -> float:
        plan, health = self.plan, self.plan.health
        large = kernel_seconds(
            plan.gpu, plan.split, cost, health.reach_memory, health.reach_compute, health.reach_attention
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
