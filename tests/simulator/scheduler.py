"""Continuous batching: decodes first, then chunks of prompts as far as the budget goes, then new requests."""

from __future__ import annotations

import random
from collections import deque

from simulator.load import Arrivals, Request
from simulator.physics import Work
from simulator.plan import Plan
from simulator.run import Latency, Run, Step
from simulator.timing import Timer

#: An idle stretch before the load, and after it.
LEAD_SECONDS = 2.0


def simulate(plan: Plan, typical: Work) -> Run:
    """Run a plan until its requests are answered."""
    return _Engine(plan, Timer(plan, typical)).run()


class _Engine:
    def __init__(self, plan: Plan, timer: Timer) -> None:
        self.plan, self.timer = plan, timer
        self.random = random.Random(plan.seed)
        self.arrivals = Arrivals(plan.traffic, self.random, LEAD_SECONDS)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.done: list[Request] = []
        self.steps: list[Step] = []
        self.between: list[Latency] = []
        self.preemptions: list[float] = []
        self.now = LEAD_SECONDS

    def run(self) -> Run:
        while True:
            self.waiting.extend(self.arrivals.until(self.now))
            chunks = self._schedule()
            if chunks is None:
                following = self.arrivals.next
                if following is None:
                    break
                self.now = max(self.now, following)
                continue
            self._step(chunks)
        end = self.now + LEAD_SECONDS
        opened, closed = 0.0, end
        if self.plan.frame == "steady":
            busy = self.now - LEAD_SECONDS
            opened, closed = LEAD_SECONDS + 0.2 * busy, LEAD_SECONDS + 0.85 * busy
        requests = sorted([*self.done, *self.running, *self.waiting], key=lambda one: one.arrived)
        return Run(
            self.plan, tuple(self.steps), tuple(requests), tuple(self.between), tuple(self.preemptions), opened, closed
        )

    def _schedule(self) -> dict[int, int] | None:
        """Prompt tokens to compute by request (its ``id``); None where there is nothing to do."""
        budget = self.plan.budget
        self._make_room()
        decoding = [one for one in self.running if one.computed >= one.needed]
        if not self.plan.separate:
            budget -= len(decoding) * (1 + self.plan.drafted)
        chunks: dict[int, int] = {}
        for one in self.running:
            if one.computed < one.needed and budget > 0:
                chunks[id(one)] = min(budget, one.needed - one.computed)
                budget -= chunks[id(one)]
        used = self._used()
        while self.waiting and budget > 0 and len(self.running) < self.plan.slots:
            one = self.waiting[0]
            if used + one.needed > self.plan.cache and self.running:
                break
            self.waiting.popleft()
            one.computed = min(one.cached, one.needed - 1)
            if one.scheduled is None:
                one.scheduled = self.now
            chunks[id(one)] = min(budget, one.needed - one.computed)
            budget -= chunks[id(one)]
            used += one.needed
            self.running.append(one)
        return chunks if decoding or chunks else None

    def _used(self) -> int:
        """Tokens of cache that the running requests hold, or will when their prompt is computed."""
        return sum(max(one.computed, one.needed) for one in self.running)

    def _make_room(self) -> None:
        """Throw the latest requests out of the cache while the next tokens of all do not fit."""
        growth = 1 + self.plan.drafted
        while len(self.running) > 1 and self._used() + growth * len(self.running) > self.plan.cache:
            victim = self.running.pop()
            victim.computed = 0
            victim.cached = 0  # its blocks may be gone
            self.waiting.appendleft(victim)
            self.preemptions.append(self.now)

    def _step(self, chunks: dict[int, int]) -> None:
        ready = [one for one in self.running if one.computed >= one.needed]
        decoding = [] if chunks and self.plan.separate else ready
        work = Work(
            decodes=len(decoding),
            contexts=float(sum(one.needed - 1 for one in decoding)),
            drafted=self.plan.drafted,
            chunks=tuple((chunks[id(one)], one.computed) for one in self.running if id(one) in chunks),
            ending=sum(1 for one in self.running if one.computed + chunks.get(id(one), 0) >= one.needed > one.computed),
        )
        parts = self.timer.time(work, self.random)
        start, end = self.now, self.now + parts.total
        running, waiting, used = len(self.running), len(self.waiting), self._used()
        self.now = end
        tokens = first = 0
        for one in decoding:
            tokens += self._emit(one, min(1 + self._accepted(), one.output - one.emitted), start, end)
            one.computed = one.needed
        for one in self.running:
            if id(one) in chunks:
                one.computed += chunks[id(one)]
                if one.computed >= one.needed:
                    again = one.emitted > 0  # it was thrown out, and its last token is computed again
                    self._emit(one, 1, start, end)
                    tokens, first = (tokens + 1, first) if again else (tokens, first + 1)
                    one.computed = one.needed
        self.steps.append(
            Step(
                start, end, work, parts, len(ready), len(decoding), tokens, first, running, waiting,
                min(1.0, used / self.plan.cache), self.timer.link_bytes(work),
            )
        )  # fmt: skip
        for one in [one for one in self.running if one.finished]:
            self.running.remove(one)
            self.done.append(one)
            self.arrivals.answered(end)

    def _accepted(self) -> int:
        accepted = 0
        while accepted < self.plan.drafted and self.random.random() < self.plan.acceptance:
            accepted += 1
        return accepted

    def _emit(self, one: Request, tokens: int, start: float, end: float) -> int:
        """An output of so many tokens at the end of a step."""
        if one.last is None:
            one.first = end
        else:
            self._observe(end, end - one.last)
        one.last = end
        one.emitted += tokens
        one.times.append(end)
        one.pieces.append(tokens)
        return tokens

    def _observe(self, at: float, seconds: float) -> None:
        last = self.between[-1] if self.between else None
        if last is not None and last.at == at and last.seconds == seconds:
            self.between[-1] = Latency(at, seconds, last.count + 1)
        else:
            self.between.append(Latency(at, seconds))
