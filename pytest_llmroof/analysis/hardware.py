"""Means of what the GPUs' own counters saw: over the load where whole averages lie inside it, else over the window."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final, Literal

from pytest_llmroof.advice import Advice, AnyAdvice
from pytest_llmroof.analysis.constants import counter_constant
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware_load import Stretch, span
from pytest_llmroof.analysis.thresholds import remedy
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.hardware import WRONG, Gpu, Hardware
from pytest_llmroof.telemetry.window import Series

Over = Literal["load", "window"]

#: Quantities that are shares of time or of cycles.
FRACTIONS: Final = (
    "gr_engine", "sm_active", "sm_occupancy", "tensor", "dram", "utilization", "memory_utilization",
)  # fmt: skip
#: Those that only DCGM's profiling module measures, and that may read 0 where it does not.
PROFILED: Final = ("gr_engine", "sm_active", "tensor", "dram")


@dataclass(frozen=True)
class Reading:
    """The mean of a quantity, in its unit, and over what: ``load``, or the whole ``window`` with its idle time."""

    bounded: Bounded
    samples: int
    over: Over
    seconds: float
    """From the first to the last moment that the samples speak of."""
    seen: Stretch
    """That first and last moment themselves, on the window's clock."""


@dataclass(frozen=True)
class Unread:
    """Why a quantity cannot be used, and what would give it, where the reason does not say so."""

    reason: str
    remedy: AnyAdvice | None = None


def averaging(hardware: Hardware) -> float:
    """Seconds over which a sample looks back; where nobody knows it the longest that is usual."""
    if hardware.averaging_seconds is not None:
        return hardware.averaging_seconds
    return counter_constant("averaging_seconds")


def read(facts: WindowFacts, gpu: Gpu, quantity: str, *, of_every_replica: bool = False) -> Reading | Unread:
    """The mean of one quantity of one GPU. ``of_every_replica``: over time in which each of them had requests."""
    key = ("read", id(gpu), quantity, of_every_replica)  # the GPUs live as long as the facts that hold them
    if key not in facts.memory:
        facts.memory[key] = _read(facts, gpu, quantity, of_every_replica)
    found = facts.memory[key]
    assert isinstance(found, Reading | Unread)
    return found


def _read(facts: WindowFacts, gpu: Gpu, quantity: str, of_every_replica: bool) -> Reading | Unread:
    hardware = facts.window.hardware
    assert hardware is not None
    series = gpu.series.get(quantity)
    if quantity in gpu.unusable:
        why = gpu.unusable[quantity]
        reason = f"{_name(gpu, quantity)} of {gpu.identity} cannot be used: {why}"
        return Unread(reason, _mended(hardware, quantity, why))
    if series is None or not series.times:
        return _untold(hardware, gpu, quantity)
    looks_back = averaging(hardware)
    under_load = facts.loaded_everywhere if of_every_replica else facts.loaded
    alone = not facts.window.engines and facts.window.client is None
    if not alone and (not hardware.clocked or under_load is None):
        return Unread(
            "the counters' samples and the load are not on one clock, so nobody knows which of them saw the load",
            remedy("both_at_once"),
        )
    inside = _inside(series, looks_back, under_load or ())
    if inside.times:
        return _reading(inside, looks_back, "load", quantity, under_load or ())
    whole = (series.times[0] - looks_back, series.times[-1]) if alone else span(facts.window)
    inside = _inside(series, looks_back, (whole,) if whole else ())
    if inside.times and whole is not None:
        return _reading(inside, looks_back, "window", quantity, (whole,))
    return Unread(_too_short(facts, hardware, looks_back), _shorter(hardware))


def _untold(hardware: Hardware, gpu: Gpu, quantity: str) -> Unread:
    """Nothing of a quantity: of this GPU alone, or of none."""
    reason = f"nothing in {hardware.location or 'the counters'} tells the {described(quantity)}"
    if not any(quantity in other.series for other in hardware.gpus):
        return Unread(reason, hardware.missing.get(quantity))
    return Unread(
        f"{reason} of {gpu.identity}, though it is told of other GPUs",
        "have all of the exporters export the same counters, and look into the log of the one that tells of this GPU",
    )


def _mended(hardware: Hardware, quantity: str, why: str) -> AnyAdvice | None:
    """What would make an unusable quantity usable."""
    if any(words in why for words in WRONG):
        return remedy("plain_counters")
    return remedy("profiling_fields") if quantity in PROFILED and "dcgm" in hardware.kinds else None


def silent(facts: WindowFacts, gpu: Gpu) -> tuple[str, ...]:
    """Profiled quantities that read 0 all the time though the GPU worked: they were not measured.

    A GPU that is said to be utilised, or whose engine or multiprocessors were active, cannot have moved nothing.
    """
    zero = {name for name in PROFILED if _all_zero(gpu, name)}
    works = [name for name in ("utilization", "gr_engine", "sm_active") if name not in zero and _worked(gpu, name)]
    if not works:
        return ()
    if "gr_engine" in zero:
        return tuple(name for name in PROFILED if name in zero)
    # An idle tensor pipe is real: matrix-vector products leave it out.
    return tuple(name for name in ("sm_active", "dram") if name in zero)


