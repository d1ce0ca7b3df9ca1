"""From readings of GPU counters at their times to what a window knows of its GPUs.

What a figure cannot be (a share above the whole, an activity of 0 beside a busy GPU, a total that falls) is unusable,
with the reason, and never repaired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from pytest_llmroof.telemetry.exporters import Exporter
from pytest_llmroof.telemetry.gpupages import GpuKey, GpuReading
from pytest_llmroof.telemetry.gpurefresh import Reading, averaging, fresh
from pytest_llmroof.telemetry.hardware import Gpu, Hardware, MigSlice
from pytest_llmroof.telemetry.window import Series
from pytest_llmroof.units import whole_of

#: Shares of the whole: what exceeds 1 by more than rounding is none.
SHARES: Final = frozenset({
    "gr_engine", "sm_active", "sm_occupancy", "tensor", "dram", "utilization", "memory_utilization",
})  # fmt: skip
_ROUNDING: Final = 0.02
#: A GPU that is busy by this share, or draws this share of its power limit, does not compute nothing.
_BUSY: Final = 0.5
#: What no GPU that can be read is without: 0 of it stands for no value.
_NEVER_ZERO: Final = frozenset({"sm_clock_hertz", "memory_clock_hertz", "power_limit_watts", "memory_total_bytes"})
#: More than a GPU can do, by the end of the quantity's name: such a figure is in another unit than it should be.
_MOST: Final = {"clock_hertz": (1e10, "Hz"), "bytes_per_second": (1e13, "B/s"), "power_watts": (1e4, "W")}
#: Totals of time, which cannot grow by more than the time between two samples (and what clocks differ by).
_TIMES: Final = frozenset({"thermal_seconds", "power_seconds"})
_CLOCKS_DIFFER: Final = 0.1


@dataclass
class _History:
    """One GPU's readings, in order of time."""

    times: list[float] = field(default_factory=list)
    readings: list[GpuReading] = field(default_factory=list)


def hardware_of(
    readings: Sequence[Reading],
    exporter: Exporter,
    *,
    location: str,
    clocked: bool,
    timed: bool = True,
    notes: Iterable[str] = (),
) -> Hardware | None:
    """What these readings of one kind of exporter tell; None where they tell of no GPU.

    ``timed`` says that their times are seconds, and not just their order.
    """
    lookback = averaging(readings if timed else (), exporter)
    histories: dict[GpuKey, _History] = {}
    for reading in sorted(fresh(readings, exporter), key=lambda one: one.time):
        for gpu in reading.gpus:
            history = histories.setdefault(gpu.key, _History())
            if not history.times or history.times[-1] < reading.time:
                history.times.append(reading.time)
                history.readings.append(gpu)
    if not histories:
        return None
    hosts = {one.host for history in histories.values() for one in history.readings} - {None}
    gpus = tuple(_gpu(history, exporter, len(hosts) > 1) for history in histories.values())
    said = [*notes, *([lookback.note] if lookback.note else [])]
    return Hardware(
        gpus=tuple(sorted(gpus, key=_place)),
        kinds=(exporter.key,),
        location=location,
        averaging_seconds=lookback.seconds,
        clocked=clocked,
        notes=tuple(dict.fromkeys(said)),
        missing=_missing(gpus, exporter),
    )


def _place(gpu: Gpu) -> tuple[str, int, str, str]:
    index = gpu.index or ""
    return gpu.host or "", whole_of(index) or 0, index, (gpu.mig and gpu.mig.instance) or ""


