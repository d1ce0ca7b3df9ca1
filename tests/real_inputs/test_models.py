"""Parameters, bytes and FLOPs that people counted twice, or not at all. Expected figures are worked out beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from judging import Judge, Judged

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000,
    "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128,
}  # fmt: skip
DECODE = {"itl": 0.02, "batch": 64, "context": 2048, "output": 2048, "running": 64}
ALONE = {"itl": 1 / 93.83, "batch": 1, "context": 8, "output": 8, "running": 1}


def prompts(tokens: int, seconds: float) -> dict[str, object]:
    """One prompt after the other, each of so many tokens and seconds."""
    return {
        "output": 1, "context": tokens, "prefill": seconds, "queue": 0.0, "front_end": 0.001, "seconds": 120.0,
        "running": 1,
    }  # fmt: skip


def of(
    judge: Judge, config: Mapping[str, object], gpu: str, load: Mapping[str, object], ranks: int = 1, **more: str
) -> Judged:
    """A load of a model with this config.json, judged by a gate on its phase."""
    deployment = {"weights": "bf16", "kv_cache": "bf16"} | {key: more[key] for key in more if key != "flops"}
    given = ", ".join(f"{key}: {value}" for key, value in {"tensor_parallel": ranks, **deployment}.items())
    head = f"gpu: {gpu}\nmodel: config.json\ndeployment: {{{given}}}\n"
    head += f"flops: {more['flops']}" if "flops" in more else ""
    gate = "prefill.mfu >= 1%" if load["output"] == 1 else "decode.mbu >= 1%"
    found = judge(gate, head=head, files={"config.json": json.dumps(config)}, load=load)
    assert found.verdicts == ["pass"], found.text
    return found


def test_experts_that_a_token_does_not_meet_compute_nothing(judge: Judge) -> None:
    # A layer: attention 41,943,040, two of eight experts of 176,160,768 each, router 32,768, norms 8,192.
    layer = 41_943_040 + 2 * 176_160_768 + 32_768 + 8_192
    active = 32 * layer + 4096 + 2 * 32_000 * 4096
    assert active == 12_879_925_248
    found = of(judge, MIXTRAL, "h100", prompts(2048, 2048 / 20_000), ranks=2)
    model = found.window["model"]
    assert (model["parameters"], model["active_parameters"]) == (46_702_792_704, active)
    # 2 x what takes part in products x 20,000 tokens/s / (2 x 989.4e12) = 25.77 %. The input embedding (131,072,000)
    # and the norms are in no product; counted all the same it would read 26.05 %, and with every expert 94.4 %.
    in_products = active - 32_000 * 4096 - 32 * 8192 - 4096
    assert found.value("prefill.mfu") == pytest.approx(2 * in_products * 20_000 / (2 * 989.4e12), rel=5e-3)
    assert found.value("prefill.mfu") < 0.26


@pytest.mark.parametrize("batch", [1, 32])
def test_a_step_reads_the_experts_that_its_tokens_meet(judge: Judge, batch: int) -> None:
    # 8 (1 - (3/4)^n) of 8 experts are met by n tokens on average: 2 by one, 7.9992 by 32.
    load = {"itl": 0.06, "batch": batch, "context": 64, "output": 64, "running": batch}
    found = of(judge, MIXTRAL, "h100", load, ranks=2)
    met = 8 * (1 - 0.75**batch)
    others = 46_702_792_704 - 32_000 * 4096 - 32 * 8 * 176_160_768
    read = 2 * (others + 32 * met * 176_160_768)
    assert found.value("decode.mbu") == pytest.approx(read / (2 * 3.35e12 * 0.06), rel=5e-3)


@pytest.mark.parametrize("tied", [False, True])
def test_an_input_embedding_is_looked_up_and_not_read(judge: Judge, tied: bool) -> None:
    # 8,030,261,248 parameters, of which 525,336,576 embed the input: 2 x 7,504,924,672 B are read in each step,
    # x 93.83 / 2039e9 = 69.07 %, with the embedding 73.9 %. A tied one is the head as well, and read as that.
    found = of(judge, {**LLAMA_8B, "tie_word_embeddings": tied}, "a100-80gb", ALONE)
    assert found.window["model"]["parameters"] == 8_030_261_248 - tied * 525_336_576
    assert found.value("decode.mbu") == pytest.approx(2 * 7_504_924_672 * 93.83 / 2039e9, rel=1e-3)
    assert found.value("decode.mbu") == pytest.approx(0.6907, rel=1e-3)


@pytest.mark.parametrize("convention", ["model", "exact"])
def test_prompts_are_masked(judge: Judge, convention: str) -> None:
    # A prompt of S = 16,384 tokens in 0.6 s: 2 x 6,979,321,856 x S = 228.7 TFLOP in its layers; attention
    # 4 x 32 layers x 32 heads x 128 x S (S + 1) / 2 = 70.4 TFLOP masked, 140.7 over the whole square; the head for the
    # last token only. Of 989.4: 50.4 % exact, 62.2 % with the square.
    size = 16_384
    found = of(judge, LLAMA_8B, "h100", prompts(size, 0.6), flops=convention)
    layers = 2 * (32 * 218_103_808) * size
    masked = 4 * 32 * 32 * 128 * size * (size + 1) / 2
    exact = (layers + masked + 2 * 128_256 * 4096) / 0.6 / 989.4e12
    convention_s = 2 * (32 * 218_103_808 + 128_256 * 4096) * size / 0.6 / 989.4e12
    assert exact == pytest.approx(0.504, rel=2e-3)
    expected = {"model": convention_s, "exact": exact}[convention]
    assert found.value("prefill.mfu") == pytest.approx(expected, rel=2e-3)
    assert {"model": "2 x active parameters", "exact": "causal"}[convention] in found.method("prefill.mfu")


def test_a_cache_is_of_its_own_heads(judge: Judge) -> None:
    # 2 x 32 layers x 8 heads x 128 x 2 B = 131,072 B; by the 32 query heads it would be four times that.
    # 64 sequences of 2,048 tokens: 17.18 GB a step beside 15.01 GB of weights.
    found = of(judge, LLAMA_8B, "h100", DECODE)
    assert found.window["model"]["kv_bytes_per_token"] == 131_072
    read = 2 * 7_504_924_672 + 64 * 2048 * 131_072
    assert found.value("decode.mbu") == pytest.approx(read / (3.35e12 * 0.02), rel=5e-3)


def test_a_head_has_the_size_that_the_file_says(judge: Judge) -> None:
    # head_dim 96 where 4096 / 32 would be 128: 2 x 32 x 8 x 96 x 2 B.
    found = of(judge, {**LLAMA_8B, "head_dim": 96}, "h100", DECODE)
    assert found.window["model"]["kv_bytes_per_token"] == 98_304


def test_a_latent_cache_holds_latents(judge: Judge) -> None:
    # (512 + 64) x 61 layers x 2 B; as keys and values of 128 heads it would be 57 times that.
    load = {"itl": 0.06, "batch": 4, "context": 2048, "output": 2048, "running": 4}
    found = of(judge, DEEPSEEK, "h200", load, ranks=8, weights="fp8")
    assert found.window["model"]["kv_bytes_per_token"] == 70_272


def test_sequences_count_with_their_own_lengths(judge: Judge) -> None:
    # Five of 128 + 1,024 + 2,048 + 4,096 + 8,192 tokens: 15,488 x 131,072 B = 2.030 GB a step, 50 steps/s;
    # each as long as the longest would be 5.369 GB. The mean is 3,097.6.
    load = {"itl": 0.02, "batch": 5, "context": 3097.6, "output": 100, "running": 5}
    found = of(judge, LLAMA_8B, "h100", load)
    assert found.value("decode.context") * 5 * 131_072 == pytest.approx(2.030e9, rel=1e-3)
    read = 2 * 7_504_924_672 + 15_488 * 131_072
    assert found.value("decode.mbu") == pytest.approx(read * 50 / 3.35e12, rel=2e-3)


def test_latent_attention_may_be_bound_by_compute(judge: Judge) -> None:
    # One layer-like kernel does 660 of 989.4 TFLOP/s with 900 of 3,350 GB/s: 733 FLOP/B, beyond a ridge of 295.
    # Written as a model: 512 sequences whose cached tokens each cost so many FLOPs a byte are 2 x parameters x batch.
    step = 0.01
    batch, weights = 512, 0.9e12 * step
    parameters = 660e12 * step / (2 * batch)
    head = (
        f"gpu: h800\nmodel: {{parameters: {parameters:.0f}, weight_bytes: {weights:.0f}, kv_bytes_per_token: 1}}\n"
        "deployment: {tensor_parallel: 1, weights: fp8, compute: bf16}"
    )
    load = {"itl": step, "batch": batch, "context": 1000, "output": 1990, "running": batch}  # prompts of 5 tokens
    found = judge("decode.mbu >= 75%", head=head, load=load)
    assert found.verdicts == ["fail"]
    assert found.value("decode.mfu") == pytest.approx(0.667, rel=3e-3)
    assert found.value("decode.mbu") == pytest.approx(0.2687, rel=3e-3)
    assert found.value("decode.intensity") == pytest.approx(733, rel=3e-3)
    assert found.window["diagnosis"]["regime"] == "compute"
    assert found.window["diagnosis"]["scenario"] != "A"
