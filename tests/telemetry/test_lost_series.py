"""Lines that are lost from a page: what they counted is unknown, never 0."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from engine_pages import Page, llamacpp, trtllm
from engine_pages import write as write_engine
from vllm_pages import write_pages

from pytest_llmroof.assess import assess
from pytest_llmroof.gates.build import window_spec

Lost = Callable[[str], bool]
GATES = ["errors.rate <= 1%", "output.tokens_per_second >= 1", "input.tokens_per_second >= 1"]


def words(folder: Path, page: str, lost: Lost) -> dict[str, str]:
    """The verdicts on a window of two pages, one of which has lost lines."""
    path = folder / page
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if not lost(line)))
    keys = {"telemetry": ["before.prom", "after.prom"], "gates": GATES}
    return {one.gate.metric: one.word for one in assess(window_spec(keys, id="w", name="w", base=folder)).verdicts}


def series(name: str, label: str = "") -> Lost:
    return lambda line: line.startswith(name) and label in line


@pytest.fixture
def failing_requests(tmp_path: Path) -> Path:
    """103 requests of TensorRT-LLM of which 3 failed: 2.9 %."""
    write_engine(tmp_path, trtllm)
    return tmp_path


def test_errors_that_are_counted_fail_the_gate(failing_requests: Path) -> None:
    assert words(failing_requests, "after.prom", lambda line: False)["errors.rate"] == "fail"


def test_a_count_of_errors_that_is_gone_is_not_a_run_without_errors(failing_requests: Path) -> None:
    found = words(failing_requests, "after.prom", series("trtllm_request_error_total"))
    assert found == {"errors.rate": "no data", "output.tokens_per_second": "pass", "input.tokens_per_second": "pass"}


def test_a_reason_that_is_gone_is_not_one_that_nothing_ended_for(tmp_path: Path) -> None:
    write_pages(tmp_path)
    gone = series("vllm:request_success_total", 'finished_reason="abort"')
    assert words(tmp_path, "after.prom", gone)["errors.rate"] == "no data"


@pytest.mark.parametrize("metric", ["input", "output"])
def test_a_series_without_labels_does_not_begin_at_zero(tmp_path: Path, metric: str) -> None:
    """llama-server shows every counter from its start: one that a page declares and does not hold was cut out."""
    page: Page = partial(llamacpp, prompt=5000)
    write_engine(tmp_path, page)
    name = {"input": "llamacpp:prompt_tokens_total", "output": "llamacpp:tokens_predicted_total"}[metric]
    assert words(tmp_path, "before.prom", series(name))[f"{metric}.tokens_per_second"] == "no data"
