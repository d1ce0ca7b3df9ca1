"""Where the time of a window went, summed over its steps.

Of decoding on the clock of the inter-token latency: engines observe each step once for every sequence that decodes in
it, or waits for prompts to be computed, so a step counts as often as it had such
sequences. Of prefill on the wall clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

from simulator.physics import peak_of
from simulator.run import Run, Step

#: A lost share from which on a cause is large enough to be asked for, and how many times the next one it must be.
LARGE = 0.15
LEAD = 1.5


@dataclass(frozen=True)
class Shares:
    """Fractions of the time; they add up to 1. ``beyond`` is work beyond the floor: ``ceiling``, what healthy kernels
    cannot reach, ``clock``, what a low one costs, and ``slow``. ``interleaved`` is what prompts add to the floor
    of decode steps.
    """

    seconds: float
    floor: float
    interleaved: float
    ceiling: float
    slow: float
    communication: float
    idle: float
    memory_bound: bool
    clock: float = 0.0

    @property
    def beyond(self) -> float:
        return self.ceiling + self.slow + self.clock

    @property
    def lost(self) -> dict[str, float]:
        """By scenario."""
        return {"C": self.communication, "D": self.idle, "F": self.slow}

    @property
    def cause(self) -> str | None:
        """The scenario of the only large loss; None where there is none, or another comes near."""
        (first, most), (_, second), *_ = sorted(self.lost.items(), key=lambda item: -item[1])
        return first if most >= LARGE and most >= LEAD * second else None


def decode_shares(run: Run) -> Shares | None:
    """Of the mean decode step; None where nothing decoded."""
    steps = run.window
    outputs = sum(step.outputs for step in steps)
    if not outputs:
        return None

    def total(of: Callable[[Step], float]) -> float:
        return sum(step.ready * of(step) for step in steps)

    return _shares(
        seconds=total(lambda step: step.parts.total) / outputs,
        whole=total(lambda step: step.parts.total),
        floor=total(lambda step: step.parts.decode_floor.seconds),
        joint=total(lambda step: step.parts.floor.seconds),
        kernels=total(lambda step: step.parts.kernels),
        slow=total(lambda step: step.parts.slow),
        clock=total(lambda step: step.parts.clock),
        communication=total(lambda step: step.parts.communication),
        idle=total(lambda step: step.parts.idle),
        memory_bound=total(lambda step: step.parts.floor.memory - step.parts.floor.compute) > 0,
    )


def busy_shares(run: Run) -> Shares | None:
    """Of all steps on the wall clock: what a prefill window is split by; all of the floor is ``floor``."""
    steps = run.window
    if not steps:
        return None

    def total(of: Callable[[Step], float]) -> float:
        return sum(map(of, steps))

    joint = total(lambda step: step.parts.floor.seconds)
    return _shares(
        seconds=total(lambda step: step.parts.total),
        whole=total(lambda step: step.parts.total),
        floor=joint,
        joint=joint,
        kernels=total(lambda step: step.parts.kernels),
        slow=total(lambda step: step.parts.slow),
        clock=total(lambda step: step.parts.clock),
        communication=total(lambda step: step.parts.communication),
        idle=total(lambda step: step.parts.idle),
        memory_bound=total(lambda step: step.parts.floor.memory - step.parts.floor.compute) > 0,
    )


def _shares(
    *, seconds: float, whole: float, floor: float, joint: float, kernels: float, slow: float, clock: float,
    communication: float, idle: float, memory_bound: bool,
) -> Shares:  # fmt: skip
    return Shares(
        seconds=seconds,
        floor=floor / whole,
        interleaved=(joint - floor) / whole,
        ceiling=(kernels - joint) / whole,
        slow=slow / whole,
        clock=clock / whole,
        communication=communication / whole,
        idle=idle / whole,
        memory_bound=memory_bound,
    )


def beside_decoding(run: Run) -> float:
    """What steps with prompts add to the mean decode step, beyond their floor: a profile's typical step lacks it."""
    steps = run.window
    outputs = sum(step.outputs for step in steps)
    alone = sorted(step.parts.total for step in steps if step.outputs and not step.work.chunks)
    found = decode_shares(run)
    if not alone or found is None or not outputs:
        return 0.0
    return max(0.0, 1 - alone[len(alone) // 2] / found.seconds - found.interleaved)


def mean_mbu(run: Run) -> float | None:
    """Bytes of the decode work over what memory moves in the time of the mean decode step."""
    found = decode_shares(run)
    if found is None:
        return None
    floor = sum(step.outputs * step.parts.decode_floor.memory for step in run.window)
    return floor / sum(step.outputs for step in run.window) / found.seconds


def prefill_mfu(run: Run) -> float | None:
    """FLOPs of matrix products for prompt and generated tokens over the peak, in the busy time."""
    found = busy_shares(run)
    if found is None:
        return None
    plan = run.plan
    flops = sum(step.parts.cost.linear / peak_of(plan.gpu, step.parts.cost) for step in run.window)
    return flops / (plan.split * found.seconds)


def queue_share(run: Run) -> float | None:
    """The queue's part of the mean time to first token, front end included, of requests answered in the window."""
    found = [
        (one.scheduled - one.arrived, one.first - one.arrived + run.plan.front_end)
        for one in run.requests
        if one.first is not None and one.scheduled is not None and run.opened < one.first <= run.closed
    ]
    whole = sum(ttft for _, ttft in found)
    return sum(queue for queue, _ in found) / whole if whole else None


def lost_before_first_token(run: Run) -> dict[str, float]:
    """By scenario, what the steps from a request's being scheduled to its first token lost, over the time to it."""
    steps = run.steps
    sums = {
        "C": [0.0, *accumulate(step.parts.communication for step in steps)],
        "D": [0.0, *accumulate(step.parts.idle for step in steps)],
        "F": [0.0, *accumulate(step.parts.slow for step in steps)],
    }
    whole, lost = 0.0, dict.fromkeys(sums, 0.0)
    for one in run.requests:
        if one.first is None or one.scheduled is None or not run.opened < one.first <= run.closed:
            continue
        begun = bisect_left(steps, one.scheduled - 1e-9, key=lambda step: step.start)
        ended = bisect_right(steps, one.first + 1e-9, key=lambda step: step.end)
        whole += one.first - one.arrived + run.plan.front_end
        for letter, until in sums.items():
            lost[letter] += until[ended] - until[min(begun, ended)]
    return {letter: seconds / whole if whole else 0.0 for letter, seconds in lost.items()}


def idle_of_requests(run: Run) -> float:
    """The share of the window in which no step ran."""
    busy = _overlap(((step.start, step.end) for step in run.steps), run.opened, run.closed)
    return 1 - busy / (run.closed - run.opened)


def prefill_share(run: Run) -> float:
    """What prompts add to the floor of all steps."""
    steps = run.window
    joint = sum(step.parts.floor.seconds for step in steps)
    return 1 - sum(step.parts.decode_floor.seconds for step in steps) / joint if joint else 0.0


def _overlap(stretches: Iterable[tuple[float, float]], begun: float, ended: float) -> float:
    return sum(max(0.0, min(ended, end) - max(begun, start)) for start, end in stretches)
