"""A server and a DCGM exporter scraped side by side: counters are measured, and decide what the engine leaves open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dcgm_pages
import pytest
from vllm_pages import Load, page

Gate = Callable[..., Any]
LOAD = Load()  # 70B, steps of 26.2 ms, batch 12.4, context 1 500
GATES = """
gpu: h100
model: llama-3.1-70b
deployment: {{tensor_parallel: 4, weights: bf16, kv_cache: bf16}}
windows:
  decode: {{phase: decode, telemetry: load, gates: [{gates}]}}
"""


@pytest.fixture
def record(pytester: pytest.Pytester) -> Callable[..., Path]:
    """A recording of a minute: the server's page and the exporter's each second."""

    def make(load: Load = LOAD, **values: float) -> Path:
        folder = pytester.mkdir("load")
        for second in range(61):
            at = load.started + second
            (folder / f"vllm.{second:06}.prom").write_text(page(load, second / 60, at), encoding="utf-8")
            if values:
                text = dcgm_pages.page(at + 0.01, load.started, values)
                (folder / f"dcgm.{second:06}.prom").write_text(text, encoding="utf-8")
        return folder

    return make


BUSY = {"DEV_GPU_UTIL": 100.0, "DEV_SM_CLOCK": 1830.0, "PROF_GR_ENGINE_ACTIVE": 0.98, "PROF_SM_ACTIVE": 0.45,
        "PROF_PIPE_TENSOR_ACTIVE": 0.03, "PROF_DRAM_ACTIVE": 0.42}  # fmt: skip


def test_without_counters_c_or_d(gate: Gate, record: Callable[..., Path]) -> None:
    record()
    run = gate(GATES.format(gates="decode.mbu >= 75%, hardware.idle <= 10%"))
    assert run.verdicts == ["fail", "no data"]
    assert "scenario C or D" in run.text
    assert "DCGM" in run.one_line


def test_host_gaps_are_d(gate: Gate, record: Callable[..., Path]) -> None:
    record(**BUSY | {"PROF_GR_ENGINE_ACTIVE": 0.55, "PROF_SM_ACTIVE": 0.5})
    run = gate(GATES.format(gates='decode.mbu >= 75%, hardware.idle <= 10%, "hardware.utilization <= 100%"'))
    assert run.verdicts == ["fail", "fail", "pass"]
    assert "scenario D: host launch latency and scheduling bubbles" in run.text
    assert "(confidence: medium)" in run.text
    # 1 - 0.55, the mean of values that wobble evenly about it.
    assert run.value("hardware.idle") == pytest.approx(0.45, abs=1e-3)
    assert "45 % idle" in run.one_line  # of the step
    row = "GPU counters nvidia-smi says 100 % while decode MFU is 1.66 %: it counts time in which any kernel ran; idle"
    assert f"{row} 45 %" in run.one_line


def test_idle_gaps_ruled_out_leave_c_or_f(gate: Gate, record: Callable[..., Path]) -> None:
    record(**BUSY)
    run = gate(GATES.format(gates="decode.mbu >= 75%"))
    assert "scenario C or F: communication stalls or slow kernels" in run.text
    assert "NVLINK_TX_BYTES" in run.one_line
    assert run.window["diagnosis"]["candidates"] == ["C", "F"]


def test_each_gpu_and_the_worst_is_named(gate: Gate, record: Callable[..., Path]) -> None:
    folder = record(**BUSY)
    for path in folder.glob("dcgm.*"):  # GPU 2 moves less than the others
        lines = path.read_text(encoding="utf-8").splitlines()
        slow = [line.replace(line.split()[-1], "0.20") if 'DRAM_ACTIVE{gpu="2"' in line else line for line in lines]
        path.write_text("\n".join(slow) + "\n", encoding="utf-8")
    run = gate(GATES.format(gates="{gate: hardware.mbu >= 40%, per: gpu}, {gate: hardware.mbu >= 30%, per: replica}"))
    assert run.verdicts == ["fail", "pass"]
    worst, _ = run.window["gates"]
    assert worst["value"] == pytest.approx(0.20)
    assert "the worst of 4 GPUs: gpu 2" in worst["reason"]
    assert "per gpu (20 points short; the worst of 4 GPUs: gpu 2" in run.text


def test_nothing_that_was_not_measured_is_called_the_worst(gate: Gate, record: Callable[..., Path]) -> None:
    folder = record(**BUSY)
    gates = GATES.format(gates="{gate: hardware.sm_active >= 40%, per: gpu}")
    for path in folder.glob("dcgm.*"):
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join(line for line in lines if 'SM_ACTIVE{gpu="2"' not in line) + "\n", encoding="utf-8")
    (one,) = gate(gates).window["gates"]
    assert one["verdict"] == "no data"
    assert one["reason"].startswith("gpu 2, one of 4 GPUs: nothing in load tells the activity of the multiproc")
    assert "have all of the exporters export the same counters" in one["reason"]
    for path in folder.glob("dcgm.*"):
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join(line for line in lines if "SM_ACTIVE{" not in line) + "\n", encoding="utf-8")
    run = gate(gates)
    (every,) = run.window["gates"]
    assert every["verdict"] == "no data"
    assert every["reason"].startswith("each of 4 GPUs: nothing in load tells the activity of the multiprocessors; ")
    assert "add the line `DCGM_FI_PROF_SM_ACTIVE, gauge, sm active`" in every["reason"]
    assert "worst of" not in run.text


def test_throttling_is_said_with_every_verdict(gate: Gate, record: Callable[..., Path]) -> None:
    folder = record(**BUSY | {"DEV_SM_CLOCK": 1281.0})
    for second, path in enumerate(sorted(folder.glob("dcgm.*"))):
        hot = "".join(f'DCGM_FI_DEV_THERMAL_VIOLATION{{gpu="{index}",UUID="GPU-node-1-{index}",Hostname="node-1"}} '
                      f"{second * 4e8:.0f}\n" for index in range(4))  # 0.4 s of each second, in ns  # fmt: skip
        path.write_text(path.read_text(encoding="utf-8") + hot, encoding="utf-8")
    run = gate(GATES.format(gates="decode.mbu >= 10%, hardware.clock >= 90%"))
    assert run.verdicts == ["pass", "fail"]
    assert run.value("hardware.clock") == pytest.approx(0.7)  # 1 281 / 1 830
    (note,) = [note for note in run.window["notes"] if "throttled for heat" in note]
    assert "in 40 % of the time at 1.28 GHz, 70 % of the 1.83 GHz" in note
    assert "throttled for heat" in run.one_line


def test_profiled_fields_that_are_missing_or_zero_decide_nothing(gate: Gate, record: Callable[..., Path]) -> None:
    folder = record(DEV_GPU_UTIL=99.0, DEV_POWER_USAGE=642.0)
    gates = GATES.format(gates="hardware.mbu >= 10%, hardware.utilization >= 90%, decode.mbu >= 75%")
    run = gate(gates)
    assert run.verdicts == ["no data", "pass", "fail"]
    assert "none of DCGM_FI_PROF_* is exported: run dcgm-exporter as root" in run.one_line
    assert "scenario C or D" in run.text
    # Engines that never run cannot go with 99 % and 642 W.
    fields = ("GR_ENGINE_ACTIVE", "DRAM_ACTIVE", "PIPE_TENSOR_ACTIVE")
    zero = "".join(f'DCGM_FI_PROF_{field}{{gpu="{index}",UUID="GPU-node-1-{index}",Hostname="node-1"}} 0\n'
                   for field in fields for index in range(4))  # fmt: skip
    for path in folder.glob("dcgm.*"):
        path.write_text(path.read_text(encoding="utf-8") + zero, encoding="utf-8")
    run = gate(gates)
    assert run.verdicts == ["no data", "pass", "fail"]
    assert "scenario C or D" in run.text
    assert run.window["diagnosis"]["candidates"] == ["C", "D", "F"]
