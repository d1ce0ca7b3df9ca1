"""What servers and load generators say of a deployment: taken over where nobody gave it, else it must be the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmark_files import vllm_result, write
from engine_pages import sglang, trtllm_configured
from engine_pages import write as write_pages
from made_windows import deployment, engine, window

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.resolve import resolve, with_telemetry
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Window


def read(*paths: Path) -> Window:
    return read_window([(path, path.name) for path in paths])


def resolved(seen: Window, given: Mapping[str, object] | None = None, **said: Any) -> Deployment:
    spec = WindowSpec(id="llmroof.yaml::load", name="load", base=Path(), deployment=dict(given or {}), **said)
    return with_telemetry(resolve(spec), seen, spec)


def measured(seen: Window, given: Mapping[str, object] | None = None, **said: Any) -> Measurements:
    return measure(gather(seen, resolved(seen, given, **said)))


def impossible(m: Measurements, metric: str) -> Impossible:
    outcome = m[metric]
    assert isinstance(outcome, Impossible), outcome
    return outcome


def value(m: Measurements, metric: str) -> float:
    outcome = m[metric]
    assert isinstance(outcome, Measurement), outcome
    return outcome.value


# SGLang with --enable-metrics-for-all-schedulers: 2,000 steps of 16 sequences in 60 s on each data-parallel rank, and
# the first tokens of 64 requests: 32,064 tokens, 534.4 tok/s.


@pytest.mark.parametrize("given", [{}, {"tensor_parallel": 1}, {"tensor_parallel": 2}])
def test_more_tensor_ranks_than_the_deployment_has(tmp_path: Path, given: dict[str, object]) -> None:
    seen = read(*write_pages(tmp_path, partial(sglang, tp_ranks=4)))
    m = measured(seen, {"weights": "bf16", **given}, gpu="h100", model="llama-3.1-8b")
    how = f"{given['tensor_parallel']} (given)" if given else "1 (assumed)"
    for metric in ("decode.mbu", "output.tokens_per_second.per_gpu", "requests_per_second.per_gpu"):
        found = impossible(m, metric)
        assert found.reason == f"SGLang has series of 4 tensor ranks, the deployment has tensor_parallel {how}"
        assert "4 would fit" in found.check
    assert value(m, "output.tokens_per_second") == pytest.approx(534.4)  # which no GPU is counted in


def test_as_many_tensor_ranks_as_the_deployment_has(tmp_path: Path) -> None:
    seen = read(*write_pages(tmp_path, partial(sglang, tp_ranks=4)))
    m = measured(seen, {"tensor_parallel": 4}, gpu="h100", model="llama-3.1-8b")
    assert value(m, "output.tokens_per_second.per_gpu") == pytest.approx(534.4 / 4)
    # Rank 0 alone, as by default, tells nothing of the others.
    (tmp_path / "one").mkdir()
    alone = read(*write_pages(tmp_path / "one", sglang))
    assert isinstance(measured(alone, {"tensor_parallel": 4})["output.tokens_per_second.per_gpu"], Measurement)


def test_of_data_parallel_attention_each_rank_counts_its_own(tmp_path: Path) -> None:
    """tp_rank 0 to 7 over eight dp_ranks: one tensor rank each; over two, four each."""
    eight = read(*write_pages(tmp_path / "eight", partial(sglang, dp_ranks=8)))
    m = measured(eight, {"tensor_parallel": 1}, gpu="h100", model="llama-3.1-8b")
    assert value(m, "output.tokens_per_second.per_gpu") == pytest.approx(534.4)
    two = read(*write_pages(tmp_path / "two", partial(sglang, dp_ranks=2, tp_ranks=4)))
    assert "4 tensor ranks" in impossible(measured(two), "output.tokens_per_second.per_gpu").reason
    m = measured(two, {"tensor_parallel": 4}, gpu="h100", model="llama-3.1-8b")
    assert value(m, "output.tokens_per_second.per_gpu") == pytest.approx(2 * 534.4 / 8)


def test_more_pipeline_ranks_than_the_deployment_has(tmp_path: Path) -> None:
    """Every stage's first rank writes series, whatever was asked for."""

    def page(done: float, at: float | None) -> str:
        text = sglang(done, at, tp_ranks=2)
        return text.replace('pp_rank="0",tp_rank="1"', 'pp_rank="1",tp_rank="0"')

    seen = read(*write_pages(tmp_path, page))
    found = impossible(measured(seen), "output.tokens_per_second.per_gpu")
    assert found.reason == "SGLang has series of 2 pipeline ranks, the deployment has pipeline_parallel 1 (assumed)"
    m = measured(seen, {"pipeline_parallel": 2})
    assert value(m, "output.tokens_per_second.per_gpu") == pytest.approx(267.2)


