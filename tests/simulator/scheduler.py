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
        self.between: dict[tuple[float, float], int] = {}
        self.preemptions: list[float] = []
        self.now = LEAD_SECONDS
        self.used = 0

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
        between = tuple(Latency(at, seconds, count) for (at, seconds), count in self.between.items())
        return Run(self.plan, tuple(self.steps), tuple(requests), between, tuple(self.preemptions), opened, closed)

    def _schedule(self) -> dict[int, int] | None:
        """Prompt tokens to compute by request (its ``id``); None where there is nothing to do."""
        budget = self.plan.budget
        self._make_room()
        computing = [one for one in self.running if one.computed < one.needed]
        decoding = len(self.running) - len(computing)
        if not self.plan.separate:
            budget -= decoding * (1 + self.plan.drafted)
        chunks: dict[int, int] = {}
        for one in computing:
            if budget > 0:
                chunks[id(one)] = min(budget, one.needed - one.computed)
                budget -= chunks[id(one)]
        while self.waiting and budget > 0 and len(self.running) < self.plan.slots:
            one = self.waiting[0]
            if self.used + one.needed > self.plan.cache and self.running:
                break
            self.waiting.popleft()
            one.computed = min(one.cached, one.needed - 1)
            if one.scheduled is None:
                one.scheduled = self.now
            chunks[id(one)] = min(budget, one.needed - one.computed)
            budget -= chunks[id(one)]
            self.used += one.needed
            self.running.append(one)
        return chunks if decoding or chunks else None

    def _used(self) -> int:
        """Tokens of cache that the running requests hold, or will when their prompt is computed."""
        return sum(one.prompt + one.emitted for one in self.running)

    def _make_room(self) -> None:
        """Throw the latest requests out of the cache while the next tokens of all do not fit."""
        growth = 1 + self.plan.drafted
        self.used = self._used()
        while len(self.running) > 1 and self.used + growth * len(self.running) > self.plan.cache:
            victim = self.running.pop()
            self.used -= victim.needed
            victim.computed = 0
            victim.cached = 0  # its blocks may be gone
            self.waiting.appendleft(victim)
            self.preemptions.append(self.now)

    def _step(self, chunks: dict[int, int]) -> None:
        ready = [one for one in self.running if one.computed >= one.needed]
        decoding = [] if chunks and self.plan.separate else ready
        computing = [one for one in self.running if id(one) in chunks] if chunks else []
        work = Work(
            decodes=len(decoding),
            contexts=float(sum(one.prompt + one.emitted for one in decoding) - len(decoding)),
            drafted=self.plan.drafted,
            chunks=tuple((chunks[id(one)], one.computed) for one in computing),
            ending=sum(one.computed + chunks[id(one)] >= one.needed for one in computing),
        )
        parts = self.timer.time(work, self.random)
        start, end = self.now, self.now + parts.total
        running, waiting = len(self.running), len(self.waiting)
        self.now = end
        tokens = first = 0
        finished = False
        for one in decoding:
            emitted = min(1 + self._accepted(), one.output - one.emitted) if work.drafted else 1
            self._emit(one, emitted, end)
            tokens += emitted
            one.computed = one.prompt + one.emitted
            finished = finished or one.emitted >= one.output
        for one in computing:
            one.computed += chunks[id(one)]
            if one.computed >= one.needed:
                if one.emitted:  # it was thrown out, and its last token is computed again
                    tokens += 1
                else:
                    first += 1
                self._emit(one, 1, end)
                one.computed = one.needed
                finished = finished or one.finished
        self.steps.append(
            Step(
                start, end, work, parts, len(ready), len(decoding), tokens, first, running, waiting,
                min(1.0, self.used / self.plan.cache), self.timer.link_bytes(work) + self.timer.hidden_bytes(parts),
            )
        )  # fmt: skip
        for one in [one for one in self.running if one.finished] if finished else ():
            self.running.remove(one)
            self.done.append(one)
            self.arrivals.answered(end)

    def _accepted(self) -> int:
        accepted = 0
        while accepted < self.plan.drafted and self.random.random() < self.plan.acceptance:
            accepted += 1
        return accepted

    def _emit(self, one: Request, tokens: int, end: float) -> None:
        """An output of so many tokens at the end of a step."""
        if one.last is None:
            one.first = end
        else:
            key = (end, end - one.last)
            self.between[key] = self.between.get(key, 0) + 1
        one.last = end
        one.emitted += tokens
        one.times.append(end)
        one.pieces.append(tokens)
