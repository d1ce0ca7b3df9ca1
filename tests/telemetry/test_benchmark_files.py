"""Results of load generators, read by content: small files whose figures are easy to recompute, and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_files import detailed, found, measured, missing, vllm_result, window_of, write
from vllm_pages import write_pages

from pytest_llmroof.analysis.clientfacts import client_wait
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.client import Client


def client_of(path: Path) -> Client:
    client = window_of(path).client
    assert client is not None
    return client


def test_vllm_bench_serve_without_details(tmp_path: Path) -> None:
    client = client_of(write(tmp_path / "run.json", vllm_result()))
    assert (client.title, client.model_name) == ("vllm bench serve", "meta-llama/Llama-3.1-8B")
    assert (client.duration_seconds, client.completed, client.failed) == (50.0, 500, 0)
    assert (client.input_tokens, client.output_tokens) == (64000, 100000)
    assert client.summaries["ttft"].values == pytest.approx({"mean": 0.12, "p50": 0.1, "p99": 0.4})
    assert client.settings["request_rate"] == "inf"  # the text that vLLM writes
    assert "duration" not in client.settings
    assert client.requests == ()


def test_any_percentile_that_was_asked_for_is_held(tmp_path: Path) -> None:
    run = vllm_result(p90_ttft_ms=200.0, **{"p99.9_ttft_ms": 900.0})
    values = client_of(write(tmp_path / "run.json", run)).summaries["ttft"].values
    assert (values["p90"], values["p99.9"]) == (0.2, 0.9)


def test_results_of_2024_count_no_failures_but_what_was_asked(tmp_path: Path) -> None:
    run = vllm_result(failed=None, best_of=1, num_prompts=500, completed=480)
    assert client_of(write(tmp_path / "run.json", run)).failed == 20


def test_details_give_each_request(tmp_path: Path) -> None:
    # The first takes 0.1 + 0.02 + 0.03 = 0.15 s for 3 tokens: (0.15 - 0.1) / 2 = 25 ms each. The second has one token.
    client = client_of(write(tmp_path / "run.json", detailed([(0.1, [0.02, 0.03]), (0.2, [])], failed=1)))
    first, second, third = client.requests
    assert (first.ttft, first.e2e, first.tpot) == pytest.approx((0.1, 0.15, 0.025))
    assert first.itls == (0.02, 0.03)
    assert (second.tpot, second.output_tokens) == (None, 1)
    assert third.failed
    assert third.ttft is None
    assert (client.completed, client.failed) == (2, 1)


def test_requests_that_gave_no_token_are_failures_whatever_the_tool_says(tmp_path: Path) -> None:
    run = detailed([(0.1, [0.02]), (0.2, [0.02])], failed=1)
    run |= {"completed": 3, "failed": 0, "errors": ["", "", ""]}
    client = client_of(write(tmp_path / "run.json", run))
    assert (client.completed, client.failed) == (2, 1)
    assert "1 requests that vllm bench serve counts as completed gave no token" in client.notes[0]


def test_a_part_of_the_requests_is_not_looked_at(tmp_path: Path) -> None:
    run = detailed([(0.1, [0.02]), (0.2, [0.02])]) | {"completed": 500, "num_prompts": 500}
    client = client_of(write(tmp_path / "run.json", run))
    assert client.requests == ()
    assert "holds 2 of 500 requests only" in client.notes[0]


def test_of_an_all_failed_run_no_latency_is_kept(tmp_path: Path) -> None:
    zeros = dict.fromkeys((key for key in vllm_result() if key.endswith("_ms")), 0.0)
    run = vllm_result(completed=0, failed=500, total_input_tokens=0, total_output_tokens=0, **zeros)
    client = client_of(write(tmp_path / "run.json", run))
    assert (client.summaries, client.failed) == ({}, 500)


SGLANG: dict[str, Any] = {
    "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"), "max_concurrency": 8,
    "random_input_len": 1024, "random_output_len": 128, "random_range_ratio": 1.0, "duration": 20.0, "completed": 40,
    "total_input_tokens": 40960, "total_output_tokens": 5120, "total_output_tokens_retokenized": 5100,
    "request_throughput": 2.0, "input_throughput": 2048.0, "output_throughput": 256.0, "accept_length": 2.5,
    "mean_e2e_latency_ms": 4000.0, "median_e2e_latency_ms": 3900.0, "mean_ttft_ms": 300.0, "median_ttft_ms": 250.0,
    "p99_ttft_ms": 900.0, "mean_tpot_ms": 29.1, "median_tpot_ms": 29.0, "mean_itl_ms": 60.0, "p95_itl_ms": 80.0,
}  # fmt: skip


def test_sglang_bench_serving_writes_infinity(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", SGLANG)
    assert "Infinity" in path.read_text(encoding="utf-8")
    client = client_of(path)
    assert (client.title, client.completed, client.failed) == ("sglang.bench_serving", 40, None)
    assert client.summaries["e2e"].values == pytest.approx({"mean": 4.0, "p50": 3.9})
    assert client.summaries["itl"].values == pytest.approx({"mean": 0.06, "p95": 0.08})
    assert (client.accept_length, client.settings["request_rate"]) == (2.5, "inf")


def test_of_appended_lines_with_one_load_the_last_is_read(tmp_path: Path) -> None:
    window = window_of(write(tmp_path / "runs.jsonl", SGLANG, SGLANG | {"duration": 25.0}))
    assert window.client is not None
    assert window.client.duration_seconds == 25.0
    assert "2 runs of one load are there: the last is read (runs.jsonl (run 2 of 2))" in window.notes


def test_of_appended_lines_with_different_loads_none_is_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", SGLANG, SGLANG | {"max_concurrency": 16})
    with pytest.raises(SourceError, match=r"runs\.jsonl: 2 benchmark runs of different max_concurrency") as caught:
        window_of(path)
    assert caught.value.remedy is not None
    assert "sed -n 2p" in str(caught.value.remedy)


def test_a_sweep_is_a_list_of_runs(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps([vllm_result(run_number=0), vllm_result(run_number=1, duration=40.0)]))
    assert client_of(path).duration_seconds == 40.0
    path.write_text(json.dumps([vllm_result(max_num_seqs=4), vllm_result(max_num_seqs=8)]))
    with pytest.raises(SourceError, match="different max_num_seqs"):
        window_of(path)


def test_metadata_that_repeats_a_key_hides_no_figure(tmp_path: Path) -> None:
    text = json.dumps(vllm_result(gpu="h100"))[:-1]
    (tmp_path / "run.json").write_text(text + ', "duration": "long", "gpu": "b200", "completed": 500}')
    client = client_of(tmp_path / "run.json")
    assert (client.duration_seconds, client.settings["gpu"]) == (50.0, "b200")


def test_a_cut_off_result_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(vllm_result(), indent=1)[:-90])
    with pytest.raises(SourceError, match=r"run\.json:\d+:\d+: this JSON was cut off"):
        window_of(tmp_path / "run.json")


def test_vllm_latency_and_throughput(tmp_path: Path) -> None:
    latency = {"avg_latency": 2.0, "latencies": [1.9, 2.0, 2.1], "percentiles": {"10": 1.92, "50": 2.0, "99": 2.098}}
    client = client_of(write(tmp_path / "latency.json", latency))
    assert [request.e2e for request in client.requests] == [1.9, 2.0, 2.1]
    assert client.summaries["e2e"].values == {"p10": 1.92, "p50": 2.0, "p99": 2.098, "mean": 2.0}
    throughput = {
        "elapsed_time": 50.0, "num_requests": 100, "total_num_tokens": 64000, "requests_per_second": 2.0,
        "tokens_per_second": 1280.0,
    }  # fmt: skip
    client = client_of(write(tmp_path / "throughput.json", throughput))
    assert (client.duration_seconds, client.request_rate, client.output_rate) == (50.0, 2.0, None)


LATENCY = {"avg_latency": 2.0, "latencies": [1.9, 2.0, 2.1], "percentiles": {"10": 1.92, "50": 2.0, "99": 2.098}}
THROUGHPUT = {"elapsed_time": 50.0, "num_requests": 100, "total_num_tokens": 64000, "requests_per_second": 2.0}


@pytest.mark.parametrize(
    "run",
    [
        LATENCY,
        THROUGHPUT,
        vllm_result(failed=None, num_prompts=None),
        vllm_result(failed=None, num_prompts=None, completed=3, latencies=[1.0, 2.0, 3.0]),
    ],
)
def test_what_counts_no_failures_is_no_run_without_any(tmp_path: Path, run: dict[str, Any]) -> None:
    """Times of completed requests alone tell of no failed one: a rate of 0 would hold every limit."""
    path = write(tmp_path / "run.json", run)
    assert client_of(path).failed is None
    assert missing(measured(path), "errors.rate").reason.endswith("does not count failed requests")


def guidellm(**changes: Any) -> dict[str, Any]:
    """Two requests of 0.5 and 0.9 s with 11 tokens; the second began when the measured time was over."""

    def request(start: float, ttft: float, latency: float) -> dict[str, Any]:
        return {
            "request_start_time": start, "request_latency": latency, "prompt_tokens": 50, "output_tokens": 11,
            "time_to_first_token_ms": ttft, "inter_token_latency_ms": (latency * 1e3 - ttft) / 10,
            "time_per_output_token_ms": latency * 1e3 / 11,
        }  # fmt: skip

    def states(mean: float) -> dict[str, Any]:
        held = {"mean": mean, "median": mean, "max": mean, "percentiles": {"p001": 1.0, "p05": 2.0, "p999": 3.0}}
        return {"successful": held, "errored": {"count": 1}}

    benchmark = {
        "start_time": 1000.0, "end_time": 1010.0, "duration": 10.0,
        "config": {"strategy": {"streams": 4}, "backend": {"model": "tiny"}},
        "metrics": {
            "request_totals": {"successful": 1, "errored": 1, "incomplete": 1, "total": 3},
            "request_latency": states(0.5), "time_to_first_token_ms": states(100.0),
            "inter_token_latency_ms": states(40.0), "time_per_output_token_ms": states(45.45),
            "output_token_count": {"successful": {"total_sum": 11}},
        },
        "requests": {
            "successful": [request(1001.0, 100.0, 0.5), request(1010.5, 100.0, 0.9)],
            "errored": [request(1002.0, 0.0, 0.0)], "incomplete": [request(1009.0, 0.0, 0.0)],
        },
    } | changes  # fmt: skip
    return {"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [benchmark]}


def test_guidellm_leaves_out_what_began_after_the_measured_time(tmp_path: Path) -> None:
    client = client_of(write(tmp_path / "benchmarks.json", guidellm()))
    assert (client.completed, client.failed, client.duration_seconds, client.started) == (1, 1, 10.0, 1000.0)
    good = client.succeeded[0]
    assert (good.ttft, good.e2e, good.tpot) == (0.1, 0.5, 0.04)  # not 0.5 / 11 = 45 ms, which holds the first token


def test_guidellm_without_requests_has_its_statistics(tmp_path: Path) -> None:
    client = client_of(write(tmp_path / "benchmarks.json", guidellm(requests={"successful": [], "errored": []})))
    assert client.requests == ()
    expected = {"mean": 0.04, "p50": 0.04, "max": 0.04, "p0.1": 0.001, "p5": 0.002, "p99.9": 0.003}
    assert client.summaries["tpot"].values == pytest.approx(expected)
    assert "time_per_output_token_ms" in client.summaries["tpot"].definition


def aiperf_record(start: float, ttft: float, latency: float, tokens: int, **metadata: Any) -> dict[str, Any]:
    metrics = {
        "time_to_first_token": {"value": ttft, "unit": "ms"}, "request_latency": {"value": latency, "unit": "ms"},
        "output_sequence_length": {"value": tokens, "unit": "tokens"},
        "input_sequence_length": {"value": 50, "unit": "tokens"},
        "inter_chunk_latency": {"value": [10.0, 30.0], "unit": "ms"},
    }  # fmt: skip
    if tokens > 1:
        metrics["inter_token_latency"] = {"value": (latency - ttft) / (tokens - 1), "unit": "ms"}
    head = {"request_start_ns": int(start * 1e9), "benchmark_phase": "profiling", "was_cancelled": False} | metadata
    return {"metadata": head, "metrics": metrics, "error": None}


def test_aiperf_records_name_their_units_and_warm_up(tmp_path: Path) -> None:
    failed = aiperf_record(1.8e9 + 2, 0, 0, 0) | {"error": {"code": 500}}
    path = write(
        tmp_path / "profile_export.jsonl",
        aiperf_record(1.8e9 - 9, 900, 9000, 11, benchmark_phase="warmup"),
        aiperf_record(1.8e9, 100, 500, 11),
        aiperf_record(1.8e9 + 1, 200, 200, 1),
        failed,
    )
    client = client_of(path)
    assert (client.completed, client.failed, client.started) == (2, 1, 1.8e9)
    first, single, _ = client.requests
    assert (first.ttft, first.tpot) == pytest.approx((0.1, 0.04))
    assert first.itls == (0.01, 0.03)
    assert single.tpot is None
    assert client.duration_seconds == pytest.approx(1.2)  # from the first start to 1 + 0.2 s


def trtllm_record(place: int, first: int, last: int, tokens: int, errors: int = 0) -> dict[str, Any]:
    """A record of trtllm-bench --request_json; times in ms behind its start, on a clock of nanoseconds."""
    start = 7_000_000_000_000 + place * 1_000_000
    return {
        "id": place, "num_input_tokens": 128, "error_tokens": errors, "start_timestamp": start,
        "first_token_timestamp": -1 if first < 0 else start + first * 1_000_000,
        "end_timestamp": start + last * 1_000_000, "decode_iteration": tokens - 1, "num_output_tokens": tokens,
        "output": "text", "output_tokens": tokens,
    }  # fmt: skip


def trtllm_report(requests: int) -> dict[str, Any]:
    return {
        "engine": {"model": "tiny"}, "world_info": {"tp_size": 1, "max_batch_size": 8},
        "request_info": {"num_requests": requests, "avg_input_length": 128.0, "avg_output_length": 11.0},
        "performance": {"total_latency_ms": 600.0, "avg_request_latency_ms": 550.0},
    }  # fmt: skip


def test_trtllm_bench_writes_single_requests(tmp_path: Path) -> None:
    records = [trtllm_record(0, 100, 500, 11), trtllm_record(1, -1, 600, 11)]
    client = client_of(write(tmp_path / "requests.json", records))
    streamed, whole = client.requests
    # (500 - 100) ms over the 10 tokens behind the first one; without streaming nothing tells the first one's time.
    assert (streamed.ttft, streamed.e2e, streamed.tpot) == pytest.approx((0.1, 0.5, 0.04))
    assert whole.e2e == pytest.approx(0.6)
    assert (whole.ttft, whole.tpot) == (None, None)
    # From the first one's start to the second one's end: 1 + 600 ms. The clock is none of Unix time.
    assert client.duration_seconds == pytest.approx(0.601)
    assert client.started is None
    assert (client.input_tokens, client.output_tokens) == (256, 22)


def test_trtllm_bench_report_and_requests_are_one_run(tmp_path: Path) -> None:
    write(tmp_path / "report.json", trtllm_report(3))
    records = [trtllm_record(0, 100, 500, 11), trtllm_record(1, 100, 600, 11), trtllm_record(2, 100, 200, 11, errors=1)]
    write(tmp_path / "requests.json", records)
    client = client_of(tmp_path)
    # The report counts the failed one as well, and does not tell that it failed.
    assert (client.completed, client.failed, len(client.requests)) == (2, 1, 3)
    assert client.duration_seconds == pytest.approx(0.6)


def aiperf_summary() -> dict[str, Any]:
    def states(unit: str, mean: float) -> dict[str, Any]:
        return {"unit": unit, "avg": mean, "p50": mean, "p99": mean * 2, "max": mean * 3}

    return {
        "schema_version": "1.4", "aiperf_version": "0.13.0", "input_config": {"models": {"items": [{"name": "tiny"}]}},
        "request_latency": states("ms", 350.0), "time_to_first_token": states("ms", 150.0),
        "inter_token_latency": states("us", 40000.0), "benchmark_duration": {"unit": "sec", "avg": 5.0},
        "request_count": {"unit": "requests", "avg": 2.0}, "request_error_rate": {"unit": "%", "avg": 100 / 3},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 2.4}, "total_osl": {"unit": "tokens", "avg": 12.0},
    }  # fmt: skip


def test_aiperf_summary_and_records_of_one_run_are_one(tmp_path: Path) -> None:
    write(tmp_path / "profile_export_aiperf.json", aiperf_summary())
    client = client_of(tmp_path / "profile_export_aiperf.json")
    assert (client.model_name, client.completed, client.failed) == ("tiny", 2, 1)  # a third of 3 requests
    assert client.summaries["tpot"].values["mean"] == pytest.approx(0.04)  # 40 000 us
    failed = aiperf_record(1.8e9 + 2, 0, 0, 0, was_cancelled=True)
    good = [aiperf_record(1.8e9, 100, 500, 11), aiperf_record(1.8e9 + 1, 200, 200, 1)]
    write(tmp_path / "profile_export.jsonl", *good, failed)
    both = client_of(tmp_path)
    assert (both.duration_seconds, len(both.requests), both.started) == (5.0, 3, 1.8e9)


@pytest.mark.parametrize(("said", "noted"), [(True, True), (False, False), (None, False)])
def test_a_run_that_was_cancelled_is_said_with_the_verdict(tmp_path: Path, said: bool | None, noted: bool) -> None:
    client = client_of(write(tmp_path / "profile_export_aiperf.json", aiperf_summary() | {"was_cancelled": said}))
    told = ("AIPerf says that the run was cancelled: its figures are of the requests that ran until then",)
    assert client.notes == (told if noted else ())


def test_genai_perf_writes_the_same_without_a_version(tmp_path: Path) -> None:
    run = {key: value for key, value in aiperf_summary().items() if not key.endswith("_version")}
    run["input_config"] = {"model": ["tiny"], "concurrency": 4}
    client = client_of(write(tmp_path / "profile_export_genai_perf.json", run))
    assert (client.title, client.model_name, client.completed) == ("GenAI-Perf", "tiny", 2)
    assert client.summaries["ttft"].values["p99"] == pytest.approx(0.3)


def inference_perf(count: int = 10, **latencies: Any) -> dict[str, Any]:
    return {
        "load_summary": {"count": count, "requested_rate": 2.0},
        "successes": {
            "count": count,
            "latency": {
                "request_latency": {"mean": 1.1, "median": 1.0, "p99.9": 2.0, "max": 2.5},
                "time_to_first_token": {"mean": 0.1, "median": 0.1},
                "time_per_output_token": {"mean": 0.005, "median": 0.005},
                "inter_token_latency": {"mean": 0.005, "median": 0.00001},
                "normalized_time_per_output_token": {"mean": 0.0109},
            } | latencies,
            "throughput": {"requests_per_sec": 2.0, "output_tokens_per_sec": 202.0},
            "output_len": {"mean": 101.0}, "prompt_len": {"mean": 50.0},
        },
        "failures": {"count": 0, "request_latency": None},
    }  # fmt: skip


def test_inference_perf_is_in_seconds_and_counts_pieces(tmp_path: Path) -> None:
    client = client_of(write(tmp_path / "summary_lifecycle_metrics.json", inference_perf()))
    assert client.duration_seconds == 5.0  # 10 requests at 2 a second
    assert client.summaries["e2e"].values == {"mean": 1.1, "p50": 1.0, "p99.9": 2.0, "max": 2.5}
    # A token took (1.1 - 0.1) / 100 = 10 ms, a piece of the stream 5 ms.
    assert client.summaries["tpot"].stretch == pytest.approx(2.0)


def test_pieces_of_an_unknown_number_of_tokens_are_no_tpot(tmp_path: Path) -> None:
    run = inference_perf()
    del run["successes"]["output_len"]
    client = client_of(write(tmp_path / "summary_lifecycle_metrics.json", run))
    assert "tpot" not in client.summaries
    assert client.summaries["itl"].values["mean"] == 0.005


def test_times_of_no_known_unit_are_none(tmp_path: Path) -> None:
    record = aiperf_record(1.8e9, 100, 500, 11)
    record["metrics"]["request_latency"]["unit"] = "min"
    del record["metrics"]["time_to_first_token"]["unit"]
    (request,) = client_of(write(tmp_path / "profile_export.jsonl", record)).requests
    assert (request.ttft, request.e2e, request.output_tokens) == (None, None, 11)


def test_what_lies_beside_runs_in_a_file_is_said(tmp_path: Path) -> None:
    """Runs of two tools, one of them of no use here, and a value that is no run."""
    asked = {"load_summary": {}, "successes": {"rate": 1, "request_latency": {}}}
    window = window_of(write(tmp_path / "runs.jsonl", asked, vllm_result(), {"note": "rerun"}))
    assert window.client is not None
    assert window.client.tool == "vllm-serve"
    assert any("its queries" in line or "Prometheus" in line for line in window.unread)
    assert any("values that are no run that is known here: 1" in line for line in window.unread)


def test_a_summary_covers_its_stages(tmp_path: Path) -> None:
    write(tmp_path / "stage_0_lifecycle_metrics.json", inference_perf(4))
    write(tmp_path / "stage_1_lifecycle_metrics.json", inference_perf(6))
    write(tmp_path / "summary_lifecycle_metrics.json", inference_perf(10))
    client = client_of(tmp_path)
    assert client.completed == 10
    assert client.notes == (f"{tmp_path.name}/summary_lifecycle_metrics.json covers the 2 stages beside it",)


def test_inference_perf_requests(tmp_path: Path) -> None:
    records = [
        {"start_time": 5.0, "end_time": 6.2, "error": None,
         "info": {"input_tokens": 50, "output_tokens": 3, "output_token_times": [5.2, 5.7, 6.2]}},
        {"start_time": 6.0, "end_time": 6.1, "error": {"error_msg": "429"}, "info": {"input_tokens": 50}},
    ]  # fmt: skip
    path = tmp_path / "per_request_lifecycle_metrics.json"
    path.write_text(json.dumps(records))
    client = client_of(path)
    first = client.succeeded[0]
    assert (first.ttft, first.e2e, first.tpot) == pytest.approx((0.2, 1.2, 0.5))
    assert client.failed == 1


def newest_record(start: float, times: list[float], **changes: Any) -> dict[str, Any]:
    """One request as the newest releases write it: three tokens, of which the last two may have come together."""
    answer = {"output_tokens": 3, "server_usage": {"completion_tokens": 3}, "chunk_times": times[:2]}
    info = {
        "request_metrics": {"text": {"input_tokens": 50}, "image": None},
        "response_metrics": answer | {"output_token_times": times} | changes,
        "lora_adapter": None, "input_tokens": 50,
    }  # fmt: skip
    return {"start_time": start, "end_time": times[-1], "request": None, "info": info, "error": None}


def newest_summary() -> dict[str, Any]:
    """Two requests, one more that failed: 2.5 s, 100 prompt tokens, of which the server had 40."""
    run = inference_perf(2, time_per_output_token={"mean": 0.4, "median": 0.4})
    del run["successes"]["prompt_len"]
    run["successes"] |= {
        "prompt_tokens": {"total": 100.0, "cached": 40.0, "uncached": 60.0, "mean": 50.0},
        "output_len": {"mean": 3.0}, "output_tokens": {"total": 6.0, "mean": 3.0},
    }  # fmt: skip
    return {**run, "benchmark_time_seconds": 2.5, "failures": {"count": 1}}


def test_newest_inference_perf_requests(tmp_path: Path) -> None:
    records = [
        newest_record(5.0, [5.2, 5.7, 6.2]),
        newest_record(6.0, [6.4, 7.0], output_token_times=[]),  # no tokenizer: its pieces
        {"start_time": 6.0, "end_time": 6.1, "error": {"error_type": "HTTP Error 500", "error_msg": ""},
         "info": {"request_metrics": {"text": {"input_tokens": 50}}, "response_metrics": None}},
    ]  # fmt: skip
    (tmp_path / "per_request_lifecycle_metrics.json").write_text(json.dumps(records))
    write(tmp_path / "summary_lifecycle_metrics.json", newest_summary())
    client = client_of(tmp_path)
    first, second = client.succeeded
    assert (first.ttft, first.e2e, first.tpot) == pytest.approx((0.2, 1.2, 0.5))  # 1 s over two tokens
    assert (second.ttft, second.tpot) == pytest.approx((0.4, 0.3))  # 0.6 s over two tokens
    assert (first.input_tokens, first.output_tokens) == (50, 3)
    assert (client.completed, client.failed, client.duration_seconds, client.input_tokens) == (2, 1, 2.5, 100)
    good = found(measured(tmp_path), "goodput(ttft<=300ms, tpot<=1s)")
    assert good.value == pytest.approx(1 / 3)


def test_the_layout_tells_how_inference_perf_counts_time_per_token(tmp_path: Path) -> None:
    summary = client_of(write(tmp_path / "new.json", newest_summary())).summaries["tpot"]
    assert (summary.stretch, summary.values["mean"]) == (1.0, 0.4)
    assert summary.definition == "(last - first token) / (output tokens - 1) of each request"
    old = client_of(write(tmp_path / "old.json", inference_perf())).summaries["tpot"]
    assert old.definition.startswith("mean time between the pieces of the stream")


def test_advice_asks_for_no_file_that_is_there(tmp_path: Path) -> None:
    """An answer that was not streamed has no time to first token, in whatever file."""
    whole = newest_record(5.0, [6.2], output_token_times=[], chunk_times=[])
    path = write(tmp_path / "per_request_lifecycle_metrics.json", whole)
    for metric in ("ttft.p50", "goodput(ttft<=2s)"):
        advice = str(missing(measured(path), metric).remedy)
        assert "streaming: true" in advice
        assert "per_request" not in advice


def test_what_inference_perf_asked_of_prometheus_is_not_its_own(tmp_path: Path) -> None:
    run = {"load_summary": {}, "successes": {"count": 9, "rate": 1.0, "request_latency": {"mean": 1.0}}, "failures": {}}
    with pytest.raises(SourceError, match="name that Prometheus itself"):
        window_of(write(tmp_path / "summary_prometheus_metrics.json", run))


def test_trtllm_bench(tmp_path: Path) -> None:
    def states(mean: float) -> dict[str, float]:
        return {"minimum": mean / 2, "maximum": mean * 3, "average": mean, "p50": mean, "p99": mean * 2}

    run = {
        "engine": {"model": "meta-llama/Llama-3.1-8B", "backend": "Pytorch"}, "machine": None,
        "world_info": {"tp_size": 2, "pp_size": 1, "max_batch_size": 64}, "dataset": {},
        "request_info": {"num_requests": 100, "avg_input_length": 1000.0, "avg_output_length": 200.0},
        "performance": {
            "total_latency_ms": 20000.0, "avg_request_latency_ms": 2100.0, "request_throughput_req_s": 5.0,
            "system_output_throughput_tok_s": 1000.0, "request_latency_percentiles_ms": states(2100.0),
        },
        "streaming_metrics": {"avg_ttft_ms": 110.0, "avg_tpot_ms": 10.0, "ttft_percentiles": states(110.0),
                              "tpot_percentiles": states(10.0)},
    }  # fmt: skip
    client = client_of(write(tmp_path / "report.json", run))
    assert (client.title, client.duration_seconds, client.failed) == ("trtllm-bench", 20.0, None)
    assert (client.input_tokens, client.output_tokens) == (100_000, 20_000)
    assert client.summaries["tpot"].values == pytest.approx({"mean": 0.01, "p50": 0.01, "p99": 0.02, "max": 0.03})


@pytest.mark.parametrize("text", ['{"completed": 1}', '{"benchmarks": []}', "[1, 2]", '{"avg_latency": 1}', "[]"])
def test_json_of_nobody_is_named_not_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(SourceError, match=r"other\.json: JSON, and no reader here knows it"):
        window_of(tmp_path / "other.json")


def test_a_result_beside_scrapes_joins_their_window(tmp_path: Path) -> None:
    pages = write_pages(tmp_path)
    window = window_of(*pages, write(tmp_path / "run.json", vllm_result()))
    assert window.kind == "vllm"
    assert window.client is not None
    assert window.client.completed == 500
    assert [source.kind for source in window.sources][-1] == "vllm-serve"


def test_a_damaged_result_in_a_recording_is_listed(tmp_path: Path) -> None:
    write_pages(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(vllm_result())[:-9])
    window = window_of(tmp_path)
    assert window.client is None
    assert any("run.json" in line and "cut off" in line for line in window.unread)


def test_results_of_several_loads_beside_scrapes_are_listed(tmp_path: Path) -> None:
    write_pages(tmp_path)
    write(tmp_path / "runs.jsonl", SGLANG, SGLANG | {"max_concurrency": 16})
    window = window_of(tmp_path)
    assert window.client is None
    assert any("2 benchmark runs of different max_concurrency" in line for line in window.unread)


NONSENSE: list[object] = ["x", -1.0, 10**400, float("nan"), float("inf"), [], {}, True, [None], [-5.0, "q"]]


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
@pytest.mark.parametrize("key", sorted(detailed([(0.1, [0.02, 0.03]), (0.2, [])], failed=1)))
def test_nonsense_under_a_key_never_breaks_the_reader(tmp_path: Path, key: str, value: object) -> None:
    measurements = measured(write(tmp_path / "run.json", detailed([(0.1, [0.02, 0.03])] * 3, failed=1) | {key: value}))
    for metric in (*measurements, "goodput(ttft<=2s, tpot<=50ms)", "decode.mbu", "ttft.p99", "errors.rate"):
        outcome = measurements[metric]
        assert not isinstance(outcome, Measurement) or outcome.value >= 0


def test_what_waited_in_the_client_is_no_time_to_first_token(tmp_path: Path) -> None:
    # Three requests were meant to go at 0 s, of which the client sent one at a time: at 0, 15 and 30 s.
    records = []
    for sent, milliseconds in ((0, 800), (15, 900), (30, 700)):
        record = aiperf_record(1.8e9 + sent, milliseconds, milliseconds + 100, 11)
        record["metadata"]["credit_issued_ns"] = int(1.8e9) * 10**9
        records.append(record)
    client = client_of(write(tmp_path / "profile_export.jsonl", *records))
    assert [one.waited for one in client.requests] == pytest.approx([0, 15, 30])
    measurements = measured(tmp_path / "profile_export.jsonl")
    ttft = measurements["ttft.max"]
    assert isinstance(ttft, Measurement)
    assert ttft.value == pytest.approx(0.9)  # not 30.7
    assert "without its wait in the client" in ttft.method
    # (0 + 15 + 30) / 3 = 15 s
    assert client_wait(client) == (
        "requests waited 15 s in AIPerf on average, 30 s at most, before they were sent: TTFT and latency count from "
        "sending, and do not hold that"
    )


def test_reference_case_of_a_client_that_queues(shared_data: Path, tmp_path: Path) -> None:
    case = shared_data / "cases/42-ttft-contains-client-queue"
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    records = []
    for one in json.loads((case / "client.json").read_text(encoding="utf-8")):
        ttft = 1e3 * (one["first_token_s"] - one["sent_s"])
        record = aiperf_record(1.8e9 + one["sent_s"], ttft, ttft, 1)
        record["metadata"]["credit_issued_ns"] = int((1.8e9 + one["submit_s"]) * 1e9)
        records.append(record)
    client = client_of(write(tmp_path / "profile_export.jsonl", *records))
    assert [one.ttft for one in client.requests] == pytest.approx(expected["ttft_send"])
    assert [one.waited for one in client.requests] == pytest.approx(expected["client_wait"])


def test_guidellm_tells_how_late_it_sent(shared_data: Path) -> None:
    # request_dispatch_delay of the first request: 1795977567.7061033 - 1795977567.6993494.
    client = client_of(shared_data / "captures/bench_tools/guidellm/benchmarks.json")
    assert client.requests[0].waited == pytest.approx(0.0067539215)


def test_inference_perf_states_its_delay(shared_data: Path) -> None:
    client = client_of(shared_data / "benchmarks/inference-perf-vllm-summary_lifecycle_metrics.json")
    assert client.waits == pytest.approx({"mean": 9.252348675844125, "max": 43.26031033799518})
    assert "9.25 s in inference-perf" in (client_wait(client) or "")


def test_vllm_tells_how_long_a_request_waited_for_a_place(tmp_path: Path) -> None:
    """From 0.30 on: 0, 2 and 4 s before three requests of 0.1 s and 20 tokens of 0.01 s each were sent."""
    run = detailed([(0.1, [0.01] * 20)] * 3, latencies=[0.3] * 3, start_times=[10.0, 12.0, 14.0])
    run["queue_times"] = [0.0, 2.0, 4.0]
    client = client_of(write(tmp_path / "run.json", run))
    assert [one.waited for one in client.requests] == [0, 2, 4]
    # (0 + 2 + 4) / 3
    assert client_wait(client) == (
        "requests waited 2 s in vllm bench serve on average, 4 s at most, before they were sent: "
        "TTFT and latency count from sending, and do not hold that"
    )
    ttft = measured(tmp_path / "run.json")["ttft.max"]
    assert isinstance(ttft, Measurement)
    assert ttft.value == pytest.approx(0.1)  # not 4.1
    assert "not recorded" not in ttft.method


def test_vllm_states_the_wait_in_its_summary_and_a_probe_beside_it(tmp_path: Path) -> None:
    run = vllm_result(
        mean_client_queue_time_ms=500.0, p99_client_queue_time_ms=900.0, mean_e2el_ms=1000.0,
        mean_e2el_including_client_queue_ms=1500.0,
    )  # fmt: skip
    path = write(tmp_path / "run.json", run | {"probe_completed": 50, "probe_p99_e2el_ms": 3.0})
    client = client_of(path)
    assert client.waits == {"mean": 0.5}
    assert "requests waited 500 ms in vllm bench serve on average, before" in (client_wait(client) or "")
    assert client.summaries["e2e"].values == {"mean": 1.0}
    # What the probe measured is no setting of the load.
    assert client.settings == client_of(write(tmp_path / "other.json", vllm_result())).settings


def test_a_short_wait_is_not_worth_a_word(tmp_path: Path) -> None:
    record = aiperf_record(1.8e9, 800, 900, 11)
    record["metadata"]["credit_issued_ns"] = record["metadata"]["request_start_ns"] - 2_000_000
    client = client_of(write(tmp_path / "profile_export.jsonl", record))
    assert client.requests[0].waited == pytest.approx(0.002, rel=1e-3)  # of doubles that hold nanoseconds
    assert client_wait(client) is None
