"""Real results: our own runs (tests/data/benchmarks), and others' where the reference data lie beside the checkout."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from benchmark_files import found, measured, missing, window_of
from made_windows import deployment, figures

from pytest_llmroof.errors import SourceError

GUIDELLM = "benchmarks/guidellm-0.8.1.json"
AIPERF = "benchmarks/aiperf-0.13.0"


def test_guidellm_agrees_with_its_own_statistics(data: Path) -> None:
    run = json.loads((data / GUIDELLM).read_text(encoding="utf-8"))["benchmarks"][0]
    stated = {name: one["successful"] for name, one in run["metrics"].items() if name != "request_totals"}
    measurements = measured(data / GUIDELLM)
    assert found(measurements, "ttft.mean").value == pytest.approx(stated["time_to_first_token_ms"]["mean"] / 1e3)
    assert found(measurements, "ttft.max").value == pytest.approx(stated["time_to_first_token_ms"]["max"] / 1e3)
    assert found(measurements, "e2e.mean").value == pytest.approx(stated["request_latency"]["mean"])
    # Of requests, not of tokens; and not 10.9 ms, which holds the first token.
    assert found(measurements, "tpot.mean").value == pytest.approx(0.00608037, rel=1e-5)
    assert found(measurements, "output.tokens_per_second").value == pytest.approx(3744 / 15)
    assert found(measurements, "goodput(ttft<=500ms)").value == pytest.approx(110 / 117)
    assert found(measurements, "errors.rate").value == 0.0  # what was cancelled at the end did not fail


def test_aiperf_records_give_what_its_summary_states(data: Path) -> None:
    stated = json.loads((data / AIPERF / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    both, records = measured(data / AIPERF), measured(data / AIPERF / "profile_export.jsonl")
    for measurements in (both, records):
        for name, key in (("ttft", "time_to_first_token"), ("tpot", "inter_token_latency"), ("e2e", "request_latency")):
            for statistic in ("p50", "p90", "p99", "max"):
                assert found(measurements, f"{name}.{statistic}").value == pytest.approx(stated[key][statistic] / 1e3)
            assert found(measurements, f"{name}.mean").value == pytest.approx(stated[key]["avg"] / 1e3)
    # --goodput time_to_first_token:500 gave 59 of 60.
    assert found(both, "goodput(ttft<=500ms)").value == pytest.approx(59 / 60)
    assert found(both, "output.tokens_per_second").value == stated["output_token_throughput"]["avg"]


def test_llama_bench_is_an_engine_without_requests(data: Path) -> None:
    path = data / "benchmarks/llama-bench-11434.jsonl"
    prompts, decodes, together = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    window = window_of(path)
    assert window.notes == ("1 tests of prompt and generation together (-pg) are left out",)
    assert together["n_prompt"]
    assert together["n_gen"]
    # 3.6 M parameters fit any cache, so that a larger model of figures stands for it: 7.29 GB in 16 bit.
    model = figures(parameters=3.65e9, weight_bytes=7.291904e9)
    measurements = measured(path, of=deployment(model, "a100-sxm4-80gb"))
    step = sum(decodes["samples_ns"]) / 1e9 / (64 * 3)
    assert found(measurements, "decode.step_time").value == pytest.approx(step)
    assert found(measurements, "decode.batch").bounded.exact
    assert found(measurements, "decode.context").value == 32
    assert found(measurements, "output.tokens_per_second").value == decodes["avg_ts"]
    rate = 512 * 3 / (sum(prompts["samples_ns"]) / 1e9)
    assert found(measurements, "prefill.tokens_per_second").value == pytest.approx(rate)
    assert "sends no requests" in missing(measurements, "ttft.p99").reason
    assert "sends no requests" in missing(measurements, "requests_per_second").reason


def test_llama_bench_utilisation_by_hand(tmp_path: Path) -> None:
    # 4.68 GB a token at 100 tokens/s: 468 GB/s of 2.039 TB/s. 7.6e9 x 2 x 512 / 0.1 s = 77.8 TFLOP/s of 312.
    common = {
        "model_n_params": 7.6e9, "model_size": 4.68e9, "model_filename": "m.gguf", "n_batch": 2048, "n_ubatch": 512,
        "n_depth": 0, "gpu_info": "NVIDIA A100-SXM4-80GB", "backends": "CUDA",
    }  # fmt: skip
    prompt = common | {"n_prompt": 512, "n_gen": 0, "samples_ns": [1e8, 1e8], "avg_ns": 1e8, "avg_ts": 5120.0}
    decode = common | {"n_prompt": 0, "n_gen": 50, "samples_ns": [5e8, 5e8], "avg_ns": 5e8, "avg_ts": 100.0}
    path = tmp_path / "llama-bench.json"
    path.write_text(json.dumps([prompt, decode]))
    of = deployment(figures(parameters=7.6e9, weight_bytes=4.68e9), "a100-sxm4-80gb")
    measurements = measured(path, of=of)
    assert found(measurements, "decode.mbu").value == pytest.approx(4.68e9 * 100 / 2.039e12, rel=1e-3)
    assert found(measurements, "prefill.mfu").value == pytest.approx(2 * 7.6e9 * 5120 / 312e12, rel=1e-3)
    other = [prompt, decode | {"model_filename": "other.gguf"}]
    path.write_text(json.dumps(other))
    with pytest.raises(SourceError, match="different model_filename"):
        window_of(path)


# What others published (INDEX.md says whose): metric and figure of each file, by arithmetic on its own keys.
PUBLISHED: dict[str, dict[str, Any]] = {
    "vllm-bench-serve-2025-09-gptoss120b-pd1p3d.json": {
        "ttft.p99": 0.36973919951959927, "tpot.mean": 0.007932924677464844, "itl.p99": 0.009581979250042428,
        "output.tokens_per_second": 309968 / 77.21849530899999, "errors.rate": 0.0, "e2e.p99": None,
    },
    "vllm-bench-sweep-0.25.1-run0.json": {"e2e.p99": 0.8768009717071254, "tpot.p50": 0.008323490332986694},
    "vllm-bench-sweep-0.25.1-summary.json": {"ttft.mean": 0.03930731637592544},
    "vllm-benchmark_latency-2024-11-8xH100-405B-FP8.json": {"e2e.mean": 144.0950627, "ttft.p50": None},
    "vllm-benchmark_throughput-2024-11-8xH100-405B-FP8.json": {
        "requests_per_second": 32 / 78.370050558, "output.tokens_per_second": None,
    },
    "vllm-benchmark_serving-2024-11-8xH100-405B-FP8-perrequest-first40.json": {
        "ttft.p99": 9.912536, "output.tokens_per_second": 120689 / 100.66741408899998, "goodput(ttft<=2s)": None,
    },
    "sglang-bench_serving-vllm-random-128k-infinity.jsonl": {
        "ttft.p50": 505.89577354630455, "output.tokens_per_second": 392.68562839175024, "errors.rate": None,
    },
    "inference-perf-vllm-stage_3_lifecycle_metrics.json": {
        "ttft.p99": 0.18182665726635605, "e2e.p99.9": 1.4648434991482648, "requests_per_second": 91.35730480202015,
        "itl.p99": None, "errors.rate": 0.0,
    },
    "inference-perf-vllm-summary_lifecycle_metrics.json": {"ttft.p50": 2.8867905189981684, "itl.p50": None},
    "inference-perf-llm-d-fixture-stage.json": {"e2e.mean": 4.338102704063284, "errors.rate": None},
    "inference-perf-llm-d-qwen3-0.6b-summary-excerpt.json": {"ttft.p99": 0.1207716233390948},
    "aiperf-profile_export-records-docs.jsonl": {"errors.rate": 0.5, "tpot.p50": 0.0052048325},
    "llama-bench-b5163-rtx4080.json": {"output.tokens_per_second": 118.881588, "decode.step_time": 1.07676788 / 128},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_results(shared_data: Path, name: str) -> None:
    measurements = measured(shared_data / "benchmarks" / name)
    for metric, figure in PUBLISHED[name].items():
        if figure is None:
            assert missing(measurements, metric).remedy
        else:
            assert found(measurements, metric).value == pytest.approx(figure, rel=1e-6)


def test_every_published_file_is_known_or_named(shared_data: Path) -> None:
    for path in (shared_data / "benchmarks").glob("*.json*"):
        if path.name not in PUBLISHED:
            with pytest.raises(SourceError, match="Prometheus"):
                window_of(path)


def test_our_own_runs_beside_the_checkout(shared_data: Path) -> None:
    for path in sorted((shared_data / "captures/vllm").glob("*/bench-*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        measurements = measured(path)
        assert found(measurements, "ttft.p99").value == pytest.approx(run["p99_ttft_ms"] / 1e3)
        assert found(measurements, "e2e.mean").value == pytest.approx(statistics.mean(run["latencies"]))
        assert found(measurements, "output.tokens_per_second").value == pytest.approx(run["output_throughput"])
