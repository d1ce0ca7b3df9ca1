"""``hfu`` and ``hardware.*``: what the GPUs' own counters say, as the mean of the GPUs that serve, equally weighted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.analysis.busytime import is_bound
from pytest_llmroof.analysis.consistency import contradictions
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware import Reading, Unread, averaging, common, described, read, silent
from pytest_llmroof.analysis.hardware_load import Stretch, beyond_samples
from pytest_llmroof.analysis.hardware_serving import Serving, by_engine, by_host, serving
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.analysis.thresholds import remedy
from pytest_llmroof.analysis.vendors import elsewhere_for, remedy_for, vendor_of
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.data import load
from pytest_llmroof.telemetry.hardware import Gpu
from pytest_llmroof.units import format_quantity


@dataclass(frozen=True)
class _Kind:
    """A metric: the quantity that it rests on, what that counts, and whether it is 1 less it."""

    quantity: str
    counts: str
    complement: bool = False


_KINDS: Final = {
    "hardware.mbu": _Kind("dram", "cycles in which the memory interface moved data"),
    "hardware.sm_active": _Kind("sm_active", "cycles in which a multiprocessor held work, mean over them"),
    "hardware.idle": _Kind("gr_engine", "1 - time in which any engine of the GPU ran", complement=True),
    "hardware.utilization": _Kind(
        "utilization", "what nvidia-smi calls GPU utilization: time in which any kernel ran, whatever it did"
    ),
    "hardware.clock": _Kind("sm_clock_hertz", "clock of the multiprocessors"),
    "hfu": _Kind("tensor", "proxy: cycles in which the tensor pipe was active"),
}
HARDWARE: Final = tuple(_KINDS)
#: Metrics that rest on the clock, which is another one without load.
_CLOCKED: Final = ("hfu", "hardware.clock")


def hardware_metric(facts: WindowFacts, metric: str) -> Outcome:
    """The metric over all GPUs that serve."""
    if facts.window.hardware is None:
        return _no_counters(facts, metric)
    if facts.idle and facts.window.engines:
        return NoData(metric, "the engine was idle: no token was computed or generated in this window", remedy("load"))
    found = serving(facts)
    if not found.gpus:
        return _unknown(facts, metric, found)
    return _over(facts, metric, found)


def each_gpu(facts: WindowFacts, metric: str) -> list[tuple[str, Outcome]] | NoData | Impossible:
    """The metric of each GPU that serves, by what messages call it; no data where nothing tells of single GPUs."""
    if metric not in _KINDS:
        return NoData(
            metric,
            f"`per: gpu` needs figures of each GPU, and {metric} is the engine's, which tells of all of them together",
            f"gate each replica (`per: replica`) or the whole, and of each GPU one of {', '.join(_KINDS)}",
        )
    if facts.window.hardware is None:
        reason = f"`per: gpu` needs figures of each GPU: {_blind(facts, metric)}"
        return NoData(metric, reason, _remedy(facts, "gpu_counters"))
    if (impossible := _contradicted(facts, metric)) is not None:
        return impossible
    found = serving(facts)
    if not found.gpus:
        return _unknown(facts, metric, found)
    if found.unseen:
        return NoData(
            metric,
            f"counters tell of {len(found.gpus)} of the deployment's {found.expected} GPUs, and nothing of the others",
            "name the exporters of all of its hosts",
        )
    return [(gpu.identity, _over(facts, metric, Serving((gpu,), 1))) for gpu in found.gpus]


def each_replica(facts: WindowFacts, metric: str) -> list[tuple[str, Outcome]] | NoData | Impossible:
    """The metric of each replica's GPUs, where pods or hosts tell whose they are."""
    if facts.window.hardware is None:
        return _no_counters(facts, metric)
    if (impossible := _contradicted(facts, metric)) is not None:
        return impossible
    found, replicas = serving(facts), facts.deployment.replicas
    if not found.gpus:
        return _unknown(facts, metric, found)
    if replicas == 1:
        return [("the only replica", _over(facts, metric, found))]
    pods = {gpu.pod or "": [one for one in found.gpus if one.pod == gpu.pod] for gpu in found.gpus}
    for groups in (by_engine(found.gpus, facts.window), pods, by_host(found.gpus)):
        if len(groups) == replicas and "" not in groups:
            size = facts.deployment.gpus_per_replica
            return [
                (name, _over(facts, metric, Serving(tuple(gpus), len(gpus), size))) for name, gpus in groups.items()
            ]
    return NoData(
        metric,
        f"the counters do not tell which GPUs belong to which of {replicas} replicas: not each has a pod or host of "
        "its own",
        "have the DCGM exporter add pods (DCGM_EXPORTER_KUBERNETES=true), or gate each GPU (`per: gpu`)",
    )


