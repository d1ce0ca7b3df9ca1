"""Statistics that a tool states, and that cannot be of one set of values: none of them is believed."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_files import found, measured, missing, vllm_result, write


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
