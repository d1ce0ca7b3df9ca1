"""Counters of GPUs made by hand: what an exporter would have seen of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_llmroof.telemetry.hardware import Gpu, Hardware
from pytest_llmroof.telemetry.window import Series, Window

NAMES = {
    "gr_engine": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "sm_active": "DCGM_FI_PROF_SM_ACTIVE",
    "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "dram": "DCGM_FI_PROF_DRAM_ACTIVE",
    "utilization": "DCGM_FI_DEV_GPU_UTIL",
    "sm_clock_hertz": "DCGM_FI_DEV_SM_CLOCK",
    "nvlink_sent_bytes_per_second": "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "nvlink_received_bytes_per_second": "DCGM_FI_PROF_NVLINK_RX_BYTES",
}
H100 = "NVIDIA H100 80GB HBM3"


def gpu(
    index: int = 0,
    *,
    times: Sequence[float] = tuple(range(1, 61)),
    host: str = "host-1",
    device: str | None = H100,
    changes: Mapping[str, Any] | None = None,
    **values: float | Sequence[float],
) -> Gpu:
    """One GPU, with a value or one value a sample of each quantity."""
    series = {
        name: Series(tuple(map(float, times)), _values(value, len(times))) for name, value in values.items()
    }  # fmt: skip
    made = Gpu(
        identity=f"gpu {index} of {host}",
        device_name=device,
        host=host,
        index=str(index),
        series=series,
        names={name: NAMES[name] for name in values if name in NAMES},
    )
    return replace(made, **(changes or {}))


def gpus(count: int, host: str = "host-1", **values: Any) -> tuple[Gpu, ...]:
    """Several GPUs that did the same."""
    return tuple(gpu(index, host=host, **values) for index in range(count))


def hardware(*seen: Gpu, averaging: float | None = 1.0, **changes: Any) -> Hardware:
    """Counters of a DCGM exporter."""
    made = Hardware(gpus=seen, kinds=("dcgm",), location="dcgm.prom", averaging_seconds=averaging)
    return replace(made, **changes)


def watched(window: Window, *seen: Gpu, averaging: float | None = 1.0, **changes: Any) -> Window:
    """A window with counters of these GPUs."""
    return replace(window, hardware=hardware(*seen, averaging=averaging, **changes))


def _values(value: float | Sequence[float], count: int) -> tuple[float, ...]:
    return (float(value),) * count if isinstance(value, int | float) else tuple(map(float, value))