def _gpu(history: _History, exporter: Exporter, several_hosts: bool) -> Gpu:
    first = {role: _told(history, role) for role in ("device_name", "host", "index", "uuid", "pod")}
    instance, profile = _told(history, "instance"), _told(history, "profile")
    mig = MigSlice(profile, instance) if instance or profile else None
    gauges = _gauges(history)
    unusable = _blanks(history, [*gauges, *_quantities(history, "counters")])
    for quantity, series in list(gauges.items()):
        name = _name(history, quantity)
        if reason := _impossible(quantity, series, name, mig):
            unusable[quantity] = reason
            del gauges[quantity]
    for quantity, reason in _silent(gauges, exporter, history).items():
        unusable[quantity] = reason
        gauges.pop(quantity, None)
    counters: dict[str, float] = {}
    for quantity in _quantities(history, "counters"):
        increase = _increase(history, quantity)
        if isinstance(increase, str):
            unusable[quantity] = increase
        elif increase is not None:
            counters[quantity] = increase
    for quantity in _quantities(history, "codes"):
        codes = [one.codes[quantity] for one in history.readings if quantity in one.codes]
        if len(codes) > 1:
            counters[quantity] = sum(1.0 for before, after in pairwise(codes) if after and after != before)
    names = {quantity: _name(history, quantity) for quantity in (*gauges, *counters)}
    return Gpu(
        identity=_identity(first, _told(history, "bus"), mig, several_hosts),
        **first,
        mig=mig,
        series={quantity: _within(quantity, series) for quantity, series in gauges.items()},
        counters=counters,
        throttle_reasons=_reasons(history),
        names=names,
        unusable=unusable,
    )


def _told(history: _History, role: str) -> str | None:
    return next((text for one in history.readings if (text := getattr(one, role))), None)


def _identity(told: Mapping[str, str | None], bus: str | None, mig: MigSlice | None, several_hosts: bool) -> str:
    name = told["index"] or told["uuid"] or bus
    text = f"gpu {name}" if name else "the GPU"
    if mig is not None:
        number = f" {mig.instance}" if mig.instance else ""
        text = f"slice{number} ({mig.profile}) of {text}" if mig.profile else f"slice{number} of {text}"
    return f"{text} of {told['host']}" if several_hosts and told["host"] else text


def _quantities(history: _History, kind: str) -> list[str]:
    return list(dict.fromkeys(quantity for one in history.readings for quantity in getattr(one, kind)))


def _name(history: _History, quantity: str) -> str:
    return next((one.names[quantity] for one in history.readings if quantity in one.names), quantity)


def _gauges(history: _History) -> dict[str, Series]:
    found = {}
    for quantity in _quantities(history, "gauges"):
        pairs = [
            (time, one.gauges[quantity])
            for time, one in zip(history.times, history.readings, strict=True)
            if quantity in one.gauges and (one.gauges[quantity] or quantity not in _NEVER_ZERO)
        ]
        if pairs:
            found[quantity] = Series(tuple(time for time, _ in pairs), tuple(value for _, value in pairs))
    return found


def _blanks(history: _History, there: Iterable[str]) -> dict[str, str]:
    blanks = {
        quantity: f"{_name(history, quantity)} says 0, as no GPU does: it is not measured"
        for quantity in _quantities(history, "gauges")
    } | {quantity: why for one in history.readings for quantity, why in one.blank.items()}
    return {quantity: why for quantity, why in blanks.items() if quantity not in set(there)}


def _impossible(quantity: str, series: Series, name: str, mig: MigSlice | None) -> str | None:
    """Why a series cannot be what its name says; None where it can."""
    low, high = min(series.values), max(series.values)
    if low < 0:
        return f"{name} is {low:g}, which it cannot be"
    for end, (most, unit) in _MOST.items():
        if quantity.endswith(end) and high > most:
            return f"{name} says {high:.3g} {unit}, more than a GPU can do: it is in another unit, or a total"
    if quantity in SHARES and high > 1 + _ROUNDING:
        slices = ": a known fault of slices" if mig is not None else ""
        return f"{name} says {high * 100:.4g} %, more than the whole{slices}"
    return None


def _within(quantity: str, series: Series) -> Series:
    if quantity not in SHARES or max(series.values) <= 1:
        return series
    return Series(series.times, tuple(min(1.0, value) for value in series.values))


