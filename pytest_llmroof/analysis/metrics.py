"""Every metric that a gate may name: its unit, what it needs, and what it means. Lists and docs are made from this."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.extend import NoData, Value, WindowView
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.units import Unit

#: Statistics of a latency, and of a gauge.
LATENCY_STATISTICS: Final = ("mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "max")
GAUGE_STATISTICS: Final = ("mean", "max", "last")

Need = Literal["gpu", "model"]
Family = Literal["decode", "prefill", "ttft", "window", "whole", "idle", "communication", "clock", "none"]
"""The time that a metric measures, and so whose scenario explains its breach: ``whole`` is the window with all of its idle
time, ``window`` that of its load where a benchmark is all of that; ``idle``, ``communication`` and ``clock`` are a part of
it, which has a cause of its own."""
#: Families of the window's own time, or of a part of it.
OF_WINDOW: Final[tuple[str, ...]] = ("window", "whole", "idle", "communication", "clock")


@dataclass(frozen=True)
class Metric:
    """One metric: ``needs`` names what must be known beside telemetry, ``family`` whose time it measures.

    ``measure`` and ``plugin`` are those of a metric that another plugin adds: its function, and who gave it.
    """

    name: str
    unit: Unit
    meaning: str
    family: Family
    needs: tuple[Need, ...] = ()
    statistics: tuple[str, ...] = ()
    parametrised: bool = False
    measure: Callable[[WindowView], Value | NoData] | None = field(default=None, repr=False)
    plugin: str = ""


_BOTH: Final[tuple[Need, ...]] = ("gpu", "model")


def _metrics() -> list[Metric]:
    decode: Family = "decode"
    prefill: Family = "prefill"
    return [
        Metric("decode.mbu", "fraction", "bytes a decode step must move, over what memory moves in its time", decode, _BOTH),
        Metric("decode.mfu", "fraction", "FLOPs of the emitted tokens of a decode step over the peak", decode, _BOTH),
        Metric("decode.intensity", "FLOP/byte", "FLOPs per byte of a decode step", decode, _BOTH),
        Metric("decode.step_time", "seconds", "mean time of a decode step of one replica", decode),
        Metric("decode.floor", "seconds", "least time of that step on this hardware", decode, _BOTH),
        Metric("decode.batch", "count", "sequences in a decode step of one replica, mean", decode),
        Metric("decode.context", "tokens", "context of a sequence in a decode step, mean", decode),
        Metric("prefill.mfu", "fraction", "FLOPs of the prompt tokens actually computed, over the peak", prefill, _BOTH),
        Metric("prefill.mbu", "fraction", "weights and KV moved by prefill, over what memory moves", prefill, _BOTH),
        Metric("prefill.intensity", "FLOP/byte", "FLOPs per byte of prefill", prefill, _BOTH),
        Metric("prefill.tokens_per_second", "tokens/s", "prompt tokens actually computed, over busy time", prefill),
        Metric("window.mfu", "fraction", "FLOPs of all tokens over the whole window's peak, idle included", "whole", _BOTH),
        Metric("window.mbu", "fraction", "bytes of all steps over the whole window's bandwidth, idle included", "whole", _BOTH),
        Metric("roofline.efficiency", "fraction", "least time of all work over the time the engine was busy", "window", _BOTH),
        Metric("hfu", "fraction", "FLOPs that the hardware executed, over the peak", "window", ("gpu",)),
        Metric("hardware.mbu", "fraction", "cycles that the memory interface was busy", "window"),
        Metric("hardware.sm_active", "fraction", "cycles that a multiprocessor had work", "window"),
        Metric("hardware.idle", "fraction", "time that no engine of the GPU ran", "idle"),
        Metric("hardware.utilization", "fraction", "what nvidia-smi calls GPU utilization: shown for what it hides", "idle"),
        Metric("hardware.clock", "fraction", "SM clock over the datasheet's", "clock", ("gpu",)),
        Metric("ttft", "seconds", "time to first token of a request", "ttft", (), LATENCY_STATISTICS),
        Metric("tpot", "seconds", "time per output token of a request after the first", decode, (), LATENCY_STATISTICS),
        Metric("itl", "seconds", "time between two outputs of a request", decode, (), LATENCY_STATISTICS),
        Metric("e2e", "seconds", "time of a whole request", "window", (), LATENCY_STATISTICS),
        Metric("queue", "seconds", "time that a request waits before it is scheduled", "ttft", (), LATENCY_STATISTICS),
        Metric("output.tokens_per_second", "tokens/s", "generated tokens per second", "window"),
        Metric("output.tokens_per_second.per_gpu", "tokens/s", "generated tokens per second and GPU", "window"),
        Metric("input.tokens_per_second", "tokens/s", "prompt tokens per second, cached ones included", "window"),
        Metric("input.tokens_per_second.per_gpu", "tokens/s", "prompt tokens per second and GPU", "window"),
        Metric("requests_per_second", "requests/s", "finished requests per second", "window"),
        Metric("requests_per_second.per_gpu", "requests/s", "finished requests per second and GPU", "window"),
        Metric("kv_cache.usage", "fraction", "share of the KV cache in use", "none", (), GAUGE_STATISTICS),
        Metric("running", "count", "requests being computed", "none", (), GAUGE_STATISTICS),
        Metric("waiting", "count", "requests waiting for a slot", "none", (), GAUGE_STATISTICS),
        Metric("preemptions", "count", "requests thrown out of the cache and computed again", "none"),
        Metric("prefix_cache.hit_rate", "fraction", "share of prompt tokens found in the prefix cache", "none"),
        Metric("speculative.acceptance_rate", "fraction", "share of draft tokens that were accepted", "none"),
        Metric("speculative.tokens_per_step", "count", "tokens that a sequence emits per verify step", "none"),
        Metric("errors.rate", "fraction", "share of finished requests that failed or were aborted", "none"),
        Metric("goodput", "fraction", "share of requests that meet all the limits named", "window", (), (), True),
        Metric("timeline.busy", "fraction", "time that a kernel or graph replay ran", "idle"),
        Metric("timeline.idle", "fraction", "time that no kernel or graph replay ran", "idle"),
        Metric("timeline.communication", "fraction", "time that communication kernels ran", "communication"),
        Metric("timeline.communication_exposed", "fraction", "communication that no computation hid", "communication"),
        Metric("timeline.host_bound_idle", "fraction", "idle time that waited for the host", "idle"),
        Metric("timeline.graph_launched", "fraction", "kernel time launched by graph replays", "window"),
        Metric("timeline.gap", "seconds", "gap between two kernels", "idle", (), LATENCY_STATISTICS),
        Metric("kernels.mfu", "fraction", "FLOPs of the kernels that match a pattern over the peak", "window", ("gpu",), (), True),
        Metric("kernels.mbu", "fraction", "bytes of the kernels that match a pattern over the bandwidth", "window", ("gpu",), (), True),
        Metric("kernels.time_share", "fraction", "share of GPU time of the kernels that match a pattern", "window", (), (), True),
    ]  # fmt: skip


#: Every metric by name. Those of other plugins stand behind the package's own, for as long as their session lasts.
METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in _metrics()}
#: First parts of names that are the package's.
PACKAGED: Final = frozenset(name.partition(".")[0] for name in METRICS)


def added_metrics() -> dict[str, Metric]:
    """The metrics of other plugins that are known now."""
    return {name: metric for name, metric in METRICS.items() if metric.measure is not None}


def set_added(metrics: Mapping[str, Metric]) -> None:
    """Know these metrics of other plugins, and no others. Whoever keeps what expressions mean must forget it."""
    for name in added_metrics():
        del METRICS[name]
    METRICS.update(metrics)

#: ``goodput(ttft<=2s)`` and ``kernels(PATTERN).mfu``.
_PARAMETRISED: Final = re.compile(r"(\w+)\(.*\)(\.\w+)?", re.DOTALL)

#: Bare names that people write, each with what it could mean.
_AMBIGUOUS: Final = {
    "mfu": ("prefill.mfu", "decode.mfu", "window.mfu"),
    "mbu": ("decode.mbu", "prefill.mbu", "window.mbu"),
}


def metric_names() -> list[str]:
    """Every plain name that a gate may use, statistics spelled out; parametrised ones as ``goodput(...)``."""
    names = []
    for metric in METRICS.values():
        if metric.parametrised:
            family, _, rest = metric.name.partition(".")
            names.append(f"{family}(...)" + (f".{rest}" if rest else ""))
        elif metric.statistics:
            names.extend(f"{metric.name}.{statistic}" for statistic in metric.statistics)
        else:
            names.append(metric.name)
    return names


def metric_of(name: str) -> Metric:
    """The metric of any name that a gate may use, parameters included (``goodput(ttft<=2s)``). ConfigError otherwise."""
    match = _PARAMETRISED.fullmatch(name)
    if match is None:
        return find_metric(name)[0]
    base = match[1] + (match[2] or "")
    if base in METRICS and METRICS[base].parametrised:
        return METRICS[base]
    raise ConfigError(f"unknown metric {name!r}{did_you_mean(name, metric_names())}; --llmroof-list=metrics names all")


@dataclass(frozen=True)
class ListedMetric:
    """One line of the list of metrics, for people."""

    name: str
    unit: Unit
    needs: str
    meaning: str


def list_metrics() -> tuple[ListedMetric, ...]:
    """The metrics in order, statistics folded: ``ttft.STAT`` with what STAT may be in its meaning."""
    listed = []
    for metric in METRICS.values():
        name, meaning = metric.name, metric.meaning
        if metric.parametrised:
            family, _, rest = name.partition(".")
            name = f"{family}(...)" + (f".{rest}" if rest else "")
        elif metric.statistics:
            name, meaning = f"{name}.STAT", f"{meaning} (STAT: {', '.join(metric.statistics)})"
        listed.append(ListedMetric(name, metric.unit, ", ".join(metric.needs), meaning))
    return tuple(listed)


def find_metric(name: str) -> tuple[Metric, str | None]:
    """The metric of a name without parameters, and its statistic (``ttft.p99`` -> ttft, p99). ConfigError otherwise."""
    if name in METRICS and not METRICS[name].statistics and not METRICS[name].parametrised:
        return METRICS[name], None
    for base in METRICS.values():
        if base.statistics and name.startswith(base.name + "."):
            statistic = name.removeprefix(base.name + ".")
            if statistic in base.statistics:
                return base, statistic
            raise ConfigError(f"{base.name} has no statistic {statistic!r}: {', '.join(base.statistics)}")
    if name in METRICS and METRICS[name].statistics:
        choices = ", ".join(f"{name}.{choice}" for choice in METRICS[name].statistics)
        raise ConfigError(f"{name!r} needs a statistic: {choices}")
    if name in _AMBIGUOUS:
        raise ConfigError(f"{name!r} could mean {' or '.join(_AMBIGUOUS[name])}: write which one")
    raise ConfigError(f"unknown metric {name!r}{did_you_mean(name, metric_names())}; --llmroof-list=metrics names all")
