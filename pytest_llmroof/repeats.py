"""Several windows of one kind: every metric is its median, and all values are shown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_llmroof.advice import behind
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Measurement, Outcome, Outcomes
from pytest_llmroof.baseline.statistics import student_quantile
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.units import format_quantity


class Medians(Mapping[str, Outcome]):
    """Each metric as the window has it whose value is the median; its method tells all values.

    Of an even number of windows it is the worse one of the middle two: a median that nobody measured has no interval.
    A metric that one window does not give is that window's answer: there is no median of a part.
    """

    def __init__(self, windows: Sequence[Outcomes], gates: Iterable[Gate] = ()) -> None:
        self.windows = windows
        self._falling = {gate.metric for gate in gates if gate.operator in ("<=", "<")}

    def __getitem__(self, metric: str) -> Outcome:
        outcomes = [window[metric] for window in self.windows]
        for number, outcome in enumerate(outcomes, 1):
            if not isinstance(outcome, Measurement):
                return replace(outcome, reason=f"window {number} of {len(outcomes)}: {outcome.reason}")
        chosen = outcomes[self.middle(metric)]
        assert isinstance(chosen, Measurement)
        values = tuple(outcome.value for outcome in outcomes if isinstance(outcome, Measurement))
        told = replace(chosen, method=f"{chosen.method}; {self.told(metric)}", repeats=values)
        return _as_noisy_as(told, values)

    def __iter__(self) -> Iterator[str]:
        common = set(self.windows[0]).intersection(*self.windows[1:])
        return (metric for metric in self.windows[0] if metric in common)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, metric: object) -> bool:
        return all(metric in window for window in self.windows)

    def middle(self, metric: str) -> int:
        """The index of the window with the median. What a gate wants to be small is worse where it is larger."""

        def key(index: int) -> float:
            outcome = self.windows[index][metric]
            return outcome.value if isinstance(outcome, Measurement) else float("-inf")

        by_badness = sorted(range(len(self.windows)), key=key, reverse=metric in self._falling)
        return by_badness[(len(self.windows) - 1) // 2]

    def told(self, metric: str) -> str:
        """``median of 3 windows (41.2 %, 41.3 %, 45 %)``, in the order in which they were taken."""
        outcomes = [window[metric] for window in self.windows]
        values = [
            format_quantity(one.value, one.unit) if isinstance(one, Measurement) else "not measured"
            for one in outcomes
        ]  # fmt: skip
        return f"median of {len(values)} windows ({', '.join(values)})"


def _as_noisy_as(chosen: Measurement, values: Sequence[float]) -> Measurement:
    """The measurement with the noise from window to window in its interval: 95 %, by Student of their mean."""
    if len(values) < 2 or not all(map(math.isfinite, values)) or min(values) == max(values):
        return chosen
    reach = student_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    bounded = chosen.bounded
    low, high = min(bounded.low, max(0.0, bounded.value - reach)), max(bounded.high, bounded.value + reach)
    more = "more windows (`repeat:`), or a limit outside their noise"
    settle = behind(f"{more}; ", chosen.settle) if chosen.settle else more
    bucketed = chosen.bucketed and (low, high) == (bounded.low, bounded.high)
    return replace(chosen, bounded=Bounded(bounded.value, low, high), settle=settle, bucketed=bucketed)


def with_notes(facts: WindowFacts, medians: Medians, metrics: Iterable[str]) -> WindowFacts:
    """The facts of the window that stands for all, with the values of every window for the metrics that are gated."""
    notes = [f"{metric}: {medians.told(metric)}" for metric in dict.fromkeys(metrics)]
    return replace(facts, window=replace(facts.window, notes=(*facts.window.notes, *notes)))