def test_expert_ranks_of_a_mixture(tmp_path: Path) -> None:
    """Four tensor ranks with four expert ranks: each GPU holds a quarter of the experts, whole."""

    def page(done: float, at: float | None) -> str:
        numbered = r'moe_ep_rank="\d"(.*tp_rank="(\d)")'
        return re.sub(numbered, r'moe_ep_rank="\2"\1', sglang(done, at, tp_ranks=4))

    seen = read(*write_pages(tmp_path, page))
    given = {"tensor_parallel": 4, "weights": "bf16"}
    found = impossible(measured(seen, given, gpu="h100", model="mixtral-8x7b"), "decode.mbu")
    assert found.reason == "SGLang tells of 4 expert ranks, the deployment has expert_parallel false (assumed)"
    spread = measured(seen, {**given, "expert_parallel": True}, gpu="h100", model="mixtral-8x7b")
    assert isinstance(spread["decode.mbu"], Measurement)
    dense = measured(seen, given, gpu="h100", model="llama-3.1-8b")
    assert isinstance(dense["decode.mbu"], Measurement)


# TensorRT-LLM on eight B200: 100 requests of 201 tokens in 60 s are 335 tok/s.

def trt(folder: Path, **changes: Any) -> Window:
    return read(*write_pages(folder, partial(trtllm_configured, **changes)))


def test_a_server_s_own_facts_are_taken_over(tmp_path: Path) -> None:
    seen = trt(tmp_path)
    found = resolved(seen, model="llama-3.1-8b")
    assert found.accelerator is not None
    assert found.accelerator.name == "b200-sxm"
    assert (found.tensor_parallel, found.pipeline_parallel, found.gpus) == (8, 1, 8)
    assert (found.weights, found.kv_cache, found.compute) == ("fp8", "fp8", "fp8")
    for key in ("gpu", "tensor_parallel", "pipeline_parallel", "weights", "kv_cache"):
        assert found.provenance[key] == "telemetry"
    m = measure(gather(seen, found))
    per_gpu = m["output.tokens_per_second.per_gpu"]
    assert isinstance(per_gpu, Measurement)
    assert per_gpu.value == pytest.approx(335 / 8)
    assert per_gpu.alternatives == ()  # nothing is assumed that could be otherwise


@pytest.mark.parametrize(
    ("given", "said", "metric", "reason"),
    [
        ({"tensor_parallel": 4}, {}, "output.tokens_per_second.per_gpu",
         "TensorRT-LLM says tensor_parallel 8, the deployment has tensor_parallel 4 (given)"),
        ({"pipeline_parallel": 2}, {}, "requests_per_second.per_gpu",
         "TensorRT-LLM says pipeline_parallel 1, the deployment has pipeline_parallel 2 (given)"),
        ({"weights": "bf16"}, {}, "window.mfu",
         "TensorRT-LLM says quantisation FP8, the deployment has weights bf16 (given)"),
        ({"kv_cache": "bf16"}, {}, "window.mfu",
         "TensorRT-LLM says that its cache is fp8, the deployment has kv_cache bf16 (given)"),
        ({}, {"gpu": "h100"}, "window.mfu",
         "the telemetry's device is NVIDIA B200 (b200-sxm), the gpu given h100-sxm5-80gb"),
        ({}, {"gpu": "h100"}, "output.tokens_per_second.per_gpu",
         "the telemetry's device is NVIDIA B200 (b200-sxm), the gpu given h100-sxm5-80gb"),
    ],
)  # fmt: skip
def test_what_was_given_must_be_what_the_server_says(
    tmp_path: Path, given: dict[str, object], said: dict[str, str], metric: str, reason: str
) -> None:
    m = measured(trt(tmp_path), given, model="llama-3.1-8b", **said)
    assert impossible(m, metric).reason == reason
    assert value(m, "output.tokens_per_second") == pytest.approx(335)
    assert isinstance(m["ttft.mean"], Measurement)


