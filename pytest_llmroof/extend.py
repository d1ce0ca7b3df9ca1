"""What hooks of other plugins give and get: stable, typed, and light enough to be imported at the head of a conftest.

``pytest_llmroof_metrics`` gives ``Metric``, whose function gets a ``WindowView`` and gives a ``Value`` or ``NoData``.
Times are seconds. Quantities have canonical names, whatever the engine calls them (docs/hooks.md lists them). Mappings
are read-only; what the sources do not tell is absent from a mapping, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Need = Literal["gpu", "model"]
Family = Literal["decode", "prefill", "ttft", "window", "none"]


@dataclass(frozen=True)
class Value:
    """A measured figure in the metric's unit, and the interval that it lies in (exact where none is given).

    ``source`` names where it came from, ``method`` how it is defined, in a phrase; ``samples`` counts observations.
    ``high`` may be infinite.
    """

    value: float
    low: float | None = None
    high: float | None = None
    source: str = ""
    method: str = ""
    samples: int | None = None


@dataclass(frozen=True)
class NoData:
    """These sources cannot tell the metric: why, and what to do (a command, where there is one). Its gates fail."""

    reason: str
    remedy: str | None = None


@dataclass(frozen=True)
class HistogramView:
    """``counts[i]`` observations lie in ``(bounds[i-1], bounds[i]]``; the last bound is infinite.

    ``total`` is the sum of all observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float


@dataclass(frozen=True)
class SeriesView:
    """Samples in order of time, on the window's clock."""

    times: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class EngineView:
    """One replica: increases of its counters and histograms over the window, and samples of its gauges."""

    identity: str
    model_name: str | None
    counters: Mapping[str, float]
    histograms: Mapping[str, HistogramView]
    gauges: Mapping[str, SeriesView]
    finished: Mapping[str, float]
    """Finished requests by reason (stop, length, abort, error)."""


@dataclass(frozen=True)
class RequestView:
    """One request as a load generator saw it. ``itls`` are the times between the pieces of its output."""

    ttft: float | None
    e2e: float | None
    tpot: float | None
    itls: tuple[float, ...]
    input_tokens: float | None
    output_tokens: float | None
    started: float | None
    failed: bool


@dataclass(frozen=True)
class ClientView:
    """A load generator's run: ``completed`` and ``failed`` requests, tokens of the completed ones, each request."""

    tool: str
    location: str
    duration_seconds: float | None
    completed: float | None
    failed: float | None
    input_tokens: float | None
    output_tokens: float | None
    concurrency: float | None
    requests: tuple[RequestView, ...]


@dataclass(frozen=True)
class GpuView:
    """A GPU's own counters: samples of its activities, and increases over the window (``energy_joules``)."""

    identity: str
    device_name: str | None
    series: Mapping[str, SeriesView]
    counters: Mapping[str, float]


@dataclass(frozen=True)
class DeploymentView:
    """What was served, on what. ``peak_flops_per_second`` is the dense one of a GPU at the precision ``compute``."""

    model: str | None
    parameters: float | None
    active_parameters: float | None
    accelerator: str | None
    peak_flops_per_second: float | None
    memory_bandwidth_bytes_per_second: float | None
    memory_bytes: float | None
    tensor_parallel: int
    pipeline_parallel: int
    replicas: int
    gpus: int
    weights: str
    kv_cache: str
    compute: str


@dataclass(frozen=True)
class WindowView:
    """A window as a function of a plugin sees it; with ``per: replica`` that of one replica.

    ``counters`` are summed and ``histograms`` merged over ``engines`` (a histogram whose buckets differ among them is
    only in ``engines``). ``duration_seconds`` is None where the sources carry no clock.
    """

    phase: Literal["decode", "prefill", "mixed"]
    duration_seconds: float | None
    counters: Mapping[str, float]
    histograms: Mapping[str, HistogramView]
    engines: tuple[EngineView, ...]
    client: ClientView | None
    gpus: tuple[GpuView, ...]
    deployment: DeploymentView
    source: str
    """Where the figures were read, as reports call it."""
    _measured: Callable[[str], Value | NoData] = field(repr=False, compare=False)

    def measured(self, metric: str) -> Value | NoData:
        """One of the package's own metrics in this window, in its unit. KeyError where it has none of that name."""
        return self._measured(metric)


@dataclass(frozen=True)
class Metric:
    """A metric beside the package's own.

    ``unit`` is one that a gate's limit may be written in (``count`` for what has none), ``meaning`` says in words what
    the figure is. ``measure`` is a pure function; it is called once for each window, and replica, that is asked for it.
    ``needs`` names what must be known beside telemetry: without it the gate has no data, and ``measure`` is not called.
    ``family`` says whose time it measures, and so whose scenario explains a breach; ``none`` where it measures none.
    """

    unit: str
    meaning: str
    measure: Callable[[WindowView], Value | NoData]
    needs: tuple[Need, ...] = ()
    family: Family = "none"


@dataclass(frozen=True)
class DiagnosisView:
    """What the package's own diagnosis says of one time of the window.

    ``of`` names the time: ``decode``, ``prefill``, ``ttft``, ``window`` (of its load), ``whole`` (idle time included)
    or ``none``. ``scenario`` is a letter, ``"C or D"`` or None. ``shares`` are parts of that time by their cause
    (``memory floor: weights``, ``idle: between steps``, ``not attributed``, ...); empty where it was not split.
    """

    of: str
    scenario: str | None
    title: str
    confidence: Literal["high", "medium", "low"]
    shares: Mapping[str, float]


@dataclass(frozen=True)
class Found:
    """That a scenario is what explains the time: the statement that speaks for it, and where it was read."""

    statement: str
    source: str
    confidence: Literal["high", "medium", "low"] = "medium"


@dataclass(frozen=True)
class Remedy:
    """What to do. ``effect`` is a phrase for what it brings, where that is known.

    ``applies`` tells whether it is one for this window; without it, it always is.
    """

    title: str
    detail: str
    effect: str = ""
    applies: Callable[[WindowView, DiagnosisView], bool] | None = None


@dataclass(frozen=True)
class Scenario:
    """A scenario beside A to G.

    ``title`` stands in the first line of a failing gate, ``words`` says the same to somebody who does not know GPUs.
    ``condition`` is a pure function: it gives ``Found`` where the scenario explains the time, else None. It then takes
    the place of the package's own finding, which stays a candidate with its evidence.
    """

    title: str
    words: str
    condition: Callable[[WindowView, DiagnosisView], Found | None]
    remedies: tuple[Remedy, ...] = ()
