"""Timelines whose truth is known: a schedule of what the host submitted and the device ran, written as profilers do.

Times are whole nanoseconds. ``write_kineto`` writes the PyTorch profiler's trace of a schedule.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GEMM = "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT"
ATTENTION = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)"
CUSTOM_ALL_REDUCE = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)"
NCCL_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NCCL_SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
MICROSECOND = 1_000


@dataclass(frozen=True)
class Work:
    """One kernel (or copy, or whole graph replay) on the device. Work of one launch bears the same ``launch``."""

    name: str
    start: int
    end: int
    launch: int | None = None
    stream: int = 7
    kind: str = "kernel"
    sequence: int | None = None


@dataclass(frozen=True)
class Call:
    """One call of the host's API: ``launch`` is its number, where it launches something."""

    name: str
    start: int
    end: int
    launch: int | None = None


@dataclass
class Schedule:
    """What one rank did. ``steps`` are annotations on the host: start, end, name."""

    work: list[Work] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    steps: list[tuple[int, int, str]] = field(default_factory=list)
    rank: int | None = 0
    world_size: int | None = 1
    device_name: str = "NVIDIA H100 80GB HBM3"
    zero_unix_ns: int | None = 1_795_975_830_000_000_000
    options: tuple[str, ...] = ()

    def launch(
        self, submitted: int, runs: Iterable[tuple[str, int, int]], api: str = "cudaLaunchKernel", stream: int = 7
    ) -> None:
        """A call of 5 us at ``submitted``, and the work (name, start, end) that it launched."""
        number = len(self.calls) + 1
        self.calls.append(Call(api, submitted, submitted + 5 * MICROSECOND, number))
        self.work += [Work(name, start, end, number, stream) for name, start, end in runs]

    def step(self, start: int, end: int, name: str = "execute_context_0(0)_generation_32(32)") -> None:
        """The annotation of a step around what the host did."""
        self.steps.append((start, end, name))


def kineto_events(schedule: Schedule) -> list[dict[str, Any]]:
    """The events of a schedule, as the PyTorch profiler writes them."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": name, "pid": 100, "tid": 100, **_when(start, end), "args": {}}
        for start, end, name in schedule.steps
    ]
    for call in schedule.calls:
        args: dict[str, Any] = {"correlation": call.launch or 0}
        events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": call.name, "pid": 100, "tid": 100,
             **_when(call.start, call.end), "args": args}
        )  # fmt: skip
    for one in schedule.work:
        args = {"device": 0, "stream": one.stream, "grid": [64, 1, 1]}
        if one.launch is not None:
            args["correlation"] = one.launch
        if one.sequence is not None:
            args |= {"Seq": one.sequence, "Process Group Name": "tp", "In msg nelems": 4096, "dtype": "BFloat16"}
        events.append(
            {"ph": "X", "cat": one.kind, "name": one.name, "pid": 0, "tid": one.stream,
             **_when(one.start, one.end), "args": args}
        )  # fmt: skip
    return events


def kineto_header(schedule: Schedule) -> dict[str, Any]:
    """What stands around the events."""
    header: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": schedule.device_name}],
        **dict.fromkeys(schedule.options, 1),
    }
    if schedule.rank is not None:
        header["distributedInfo"] = {"backend": "nccl", "rank": schedule.rank, "world_size": schedule.world_size}
    if schedule.zero_unix_ns is not None:
        header["baseTimeNanoseconds"] = schedule.zero_unix_ns
    return header


def write_kineto(schedule: Schedule, path: Path) -> Path:
    """The trace of a schedule; packed where the name ends in ``.gz``."""
    text = json.dumps({**kineto_header(schedule), "traceEvents": kineto_events(schedule)})
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())
    return path


def _when(start: int, end: int) -> dict[str, float]:
    return {"ts": start / 1000, "dur": (end - start) / 1000}