def test_more_gpus_than_the_split_that_is_said(tmp_path: Path) -> None:
    """Context parallelism: 8 x 1 x 2 GPUs, of which a deployment cannot have all."""
    seen = trt(tmp_path, parallel={"context_parallel_size": "2", "gpu_count": "16"})
    found = impossible(measured(seen), "output.tokens_per_second.per_gpu")
    assert found.reason.startswith("TensorRT-LLM says 16 GPUs, the deployment has 8: tensor_parallel 8 (telemetry)")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"tensor_parallel_size": "64"}, "tensor_parallel 64, the deployment has tensor_parallel 1 (assumed)"),
        ({"pipeline_parallel_size": "64"}, "pipeline_parallel 64, the deployment has pipeline_parallel 1 (assumed)"),
        ({"tensor_parallel_size": "0"}, "8 GPUs, the deployment has 1: tensor_parallel 1 (assumed), pipeline"),
        ({"tensor_parallel_size": "9" * 9}, "8 GPUs, the deployment has 1: tensor_parallel 1 (assumed), pipeline"),
    ],
)
def test_a_split_that_the_model_cannot_have_is_not_taken_over(
    tmp_path: Path, said: dict[str, str], reason: str
) -> None:  # fmt: skip
    """Llama 3.1 8B has 32 heads and 32 layers."""
    m = measured(trt(tmp_path, parallel=said), model="llama-3.1-8b")
    for metric in ("window.mfu", "output.tokens_per_second.per_gpu"):
        assert impossible(m, metric).reason.startswith(f"TensorRT-LLM says {reason}")


def test_a_quantisation_that_does_not_tell_its_width_contradicts_16_bit_only(tmp_path: Path) -> None:
    seen = trt(tmp_path, model={"quantization": "MIXED_PRECISION"}, cache={"cache_dtype": "auto"})
    assert "quantisation MIXED_PRECISION" in impossible(measured(seen, model="llama-3.1-8b"), "window.mfu").reason
    assert isinstance(measured(seen, {"weights": "fp8"}, model="llama-3.1-8b")["window.mfu"], Measurement)
    # Such a checkpoint may quantise its cache, too: "auto" does not tell it.
    assert resolved(seen, model="llama-3.1-8b").provenance["kv_cache"] == "assumed"
    none = trt(tmp_path / "none", model={"quantization": "none"}, cache={"cache_dtype": "auto"})
    assert resolved(none, model="llama-3.1-8b").provenance["weights"] == "assumed"
    assert resolved(none, model="llama-3.1-8b").provenance["kv_cache"] == "telemetry"


def test_a_size_that_was_given_settles_any_quantisation(tmp_path: Path) -> None:
    model = {"parameters": 8.03e9, "weight_bytes": "4.92GB"}
    assert isinstance(measured(trt(tmp_path), model=model)["window.mfu"], Measurement)


def test_no_path_and_no_other_label_is_kept(tmp_path: Path) -> None:
    (engine,) = trt(tmp_path, model={"quantization": "/etc/secret"}).engines
    assert dict(engine.facts) == {
        "tensor_parallel": "8", "pipeline_parallel": "1", "gpus": "8", "device": "NVIDIA B200", "cache_dtype": "fp8",
    }  # fmt: skip


# vLLM, one minute of 1,000 steps of 20 ms with 16 sequences: 16 requests of 100 + 1,001 tokens.


def vllm(*engines: Mapping[str, Any]) -> Window:
    load: dict[str, Any] = {
        "itl": 0.02, "outputs": 16_000, "steps": 1000, "prompt": 100, "output": 1001, "requests": 16,
    }  # fmt: skip
    return window(*(engine(**load, **changes) for changes in engines), title="vLLM")


@pytest.mark.parametrize(
    ("word", "given", "refused"),
    [("fp8", "bf16", True), ("fp8_ds_mla", "bf16", True), ("bfloat16", "fp8", True), ("nvfp4", "fp8", True),
     ("fp8_e5m2", "int8", False), ("float16", "bf16", False), ("auto", "fp8", False), ("of tomorrow", "bf16", False)],
)  # fmt: skip
def test_a_cache_of_another_width_than_was_given(word: str, given: str, refused: bool) -> None:
    seen = vllm({"facts": {"cache_dtype": word}})
    m = measure(gather(seen, deployment("llama-3.1-8b", kv_cache=given)))
    assert isinstance(m["decode.mbu"], Impossible if refused else Measurement)
    hinted = [note for note in m.facts.notes if "kv_cache" in note]
    assert hinted == ([
        "vLLM says that the cache has the precision of its checkpoint (auto), kv_cache fp8 is given"
    ] if word == "auto" else [])  # fmt: skip


