"""Statistics that a tool states, and that cannot be of one set of values: none of them is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmark_files import detailed, found, measured, missing, vllm_result, write


@pytest.mark.parametrize(("changes", "metric", "says"), [
    ({"p99_ttft_ms": 0.0}, "ttft.p50", "p50 100 ms and p99 0 s of time to first token: they are not of the same"),
    ({"p99_itl_ms": 0.0}, "itl.p99", "p50 7.80 ms and p99 0 s of inter-token latency"),
    ({"median_tpot_ms": 12.0}, "tpot.mean", "p50 12 ms and p99 9.50 ms of time per output token"),
    # Half of the requests waited for 100 ms or more, so that the mean is 50 ms at the least.
    ({"mean_ttft_ms": 20.0}, "ttft.mean", "p50 100 ms and mean 20 ms of time to first token"),
    ({"mean_itl_ms": None}, "itl.p99", "no mean of inter-token latency, so that nothing tells whether several tokens"),
    ({"mean_ttft_ms": 0.0}, "ttft.mean", "states 0 for the mean of time to first token"),
])  # fmt: skip
def test_figures_that_contradict_each_other(tmp_path: Path, changes: dict[str, float], metric: str, says: str) -> None:
    write(tmp_path / "bench.json", vllm_result(**changes))
    assert says in missing(measured(tmp_path), metric).reason


@pytest.mark.parametrize("metric", ["ttft.mean", "ttft.p50", "ttft.p99", "tpot.p99", "itl.p50", "itl.p99"])
def test_figures_that_agree(tmp_path: Path, metric: str) -> None:
    write(tmp_path / "bench.json", vllm_result())
    assert found(measured(tmp_path), metric).value > 0


@pytest.mark.parametrize("completed", ["many", [], -5, float("nan")])
def test_a_percentile_of_nobody_knows_how_many_requests(tmp_path: Path, completed: object) -> None:
    # The 99th percentile of 500 requests lies below the largest of them; of 5 it may be anything.
    write(tmp_path / "bench.json", vllm_result(completed=completed))
    bounded = found(measured(tmp_path), "ttft.p99").bounded
    assert (bounded.low, bounded.value, bounded.high) == (0.0, 0.4, float("inf"))


def test_records_of_nobody_knows_how_many_requests_are_not_all(tmp_path: Path) -> None:
    # Two quick requests of nobody knows how many: not the 400 ms that the tool states of all.
    result = detailed([(0.05, [0.02, 0.02])] * 2)
    write(tmp_path / "bench.json", {**result, "completed": "many"})
    assert found(measured(tmp_path), "ttft.p99").value == 0.4


def test_requests_without_a_token_have_no_time_between_them(tmp_path: Path) -> None:
    stated: dict[str, Any] = {"load_summary": {"count": 10}, "failures": {"count": 0}, "successes": {
        "count": 10, "latency": {"request_latency": {"mean": 2.0}, "time_to_first_token": {"mean": 0.1},
                                 "time_per_output_token": {"mean": 0.01}},
        "output_len": {"mean": 100}, "prompt_len": {"mean": 100},
        "throughput": {"requests_per_sec": 1.0, "output_tokens_per_sec": 100.0}}}  # fmt: skip
    write(tmp_path / "stage.json", stated)
    assert found(measured(tmp_path), "tpot.mean").value == 0.01
    stated["successes"]["output_len"]["mean"] = 0
    write(tmp_path / "stage.json", stated)
    assert missing(measured(tmp_path), "tpot.mean")
