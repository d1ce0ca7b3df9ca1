"""The clock that the GPUs ran at, and why where it was low: heat and power caps are told by the counters themselves."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.constants import counter_constant, remedy_constant
from pytest_llmroof.analysis.diagnosis import Remedy
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware import Unread, read
from pytest_llmroof.analysis.hardware_serving import serving
from pytest_llmroof.analysis.observed import ClockCause, Observed
from pytest_llmroof.analysis.situation import Effect, Situation
from pytest_llmroof.analysis.vendors import clock_command, vendor_of
from pytest_llmroof.data import load
from pytest_llmroof.telemetry.hardware import Gpu
from pytest_llmroof.units import format_quantity


@dataclass(frozen=True)
class Clock:
    """The clock of one GPU under load: ``ratio`` of the one at which its peaks hold, and why it was throttled.

    ``throttled`` is the share of the time in which that reason held; ``source`` is what told the clock.
    """

    gpu: Gpu
    hertz: float
    ratio: float
    cause: ClockCause | None
    throttled: float
    source: str

    @property
    def lowered(self) -> bool:
        """Whether it is clearly below the clock of the peaks."""
        return self.ratio < 1 - counter_constant("lowered_clock")


def clocks(facts: WindowFacts) -> tuple[Clock, ...]:
    """The clock of each GPU that serves, under load; empty where it is not told, or the peaks' clock is not known."""
    accelerator = facts.deployment.accelerator
    if facts.window.hardware is None or accelerator is None or accelerator.clock_hertz is None:
        return ()
    found = []
    for gpu in serving(facts).gpus:
        reading = read(facts, gpu, "sm_clock_hertz")
        if isinstance(reading, Unread) or reading.over != "load":
            continue
        hertz = reading.bounded.value
        cause, throttled = throttling(facts, gpu)
        source = gpu.names.get("sm_clock_hertz", "SM clock")
        found.append(Clock(gpu, hertz, hertz / accelerator.clock_hertz, cause, throttled, source))
    return tuple(found)


def slowest(facts: WindowFacts) -> Clock | None:
    """The slowest of them: a step takes as long as its slowest rank."""
    return min(clocks(facts), key=lambda clock: clock.ratio, default=None)


def throttling(facts: WindowFacts, gpu: Gpu) -> tuple[ClockCause | None, float]:
    """Why a GPU was throttled for a part of the time worth saying, and for which; heat before power."""
    causes: tuple[ClockCause, ClockCause] = ("thermal", "power")
    for cause in causes:
        share = gpu.throttle_reasons.get(cause, 0.0)
        seconds = gpu.counters.get(f"{cause}_seconds")
        if seconds is not None and facts.duration_seconds:
            share = max(share, min(1.0, seconds / facts.duration_seconds))
        if share >= counter_constant("throttled"):
            return cause, share
    return None, 0.0


def clock_notes(facts: WindowFacts) -> tuple[str, ...]:
    """Throttled clocks, said with every verdict: the worst GPU, and how many others."""
    if facts.window.hardware is None:
        return ()
    known = {clock.gpu.identity: clock for clock in clocks(facts)}
    hot = [(gpu, throttling(facts, gpu)) for gpu in serving(facts).gpus]
    thermal = [(gpu, share) for gpu, (cause, share) in hot if cause == "thermal"]
    if thermal:
        gpu, share = max(thermal, key=lambda pair: pair[1])
        at = f" at {_at(known[gpu.identity])}" if gpu.identity in known else ""
        others = f", and {len(thermal) - 1} more GPUs" if len(thermal) > 1 else ""
        return (
            f"{gpu.identity} was throttled for heat in {share * 100:.0f} % of the time{at}{others}: look at fans, air "
            f"flow, inlet temperature and the power cap{_command(facts, 'thermal', ' ({})')}",
        )
    low = slowest(facts)
    if low is None or not low.lowered:
        return ()
    why = f", capped by power in {low.throttled * 100:.0f} % of the time" if low.cause == "power" else ""
    return (f"{low.gpu.identity} ran at {_at(low)}{why}",)


def clock_remedies(facts: WindowFacts, split: Attribution | None, observed: Observed | None) -> tuple[Remedy, ...]:
    """What helps against a lowered clock, where it takes a part of this time worth saying. A power cap is no fault."""
    low = slowest(facts) if split is not None and split.share("clock") > remedy_constant("least_effect") else None
    if low is None or split is None:
        return ()
    situation = Situation(facts, split, observed)
    after = split.seconds - situation.seconds("clock")
    return (_remedy(facts, low, situation.timed(after, after)),)


def raised_clock(facts: WindowFacts) -> tuple[Remedy, ...]:
    """What raises a lowered clock, whatever it costs: for gates on the clock itself, where a power cap counts too."""
    low = slowest(facts)
    if low is None or not low.lowered:
        return ()
    effect = Effect(f"clock {low.ratio * 100:.0f} % toward 100 %", "hardware.clock", low.ratio, 1.0)
    return (_remedy(facts, low, effect),)


def _remedy(facts: WindowFacts, low: Clock, effect: Effect) -> Remedy:
    why = low.cause or "unknown"
    said = load("scenarios.yaml")["clock"][why]
    command = _command(facts, why, said["command"])
    throttled = f"{low.throttled * 100:.0f} %"
    detail = said["detail"].format(gpu=low.gpu.identity, throttled=throttled, clock=_at(low), command=command)
    return Remedy(said["title"], detail, effect.text, effect.metric, effect.low, effect.high)


def _command(facts: WindowFacts, cause: str, text: str) -> str:
    """The vendor's command that tells why, in a text around it; nothing where there is none."""
    command = clock_command(cause, vendor_of(facts))
    return "" if command is None else text.format(command)


def _at(clock: Clock) -> str:
    peak = format_quantity(clock.hertz / clock.ratio, "hertz")
    return f"{format_quantity(clock.hertz, 'hertz')}, {clock.ratio * 100:.0f} % of the {peak} at which its peaks hold"
