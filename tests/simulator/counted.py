"""What an engine had counted of a run at a moment: totals, distributions and the state it was in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from itertools import accumulate
from operator import itemgetter

import numpy as np

from simulator.load import Request
from simulator.run import Run, Step

Weighted = tuple[float, float, float]
"""When, a value, how many of it."""


class Total:
    """A running total of what happened at moments."""

    def __init__(self, events: Iterable[tuple[float, float]]) -> None:
        ordered = sorted(events, key=itemgetter(0))
        self._times = [at for at, _ in ordered]
        self._sums = [0.0, *accumulate(amount for _, amount in ordered)]

    def at(self, moment: float) -> float:
        return self._sums[bisect_right(self._times, moment)]


class Distribution:
    """Observations of a quantity, as a histogram with any bounds shows them."""

    def __init__(self, observations: Iterable[Weighted]) -> None:
        observed = np.array(list(observations), dtype=float).reshape(-1, 3)
        observed = observed[np.argsort(observed[:, 0], kind="stable")]
        self._times, self._values, self._counts = observed[:, 0], observed[:, 1], observed[:, 2]
        self._of_bounds: dict[tuple[float, ...], np.ndarray] = {}

    def count(self, moment: float) -> float:
        return float(self._counts[: self._until(moment)].sum())

    def sum(self, moment: float) -> float:
        until = self._until(moment)
        return float(self._values[:until] @ self._counts[:until])

    def buckets(self, bounds: tuple[float, ...], moment: float) -> list[float]:
        """So many observations up to each bound."""
        if bounds not in self._of_bounds:
            self._of_bounds[bounds] = np.searchsorted(np.array(bounds), self._values, side="left")
        until = self._until(moment)
        filled = np.bincount(self._of_bounds[bounds][:until], self._counts[:until], minlength=len(bounds) + 1)
        return [float(count) for count in np.cumsum(filled)[: len(bounds)]]

    def _until(self, moment: float) -> int:
        return int(np.searchsorted(self._times, moment, side="right"))


class Counted:
    """Everything that engines count of a run; each emitter takes what its engine exports."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._ends = [step.end for step in run.steps]

    def step_at(self, moment: float) -> Step | None:
        """The step that runs at a moment; None while there is nothing to do."""
        index = bisect_right(self._ends, moment)
        if index == len(self._ends) or self.run.steps[index].start > moment:
            return None
        return self.run.steps[index]

    @cached_property
    def _started(self) -> list[Request]:
        return [one for one in self.run.requests if one.first is not None]

    @cached_property
    def _finished(self) -> list[Request]:
        return [one for one in self._started if one.finished]

    def _steps(self, of: Callable[[Step], float]) -> Total:
        return Total((step.end, amount) for step in self.run.steps if (amount := of(step)))

    def of_started(self, of: Callable[[Request], float]) -> Total:
        """Added at the first output of a request."""
        return Total((one.first or 0.0, of(one)) for one in self._started)

    def of_finished(self, of: Callable[[Request], float]) -> Total:
        """Added at its last output."""
        return Total((one.last or 0.0, of(one)) for one in self._finished)

    @cached_property
    def finished_prompts(self) -> Total:
        return self.of_finished(lambda one: one.prompt)

    @cached_property
    def finished_answers(self) -> Total:
        return self.of_finished(lambda one: one.output)

    @cached_property
    def finished_cached(self) -> Total:
        return self.of_finished(lambda one: one.cached)

    @cached_property
    def finished_computed(self) -> Total:
        return self.of_finished(lambda one: one.prompt - one.cached)

    @cached_property
    def finished_prefill_seconds(self) -> Total:
        return self.of_finished(lambda one: (one.first or 0.0) - (one.scheduled or 0.0))

    @cached_property
    def finished_decode_seconds(self) -> Total:
        return self.of_finished(lambda one: (one.last or 0.0) - (one.first or 0.0))

    @cached_property
    def passes(self) -> Total:
        return self._steps(lambda step: 1.0)

    @cached_property
    def busy_slots(self) -> Total:
        """Over all passes."""
        return self._steps(lambda step: step.work.decodes + len(step.work.chunks))

    def longest(self, moment: float) -> float:
        """The most tokens that a sequence held until a moment."""
        held = (one.prompt + bisect_right(one.times, moment) for one in self._started if (one.first or 0.0) <= moment)
        return float(max(held, default=0))

    @cached_property
    def prompt_tokens(self) -> Total:
        return self.of_started(lambda one: one.prompt)

    @cached_property
    def cached_tokens(self) -> Total:
        return self.of_started(lambda one: one.cached)

    @cached_property
    def generated(self) -> Total:
        return self._steps(lambda step: step.tokens + step.first)

    @cached_property
    def decoded(self) -> Total:
        return self._steps(lambda step: step.tokens)

    @cached_property
    def computed_live(self) -> Total:
        """Prompt tokens as they are computed, chunk by chunk."""
        return self._steps(lambda step: step.work.prompt_tokens)

    @cached_property
    def cached_live(self) -> Total:
        return Total((one.scheduled or 0.0, one.cached) for one in self._started)

    @cached_property
    def drafts(self) -> Total:
        return self._steps(lambda step: step.work.decodes if step.work.drafted else 0)

    @cached_property
    def draft_tokens(self) -> Total:
        return self._steps(lambda step: step.work.decodes * step.work.drafted)

    @cached_property
    def accepted(self) -> Total:
        return self._steps(lambda step: step.tokens - step.outputs if step.work.drafted else 0)

    @cached_property
    def preemptions(self) -> Total:
        return Total((at, 1.0) for at in self.run.preemptions)

    @cached_property
    def finished(self) -> Total:
        return self.of_finished(lambda one: 1.0)

    @cached_property
    def decode_passes(self) -> Total:
        return self._steps(lambda step: float(bool(step.work.decodes)))

    @cached_property
    def prefill_passes(self) -> Total:
        return self._steps(lambda step: float(not step.work.decodes))

    @cache  # noqa: B019 - counted is dropped with its run
    def forward_seconds(self, decoding: bool) -> Total:
        """From a step's first kernel to its last one: pauses within are part of it, those between steps are not."""
        return self._steps(
            lambda step: step.parts.total - step.parts.between if bool(step.work.decodes) is decoding else 0.0
        )

    def idle_seconds(self, moment: float) -> float:
        """Time without any request until a moment."""
        index = bisect_right(self._ends, moment)
        busy = self._busy[index]
        if index < len(self._ends):
            busy += max(0.0, moment - self.run.steps[index].start)
        return moment - busy

    @cached_property
    def _busy(self) -> list[float]:
        return [0.0, *accumulate(step.end - step.start for step in self.run.steps)]

    @cached_property
    def steps(self) -> Distribution:
        """Tokens of each step that emitted something: prompts are counted with their last chunk."""
        prompts: dict[float, float] = {}
        for one in self._started:
            prompts[one.first or 0.0] = prompts.get(one.first or 0.0, 0.0) + one.prompt - one.cached
        return Distribution(
            (step.end, prompts.get(step.end, 0.0) + step.tokens + step.first, 1.0)
            for step in self.run.steps
            if step.tokens + step.first
        )

    @cached_property
    def between_outputs(self) -> Distribution:
        return Distribution((one.at, one.seconds, float(one.count)) for one in self.run.between_outputs)

    @cached_property
    def between_tokens(self) -> Distribution:
        """Of each token its part of the time since the output before."""
        return Distribution(
            (after, (after - before) / pieces, float(pieces))
            for one in self._started
            for before, after, pieces in zip(one.times, one.times[1:], one.pieces[1:], strict=False)
        )

    @cached_property
    def ttft(self) -> Distribution:
        front = self.run.plan.front_end
        return self._at_first(lambda one: (one.first or 0.0) - one.arrived + front)

    @cached_property
    def ttft_at_end(self) -> Distribution:
        front = self.run.plan.front_end
        return self._at_last(lambda one: (one.first or 0.0) - one.arrived + front)

    @cached_property
    def queue(self) -> Distribution:
        return self._at_last(lambda one: (one.scheduled or 0.0) - one.arrived)

    @cached_property
    def queue_at_first(self) -> Distribution:
        return self._at_first(lambda one: (one.scheduled or 0.0) - one.arrived)

    @cached_property
    def prefill(self) -> Distribution:
        return self._at_last(lambda one: (one.first or 0.0) - (one.scheduled or 0.0))

    @cached_property
    def decode(self) -> Distribution:
        return self._at_last(lambda one: (one.last or 0.0) - (one.first or 0.0))

    @cached_property
    def inference(self) -> Distribution:
        return self._at_last(lambda one: (one.last or 0.0) - (one.scheduled or 0.0))

    @cached_property
    def e2e(self) -> Distribution:
        front = self.run.plan.front_end
        return self._at_last(lambda one: (one.last or 0.0) - one.arrived + front)

    @cached_property
    def per_token(self) -> Distribution:
        """Of each request, its decode time over the tokens behind the first; 0 where there are none."""
        return self._at_last(
            lambda one: ((one.last or 0.0) - (one.first or 0.0)) / (one.output - 1) if one.output > 1 else 0.0
        )

    @cached_property
    def prompt_lengths(self) -> Distribution:
        return self._at_last(lambda one: one.prompt)

    @cached_property
    def computed_lengths(self) -> Distribution:
        return self._at_last(lambda one: one.prompt - one.cached)

    @cached_property
    def output_lengths(self) -> Distribution:
        return self._at_last(lambda one: one.output)

    def _at_first(self, of: Callable[[Request], float]) -> Distribution:
        return Distribution((one.first or 0.0, of(one), 1.0) for one in self._started)

    def _at_last(self, of: Callable[[Request], float]) -> Distribution:
        return Distribution((one.last or 0.0, of(one), 1.0) for one in self._finished)
