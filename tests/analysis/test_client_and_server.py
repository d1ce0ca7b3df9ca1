"""Both views of one window: the client's is judged where it saw it itself, the other is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_files import found, measured, missing, vllm_result, window_of, write
from made_windows import deployment

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.report.measures import measurement_document


def both(data: Path) -> list[Path]:
    """A real vLLM's pages around a real benchmark: 48 requests of 256 tokens in 10.4 s of 31.0 s."""
    pages = [data / "vllm-cpu" / "mfu" / f"{name}.prom" for name in ("after-prefill", "after-decode")]
    return [*pages, data / "benchmarks" / "vllm-bench-serve-0.32.0-decode.json"]


def test_the_client_is_judged_where_it_sees_it_itself(data: Path) -> None:
    measurements = measured(*both(data))
    ttft = found(measurements, "ttft.mean")
    # The client shares the CPU with the server: 293 ms there, 34 ms in the server's histogram.
    assert ttft.value == pytest.approx(0.2927682, rel=1e-6)
    assert ttft.other is not None
    assert ttft.other.value == pytest.approx(0.0337378, rel=1e-5)
    for metric in ("tpot.p99", "e2e.p99", "errors.rate"):
        assert found(measurements, metric).source.startswith("vllm bench serve")
        assert found(measurements, metric).other is not None


def test_the_server_is_judged_for_times_between_tokens(data: Path) -> None:
    measurements = measured(*both(data))
    itl = found(measurements, "itl.mean")
    assert itl.source == "vllm:inter_token_latency_seconds"
    assert itl.other is not None
    assert itl.other.value == pytest.approx(0.00502478, rel=1e-5)
    assert found(measurements, "itl.p99").other is None  # the client's came in chunks: p50 5 us, mean 5 ms
    assert found(measurements, "decode.batch").value == pytest.approx(12240 / 2066)


def test_the_benchmarks_duration_is_busy_time(data: Path) -> None:
    facts = gather(window_of(*both(data)), deployment("llama-3.1-8b"))
    assert facts.busy is not None
    assert facts.busy.seconds.value == pytest.approx(10.416263)
    assert "benchmark's duration" in facts.busy.basis
    # 12 288 tokens in 10.416 s, not in the window around them.
    assert found(measure(facts), "output.tokens_per_second").value == pytest.approx(12288 / 10.416263, rel=1e-6)


def test_a_percentile_of_the_server_that_the_client_belies_is_no_data(data: Path) -> None:
    measurements = measured(*both(data))
    # The client states p99 = 1.57 s and no p99.9; the server's 80 ms would pass a gate on it.
    assert "holds no p99.9" in missing(measurements, "ttft.p99.9").reason
    assert found(measurements, "tpot.p75").source == "vllm:request_time_per_output_token_seconds"


def test_a_benchmark_that_is_not_all_of_the_load_is_said(data: Path, tmp_path: Path) -> None:
    run = write(tmp_path / "run.json", vllm_result(duration=5.0))
    pages = both(data)[:2]
    facts = gather(window_of(*pages, run), deployment("llama-3.1-8b"))
    counts = "(100000 output tokens of 12288)"
    assert f"vllm bench serve is not the load of this window, or not all of it {counts}" in facts.notes
    assert facts.busy is None or "benchmark" not in facts.busy.basis
    assert found(measure(facts), "ttft.p99").value == 0.4


def test_the_report_shows_both(data: Path) -> None:
    document = measurement_document(found(measured(*both(data)), "ttft.mean"))
    assert document["other"]["value"] == pytest.approx(0.0337378, rel=1e-5)
    assert document["other"]["source"] == "vllm:time_to_first_token_seconds"
    alone = measurement_document(found(measured(both(data)[2]), "ttft.mean"))
    assert alone["other"] is None
