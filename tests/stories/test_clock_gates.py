"""A clock that heat or a power cap lowered fails its gate for that reason, whatever else the steps lost time to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dcgm_pages
import pytest
from vllm_pages import Load, page

#: Steps of 26.2 ms of a 70B model, which its engine's metrics alone call C or D.
LOAD = Load()
GATES = """
gpu: h100
model: llama-3.1-70b
deployment: {tensor_parallel: 4, weights: bf16, kv_cache: bf16}
windows:
  decode: {phase: decode, telemetry: load, gates: [hardware.clock >= 90%, decode.mbu >= 75%]}
"""


@pytest.mark.parametrize(
    ("field", "cause", "title", "command"),
    [
        ("THERMAL", "heat lowered the GPUs' clock", "Cool the GPUs", "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER"),
        ("POWER", "a power cap lowered the GPUs' clock", "Raise the power cap", "nvidia-smi -q -d PERFORMANCE,POWER"),
    ],
)
def test_a_clock_gate_fails_by_the_clocks_own_cause(
    pytester: pytest.Pytester, gate: Callable[..., Any], field: str, cause: str, title: str, command: str
) -> None:
    folder, values = pytester.mkdir("load"), {"DEV_GPU_UTIL": 100.0, "DEV_SM_CLOCK": 1281.0}
    for second in range(61):
        at = LOAD.started + second
        (folder / f"vllm.{second:06}.prom").write_text(page(LOAD, second / 60, at), encoding="utf-8")
        held = "".join(f'DCGM_FI_DEV_{field}_VIOLATION{{gpu="{index}",UUID="GPU-node-1-{index}",Hostname="node-1"}} '
                       f"{second * 4e8:.0f}\n" for index in range(4))  # 0.4 s of each second, in ns  # fmt: skip
        text = dcgm_pages.page(at + 0.01, LOAD.started, values) + held
        (folder / f"dcgm.{second:06}.prom").write_text(text, encoding="utf-8")
    run = gate(GATES)
    assert run.verdicts == ["fail", "fail"]
    clock, step = run.window["gates"]
    assert clock["scenario"] is None
    assert step["scenario"] == "C or D"
    # 1 281 / 1 830 MHz.
    assert f"found 70 %, expected hardware.clock >= 90 % (20 points short); {cause}" in run.one_line
    assert f"DIAGNOSIS {cause} (confidence: medium)" in " ".join(run.one_line.split())
    (remedy,) = run.window["diagnosis"]["remedies"]
    assert (remedy["title"], remedy["effect"]) == (title, "clock 70 % toward 100 %")
    assert "in 40 % of the time and ran at 1.28 GHz, 70 % of the 1.83 GHz" in remedy["detail"]
    assert command in remedy["detail"]