def test_engines_that_differ_are_taken_over_from_none() -> None:
    """One engine with an fp8 cache beside one of 16 bit: whichever is assumed, it is not that of all."""
    seen = vllm(*({"facts": {"cache_dtype": word}} for word in ("fp8", "bfloat16")))
    found = impossible(measured(seen, gpu="h100", model="llama-3.1-8b"), "decode.mbu")
    assert found.reason == "vLLM says that its cache is fp8, the deployment has kv_cache bf16 (assumed)"


def test_a_served_name_is_a_hint_against_given_weights() -> None:
    seen = vllm({"model_name": "org/my-model-FP8"})
    m = measure(gather(seen, deployment("llama-3.1-8b")))
    assert isinstance(m["decode.mbu"], Measurement)
    assert "the served name says FP8, weights bf16 are given: org/my-model-FP8" in m.facts.notes
    narrow = measure(gather(seen, deployment("llama-3.1-8b", weights="fp8")))
    assert not [note for note in narrow.facts.notes if "served name" in note]


def test_a_device_that_may_be_the_gpu_is_taken_for_it_and_said() -> None:
    seen = replace(vllm({}), device_names=("NVIDIA H100 80GB",))
    m = measure(gather(seen, deployment("llama-3.1-8b")))
    assert isinstance(m["decode.mbu"], Measurement)
    (note,) = (note for note in m.facts.notes if "NVIDIA H100 80GB" in note)
    assert note.endswith("which the catalogue does not know: it is taken to be h100-sxm5-80gb")


# Load generators that know the server: 1,000 tok/s over tp_size x pp_size GPUs.


def trt_report(**world: int) -> dict[str, object]:
    return {
        "engine": {"model": "meta-llama/Llama-3.1-70B", "backend": "Pytorch", "dtype": "bfloat16",
                   "kv_cache_dtype": "FP8", "quantization": "FP8"},
        "machine": {"name": "NVIDIA B200", "memory.total": 178.35},
        "world_info": {"tp_size": 8, "pp_size": 1, "ep_size": 1, "world_size": 8, "max_batch_size": 256, **world},
        "request_info": {"num_requests": 3000, "avg_input_length": 100.0, "avg_output_length": 200.0},
        "performance": {"total_latency_ms": 100_000.0, "avg_request_latency_ms": 4000.0,
                        "request_throughput_req_s": 30.0, "system_output_throughput_tok_s": 6000.0},
        "streaming_metrics": {"avg_ttft_ms": 300.0, "avg_tpot_ms": 18.5},
    }  # fmt: skip


def test_trtllm_bench_knows_its_world(tmp_path: Path) -> None:
    """3,000 x 200 tokens in 100 s on 8 GPUs: 750 tok/s each, as its output_throughput_per_gpu_tok_s says."""
    seen = read(write(tmp_path / "report.json", trt_report()))
    found = resolved(seen, model="llama-3.1-70b")
    assert (found.gpus, found.weights, found.kv_cache) == (8, "fp8", "fp8")
    assert found.accelerator is not None
    assert found.accelerator.name == "b200-sxm"
    assert value(measured(seen), "output.tokens_per_second.per_gpu") == pytest.approx(750)
    half = impossible(measured(seen, {"tensor_parallel": 4}, model="llama-3.1-70b"), "decode.mbu")
    assert half.reason.startswith("trtllm-bench (report.json) says tensor_parallel 8, the deployment has")
    wide = read(write(tmp_path / "wide.json", trt_report(tp_size=4, pp_size=4, world_size=16)))
    assert value(measured(wide), "output.tokens_per_second.per_gpu") == pytest.approx(375)


