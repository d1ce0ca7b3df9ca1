"""Heads, experts and layers that ranks and stages cannot share evenly: the busiest one decides. By hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.cost import costed, floor, memory_fit, step_cost
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import model_from_config, model_from_mapping, model_names, named_model
from pytest_llmroof.roofline.models.layered import stage_ranges
from pytest_llmroof.roofline.split import largest_share, refusal, skew
from pytest_llmroof.roofline.step import Floor, MemoryFit, Prefill, Step

H100 = Accelerator("golden", "golden", {"bf16": 989e12}, 3.35e12, 80e9)

#: Llama 3.1 8B: matrices of a layer, its two norms, a table.
LAYER, NORMS, TABLE = 218103808, 8192, 525336576


def on(name: str, **facts: Any) -> Deployment:
    return Deployment(model=named_model(name), accelerator=H100, **facts)


def floor_of(deployment: Deployment, step: Step) -> Floor:
    found = floor(deployment, step_cost(deployment, step))
    assert found is not None
    return found


def fit_of(deployment: Deployment, context: float | None = None) -> MemoryFit:
    found = memory_fit(deployment, context)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (80, 4, [20, 20, 20, 20]),
        (7, 2, [4, 3]),  # never the last one: it computes the logits
        (10, 4, [2, 3, 3, 2]),  # the middle: the first one holds the embedding
        (61, 4, [15, 15, 16, 15]),
        (11, 4, [3, 3, 3, 2]),
        (5, 1, [5]),
        (3, 3, [1, 1, 1]),
    ],
)
def test_layers_are_dealt_out_as_vllm_does(layers: int, stages: int, sizes: list[int]) -> None:
    assert [len(each) for each in stage_ranges(layers, stages)] == sizes


@given(layers=st.integers(1, 200), stages=st.integers(1, 64))
def test_every_layer_is_in_one_stage(layers: int, stages: int) -> None:
    ranges = stage_ranges(layers, stages)
    assert [layer for each in ranges for layer in each] == list(range(layers))
    sizes = [len(each) for each in ranges]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == min(sizes)


def test_the_last_stage_reads_the_head() -> None:
    deployment = on("llama-3.1-8b", pipeline_parallel=2)
    # 16 layers, the norm before the head and the head; the cache of 16 layers: 100 tokens read, one written
    last = 2 * (16 * (LAYER + NORMS) + 4096 + TABLE)
    cache = 101 * 131072 / 2
    found = floor_of(deployment, Step(1, 100))
    assert found.weights_seconds == pytest.approx(last / 3.35e12, rel=1e-12)
    assert found.kv_seconds == pytest.approx(cache / 3.35e12, rel=1e-12)
    # all that is read is what one GPU would read
    whole, split = step_cost(on("llama-3.1-8b"), Step(1, 100)), step_cost(deployment, Step(1, 100))
    assert (split.weight_bytes, split.kv_bytes, split.flops) == (whole.weight_bytes, whole.kv_bytes, whole.flops)
    # FLOPs of a token that sees 100: half the layers and their attention, and the head
    flops = 2 * (16 * LAYER + TABLE) + 16 * 4 * 32 * 128 * 100
    assert found.compute_seconds == pytest.approx(flops / 989e12, rel=1e-12)


def test_a_chunk_that_ends_no_prompt_leaves_the_stages_alike() -> None:
    deployment = on("llama-3.1-8b", pipeline_parallel=2)
    chunk = Step(prefills=(Prefill(512, logits=0),))
    whole = floor_of(on("llama-3.1-8b"), chunk)
    assert floor_of(deployment, chunk).compute_seconds == pytest.approx(whole.compute_seconds / 2, rel=1e-12)


def test_stages_that_the_layers_do_not_divide_into() -> None:
    # 32 layers on 3 stages: 11, 11, 10. The first holds most: 11 layers and the table; the last reads most: the head.
    deployment = on("llama-3.1-8b", pipeline_parallel=3)
    fit = fit_of(deployment, 1000)
    first = 2 * (11 * (LAYER + NORMS) + TABLE)
    assert fit.weight_bytes == first
    assert fit.replica_bytes == 2 * 8030261248
    # 4096 B of cache a layer and token; the first stage has 11 layers of it, and least room beside its weights
    assert fit.sequences == pytest.approx((72e9 - first) / (1000 * 11 * 4096))
    last = 2 * (10 * (LAYER + NORMS) + 4096 + TABLE)
    assert floor_of(deployment, Step(1, 0)).memory_seconds == pytest.approx((last + 10 * 4096) / 3.35e12, rel=1e-12)


def test_a_stage_that_does_not_fit_leaves_no_sequences() -> None:
    # 70B in 16 bit on two GPUs of 80 GB: 141.1 GB over 160 GB, and 0.9 x 80 GB hold neither 70 GB stage and its cache
    fit = fit_of(on("llama-3.1-70b", pipeline_parallel=2), 4096)
    assert fit.weight_bytes == pytest.approx(2 * (68452360192 / 2 + 1050673152), rel=1e-4)
    assert fit.weights_fit
    assert fit.sequences == pytest.approx((72e9 - fit.weight_bytes) / (4096 * 327680 / 2))


def test_kinds_of_layers_fall_to_the_stages_that_hold_them() -> None:
    # Four layers, the first of a token's window of 8: the stage of the others reads whole contexts.
    config = {
        "model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 4, "intermediate_size": 96, "vocab_size": 50, "sliding_window": 8,
        "use_sliding_window": True, "layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 2,
    }  # fmt: skip
    deployment = Deployment(model=model_from_config(config, "small"), accelerator=H100, pipeline_parallel=2)
    # a layer's token: 2 x 2 heads x 16 x 2 B = 128 B; two layers read 100 of them, and write one
    assert floor_of(deployment, Step(1, 100)).kv_seconds == pytest.approx(2 * 101 * 128 / 3.35e12)


def test_stages_of_figures_are_even() -> None:
    model = model_from_mapping({"parameters": 70e9, "kv_bytes_per_token": 327680, "layers": 7})
    deployment = Deployment(model=model, accelerator=H100, pipeline_parallel=2)
    cost = step_cost(deployment, Step(4, 1000))
    assert cost.busiest is None
    assert cost.weight_bytes == 140e9
    assert cost.kv_bytes == 4 * 1001 * 327680
    assert fit_of(deployment).weight_bytes == 70e9


@pytest.mark.parametrize(("ways", "ranks", "share"), [(8, 4, 1 / 4), (8, 3, 3 / 8), (8, 16, 1 / 8), (1, 4, 1)])
def test_whole_heads(ways: int, ranks: int, share: float) -> None:
    assert largest_share(ways, ranks) == share
    # 3 of 8 are 9/8 of an even third; copies are none of it
    assert skew(ways, ranks) == pytest.approx({3: 9 / 8}.get(ranks, 1.0))


def test_ranks_that_do_not_divide_the_heads() -> None:
    # Qwen2.5 14B: 48 layers, 40 query and 8 key-value heads of 128, hidden 5120. Of 3 ranks one has 14 and 3 of them.
    deployment = on("qwen2.5-14b", tensor_parallel=3)
    cost = step_cost(deployment, Step(1, 999))
    assert cost.busiest is not None
    assert cost.kv_bytes == 1000 * 2 * 48 * 8 * 128 * 2
    assert cost.busiest.kv_bytes == cost.kv_bytes * 3 / 8
    queries, keys = 48 * 2 * 5120 * 5120, 48 * 2 * 1024 * 5120
    others = 48 * 3 * 13824 * 5120 + 152064 * 5120  # feed-forward layers and head
    biases = 48 * (5120 * 14 / 40 + 2 * 1024 * 3 / 8)
    norms, row = 97 * 5120, 5120 / 3
    expected = 2 * (queries * 14 / 40 + keys * 3 / 8 + others / 3 + biases + norms + row)
    assert cost.busiest.weight_bytes == pytest.approx(expected, rel=1e-9)
    flops = 2 * (queries * 14 / 40 + keys * 3 / 8 + others / 3) + 4 * 48 * 40 * 128 * 999 * 14 / 40
    assert cost.busiest.flops == pytest.approx(flops, rel=1e-9)
    fit = fit_of(deployment, 1000)
    assert fit.sequences == pytest.approx((72e9 - fit.weight_bytes) / (1000 * 2 * 48 * 8 * 128 * 2 * 3 / 8))


def test_ranks_that_do_not_divide_the_experts() -> None:
    # 128 experts over 4 x 3 GPUs: 8 of them hold 11, the others 10; a mean of 10.67 would be too little.
    deployment = on("qwen3-30b-a3b", tensor_parallel=4, data_parallel=3, expert_parallel=True)
    each = 48 * 3 * 768 * 2048  # an expert, all layers
    cost = step_cost(deployment, Step(1000, 0))  # enough to reach every one
    assert cost.busiest is not None
    even = step_cost(on("qwen3-30b-a3b", tensor_parallel=4, data_parallel=4, expert_parallel=True), Step(1000, 0))
    assert even.busiest is None
    mean = (cost.weight_bytes - 128 / 3 * each * 2) / 4
    assert cost.busiest.weight_bytes == pytest.approx(mean + 11 * each * 2, rel=1e-9)
    # the rank with 11 of 128 computes 3 x 11 / 128 of what one replica's tokens need of experts
    experts = 2 * 8 * each * 1000
    mean_flops = (cost.flops - experts) / 4
    assert cost.busiest.flops == pytest.approx(mean_flops + experts * 3 * 11 / 128, rel=1e-9)
    assert fit_of(deployment).weight_bytes - fit_of(even_experts()).weight_bytes == pytest.approx(3 * each * 2)


def even_experts() -> Deployment:
    """The same on 16 GPUs: 8 experts on each."""
    return on("qwen3-30b-a3b", tensor_parallel=4, data_parallel=4, expert_parallel=True)


@pytest.mark.parametrize("name", sorted(model_names()))
@pytest.mark.parametrize("stages", [2, 3])
def test_stages_hold_the_whole_model(name: str, stages: int) -> None:
    model = costed(named_model(name))
    held = model.stages(stages)
    assert sum(each.body_parameters for each in held) == model.body_parameters
    assert [each.head_parameters for each in held] == [*[0] * (stages - 1), model.head_parameters]
    tied = not any(part.access == "lookup" and part.rows > 2**14 for part in model.parts("bf16"))
    twice = 2 * model.head_parameters if tied else 0
    assert sum(each.weight_bytes("bf16") for each in held) == pytest.approx(model.weight_bytes("bf16") + twice)
    assert sum(each.kv_bytes_per_token("bf16") for each in held) == model.kv_bytes_per_token("bf16")
    assert sum(each.layers or 0 for each in held) == model.layers
    whole, split = (sum(product.parameters for product in each.products) for each in (model, held[0]))
    assert (whole, split) == (model.body_parameters, held[0].body_parameters)


@pytest.mark.parametrize(
    ("name", "ranks", "words"),
    [
        ("qwen2.5-14b", 3, "its 40 attention heads are no multiple of 3"),
        ("qwen2.5-14b", 5, "its 8 key-value heads can be neither split nor copied evenly"),
        ("qwen2.5-14b", 8, None),
        ("qwen3-30b-a3b", 8, None),  # 4 key-value heads, each on two ranks
        ("deepseek-v3", 16, None),  # one latent, on every rank
    ],
)
def test_what_engines_refuse(name: str, ranks: int, words: str | None) -> None:
    deployment = on(name, tensor_parallel=ranks)
    assert refusal(deployment, "vllm") == refusal(deployment, "sglang") == words
    assert refusal(deployment, "llama-bench") is None
    assert refusal(Deployment(tensor_parallel=ranks), "vllm") is None
