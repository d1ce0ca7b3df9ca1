"""Requests, and when they come."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from simulator.plan import Traffic


@dataclass
class Request:
    """One request and what became of it; seconds on the run's clock. ``computed`` prompt tokens are in the cache now,
    ``cached`` came from the prefix cache, ``emitted`` tokens were answered.
    """

    prompt: int
    output: int
    cached: int
    arrived: float
    computed: int = 0
    emitted: int = 0
    scheduled: float | None = None
    first: float | None = None
    last: float | None = None
    times: list[float] = field(default_factory=list)
    """When an output came, and ...."""
    pieces: list[int] = field(default_factory=list)
    """... how many tokens it held."""

    @property
    def needed(self) -> int:
        """Tokens to be computed before the next one is emitted by a decode step: after a preemption, all again."""
        return self.prompt + self.emitted

    @property
    def finished(self) -> bool:
        return self.emitted >= self.output


class Arrivals:
    """Requests in the order in which they come: by the clock, or as soon as a client was answered."""

    def __init__(self, traffic: Traffic, random_: random.Random, begins: float) -> None:
        self._traffic, self._random = traffic, random_
        self._left = traffic.requests
        self._due: list[float] = []
        if traffic.clients:
            self._due = [begins + 1e-3 * number for number in range(min(traffic.clients, traffic.requests))]
        else:
            at = begins
            for _ in range(traffic.requests):
                self._due.append(at)
                at += random_.expovariate(traffic.rate)
        self._left -= len(self._due)
        self._due.reverse()

    @property
    def next(self) -> float | None:
        """When the next one comes, as far as is known."""
        return self._due[-1] if self._due else None

    def until(self, now: float) -> list[Request]:
        """Those that have come since."""
        come = []
        while self._due and self._due[-1] <= now:
            come.append(self._request(self._due.pop()))
        return come

    def answered(self, now: float) -> None:
        """A client has its answer, and asks again where requests are left."""
        if self._traffic.clients and self._left > 0:
            self._left -= 1
            self._due.insert(0, now)
            self._due.sort(reverse=True)

    def _request(self, at: float) -> Request:
        traffic = self._traffic
        prompt, output = self._length(traffic.prompt), self._length(traffic.output)
        cached = 0
        if traffic.hits and self._random.random() < traffic.hits:
            cached = min(prompt - 1, int(prompt * traffic.hit_share) // 16 * 16)
        return Request(prompt, output, cached, at)

    def _length(self, mean: int) -> int:
        spread = self._traffic.spread
        return max(1, round(mean * self._random.uniform(1 - spread, 1 + spread)))
