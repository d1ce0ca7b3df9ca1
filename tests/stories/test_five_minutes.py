"""A reviewer with five minutes: a scrape without anything else, the health of refusals, calibration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm_pages import EIGHT_B

ROOT = Path(__file__).parents[2]


def test_a_scrape_without_anything_else(gate: Callable[..., Any], pytester: pytest.Pytester) -> None:
    page = (ROOT / "examples" / "any" / "after.prom").read_text()
    (pytester.path / "after.prom").write_text(page)
    run = gate(None, "--llmroof-telemetry=after.prom", "--llmroof-gate=ttft.p99 <= 2s")
    assert run.rc in (0, 1)
    assert run.verdicts[0] in ("pass", "fail")
    assert "gpu" not in run.one_line.lower().replace("--llmroof-gpu", "")


def test_weights_that_do_not_fit(gate: Callable[..., Any], pages: Callable[..., None]) -> None:
    pages()
    run = gate(
        None,
        "--llmroof-gpu=h100",
        "--llmroof-model=llama-3.1-70b",
        "--llmroof-telemetry=before.prom",
        "--llmroof-telemetry=after.prom",
        "--llmroof-phase=decode",
        "--llmroof-gate=decode.mbu >= 30%",
    )
    assert run.rc == 1
    assert run.verdicts == ["impossible"]
    assert "weights 141 GB do not fit" in run.one_line


def test_a_served_name_that_contradicts_an_assumption(gate: Callable[..., Any], pages: Callable[..., None]) -> None:
    pages(**{**EIGHT_B, "model": "RedHatAI/Llama-3.1-8B-Instruct-FP8"})
    run = gate(
        """
        gpu: h100
        model: llama-3.1-8b
        windows:
          decode: {phase: decode, telemetry: [before.prom, after.prom], gates: [decode.mbu >= 30%]}
        """
    )
    assert run.rc == 1
    assert run.verdicts == ["impossible"]
    assert "the served name says FP8, weights bf16 (assumed)" in run.one_line


UNCONFIRMED = """
gpu: h100
model: llama-3.1-8b
windows:
  decode: {phase: decode, telemetry: [before.prom, after.prom], gates: [decode.mbu >= 50%]}
"""


def test_an_unconfirmed_assumption_is_approximate(gate: Callable[..., Any], pages: Callable[..., None]) -> None:
    pages(**EIGHT_B)
    run = gate(UNCONFIRMED)
    assert run.rc == 0, run.text
    assert run.window["gates"][0]["approximate"] is True
    strict = gate(UNCONFIRMED, "--llmroof-strict")
    assert strict.rc == 1
    assert strict.verdicts == ["inconclusive"]
    assert "tensor_parallel" in strict.one_line


def test_the_cure_is_written_down_and_settles_it(gate: Callable[..., Any], pages: Callable[..., None]) -> None:
    pages(**EIGHT_B)
    run = gate(UNCONFIRMED + "deployment: {tensor_parallel: 1, weights: bf16}\n", "--llmroof-strict")
    assert run.rc == 0, run.text
    assert run.window["gates"][0]["approximate"] is False


def test_a_calibrated_file_passes_on_its_own_window_and_fails_on_a_slower_one(
    gate: Callable[..., Any], pages: Callable[..., None], pytester: pytest.Pytester
) -> None:
    published = {"model": "meta-llama/Llama-3.3-70B-Instruct", "batch": 32, "context": 560, "output": 800}
    pages(**published, itl=1 / 43.8625)
    first = gate(
        """
        model: llama-3.3-70b
        deployment: {tensor_parallel: 4, weights: bf16}
        windows:
          decode: {phase: decode, telemetry: [before.prom, after.prom]}
        """,
        "--llmroof-gpu=h100",
    )
    assert first.rc == 1  # the default gate asks for 75 %, and 47 % was measured
    assert "75 % is the default" in first.one_line
    assert "supports: decode.mbu >=" in first.one_line

    made = subprocess.run(
        [sys.executable, "-m", "pytest_llmroof", "init", "--from=report.json"],
        cwd=pytester.path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "75%" not in made.stdout
    again = gate(made.stdout, "--llmroof-gpu=h100")
    assert again.rc == 0, again.text
    pages(**published, itl=1.1 / 43.8625)
    slower = gate(made.stdout, "--llmroof-gpu=h100")
    assert slower.rc == 1, slower.text
