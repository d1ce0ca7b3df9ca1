"""The golden numbers, through the public path: gate file, pytest, JSON report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

GOLDEN = """
gpu: {{name: golden, peaks: {{bf16: 989TFLOP/s, fp8: 1979TFLOP/s}}, memory_bandwidth: 3.35TB/s, memory: {memory}}}
model: {{parameters: 70e9}}
deployment: {{tensor_parallel: 1, weights: bf16, compute: {compute}}}
windows:
  decode:
    phase: decode
    telemetry: [before.prom, after.prom]
    gates: ["decode.mbu >= 75%", "decode.intensity >= 0.9", "decode.mfu <= 5%"]
"""

# One sequence; a step of 140 GB at 3.35 TB/s takes 41.79 ms, and that is how long it takes here.
FLOOR = 140e9 / 3.35e12


def test_seventy_billion_parameters_at_batch_one(gate: Callable[..., Any], pages: Callable[..., None]) -> None:
    pages(itl=FLOOR, batch=1, context=1000, output=400, running=1, seconds=120.0)
    run = gate(GOLDEN.format(memory="160GB", compute="bf16"))
    assert run.rc == 0, run.text
    assert run.window["gpu"]["ridge_flops_per_byte"] == pytest.approx(295.2, abs=0.05)  # 989e12 / 3.35e12
    assert run.value("decode.floor") == pytest.approx(0.04179, rel=1e-3)
    assert run.value("decode.intensity") == pytest.approx(1.0, rel=1e-3)  # 140 GFLOP / 140 GB
    assert run.value("decode.mbu") == pytest.approx(1.0, rel=2e-3)
    # 2 x 70e9 x 23.93 tok/s / 989e12 = 0.339 %
    assert run.value("decode.mfu") == pytest.approx(0.00339, rel=3e-3)


def test_the_ridge_in_fp8(gate: Callable[..., Any], pages: Callable[..., None]) -> None:
    pages(itl=FLOOR, batch=1, context=1000, output=400, running=1, seconds=120.0)
    run = gate(GOLDEN.format(memory="160GB", compute="fp8"))
    assert run.window["gpu"]["ridge_flops_per_byte"] == pytest.approx(590.7, abs=0.05)  # 1979e12 / 3.35e12
    assert run.window["gpu"]["precision"] == "fp8"


def test_on_one_board_of_80_gb_it_is_refused(gate: Callable[..., Any], pages: Callable[..., None]) -> None:
    pages(itl=FLOOR, batch=1, context=1000, output=400, running=1, seconds=120.0)
    run = gate(GOLDEN.format(memory="80GB", compute="bf16"))
    assert run.rc == 1
    assert run.verdicts[0] == "impossible"
    assert "weights" in run.one_line
    assert "do not fit" in run.one_line
    assert "140 GB" in run.one_line


def test_a_published_run_is_47_percent_and_not_1456(gate: Callable[..., Any], pages: Callable[..., None]) -> None:
    # Llama 3.3 70B, TP 4 on H100, batch 32, context 560, 43.86 steps/s:
    # (139.0 GB + 32 x 560 x 327,680 B = 5.87 GB) x 43.86 / (4 x 3.35e12) = 47.4 %; weights x tokens/s gives 1456 %.
    pages(model="meta-llama/Llama-3.3-70B-Instruct", itl=1 / 43.8625, batch=32, context=560, output=800, running=32)
    run = gate(
        """
        model: llama-3.3-70b
        deployment: {tensor_parallel: 4, weights: bf16}
        windows:
          decode: {phase: decode, telemetry: [before.prom, after.prom], gates: [decode.mbu >= 45%]}
        """,
        "--llmroof-gpu=h100",
    )
    assert run.rc == 0, run.text
    assert run.value("decode.mbu") == pytest.approx(0.474, abs=0.002)
    assert run.value("decode.batch") == pytest.approx(32, rel=0.01)