def _contradicted(facts: WindowFacts, metric: str) -> Impossible | None:
    """What spoils the metric of every GPU."""
    spoilt = (found for found in contradictions(facts) if found.spoils(metric, physics=False))
    return next((Impossible(metric, found.reason, found.check, found.implied) for found in spoilt), None)


def _over(facts: WindowFacts, metric: str, found: Serving) -> Outcome:
    """The mean over some GPUs; those that no counter tells of may have done anything."""
    readings = []
    for gpu in found.gpus:
        one = _of_gpu(facts, metric, gpu)
        if isinstance(one, Unread):
            return NoData(metric, one.reason, one.remedy or _remedy(facts, "gpu_counters"))
        readings.append(one)
    bounded = _mean([one.bounded for one in readings])
    over_load = all(one.over == "load" for one in readings) or _alone(facts)
    if not over_load:
        if metric in _CLOCKED:
            reason = f"{_undecided(facts)}; a resting GPU lowers its clock"
            return NoData(metric, reason, _remedy(facts, "more_counters"))
        bounded = _widened(facts, metric, bounded, common(readings))
    undecided = None if over_load or bounded.exact else _undecided(facts)
    if found.unseen and metric != "hardware.clock":
        known = len(readings) / (len(readings) + found.unseen)
        bounded = Bounded(bounded.value, bounded.low * known, bounded.high * known + 1 - known)
    return Measurement(
        metric=metric,
        bounded=bounded,
        unit="fraction",
        source=_source(facts, metric, found.gpus[0]),
        method=_method(facts, metric, found, readings),
        samples=sum(one.samples for one in readings),
        judged_by="value" if undecided is None else "bounds",
        undecided=undecided,
        settle=_settle(facts, found) if not bounded.exact else None,
    )


def _of_gpu(facts: WindowFacts, metric: str, gpu: Gpu) -> Reading | Unread:
    kind = _KINDS[metric]
    if kind.quantity in silent(facts, gpu):
        return Unread(
            f"{gpu.names.get(kind.quantity, described(kind.quantity))} of {gpu.identity} reads 0 while the GPU works: "
            "it was not measured",
            _remedy(facts, "profiling_fields"),
        )
    reading = read(facts, gpu, kind.quantity)
    if isinstance(reading, Unread) or metric not in _CLOCKED:
        return _mapped(reading, lambda value: 1 - value) if kind.complement else reading
    accelerator = facts.deployment.accelerator
    of_peak = accelerator.clock_hertz if accelerator is not None else None
    if of_peak is None:
        product = accelerator.product if accelerator is not None else "this GPU"
        return Unread(
            f"the clock at which the peaks of {product} hold is not known",
            f"write it: `gpu: {{name: ..., base: {accelerator.name if accelerator else 'NAME'}, clock: ...MHz}}`",
        )
    if metric == "hardware.clock":
        return _mapped(reading, lambda value: value / of_peak)
    clock = read(facts, gpu, "sm_clock_hertz")
    if isinstance(clock, Unread):
        return Unread(f"hfu needs the clock beside the tensor pipe's activity: {clock.reason}", clock.remedy)
    ratio, pipe = clock.bounded.scaled(1 / of_peak), reading.bounded
    product_of_both = Bounded(pipe.value * ratio.value, pipe.low * ratio.low, pipe.high * ratio.high)
    return replace(reading, bounded=product_of_both)


def _mapped(reading: Reading | Unread, function: Callable[[float], float]) -> Reading | Unread:
    if isinstance(reading, Unread):
        return reading
    return replace(reading, bounded=reading.bounded.map(function))


def _mean(values: Sequence[Bounded]) -> Bounded:
    count = len(values)
    return Bounded(
        sum(one.value for one in values) / count,
        min(sum(one.low for one in values), sum(one.value for one in values)) / count,
        max(sum(one.high for one in values), sum(one.value for one in values)) / count,
    )


