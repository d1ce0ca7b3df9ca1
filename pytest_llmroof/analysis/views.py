"""A window as functions of other plugins see it: a copy that stays the same whatever the rooms here become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.extend import (
    ClientView,
    DeploymentView,
    EngineView,
    GpuView,
    HistogramView,
    NoData,
    RequestView,
    SeriesView,
    Value,
    WindowView,
)
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.hardware import Gpu
from pytest_llmroof.telemetry.window import Engine, Histogram, Series, Window

_T = TypeVar("_T")


def view_of(facts: WindowFacts, measured: Callable[[str], Value | NoData]) -> WindowView:
    """The view of a window; ``measured`` serves the package's own metrics."""
    window = facts.window
    counters = sorted({name for engine in window.engines for name in engine.counters})
    return WindowView(
        phase=facts.phase,
        duration_seconds=facts.duration_seconds,
        counters=_read_only({name: window.counter(name) or 0.0 for name in counters}),
        histograms=_read_only(_merged(window)),
        engines=tuple(map(_engine, window.engines)),
        client=None if window.client is None else _client(window.client),
        gpus=tuple(map(_gpu, window.hardware.gpus)) if window.hardware is not None else (),
        deployment=_deployment(facts.deployment),
        source=", ".join(dict.fromkeys(info.location for info in window.sources)),
        _measured=measured,
    )


def _read_only(values: Mapping[str, _T]) -> Mapping[str, _T]:
    return MappingProxyType(dict(values))


def _merged(window: Window) -> dict[str, HistogramView]:
    """Histograms over all engines, but for those whose buckets differ among them."""
    merged = {}
    for name in sorted({name for engine in window.engines for name in engine.histograms}):
        try:
            found = window.histogram(name)
        except ValueError:
            continue
        if found is not None:
            merged[name] = _histogram(found)
    return merged


def _histogram(histogram: Histogram) -> HistogramView:
    return HistogramView(histogram.bounds, histogram.counts, histogram.total)


def _series(series: Series) -> SeriesView:
    return SeriesView(series.times, series.values)


def _engine(engine: Engine) -> EngineView:
    return EngineView(
        identity=engine.identity,
        model_name=engine.model_name,
        counters=_read_only(engine.counters),
        histograms=_read_only({name: _histogram(one) for name, one in engine.histograms.items()}),
        gauges=_read_only({name: _series(one) for name, one in engine.gauges.items()}),
        finished=_read_only(engine.finished),
    )


def _client(client: Client) -> ClientView:
    return ClientView(
        tool=client.tool,
        location=client.location,
        duration_seconds=client.duration_seconds,
        completed=client.completed,
        failed=client.failed,
        input_tokens=client.input_tokens,
        output_tokens=client.output_tokens,
        concurrency=client.concurrency,
        requests=tuple(
            RequestView(
                ttft=one.ttft,
                e2e=one.e2e,
                tpot=one.tpot,
                itls=one.itls,
                input_tokens=one.input_tokens,
                output_tokens=one.output_tokens,
                started=one.started,
                failed=one.failed,
            )
            for one in client.requests
        ),
    )


def _gpu(gpu: Gpu) -> GpuView:
    return GpuView(
        identity=gpu.identity,
        device_name=gpu.device_name,
        series=_read_only({name: _series(one) for name, one in gpu.series.items()}),
        counters=_read_only(gpu.counters),
    )


def _deployment(deployment: Deployment) -> DeploymentView:
    model, accelerator = deployment.model, deployment.accelerator
    return DeploymentView(
        model=model.name if model else None,
        parameters=model.parameters if model else None,
        active_parameters=model.active_parameters if model else None,
        accelerator=accelerator.name if accelerator else None,
        peak_flops_per_second=deployment.peak_flops_per_second,
        memory_bandwidth_bytes_per_second=deployment.bandwidth_bytes_per_second,
        memory_bytes=accelerator.memory_bytes if accelerator else None,
        tensor_parallel=deployment.tensor_parallel,
        pipeline_parallel=deployment.pipeline_parallel,
        replicas=deployment.replicas,
        gpus=deployment.gpus,
        weights=deployment.weights,
        kv_cache=deployment.kv_cache,
        compute=deployment.compute,
    )
