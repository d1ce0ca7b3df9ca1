"""What a step costs: golden figures, parallelism, experts, speculation, floors. Arithmetic beside each number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.cost import (
    distinct_experts,
    floor,
    latency_floor,
    memory_fit,
    model_flops,
    step_cost,
)
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import model_from_config, model_from_mapping, named_model
from pytest_llmroof.roofline.step import Prefill, Step, StepCost

H100 = Accelerator("golden", "golden", {"bf16": 989e12, "fp8": 1979e12}, 3.35e12, 80e9)
A100 = Accelerator("a100", "a100", {"bf16": 312e12}, 2.039e12, 80e9)


def on(name: str, chip: Accelerator = H100, **facts: Any) -> Deployment:
    return Deployment(model=named_model(name), accelerator=chip, **facts)


@pytest.mark.parametrize(
    ("name", "b1_c1k", "b32_c1k", "b32_c4k"),
    [
        ("llama-3.1-8b", 15144206336, 19309273088, 32194174976),
        ("llama-3.1-70b", 139341955072, 149754494976, 181966749696),
        ("llama-3.1-405b", 808033116160, 824433082368, 875167383552),
        ("llama-3.2-1b", 2505216000, 3546419200, 6767644672),
        ("mistral-7b-v0.1", 14355677184, 18520743936, 31405645824),
        ("qwen2.5-72b", 143256879104, 153669419008, 185881673728),
        ("qwen3-8b", 15287961600, 19973629952, 34469144576),
        ("mixtral-8x7b", 25632063488, 97433804914, 110318706802),
        ("qwen3-30b-a3b", 6184501248, 56314942836, 65978619252),
        ("qwen3-235b-a22b", 43334200320, 417670712330, 436595411978),
    ],
)
def test_bytes_of_a_decode_step(name: str, b1_c1k: int, b32_c1k: int, b32_c4k: int) -> None:
    deployment = on(name)
    assert step_cost(deployment, Step(1, 1024)).bytes == pytest.approx(b1_c1k, rel=1e-10)
    assert step_cost(deployment, Step(32, 1024)).bytes == pytest.approx(b32_c1k, rel=1e-10)
    assert step_cost(deployment, Step(32, 4096)).bytes == pytest.approx(b32_c4k, rel=1e-10)


@pytest.mark.parametrize(
    ("name", "token_c4k", "prompt_4k"),
    [
        ("llama-3.1-8b", 17156800512, 61574775570432),
        ("llama-3.1-70b", 149740847104, 582748632776704),
        ("llama-3.1-405b", 841318662144, 3359578892795904),
        ("llama-3.2-1b", 3008364544, 9071764701184),
        ("mistral-7b-v0.1", 16368271360, 61573987041280),
        ("qwen3-32b", 72557002752, 273234490294272),
        ("qwen3-30b-a3b", 9304539136, 28967492386816),
        ("mixtral-8x7b", 27644657664, 107762065342464),
    ],
)
def test_flops_of_a_token_and_of_a_prompt(name: str, token_c4k: int, prompt_4k: int) -> None:
    deployment = on(name)
    assert step_cost(deployment, Step(1, 4096)).flops == token_c4k
    assert step_cost(deployment, Step(prefills=(Prefill(4096),))).flops == prompt_4k


def test_seventy_billion_parameters_at_batch_one() -> None:
    # 70e9 x 2 B = 140 GB; 2 x 70e9 = 140 GFLOP; 140e9 / 3.35e12 = 41.79 ms; 140e9 / 41.79 ms / 989e12 = 0.339 %
    deployment = Deployment(model=model_from_mapping({"parameters": "70e9"}), accelerator=H100)
    cost = step_cost(deployment, Step(1, 2000))
    assert (cost.bytes, cost.flops, cost.intensity) == (140e9, 140e9, 1.0)
    least = floor(deployment, cost)
    assert least is not None
    assert least.memory_bound
    assert least.seconds == pytest.approx(41.79e-3, rel=1e-4)
    assert 1 / least.seconds == pytest.approx(23.93, abs=0.005)
    assert model_flops(deployment, 1) / least.seconds / 989e12 == pytest.approx(0.00339, rel=1e-3)
    fit = memory_fit(deployment, 2000)
    assert fit is not None
    assert not fit.weights_fit
    assert fit.sequences is None  # nothing is known of the cache


def test_intensity_of_a_prompt() -> None:
    # 2BSP / (2P + 2BSHL): 143.4 TFLOP over 140 GB of weights and 2 x 8192 x 80 = 1310720 B written a token; 145 ms
    model = model_from_mapping({"parameters": 70e9, "kv_bytes_per_token": 2 * 8192 * 80})
    deployment = Deployment(model=model, accelerator=H100)
    cost = step_cost(deployment, Step(prefills=(Prefill(1024),)))
    assert cost.flops == pytest.approx(143.36e12)
    assert cost.intensity == pytest.approx(1014.3, abs=0.05)
    least = floor(deployment, cost)
    assert least is not None
    assert not least.memory_bound
    assert least.seconds == pytest.approx(0.145, abs=0.0005)


def test_a_chunk_and_the_decodes_of_a_step_share_the_weights() -> None:
    # 70B, TP 4, 32 decodes at 4k and 512 tokens from the middle of a 4k prompt (on average after 1792 of them):
    # decode 182.0 GB / 13.4 TB/s = 13.6 ms, chunk 72.8 TFLOP / 3956 TFLOP/s = 18.4 ms.
    # Together 77.6 TFLOP (4.8 of the decodes) = 19.6 ms of compute, above 13.6 ms + the chunk's cache of memory.
    deployment = on("llama-3.1-70b", tensor_parallel=4)
    chunk = Prefill(512, cached=1792, logits=0)
    decode = floor(deployment, step_cost(deployment, Step(32, 4096)))
    prefill = floor(deployment, step_cost(deployment, Step(prefills=(chunk,))))
    joint = floor(deployment, step_cost(deployment, Step(32, 4096, prefills=(chunk,))))
    assert decode is not None
    assert prefill is not None
    assert joint is not None
    assert decode.seconds == pytest.approx(13.6e-3, abs=5e-5)
    assert prefill.seconds == pytest.approx(18.4e-3, abs=5e-5)
    assert joint.seconds == pytest.approx(19.6e-3, abs=5e-5)
    assert joint.weights_seconds == pytest.approx(decode.weights_seconds, rel=1e-4)  # but for rows of the embedding


def test_steps_and_not_tokens() -> None:
    # 70B, TP 4, batch 32, context 560, 43.8625 steps/s: (139.0 GB + 32 x 560 x 327680 B) x 43.8625 / 13.4 TB/s = 47.4 %
    cost = step_cost(on("llama-3.3-70b", tensor_parallel=4), Step(32, 560))
    assert cost.bytes * 43.8625 / (4 * 3.35e12) == pytest.approx(0.4742, abs=0.0003)
    # the table as a whole: 139006066688 B of weights, and the norms (161 x 8192 x 2 B) on each of four ranks
    rows, norms = 32 * 8192 * 2, 161 * 8192 * 2
    assert cost.weight_bytes == 139006066688 + rows + 3 * norms


def test_the_embedding_is_a_lookup() -> None:
    # 8.03e9 - 0.525e9 parameters x 2 B = 15.01 GB read, at 93.83 steps/s 69.07 % of 2.039 TB/s; 73.9 % counts the table
    row = 4096 * 2
    weights = step_cost(on("llama-3.1-8b", A100), Step(1, 0)).weight_bytes - row
    assert weights == 15009849344
    assert weights * 93.83 / 2.039e12 == pytest.approx(0.6907, abs=5e-5)
    tied = step_cost(on("llama-3.2-1b"), Step(8, 0))
    assert tied.weight_bytes == 2 * 1235814400  # a tied table is read as the head, whole


def test_attention_is_causal() -> None:
    # 16k tokens of Llama 8B without head: 228.7 TFLOP of matrices, 4 x 32 x 32 x 128 x S^2 / 2 = 70.4 TFLOP of scores
    deployment = on("llama-3.1-8b")
    cost = step_cost(deployment, Step(prefills=(Prefill(16384, logits=0),)))
    assert cost.flops == pytest.approx(228.7e12 + 70.4e12, rel=1e-3)
    assert cost.flops / (0.6 * 989e12) == pytest.approx(0.5040, abs=5e-5)


def test_cached_tokens_are_seen_and_not_computed() -> None:
    deployment = on("llama-3.1-8b")
    whole = step_cost(deployment, Step(prefills=(Prefill(4096),)))
    first = step_cost(deployment, Step(prefills=(Prefill(1024, logits=0),)))
    rest = step_cost(deployment, Step(prefills=(Prefill(3072, cached=1024),)))
    assert first.flops + rest.flops == whole.flops
    # read: 1024 cached tokens; written: each token once
    assert rest.kv_bytes == (1024 + 3072) * 131072
    assert whole.kv_bytes == 4096 * 131072


def test_the_head_is_read_where_logits_are_made() -> None:
    deployment = on("llama-3.1-8b")
    head = 128256 * 4096 * 2
    ends = step_cost(deployment, Step(prefills=(Prefill(512),)))
    middle = step_cost(deployment, Step(prefills=(Prefill(512, logits=0),)))
    assert ends.weight_bytes - middle.weight_bytes == head
    assert ends.flops - middle.flops == head  # 2 FLOPs and 2 bytes a parameter, one position
    often = step_cost(deployment, Step(prefills=(Prefill(512, logits=0.25),)))
    assert often.weight_bytes - middle.weight_bytes == head / 4


def test_the_cache_is_that_of_key_value_heads() -> None:
    # 2 x 32 layers x 8 heads x 128 x 2 B = 131072 a token; 64 sequences of 2048: 17.18 GB (68.7 with 32 heads)
    cost = step_cost(on("llama-3.1-8b"), Step(64, 2048))
    assert cost.kv_bytes == 17179869184 + 64 * 131072
    # contexts of 128, 1024, 2048, 4096 and 8192 add up to 15488 tokens: 2.030 GB, and not 5 x 8192 of them
    assert step_cost(on("llama-3.1-8b"), Step(5, 15488 / 5)).kv_bytes - 5 * 131072 == pytest.approx(2030043136)


def test_a_sliding_layer_reads_its_window() -> None:
    deployment = on("mistral-7b-v0.1")
    at, beyond = step_cost(deployment, Step(1, 4096)), step_cost(deployment, Step(1, 32768))
    assert at.kv_bytes == beyond.kv_bytes == (4096 + 1) * 131072
    assert at.flops == beyond.flops
    # a prompt of 6144 in a window of 4096: 4096 x 4097 / 2 pairs, then 2048 x 4096
    prompt = step_cost(deployment, Step(prefills=(Prefill(6144, logits=0),)))
    pairs = 4096 * 4097 / 2 + 2048 * 4096
    assert prompt.flops == 2 * 6979321856 * 6144 + 4 * 32 * 32 * 128 * pairs


def test_tensor_parallel_ranks_keep_some_parts_whole() -> None:
    one, two = (step_cost(on("qwen3-30b-a3b", tensor_parallel=t), Step(8, 1000)) for t in (1, 2))
    norms = 2 * (48 * (2 * 2048 + 2 * 128) + 2048)
    routers = 2 * 48 * 128 * 2048
    assert two.weight_bytes - one.weight_bytes == pytest.approx(norms + routers, rel=1e-9)
    assert two.kv_bytes == one.kv_bytes
    # 4 key-value heads on 8 ranks: each of them, and its projections, on two
    eight = step_cost(on("qwen3-30b-a3b", tensor_parallel=8), Step(8, 1000))
    projections = 2 * 48 * 2 * (4 * 128) * 2048
    assert eight.kv_bytes == 2 * one.kv_bytes
    assert eight.weight_bytes - one.weight_bytes == pytest.approx(7 * (norms + routers) + projections, rel=1e-9)


def test_bytes_of_one_gpu_under_tensor_parallel() -> None:
    # 70B on four A100, layers and head split by four: (68452360192 + 1050673152) x 2 B / 4 = 34.75 GB a GPU and step,
    # at 37.45 steps/s 63.83 % of 2.039 TB/s. (Code that keeps the head whole on each GPU moves 36.33 GB: 66.72 %.)
    cost = step_cost(on("llama-3.1-70b", A100, tensor_parallel=4), Step(1, 0))
    assert cost.gpus == 4
    each = cost.weight_bytes / cost.gpus
    assert each == pytest.approx((68452360192 + 1050673152) * 2 / 4, rel=1e-4)
    assert each * 37.45 / 2.039e12 == pytest.approx(0.6383, abs=1e-4)


def test_a_bigger_model_is_not_faster_than_its_memory() -> None:
    # 13.5 GB in 12 ms is 55.2 % of 2.039 TB/s; 26 GB in 10.5 ms would be 121.4 %
    def mbu(size: float, parameters: float, seconds: float) -> float:
        model = model_from_mapping({"parameters": parameters, "weight_bytes": size})
        deployment = Deployment(model=model, accelerator=A100)
        least = floor(deployment, step_cost(deployment, Step(1, 0)))
        assert least is not None
        return least.memory_seconds / seconds

    assert mbu(13.5e9, 6.7e9, 12e-3) == pytest.approx(0.5517, abs=5e-5)
    assert mbu(26e9, 13e9, 10.5e-3) == pytest.approx(1.2144, abs=5e-5)


def test_decode_is_not_always_bound_by_memory() -> None:
    # 660 TFLOP at 989 TFLOP/s take longer than 900 GB at 3.35 TB/s: 733 FLOP/B, above the ridge of 295
    least = floor(on("qwen3-8b"), StepCost(660e12, 660e12, 900e9, 900e9, 0.0, 1))
    assert least is not None
    assert not least.memory_bound
    assert least.compute_seconds == pytest.approx(0.6673, abs=5e-5)
    assert least.memory_seconds == pytest.approx(0.2687, abs=5e-5)


def test_pipeline_stages_share_a_step() -> None:
    flat, piped = on("llama-3.1-70b", tensor_parallel=8), on("llama-3.1-70b", tensor_parallel=4, pipeline_parallel=2)
    step = Step(1, 1024)
    together, alone = floor(piped, step_cost(piped, step)), latency_floor(piped, step_cost(piped, step))
    spread = floor(flat, step_cost(flat, step))
    assert together is not None
    assert alone is not None
    assert spread is not None
    # The last stage is the slowest: 40 layers and the head, (68452360192 / 2 + 1050673152) x 2 B, and half the cache,
    # over 4 x 3.35 TB/s (norms aside).
    last = (68452360192 / 2 + 1050673152) * 2 + 1025 * 327680 / 2
    assert together.seconds == pytest.approx(last / (4 * 3.35e12), rel=1e-4)
    # A lone token passes one stage after the other: twice the time of 8 ranks that share each layer.
    assert alone.seconds == pytest.approx(2 * spread.seconds, rel=1e-3)


@pytest.mark.parametrize("stages", [2, 4])
def test_stages_compute_what_one_does(stages: int) -> None:
    whole = step_cost(on("llama-3.1-8b"), Step(32, 1024))
    staged = step_cost(on("llama-3.1-8b", pipeline_parallel=stages), Step(32, 1024))
    assert staged.flops == pytest.approx(whole.flops)
    assert staged.model_flops == pytest.approx(whole.model_flops) == 32 * 2 * 7_504_658_432
    assert staged.gpus == stages
    # A draft runs beside the last stage, which has the head: what it computes and reads is added there, once.
    drafted: dict[str, Any] = {"draft": named_model("llama-3.2-1b"), "speculative_tokens": 3}
    alone, piped = (
        step_cost(on("llama-3.1-8b", pipeline_parallel=number, **drafted), Step(32, 1024, 3)) for number in (1, stages)
    )
    assert piped.flops == pytest.approx(alone.flops)
    assert piped.weight_bytes == pytest.approx(alone.weight_bytes)


def test_distinct_experts() -> None:
    # 128 experts, 8 a token: 8 for one token, 128 x (1 - (15/16)^32) = 111.8 for 32; fewer than a token is no step
    assert distinct_experts(128, 8, 1) == 8
    assert distinct_experts(128, 8, 0.3) == 8
    assert distinct_experts(128, 8, 32) == pytest.approx(111.77, abs=0.005)
    cost = step_cost(on("qwen3-30b-a3b"), Step(32, 1024))
    # 18.9 MB an expert (2 B x 3 x 768 x 2048 / 1e6 x 48 layers = 453 MB of each number)
    each = 48 * 3 * 768 * 2048 * 2
    assert cost.weight_bytes - cost.weight_bytes_low == pytest.approx((111.769 - 8) * each, rel=1e-4)
    dense = step_cost(on("llama-3.1-8b"), Step(32, 1024))
    assert dense.weight_bytes == dense.weight_bytes_low


def test_experts_of_which_nobody_told_the_number_are_spread_evenly() -> None:
    # Half of 8e9 parameters are active: one token reads 8 GB of 16, each of two ranks 4 GB of its 8.
    sparse = model_from_mapping({"parameters": 8e9, "active_parameters": 4e9})
    deployment = Deployment(model=sparse, accelerator=H100, tensor_parallel=2, expert_parallel=True)
    cost = step_cost(deployment, Step(1, 1))
    assert cost.weight_bytes == 8e9
    least = floor(deployment, cost)
    assert least is not None
    assert least.memory_seconds == pytest.approx(4e9 / 3.35e12)


def test_a_step_without_a_context_reads_no_cache() -> None:
    # Each of two sequences writes one token: 131 072 bytes.
    assert step_cost(on("llama-3.1-8b"), Step(2)).kv_bytes == 2 * 131_072


def test_expert_parallel_ranks_serve_everybodys_tokens() -> None:
    # 8 replicas of 32 sequences: 256 tokens reach 128 experts (1 - (15/16)^256 = 1 - 7e-8); a rank holds 16 of them
    deployment = on("qwen3-30b-a3b", data_parallel=8, expert_parallel=True)
    shared = step_cost(deployment, Step(32, 1024))
    own = step_cost(on("qwen3-30b-a3b", data_parallel=8), Step(32, 1024))  # each rank its own experts, unless said
    each = 48 * 3 * 768 * 2048 * 2
    rest = own.weight_bytes - distinct_experts(128, 8, 32) * each
    assert shared.weight_bytes == pytest.approx(rest + 128 / 8 * each, rel=1e-6)
    assert shared.weight_bytes_low == pytest.approx(rest + 8 / 8 * each)
    # within one replica experts are spread instead of split: the same bytes
    tensor = on("qwen3-30b-a3b", tensor_parallel=4)
    spread = replace(tensor, expert_parallel=True)
    assert step_cost(spread, Step(32, 1024)).weight_bytes == step_cost(tensor, Step(32, 1024)).weight_bytes


def test_a_large_mixture_under_expert_parallelism() -> None:
    # A mixture of DeepSeek-V3's size as figures: 671.0e9 parameters at 1 B, 37.55e9 active, 8 of 256 experts.
    # Shared: 37.55 - 8/256 x routed, routed (671.0 - 37.55) / (1 - 8/256) = 653.9e9, shared 17.1e9.
    # DP 8 + EP 8 with 32 sequences a rank: 17.1 + 653.9 / 8 = 98.9 GB a rank, not 17.1 + 0.638 / 8 x 653.9 = 69.
    model = model_from_mapping({
        "parameters": 671026419200, "active_parameters": 37551820800, "experts": 256, "experts_per_token": 8,
    })  # fmt: skip
    deployment = Deployment(model=model, accelerator=H100, weights="fp8", data_parallel=8, expert_parallel=True)
    assert step_cost(deployment, Step(32, 1024)).weight_bytes == pytest.approx(98.8e9, rel=2e-3)


def test_a_verify_step_and_its_draft() -> None:
    target, draft = named_model("llama-3.1-70b"), named_model("llama-3.2-1b")
    plain = Deployment(model=target, accelerator=H100, tensor_parallel=4)
    verify = step_cost(plain, Step(8, 1000, draft_tokens=3))
    once = step_cost(plain, Step(8, 1000))
    # 8 x 4 tokens: matrices four times, scores at 1000, 1001, 1002 and 1003; weights once, 3 more rows and tokens each
    scores = 4 * 80 * 64 * 128
    assert verify.flops == 8 * (4 * 2 * 69501714432 + scores * (1000 + 1001 + 1002 + 1003))
    assert verify.weight_bytes - once.weight_bytes == 8 * 3 * 8192 * 2
    assert verify.kv_bytes - once.kv_bytes == 8 * 3 * 327680
    # three passes over the draft: its weights (norms on four ranks), its cache, and its FLOPs
    drafted = step_cost(replace(plain, draft=draft), Step(8, 1000, draft_tokens=3))
    norms = 33 * 2048 * 2
    assert drafted.weight_bytes - verify.weight_bytes == 3 * (2 * 1235814400 + 3 * norms)
    assert drafted.kv_bytes - verify.kv_bytes == 3 * 8 * 1001 * 32768
    assert drafted.flops - verify.flops == 3 * 8 * (2 * 1235746816 + 4 * 16 * 32 * 64 * 1000)
    assert drafted.model_flops == verify.model_flops
    # without drafted tokens it costs nothing
    assert step_cost(replace(plain, draft=draft), Step(8, 1000)) == once


def test_verify_tokens_reach_more_experts() -> None:
    deployment = on("qwen3-30b-a3b")
    drafted, batched = (step_cost(deployment, step) for step in (Step(8, 1000, draft_tokens=3), Step(32, 1000)))
    assert drafted.weight_bytes == pytest.approx(batched.weight_bytes)


def test_conventions_of_mfu() -> None:
    deployment = on("llama-3.1-8b")
    step = Step(prefills=(Prefill(4096),))
    assert model_flops(deployment, 100) == 2 * 7504658432 * 100
    exact = replace(deployment, flops="exact")
    assert model_flops(exact, 4096, step) == 61574775570432
    assert model_flops(exact, 2048, step) == 61574775570432 / 2
    with pytest.raises(ValueError, match="which one"):
        model_flops(exact, 100)


def test_figures_of_a_sparse_model() -> None:
    # 100e9, 20e9 active, 2 of 10 experts: routed 80 / 0.8 = 100e9, shared none. One token reads 20e9, many all.
    model = model_from_mapping({
        "parameters": 100e9, "active_parameters": 20e9, "experts": 10, "experts_per_token": 2,
    })  # fmt: skip
    deployment = Deployment(model=model)
    assert step_cost(deployment, Step(1, 0)).weight_bytes == pytest.approx(40e9)
    assert step_cost(deployment, Step(1000, 0)).weight_bytes == pytest.approx(200e9)
    assert step_cost(deployment, Step(1000, 0)).weight_bytes_low == pytest.approx(40e9)
    unknown = model_from_mapping({"parameters": 100e9, "active_parameters": 20e9})
    # without the experts' number a token passes through a fifth of all weights: 1 - 0.8^2 = 36 % for two
    assert step_cost(Deployment(model=unknown), Step(2, 0)).weight_bytes == pytest.approx(72e9)


def test_a_given_size_settles_any_quantisation() -> None:
    model = model_from_mapping({"parameters": 8.03e9, "weight_bytes": "4.92GB", "kv_bytes_per_token": 131072})
    cost = step_cost(Deployment(model=model, weights="bf16"), Step(4, 1000))
    assert cost.weight_bytes == pytest.approx(4.92e9)
    assert cost.kv_bytes == 4 * 1001 * 131072


def test_memory() -> None:
    # 70B on 4 x 80 GB: 141.1 GB and norms 7.9 MB on three more ranks; 0.9 x 320 - 141.1 = 146.9 GB / (4096 x 327680 B)
    fit = memory_fit(on("llama-3.1-70b", tensor_parallel=4), 4096)
    assert fit is not None
    assert fit.weights_fit
    assert fit.weight_bytes == pytest.approx((141107412992 + 3 * 161 * 8192 * 2) / 4)
    assert fit.sequences == pytest.approx((288e9 - 141.115e9) / 1342177280, rel=1e-4)
    whole = memory_fit(on("llama-3.1-70b", tensor_parallel=4), 4096, utilisation=1.0)
    assert whole is not None
    assert whole.sequences == pytest.approx((320e9 - 141.115e9) / 1342177280, rel=1e-4)
    alone = memory_fit(on("llama-3.1-70b"), 4096)
    assert alone is not None
    assert not alone.weights_fit
    assert alone.sequences == 0
    asked_nothing = memory_fit(on("llama-3.1-70b"))
    assert asked_nothing is not None
    assert asked_nothing.sequences is None
    assert memory_fit(Deployment(model=named_model("qwen3-8b"))) is None
    assert memory_fit(Deployment(accelerator=H100)) is None


def test_memory_of_a_draft_of_experts_and_of_a_tied_table() -> None:
    alone, drafted = on("llama-3.1-8b"), replace(on("llama-3.1-8b"), draft=named_model("llama-3.2-1b"))
    first, second = memory_fit(alone, 1000), memory_fit(drafted, 1000)
    assert first is not None
    assert second is not None
    assert second.weight_bytes - first.weight_bytes == 2 * 1235814400
    assert second.sequences == pytest.approx((72e9 - second.weight_bytes) / (1000 * (131072 + 32768)))
    spread = memory_fit(on("qwen3-30b-a3b", data_parallel=4, expert_parallel=True))
    assert spread is not None
    experts = 128 * 48 * 3 * 768 * 2048
    assert spread.weight_bytes == 2 * (30532122624 - experts) + 2 * experts / 4
    piped = memory_fit(on("llama-3.2-1b", pipeline_parallel=2))
    assert piped is not None
    assert piped.replica_bytes == 2 * 1235814400 + 2 * 128256 * 2048  # the table stands at both ends
    assert piped.weight_bytes == piped.replica_bytes / 2 + 2048  # the last stage has the norm before the head


def test_what_is_not_known_gives_no_floor() -> None:
    deployment = on("qwen3-8b", replace(H100, memory_bandwidth_bytes_per_second=None))
    assert floor(deployment, step_cost(deployment, Step(1, 1))) is None
    deployment = replace(on("qwen3-8b"), compute="int8")
    assert floor(deployment, step_cost(deployment, Step(1, 1))) is None
    with pytest.raises(ValueError, match="names none"):
        step_cost(Deployment(), Step(1, 1))


def test_a_step_of_nothing_costs_nothing() -> None:
    cost = step_cost(on("qwen3-8b"), Step())
    assert (cost.flops, cost.bytes) == (0, 0)


SMALL = model_from_config(
    {"model_type": "mistral", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
     "sliding_window": 7, "num_hidden_layers": 3, "intermediate_size": 96, "vocab_size": 50}, "small",
)  # fmt: skip


@given(cached=st.integers(0, 30), tokens=st.integers(1, 30))
def test_scores_of_a_prompt_are_those_of_its_tokens(cached: int, tokens: int) -> None:
    mixer = SMALL.mixers[0]
    one_by_one = sum(mixer.decode_flops(cached + position + 1, 1) for position in range(tokens))
    assert mixer.prompt_flops(cached, tokens) == one_by_one
    assert one_by_one == sum(4 * 3 * 4 * 16 * min(7, cached + position + 1) for position in range(tokens))


@given(
    sequences=st.floats(0, 500), context=st.floats(0, 1e5), drafts=st.floats(0, 5), tokens=st.floats(0, 1e4),
    tensor=st.integers(1, 16), more=st.floats(0, 100), name=st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b"]),
)  # fmt: skip
def test_more_work_never_costs_less(
    sequences: float, context: float, drafts: float, tokens: float, tensor: int, more: float, name: str
) -> None:
    deployment = on(name, tensor_parallel=tensor)
    step = Step(sequences, context, drafts, (Prefill(tokens),))
    cost = step_cost(deployment, step)
    for larger in (replace(step, sequences=sequences + more), replace(step, context=context + more)):
        grown = step_cost(deployment, larger)
        assert grown.flops >= cost.flops
        assert grown.weight_bytes >= cost.weight_bytes * (1 - 1e-12)
        assert grown.kv_bytes >= cost.kv_bytes * (1 - 1e-12)
    assert cost.weight_bytes >= cost.weight_bytes_low
    assert cost.gpus == tensor
