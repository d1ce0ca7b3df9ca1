"""Kernels that Nsight Compute profiled, from its export to verdicts, their cause, and the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kernel_tables import HOST, PROCESS, long

Gate = Callable[..., Any]
SOL, MEMORY, LINE = "GPU Speed Of Light Throughput", "Memory Workload Analysis", "Command line profiler metrics"
RULE = ("SOLBottleneck", "OPT", "This workload uses neither compute nor memory well.")
GATES = """
gpu: h100
windows:
  decode:
    phase: decode
    telemetry: kernels.csv
    gates:
      - kernels(device_kernel).mfu >= 40%
      - kernels(flash_fwd*).mbu >= 70%
      - kernels(cross_device_reduce).time_share <= 10%
      - kernels(nvjet*).mfu >= 40%
"""


def kernel(
    microseconds: float, mbu: float, mfu: float, compute: float, memory: float
) -> dict[tuple[str, str], tuple[str, str]]:
    """A launch on an H100 (989.4 TFLOP/s, 3350 GB/s) as the details page shows it, units scaled."""
    return {
        (SOL, "Duration"): ("us", f"{microseconds:.2f}"),
        (SOL, "Compute (SM) Throughput"): ("%", f"{compute:.2f}"),
        (SOL, "Memory Throughput"): ("%", f"{memory:.2f}"),
        (MEMORY, "Memory Throughput"): ("Gbyte/s", f"{mbu * 3350:,.2f}"),
        (MEMORY, "L2 Hit Rate"): ("%", "35.10"),
        (LINE, "sm__ops_path_tensor_src_bf16_dst_fp32.sum"): ("", f"{mfu * microseconds * 1e-6 * 989.4e12:,.0f}"),
    }


@pytest.fixture
def profiled(pytester: pytest.Pytester, gate: Gate) -> Any:
    """540 us of a GEMM at a fifth of the peak, 300 us of attention near the memory roof, 9 us of an all-reduce."""
    launches = [
        ("void cutlass::device_kernel<gemm>(int)", kernel(540, 0.3, 0.2, 30, 35)),
        ("flash_fwd_splitkv_kernel<bf16>(P)", kernel(300, 0.8, 0.05, 20, 80)),
        ("cross_device_reduce_1stage", kernel(9, 0.02, 0, 3, 5)),
    ]
    long(pytester.path / "kernels.csv", launches, rules=[RULE], cc="9.0", before="==PROF== Disconnected\n")
    return gate(GATES)


def test_gates_on_kernels_are_judged_and_explained(profiled: Any) -> None:
    assert profiled.verdicts == ["fail", "pass", "pass", "no data"]
    values = [one["value"] for one in profiled.window["gates"]]
    # 9 of 849 us
    assert values == [pytest.approx(0.2, rel=1e-3), pytest.approx(0.8, rel=1e-3), pytest.approx(9 / 849), None]
    assert "found 20 %, expected kernels(device_kernel).mfu >= 40 % (20 points short); scenario F" in profiled.text
    assert "operations that the kernels executed, against the dense peak of their precision" in profiled.one_line
    assert "matches 'nvjet*': the longest are cutlass::device_kernel, flash_fwd_splitkv_kernel" in profiled.one_line
    # 540 of 849 us
    said = "kernels of 64 % of the profiled time (cutlass::device_kernel) reach neither 60 % of the memory bandwidth"
    assert said in profiled.one_line
    quoted = f'Nsight Compute says of cutlass::device_kernel (SOLBottleneck): "{RULE[2]}"'
    assert quoted in profiled.one_line
    assert "Nsight Compute says of flash_fwd" not in profiled.one_line  # it is near its roof


def test_the_report_holds_the_kernels_and_nothing_private(profiled: Any) -> None:
    kernels = profiled.window["kernels"]
    assert (kernels["source"], kernels["launches"]) == ("kernels.csv", 3)
    gemm, attention, _ = kernels["points"]
    assert (gemm["label"], gemm["regime"], gemm["reading"]) == ("cutlass::device_kernel", "memory", "latency")
    # 0.2 x 989.4 TFLOP/s over 0.3 x 3350 GB/s = 196.9 FLOP/B, below the ridge of 295.3: 0.3 of the memory roof
    assert gemm["intensity"] == pytest.approx(196.9, rel=1e-3)
    assert gemm["of_roof"] == pytest.approx(0.3, rel=1e-3)
    assert attention["mbu"] == pytest.approx(0.8, rel=1e-3)
    for private in (PROCESS, HOST):
        assert private not in str(profiled.report) + profiled.text


def test_a_profile_of_another_gpu_is_impossible(profiled: Any, gate: Gate) -> None:
    run = gate(GATES.replace("h100", "a100"))
    assert run.verdicts == ["impossible", "impossible", "pass", "no data"]
    assert "has compute capability 9.0 (Hopper), a100-sxm4-80gb is of Ampere" in run.one_line


def test_a_report_that_only_the_tool_can_open_names_the_command(pytester: pytest.Pytester, gate: Gate) -> None:
    (pytester.path / "decode.ncu-rep").write_bytes(b"\x00NVR")
    run = gate(GATES.replace("kernels.csv", "decode.ncu-rep"))
    assert set(run.verdicts) == {"no data"}
    assert "ncu --import decode.ncu-rep --csv --page raw --print-units base > decode.csv" in run.one_line
