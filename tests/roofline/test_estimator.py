"""vLLM's estimator by hand: small sizes, every term of its formulas once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.estimatedmodel import estimated_model
from pytest_llmroof.roofline.estimator import (
    Batch,
    EstimatedLatent,
    EstimatedModel,
    Parallel,
    Scheduled,
    estimate,
)
from pytest_llmroof.roofline.models import model_from_config, model_from_mapping, named_model

# 2 layers, hidden 8, 4 query heads on 2 of 4 elements each, width 16, vocabulary 32; 2-byte activations and weights
SMALL = EstimatedModel(layers=2, hidden=8, heads=4, kv_heads=2, head_dim=4, vocabulary=32, size=16)
PROMPT = Batch.of([Scheduled(10, 10, prefill=True)])
DECODES = Batch.of([Scheduled(1, 5, prefill=False)] * 3)
ONE = Parallel()


def test_sums_over_requests() -> None:
    batch = Batch.of([Scheduled(10, 30, True), Scheduled(1, 5, False), Scheduled(1, 50, False)], window=20)
    assert (batch.prefill_tokens, batch.decode_tokens, batch.tokens) == (10, 2, 12)
    assert (batch.prefill_context, batch.decode_context) == (30, 55)
    assert batch.product == 10 * 30 + 5 + 50  # no causal halving
    assert batch.logits == 1 + 2
    assert (batch.prefill_context_windowed, batch.decode_context_windowed) == (20, 5 + 20)
    assert batch.product_windowed == 10 * 20 + 5 + 20
    assert Batch.alike(2.5, Scheduled(1, 5, False)).product == 12.5


def test_a_prompt_of_a_dense_model() -> None:
    found = estimate(SMALL, ONE, PROMPT)
    # projections of a layer: q 8 x 16, k and v 8 x 8 each, o 16 x 8: 384; feed-forward 3 x 8 x 16: 384
    products = 2 * 10 * 2 * (384 + 384)
    scores = 2 * (2 * 4 * 4 * 10 * 10) * 2  # q k and p v, 2 n_q d per pair, 2 layers
    head = 2 * 1 * 8 * 32  # one row of logits
    assert found.flops == products + scores + head
    attention_read = 10 * 8 * 2 + 8 * 32 * 2 + (10 * 16 + 2 * 10 * 8) * 2 + 10 * 16 * 2 + 16 * 8 * 2
    dense_read = 2 * 10 * (8 + 3 * 16) + 384 * 2
    assert found.read == 2 * (attention_read + dense_read) + 8 * 2 + 8 * 32 * 2


def test_decodes_read_the_cache_at_its_own_width() -> None:
    wide, narrow = estimate(SMALL, ONE, DECODES), estimate(replace(SMALL, cache_bytes=1.0), ONE, DECODES)
    # 15 tokens of context, keys and values of 8 elements, 2 layers
    assert wide.read - narrow.read == 2 * 15 * 8 * 2
    assert wide.flops == 2 * 3 * 2 * 768 + 4 * 16 * 15 * 2 + 2 * 3 * 8 * 32


def test_tensor_and_pipeline_parallel() -> None:
    whole, halves = estimate(SMALL, ONE, DECODES), estimate(SMALL, Parallel(tensor=2), DECODES)
    assert halves.flops == whole.flops / 2
    # at least one head of keys: with 4 ranks q 8 x 4, k and v 8 x 4 each, o 4 x 8; feed-forward 3 x 8 x 4
    quarters = estimate(SMALL, Parallel(tensor=4), DECODES)
    assert quarters.flops == 2 * 3 * 2 * (32 + 64 + 32 + 96) + 4 * 4 * 15 * 2 + 2 * 3 * 8 * 8
    # the head is billed to every stage
    stages = estimate(SMALL, Parallel(pipeline=2), DECODES)
    assert stages.flops == (whole.flops - 2 * 3 * 8 * 32) / 2 + 2 * 3 * 8 * 32


def test_weights_of_a_byte() -> None:
    two, one = estimate(SMALL, ONE, DECODES), estimate(replace(SMALL, weight_bytes=1.0), ONE, DECODES)
    assert two.read - one.read == 2 * 768  # the head is never quantised
    unknown = estimate(replace(SMALL, weight_bytes=None), ONE, DECODES)
    assert unknown.flops == 2 * 3 * 8 * 32
    assert unknown.read == 3 * 8 * 2 + 8 * 32 * 2


def test_windows() -> None:
    sliding = replace(SMALL, window=4, sliding_layers=1)
    batch = Batch.of([Scheduled(1, 5, prefill=False)] * 3, window=4)
    full, slid = estimate(SMALL, ONE, DECODES), estimate(sliding, ONE, batch)
    assert full.flops - slid.flops == 4 * 16 * (15 - 12)
    assert full.read - slid.read == 2 * (15 - 12) * 8 * 2


def test_a_mixture() -> None:
    moe = replace(SMALL, experts=8, experts_per_token=2, expert_size=4, shared_experts=1, moe_layers=1)
    dense, mixed = estimate(SMALL, ONE, DECODES), estimate(moe, ONE, DECODES)
    rows = 3 * 2
    assert mixed.flops - dense.flops == 6 * 8 * 4 * (rows + 3) - 6 * 8 * 16 * 3
    routed = 2 * rows * (8 + 3 * 4) + 3 * 8 * 4 * 6 * 2  # six rows hit six experts
    shared = 2 * 3 * (8 + 2 * 4 + 4) + 3 * 8 * 4 * 2
    assert mixed.read - dense.read == routed + shared - (2 * 3 * (8 + 3 * 16) + 384 * 2)
    # two ranks of experts: half of the rows, which hit three of the four experts here
    split = estimate(moe, Parallel(data=2, experts=True), DECODES)
    assert mixed.flops - split.flops == 6 * 8 * 4 * 3


def test_latent_attention() -> None:
    sizes = EstimatedLatent(latent=6, rope=2, nope=4, value=3, query_rank=5)
    latent, batch = replace(SMALL, latent=sizes), DECODES
    # q 8 x 5 + 5 x 4 x 6, kv_a 8 x 8, kv_b 6 x 4 x 7, o 4 x 3 x 8
    matrices = 40 + 120 + 64 + 168 + 96
    head, dense = 2 * 3 * 8 * 32, 6 * 8 * 16 * 3
    found = estimate(latent, ONE, batch)
    assert found.flops == 2 * (2 * 3 * matrices + 2 * 4 * 15 * (6 + 3)) + 2 * dense + head
    inputs = 8 + 5 + 8 + 6 + 12
    read = 2 * matrices + 2 * 3 * inputs + 2 * 3 * 4 * 6 + 2 * 15 * 8
    assert found.read == 2 * (read + 2 * 3 * (8 + 48) + 768) + 3 * 8 * 2 + 8 * 32 * 2
    whole = estimate(replace(latent, latent=replace(sizes, query_rank=None)), ONE, batch)
    assert found.flops - whole.flops == 2 * 2 * 3 * (160 - 8 * 4 * 6)


# What a config of each kind is in the estimator's terms.


def of(name: str, **changes: Any) -> EstimatedModel:
    found = estimated_model(replace(Deployment(model=named_model(name)), **changes))
    assert found is not None
    return found.model


def test_sizes_of_catalogue_models() -> None:
    llama = of("llama-3.1-8b", weights="fp8", kv_cache="fp8")
    assert (llama.layers, llama.hidden, llama.heads, llama.kv_heads, llama.head_dim) == (32, 4096, 32, 8, 128)
    assert (llama.vocabulary, llama.size, llama.weight_bytes, llama.cache_bytes) == (128256, 14336, 1.0, 1.0)
    mixtral = of("mixtral-8x7b")
    assert (mixtral.experts, mixtral.experts_per_token, mixtral.expert_size, mixtral.moe_layers) == (8, 2, 14336, 32)
    assert mixtral.shared_experts == 0
    deepseek = of("deepseek-v3", weights="fp8")
    assert deepseek.latent == EstimatedLatent(latent=512, rope=64, nope=128, value=128, query_rank=1536)
    assert (deepseek.size, deepseek.expert_size, deepseek.moe_layers, deepseek.shared_experts) == (18432, 2048, 58, 1)
    gemma = of("gemma-2-9b")
    assert (gemma.window, gemma.sliding_layers) == (4096, 21)


def test_a_prompt_of_2048_tokens_as_vllm_counts_it() -> None:
    """Llama 3.1 8B: 3.079e13, where 2 P T says 3.29e13."""
    found = estimate(of("llama-3.1-8b"), ONE, Batch.of([Scheduled(2048, 2048, prefill=True)]))
    linear = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    assert found.flops == 2 * 2048 * linear + 4 * 4096 * 2048**2 * 32 + 2 * 4096 * 128256 == 30_787_376_250_880


SMALL_CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip


@pytest.mark.parametrize(
    ("block", "weights", "each", "known"),
    [
        ({"quant_method": "fp8"}, "fp8", 1, True),
        ({"quant_method": "awq", "bits": 4}, "w4a16", 0.5, True),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", 1, True),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 0.5, True),
        # a listing of every layer is none of the methods that it knows
        (
            {"quant_method": "modelopt_mixed", "quant_algo": "MIXED_PRECISION",
             "quantized_layers": {"lm_head": {"quant_algo": "FP8"}}},
            "fp8", None, False,
        ),
        (
            {"quant_method": "compressed-tensors",
             "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}}},
            "fp8", 0.5, False,
        ),
    ],
)  # fmt: skip
def test_bytes_of_a_weight(block: dict[str, Any], weights: str, each: float | None, known: bool) -> None:
    model = model_from_config({**SMALL_CONFIG, "quantization_config": block}, "small")
    found = estimated_model(Deployment(model=model, weights=weights))
    assert found is not None
    assert (found.model.weight_bytes, found.bytes_known) == (each, known)


def test_what_cannot_be_compared() -> None:
    assert estimated_model(Deployment()) is None
    assert estimated_model(Deployment(model=model_from_mapping({"parameters": 8e9}))) is None