def _silent(gauges: Mapping[str, Series], exporter: Exporter, history: _History) -> dict[str, str]:
    """Activities that are 0 while the GPU works: registered, but not measured."""
    there = [quantity for quantity in exporter.activities if quantity in gauges]
    busy = _busy_times(gauges)
    found: dict[str, str] = {}
    if not there:
        return found
    at = {quantity: dict(zip(gauges[quantity].times, gauges[quantity].values, strict=True)) for quantity in there}
    seen = [time for time in busy if any(time in at[quantity] for quantity in there)]
    dead = [time for time in seen if not any(at[quantity].get(time) for quantity in there)]
    if seen and 2 * len(dead) > len(seen):
        names = ", ".join(_name(history, quantity) for quantity in there)
        reason = f"{names} say 0 while {busy[dead[0]]}: they are not measured (a profiler on the GPU, or DCGM stalled)"
        return dict.fromkeys(there, reason)
    running = gauges.get("gr_engine")
    if running is not None and max(running.values) > _BUSY and "utilization" in gauges:
        used = gauges["utilization"]
        if not any(used.values):
            found["utilization"] = (
                f"{_name(history, 'utilization')} says 0 while {_name(history, 'gr_engine')} says "
                f"{max(running.values) * 100:.0f} %: it is not measured"
            )
    if running is not None and min(running.values) > _BUSY:
        for quantity in ("sm_active", "dram"):
            if quantity in gauges and not any(gauges[quantity].values):
                found[quantity] = (
                    f"{_name(history, quantity)} says 0 while {_name(history, 'gr_engine')} says "
                    f"{min(running.values) * 100:.0f} % or more: it is not measured"
                )
    return found


def _busy_times(gauges: Mapping[str, Series]) -> dict[float, str]:
    """When the GPU worked by what does not need the profiling counters, and how that is known."""
    busy: dict[float, str] = {}
    limit = gauges.get("power_limit_watts")
    if limit is not None and (power := gauges.get("power_watts")) is not None and max(limit.values) > 0:
        for time, watts in zip(power.times, power.values, strict=True):
            if watts > _BUSY * max(limit.values):
                busy[time] = f"the GPU draws {watts:.0f} W"
    if (used := gauges.get("utilization")) is not None:
        for time, share in zip(used.times, used.values, strict=True):
            if share >= _BUSY:
                busy[time] = f"GPU utilization is {share * 100:.0f} %"
    return busy


def _increase(history: _History, quantity: str) -> float | str | None:
    """A total's increase over the samples, a text that says why none can be taken, None for a single sample."""
    pairs = [
        (time, one.counters[quantity])
        for time, one in zip(history.times, history.readings, strict=True)
        if quantity in one.counters
    ]
    name = _name(history, quantity)
    if any(later < earlier for (_, earlier), (_, later) in pairwise(pairs)):
        return f"{name} went down inside the window: the exporter or the driver started anew"
    if len(pairs) < 2:
        return None
    increase, elapsed = pairs[-1][1] - pairs[0][1], pairs[-1][0] - pairs[0][0]
    if quantity in _TIMES and increase > elapsed * (1 + _CLOCKS_DIFFER) + 1:
        return f"{name} grew by {increase:.4g} s in {elapsed:.4g} s, which it cannot"
    return increase


def _reasons(history: _History) -> dict[str, float]:
    told = [one.reasons for one in history.readings if one.reasons is not None]
    words = dict.fromkeys(word for one in told for word in one)
    known = {word: [one[word] for one in told if word in one] for word in words}
    return {word: sum(held) / len(held) for word, held in known.items()}


def _missing(gpus: Sequence[Gpu], exporter: Exporter) -> dict[str, str]:
    """What none of the GPUs tells, though the exporter could."""
    there = {quantity for gpu in gpus for quantity in (*gpu.series, *gpu.unusable)}
    untold = {quantity: why for quantity, why in exporter.untold.items() if quantity not in there}
    if exporter.none_of_them and not there & set(exporter.activities):
        return untold | dict.fromkeys(exporter.expected, exporter.none_of_them)
    return untold | {
        quantity: exporter.missed.format(name=name, quantity=quantity.replace("_", " "))
        for quantity, name in exporter.expected.items()
        if quantity not in there
    }
