"""What a remedy's effect is computed from: a time split into floor, rest, transport and what stays, and the deployment.

A changed floor f' gives a range. At best the rest shrinks with the floor (slower than the roof by the same factor), at
worst it stays: ``f' (1 + o / f) + fixed .. f' + o + fixed``, with o = kernel ceiling, slow kernels and what was not
attributed, and fixed = communication and idle time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pytest_llmroof.analysis.attribution import SCENARIO_OF_CAUSE, Attribution, Cause, Share
from pytest_llmroof.analysis.constants import remedy_constant
from pytest_llmroof.analysis.facts import DecodeFacts, WindowFacts
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.roofline.cost import floor, step_cost
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.step import Floor, Step, StepCost
from pytest_llmroof.units import format_quantity

_FLOOR: Final[tuple[Cause, ...]] = (
    "memory floor: weights", "memory floor: KV", "compute floor", "interleaved prefill",
)  # fmt: skip
_REST: Final[tuple[Cause, ...]] = ("kernel ceiling", "slow kernels", "clock", "not attributed")
#: The metric whose value an effect on a time is, and what the time is called.
_MEASURED_BY: Final[Mapping[str, tuple[str | None, str]]] = {
    "decode step": ("decode.step_time", "step"),
    "prefill": (None, "busy time"),
    "ttft": ("ttft.mean", "time to first token"),
    "recording": (None, "recorded time"),
}
#: What the remainder is taken for, where a remedy of that scenario is asked for its upper bound.
_TAKEN_FOR: Final[Mapping[str, Cause]] = {
    letter: cause for cause, letter in reversed(list(SCENARIO_OF_CAUSE.items()))
}


@dataclass(frozen=True)
class Effect:
    """What a remedy does: a metric's range afterwards in its unit, a phrase for it, and values for its template.

    ``gain`` is the part of the time that it moves, at the middle of the range; None where no figure can be given.
    """

    text: str
    metric: str | None = None
    low: float | None = None
    high: float | None = None
    gain: float | None = None
    fill: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Situation:
    """One time of one window. ``bound`` marks a split in which the remainder was taken for this remedy's scenario."""

    facts: WindowFacts
    attribution: Attribution | None
    observed: Observed | None = None
    tpot_limit_seconds: float | None = None
    bound: str | None = None

    @property
    def deployment(self) -> Deployment:
        """The deployment as it is."""
        return self.facts.deployment

    @property
    def decode(self) -> DecodeFacts | None:
        """The decode step, where it is the time that was split."""
        return self.facts.decode if self.attribution is not None and self.attribution.of == "decode step" else None

    @property
    def total(self) -> float:
        """T, seconds."""
        return self.attribution.seconds if self.attribution else 0.0

    def seconds(self, *causes: Cause) -> float:
        """The time of some causes."""
        return self.total * self.attribution.share(*causes) if self.attribution else 0.0

    @property
    def floor(self) -> float:
        """f: the floor, seconds."""
        return self.seconds(*_FLOOR)

    @property
    def rest(self) -> float:
        """o: kernel ceiling, slow kernels, clock, and what was not attributed."""
        return self.seconds(*_REST)

    @property
    def transport(self) -> float:
        """x: exposed communication without waiting, which better links do not shorten."""
        return self.seconds("exposed communication: transport")

    def after(self, new_floor: float, *, less: float = 0.0, with_ceiling: bool = False) -> tuple[float, float]:
        """The range of T with another floor, and ``less`` of what stays.

        ``with_ceiling``: the same kernels do more or less of the same work, so that the kernel ceiling goes with the
        floor at both ends.
        """
        fixed = self.total - self.floor - self.rest - less
        scaled = new_floor * (1 + self.rest / self.floor) if self.floor else new_floor
        stays = self.rest
        if with_ceiling and self.floor:
            stays += self.seconds("kernel ceiling") * (new_floor / self.floor - 1)
        low, high = sorted((scaled + fixed, new_floor + stays + fixed))
        return max(0.0, low), max(0.0, high)

    def step(self) -> Step | None:
        """The decode step, to be costed again."""
        decode = self.decode
        if decode is None:
            return None
        context = decode.context.value if decode.context else 0.0
        return Step(decode.batch.value, context, decode.draft_tokens)

    def decode_floor(self, deployment: Deployment, step: Step | None = None) -> tuple[StepCost, Floor] | None:
        """Cost and floor of a decode step on a deployment (the measured step, or another one)."""
        asked = step or self.step()
        if asked is None or deployment.model is None:
            return None
        cost = step_cost(deployment, asked)
        found = floor(deployment, cost)
        return (cost, found) if found else None

    def scaled_floor(self, before: Floor, after: Floor) -> float:
        """The floor of the split after a change, interleaved prefill kept: in the proportion of both floors."""
        interleaved = self.seconds("interleaved prefill")
        return (self.floor - interleaved) * after.seconds / before.seconds + interleaved

    def timed(self, low: float, high: float, *, note: str = "", fill: Mapping[str, str] | None = None) -> Effect:
        """An effect on the time itself, between two ends; as an upper bound where the split is one."""
        if self.bound:
            high = max(high, self.total)
        middle = self.total if self.attribution is None else (low + high) / 2
        gain = (self.total - middle) / self.total if self.total else None
        metric, what = _MEASURED_BY[self.attribution.of if self.attribution else "decode step"]
        if self.bound:
            text = f"at most: {what} {duration(self.total)} toward {duration(low)}, if the cause is {self.bound}"
        else:
            text = f"{what} {duration(self.total)} toward {durations(low, high)}"
        return Effect(text + note, metric, low, high, gain, fill or {})


def upper_bound(attribution: Attribution, letter: str, cause: Cause | None = None) -> Attribution:
    """The split with the remainder taken for one scenario's cause."""
    target: Cause = cause or _TAKEN_FOR[letter]
    moved: tuple[Cause, ...] = ("not attributed", "exposed communication: waiting", target)
    if letter == "F":
        moved = ("not attributed", target)
    seconds = sum(part.seconds for part in attribution.shares if part.cause in moved)
    kept = tuple(part for part in attribution.shares if part.cause not in moved)
    if not seconds:
        return attribution
    lost = Share(target, seconds, seconds / attribution.seconds, False, "upper bound")
    return replace(attribution, shares=(*kept, lost))


def worth(effect: Effect) -> bool:
    """Whether an effect moves enough to be offered; what cannot be put in figures is."""
    return effect.gain is None or effect.gain > remedy_constant("least_effect")


def duration(seconds: float) -> str:
    """``26.2 ms``."""
    return format_quantity(seconds, "seconds")


def durations(low: float, high: float) -> str:
    """``17.3 .. 19.0 ms``, or one figure where both read the same."""
    first, second = duration(low), duration(high)
    if first == second:
        return first
    number, _, unit = first.partition(" ")
    return f"{number if unit == second.partition(' ')[2] else first} .. {second}"


def numbers(low: str, high: str) -> str:
    """``14 594 .. 17 864``, or one number where both read the same."""
    return low if low == high else f"{low} .. {high}"