def activity(gpu: Gpu) -> float:
    """How much a GPU did, by whatever tells most: the largest mean of its activities over all of its samples."""
    means = [fmean(gpu.series[name].values) for name in ("gr_engine", "utilization", "sm_active") if _has(gpu, name)]
    return max(means, default=0.0)


def _inside(series: Series, looks_back: float, where: Sequence[Stretch]) -> Series:
    """The samples whose whole average lies inside one of the stretches."""
    kept: dict[float, float] = {}
    for begun, ended in where:
        first = bisect_left(series.times, begun + looks_back - 1e-6)
        last = bisect_right(series.times, ended + 1e-6)
        kept.update(zip(series.times[first:last], series.values[first:last], strict=True))
    return Series(tuple(kept), tuple(kept.values()))


def _reading(inside: Series, looks_back: float, over: Over, quantity: str, where: Sequence[Stretch]) -> Reading:
    """The mean of samples. What lies between them is not known: it widens the interval.

    Of ten averages that do not overlap and more it is the standard error, twice, of the share that was not seen (a
    sample without replacement); of fewer the share may have been anything.
    """
    mean = fmean(inside.values)
    first, last = inside.times[0] - looks_back, inside.times[-1]
    loaded = sum(max(0.0, min(ended, last) - max(begun, first)) for begun, ended in where)
    unseen = max(0.0, 1 - _covered(inside.times, looks_back) / loaded) if loaded > 0 else 0.0
    if unseen < 1e-6:
        unseen = 0.0
    apart = _apart(inside.times, looks_back)
    low, high = mean * (1 - unseen), mean * (1 - unseen) + unseen
    spread = 2 * stdev(inside.values) / math.sqrt(apart) if unseen and len(inside.values) > 1 else 0.0
    if apart >= counter_constant("samples"):
        error = spread * math.sqrt(unseen)
        low, high = max(low, mean - error), min(high, mean + error)
    if quantity not in FRACTIONS:
        low, high = mean - spread, mean + spread
    ends = Bounded(mean, min(low, mean), max(high, mean))
    bounded = _beyond(ends, quantity, loaded / sum(ended - begun for begun, ended in where)) if over == "load" else ends
    return Reading(bounded, len(inside.times), over, loaded, (first, last))


def _beyond(ends: Bounded, quantity: str, seen: float) -> Bounded:
    """Of load before the first sample and after the last one anything may be true, unless it is a small part."""
    unseen = 1 - seen
    if unseen <= counter_constant("unseen_ends"):
        return ends
    rest = unseen if quantity in FRACTIONS else 2 * unseen * ends.value
    return Bounded(ends.value, ends.low * seen, max(ends.value, ends.high * seen + rest))


def common(readings: Sequence[Reading]) -> Stretch:
    """The time that all of them speak of, from its first moment to its last; of no length where there is none."""
    begun = max(reading.seen[0] for reading in readings)
    return begun, max(begun, min(reading.seen[1] for reading in readings))


def _covered(times: Sequence[float], looks_back: float) -> float:
    """The time that the averages cover together, seconds."""
    covered, until = 0.0, -math.inf
    for time in times:
        covered += time - max(until, time - looks_back)
        until = time
    return covered


def _apart(times: Sequence[float], looks_back: float) -> int:
    """How many of the averages do not overlap."""
    count, until = 0, -math.inf
    for time in times:
        if time - looks_back >= until - 1e-6:
            count, until = count + 1, time
    return count


def _too_short(facts: WindowFacts, hardware: Hardware, looks_back: float) -> str:
    known = "" if hardware.averaging_seconds is not None else ", as nothing says otherwise"
    duration = f"{facts.duration_seconds:.1f} s" if facts.duration_seconds else "unknown length"
    return (
        f"a sample of these counters is an average over {looks_back:g} s{known}, and none of them lies inside this "
        f"window of {duration} with all of that"
    )


def _shorter(hardware: Hardware) -> AnyAdvice:
    text = "sample them each second, or measure a load several times as long"
    return Advice(text, "dcgm-exporter -c 1000") if "dcgm" in hardware.kinds else text


def described(quantity: str) -> str:
    """A quantity in words."""
    return {
        "gr_engine": "activity of the GPU's engines",
        "sm_active": "activity of the multiprocessors",
        "tensor": "activity of the tensor pipe",
        "dram": "activity of the memory interface",
        "utilization": "GPU utilization",
        "sm_clock_hertz": "clock of the multiprocessors",
    }.get(quantity, quantity)


def _name(gpu: Gpu, quantity: str) -> str:
    return gpu.names.get(quantity, described(quantity))


def _has(gpu: Gpu, quantity: str) -> bool:
    return quantity in gpu.series and bool(gpu.series[quantity].values) and quantity not in gpu.unusable


def _all_zero(gpu: Gpu, quantity: str) -> bool:
    return _has(gpu, quantity) and not any(gpu.series[quantity].values)


def _worked(gpu: Gpu, quantity: str) -> bool:
    return _has(gpu, quantity) and fmean(gpu.series[quantity].values) > counter_constant("busy")