@pytest.mark.parametrize(
    ("info", "gpus"),
    [
        ({"tp_size": 4, "pp_size": 2, "dp_size": 1, "enable_dp_attention": False}, 8),
        ({"tp_size": 4, "pp_size": 1, "dp_size": 2, "enable_dp_attention": False}, 8),  # two replicas of four
        ({"tp_size": 8, "pp_size": 1, "dp_size": 2, "enable_dp_attention": True}, 8),  # both inside of eight ranks
        ({"version": "0.5"}, 1),
    ],
)
def test_sglang_bench_serving_keeps_what_the_server_answered(
    tmp_path: Path, info: dict[str, object], gpus: int
) -> None:  # fmt: skip
    run = {
        "backend": "sglang", "dataset_name": "random", "model": "llama-3.1-8b", "duration": 100.0, "completed": 500,
        "total_input_tokens": 50_000, "total_output_tokens": 100_000, "output_throughput": 1000.0,
        "request_throughput": 5.0, "mean_ttft_ms": 100.0, "server_info": {**info, "kv_cache_dtype": "fp8_e4m3"},
    }  # fmt: skip
    seen = read(write(tmp_path / "run.jsonl", run))
    found = resolved(seen, gpu="h100")
    assert (found.gpus, found.kv_cache) == (gpus, "fp8")
    assert value(measured(seen), "output.tokens_per_second.per_gpu") == pytest.approx(1000 / gpus)


def test_a_sweep_s_parameters_and_metadata_of_vllm(tmp_path: Path) -> None:
    run = vllm_result(tensor_parallel_size="4", kv_cache_dtype="fp8")  # --metadata writes texts
    seen = read(write(tmp_path / "run.json", run))
    found = resolved(seen, gpu="h100")
    assert (found.tensor_parallel, found.kv_cache) == (4, "fp8")
    # 2,000 tok/s over four GPUs
    assert value(measured(seen), "output.tokens_per_second.per_gpu") == pytest.approx(500)
    assert isinstance(measured(seen, {"tensor_parallel": 2})["output.tokens_per_second.per_gpu"], Impossible)


# llama-bench: 5 x 128 tokens in 5 x 1.28 s: 100 tok/s.


def llama_bench(**changes: object) -> dict[str, object]:
    return {
        "model_filename": "m.gguf", "model_size": 4_677_120_000, "model_n_params": 7_615_616_512, "n_batch": 2048,
        "n_ubatch": 512, "n_prompt": 0, "n_gen": 128, "n_depth": 0, "backends": "CUDA", "n_gpu_layers": 99,
        "gpu_info": "NVIDIA A100-SXM4-80GB", "cpu_info": "AMD EPYC 9654 96-Core Processor", "split_mode": "layer",
        "main_gpu": 0, "devices": "auto", "avg_ts": 100.0, "samples_ns": [1_280_000_000] * 5, **changes,
    }  # fmt: skip


