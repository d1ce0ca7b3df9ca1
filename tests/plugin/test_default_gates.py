"""A window without gates has the default ones of its phase; where none is written, its traffic shows which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import runs
from vllm_pages import EIGHT_B

Pages = Callable[..., tuple[Path, Path]]
DECODE = EIGHT_B
PREFILL = {"model": "meta-llama/Llama-3.1-8B-Instruct", "context": 4096, "output": 1, "prefill": 0.115, "running": 1}
MIXED = {**DECODE, "context": 3000, "output": 200, "batch": 24, "itl": 0.012, "prefill": 0.1}
FILE = """
gpu: h100
model: llama-3.1-8b
deployment: {tensor_parallel: 1, weights: bf16}
windows:
  night: {telemetry: [before.prom, after.prom]}
"""


@pytest.mark.parametrize(("load", "gate"), [(DECODE, "decode.mbu >= 75%"), (PREFILL, "prefill.mfu >= 45%")])
def test_the_traffic_shows_the_phase(
    pytester: pytest.Pytester, vllm_pages: Pages, load: dict[str, object], gate: str
) -> None:
    vllm_pages(pytester.path, **load)
    (pytester.path / "llmroof.yaml").write_text(FILE)
    result = runs.run(pytester, "-v")
    result.stdout.fnmatch_lines([f"llmroof.yaml::night::{gate} *"])
    assert result.ret == 0


@pytest.mark.parametrize(("mark", "found"), [("decode", pytest.ExitCode.NO_TESTS_COLLECTED), ("prefill", 0)])
def test_the_phase_that_was_found_is_a_mark(
    pytester: pytest.Pytester, vllm_pages: Pages, mark: str, found: int
) -> None:
    vllm_pages(pytester.path, **PREFILL)
    (pytester.path / "llmroof.yaml").write_text(FILE)
    assert runs.run(pytester, "-m", mark).ret == found


def test_a_mixed_window_is_asked_for_gates(pytester: pytest.Pytester, vllm_pages: Pages) -> None:
    vllm_pages(pytester.path, **MIXED)
    (pytester.path / "llmroof.yaml").write_text(FILE)
    result = runs.run(pytester)
    result.stdout.fnmatch_lines(["llmroof.yaml:6:*night: its traffic mixes prefill and decode*write gates:*"])
    assert result.ret == 2


def test_what_cannot_be_read_has_no_data_and_does_not_pass(pytester: pytest.Pytester) -> None:
    (pytester.path / "llmroof.yaml").write_text(FILE)
    result = runs.run(pytester)
    result.stdout.fnmatch_lines(["*NOT MEASURED: *before.prom*"])
    assert result.ret == 1


def test_telemetry_of_the_command_line_alone(pytester: pytest.Pytester, vllm_pages: Pages) -> None:
    vllm_pages(pytester.path, **PREFILL)
    options = ["--llmroof-gpu=h100", "--llmroof-model=llama-3.1-8b", "--llmroof-deployment=tensor_parallel=1"]
    telemetry = ["--llmroof-telemetry=before.prom", "--llmroof-telemetry=after.prom"]
    result = runs.run(pytester, "-v", *options, *telemetry)
    result.stdout.fnmatch_lines(["llmroof::prefill.mfu >= 45% PASSED*"])


def test_servers_are_not_asked_while_tests_are_collected(pytester: pytest.Pytester) -> None:
    result = runs.run(pytester, "--llmroof-telemetry=http://127.0.0.1:9/metrics")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--llmroof-phase=decode" in result.stdout.str() + result.stderr.str()
