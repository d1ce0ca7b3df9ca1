"""A release manager's run: ids, near misses, exit codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from vllm_pages import EIGHT_B

GATES = """
gpu: h100
model: llama-3.1-8b
deployment: {tensor_parallel: 1, weights: bf16}
windows:
  decode:
    phase: decode
    telemetry: [before.prom, after.prom]
    gates:
      - {gate: decode.mbu >= LIMIT, id: REL-7}
      - {gate: itl.mean <= 1s, id: REL-8}
"""


def test_k_runs_exactly_the_gate_of_an_id(gate: Callable[..., Any], pages: Callable[..., None]) -> None:
    pages(**EIGHT_B)
    run = gate(GATES.replace("LIMIT", "90%"), "-k", "REL-7")
    assert run.rc == 1
    assert "1 failed, 1 deselected" in run.text
    assert "[REL-7]" in run.text
    assert run.report["summary"]["not run"] == 1


def test_breach_and_missing_measurement_have_their_own_exit_codes(
    gate: Callable[..., Any], pages: Callable[..., None], pytester: pytest.Pytester
) -> None:
    pages(**EIGHT_B)
    missing = GATES.replace("LIMIT", "50%").replace("after.prom", "gone.prom")
    assert gate(missing, "--llmroof-unmeasured-exit=75").rc == 75
    breached = GATES.replace("LIMIT", "95%")
    assert gate(breached, "--llmroof-unmeasured-exit=75").rc == 1
    # Both together: a regression is never retried.
    (pytester.path / "other.llmroof.yaml").write_text(missing)
    assert gate(breached, "--llmroof-unmeasured-exit=75").rc == 1
    # And a failing unit test beside an unmeasured gate is a failure like any other.
    (pytester.path / "llmroof.yaml").unlink()
    pytester.makepyfile(test_unit="def test_unit():\n    assert False\n")
    assert gate(None, "--llmroof-unmeasured-exit=75").rc == 1


def test_no_gate_collected_is_not_green(gate: Callable[..., Any], pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_unit="def test_unit():\n    pass\n")
    run = gate(GATES.replace("LIMIT", "50%"), "--llmroof-gpu=h100", name="llm-roof.yml")
    assert run.rc == 4
    assert "no gate was collected" in run.one_line
    assert "llm-roof.yml" in run.one_line
    assert "llmroof.yaml" in run.one_line