TWO = "NVIDIA A100-SXM4-80GB, NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("changes", "tensor", "pipeline"),
    [
        ({}, 1, 1),
        ({"gpu_info": TWO}, 1, 2),
        ({"gpu_info": TWO, "split_mode": "row"}, 2, 1),
        ({"gpu_info": TWO, "split_mode": "none", "main_gpu": 1}, 1, 1),
        ({"gpu_info": f"{TWO}, {TWO}", "devices": "CUDA0/CUDA1"}, 1, 2),
    ],
)
def test_llama_bench_counts_its_gpus(tmp_path: Path, changes: dict[str, object], tensor: int, pipeline: int) -> None:
    seen = read(write(tmp_path / "bench.json", llama_bench(**changes)))
    found = resolved(seen)
    assert found.accelerator is not None
    assert found.accelerator.name == "a100-sxm4-80gb"
    assert (found.tensor_parallel, found.pipeline_parallel) == (tensor, pipeline)
    m = measured(seen, gpu="a100")
    assert value(m, "output.tokens_per_second.per_gpu") == pytest.approx(100 / (tensor * pipeline))
    # 4.677 GB in 10 ms are 467.7 GB/s; of 2,039 GB/s a GPU that is 22.9 %, and the cache is a little more.
    assert value(m, "decode.mbu") == pytest.approx(467.7 / 2039 / (tensor * pipeline), rel=0.02)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"gpu_info": "NVIDIA GeForce RTX 4080"}, "NVIDIA GeForce RTX 4080"),
        ({"gpu_info": "NVIDIA H100 80GB HBM3"}, "NVIDIA H100 80GB HBM3 (h100-sxm5-80gb)"),
        ({"gpu_info": "NVIDIA A100-SXM4-80GB, NVIDIA GeForce RTX 4080"}, "NVIDIA GeForce RTX 4080"),
        ({"gpu_info": "", "backends": "CPU"}, "AMD EPYC 9654 96-Core Processor"),
        ({"gpu_info": "", "backends": "CPU", "cpu_info": ""}, "CPU"),
        ({"n_gpu_layers": 0}, "AMD EPYC 9654 96-Core Processor"),  # GPUs are there, and hold nothing
    ],
)
def test_llama_bench_on_another_device(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    seen = read(write(tmp_path / "bench.json", llama_bench(**changes)))
    found = impossible(measured(seen, gpu="a100"), "decode.mbu")
    assert found.reason == f"the telemetry's device is {named}, the gpu given a100-sxm4-80gb"
    if "(" not in named:
        assert "describe it as a mapping, with its own peaks and bandwidth" in found.check
    # Whatever a device of one's own calls itself.
    own = {"name": "mine", "memory_bandwidth": "700GB/s", "memory": "80GB", "peaks": {"bf16": "100TFLOP/s"}}
    assert isinstance(measured(seen, {"weights": "int4"}, gpu=own)["decode.mbu"], Measurement)


# Shares of one GPU rest on how many there are.


def test_an_unconfirmed_number_of_gpus_leaves_shares_of_one_open() -> None:
    """16,016 tokens in 60 s are 266.9 tok/s: of one GPU, or 133.5 of each of two."""
    seen = vllm({})
    m = measured(seen)
    for metric, whole in (
        ("output.tokens_per_second.per_gpu", 16_016 / 60),
        ("input.tokens_per_second.per_gpu", 1600 / 60),
        ("requests_per_second.per_gpu", 16 / 60),
    ):
        outcome = m[metric]
        assert isinstance(outcome, Measurement)
        assert outcome.value == pytest.approx(whole)
        (other,) = outcome.alternatives
        assert other.assumption == "tensor_parallel = 2 (assumed 1)"
        assert other.value == pytest.approx(whole / 2)
    given = measured(seen, {"tensor_parallel": 1})["output.tokens_per_second.per_gpu"]
    assert isinstance(given, Measurement)
    assert given.alternatives == ()
    of_all = m["output.tokens_per_second"]
    assert isinstance(of_all, Measurement)
    assert of_all.alternatives == ()


def test_what_two_gpus_would_turn_is_approximate_and_strictly_inconclusive() -> None:
    """266.9 tok/s of one GPU are 133.5 of two: a limit of 200 stands between, one of 100 does not."""
    outcome = measured(vllm({}))["output.tokens_per_second.per_gpu"]
    turned = judge(parse_gate("output.tokens_per_second.per_gpu >= 200"), outcome)
    assert (turned.word, turned.approximate, turned.unconfirmed) == ("pass", True, ("tensor_parallel",))
    assert turned.because == "tensor_parallel = 2 (assumed 1) would give 133 tok/s and fail"
    assert judge(parse_gate("output.tokens_per_second.per_gpu >= 200"), outcome, strict=True).word == "inconclusive"
    either = judge(parse_gate("output.tokens_per_second.per_gpu >= 100"), outcome, strict=True)
    assert (either.word, either.approximate) == ("pass", False)


def test_of_replicas_a_load_generator_alone_sees_nothing(tmp_path: Path) -> None:
    """2,000 tok/s through one address: 500 on each of four GPUs, or 250 of eight where two replicas stand behind it."""
    seen = read(write(tmp_path / "run.json", vllm_result()))
    outcome = measured(seen, {"tensor_parallel": 4})["output.tokens_per_second.per_gpu"]
    assert isinstance(outcome, Measurement)
    assert outcome.value == pytest.approx(500)
    (other,) = outcome.alternatives
    assert other.assumption == "data_parallel = 2 (assumed 1)"
    assert other.value == pytest.approx(250)
    given = measured(seen, {"tensor_parallel": 4, "data_parallel": 1})["output.tokens_per_second.per_gpu"]
    assert isinstance(given, Measurement)
    assert given.alternatives == ()
    # trtllm-bench runs all of its world itself.
    world = measured(read(write(tmp_path / "report.json", trt_report())))["output.tokens_per_second.per_gpu"]
    assert isinstance(world, Measurement)
    assert world.alternatives == ()