def _widened(facts: WindowFacts, metric: str, bounded: Bounded, seen: Stretch) -> Bounded:
    """A mean over time with and without load, as one of the load: a GPU that rests outside of it did all of it inside.

    Where load may have been before the first sample or after the last one, it may have done anything there.
    """
    complement = _KINDS[metric].complement
    active = bounded.map(lambda value: 1 - value) if complement else bounded
    covered, beyond = seen[1] - seen[0], beyond_samples(facts, seen)
    busy = _least_busy(facts)
    most = min(1.0, (active.high * covered + beyond) / busy) if busy > 0 else 1.0
    least = active.low * covered / (covered + beyond)
    found = Bounded(active.value, min(least, active.value), max(most, active.value))
    return found.map(lambda value: 1 - value) if complement else found


def _alone(facts: WindowFacts) -> bool:
    """Whether nothing tells of load, so that the window is what is measured."""
    return not facts.window.engines and facts.window.client is None


def _least_busy(facts: WindowFacts) -> float:
    """Seconds under load at the least: none where nothing but an upper bound of them is known."""
    return 0.0 if facts.busy is None or is_bound(facts.busy) else facts.busy.seconds.low


def _undecided(facts: WindowFacts) -> str:
    hardware = facts.window.hardware
    assert hardware is not None
    return (
        f"no sample looks back ({averaging(hardware):g} s) on the load alone: the mean over the window holds idle "
        "time, and is only one end of what it was under load"
    )


def _settle(facts: WindowFacts, found: Serving) -> AnyAdvice | None:
    if found.unseen:
        return f"name the exporters of all of the deployment's hosts ({found.unseen} GPUs are missing)"
    return _remedy(facts, "more_counters")


def _source(facts: WindowFacts, metric: str, gpu: Gpu) -> str:
    hardware = facts.window.hardware
    assert hardware is not None
    quantities = (_KINDS[metric].quantity, *(("sm_clock_hertz",) if metric == "hfu" else ()))
    names = [gpu.names[quantity] for quantity in quantities if quantity in gpu.names]
    return ", ".join(names) or ", ".join(hardware.kinds) or "GPU counters"


def _method(facts: WindowFacts, metric: str, found: Serving, readings: Sequence[Reading]) -> str:
    hardware = facts.window.hardware
    assert hardware is not None
    count, looks_back = len(readings), averaging(hardware)
    gpus = "of one GPU" if count == 1 else f"mean over {count} GPUs, equally weighted"
    longest = max(reading.seconds for reading in readings)
    if all(one.over == "load" for one in readings):
        time = f"over {longest:.1f} s of load that whole samples lie in (each looks back {looks_back:g} s)"
    else:
        time = f"over the whole window of {longest:.1f} s, idle time included"
    parts = [_counted(facts, metric), gpus, time]
    if found.note:
        parts.append(found.note)
    return "; ".join(parts)


def _counted(facts: WindowFacts, metric: str) -> str:
    counts = _KINDS[metric].counts
    accelerator = facts.deployment.accelerator
    if metric not in _CLOCKED or accelerator is None or accelerator.clock_hertz is None:
        return counts
    clock = format_quantity(accelerator.clock_hertz, "hertz")
    if metric == "hardware.clock":
        return f"{counts} over {clock}, at which the stated peaks hold"
    return (
        f"{counts} x SM clock / {clock}, at which the stated peak holds: not a count of FLOPs, zero for matrix-vector "
        "products (GEMV) that leave the pipe out, up to 5 times MFU where small batches fill tiles with padding, and "
        "of whichever precision ran"
    )


def _unknown(facts: WindowFacts, metric: str, found: Serving) -> NoData:
    problem = found.problem or "the counters tell of no GPU"
    return NoData(metric, problem, found.remedy or _remedy(facts, "gpu_counters"))


def _no_counters(facts: WindowFacts, metric: str) -> NoData:
    return NoData(metric, _blind(facts, metric), _remedy(facts, _source_of(metric)[0]))


def _blind(facts: WindowFacts, metric: str) -> str:
    """Why engine metrics alone do not tell, and whose counters would."""
    return elsewhere_for(_section(metric), _source_of(metric)[1], vendor_of(facts))


def _source_of(metric: str) -> tuple[str, str]:
    """What measures it (a key of remedies), and that it is missing, in words."""
    key, reason = load("measuring.yaml")["elsewhere"][_section(metric)]
    return str(key), str(reason)


def _section(metric: str) -> str:
    return "hfu" if metric == "hfu" else "hardware"


def _remedy(facts: WindowFacts, name: str) -> AnyAdvice | None:
    return remedy_for(name, vendor_of(facts))
