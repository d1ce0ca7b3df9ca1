"""Remedies: every effect again by hand, on a dense and a mixture-of-experts deployment, and who is offered what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_facts import (
    H100_BANDWIDTH,
    decoding,
    exactly,
    llama_8b,
    llama_70b,
    mixtral,
    prefilling,
    window,
)

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.diagnosis import Remedy
from pytest_llmroof.analysis.effects_bytes import (
    fp8_weights,
    larger_batch,
    no_ridge,
    ridge_batch,
    smaller_cache,
    speculation,
)
from pytest_llmroof.analysis.effects_compute import chunk_tokens
from pytest_llmroof.analysis.facts import PrefillFacts, WindowFacts
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.remedies import EFFECTS, remedies
from pytest_llmroof.analysis.scenarios import LETTERS, scenarios
from pytest_llmroof.analysis.situation import Situation, durations, numbers
from pytest_llmroof.data import load
from pytest_llmroof.roofline.catalogue import accelerator
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models.figures import Figures
from pytest_llmroof.roofline.step import Prefill, Step
from pytest_llmroof.units import grouped

H100_BF16, H100_FP8 = 989.4e12, 1978.9e12
ETA_MEMORY, ETA_BF16, ETA_FP8 = 0.860, 0.771, 0.557

# Mixtral 8x7B: 32 layers x 8 experts x 3 x 4 096 x 14 336 parameters, and the rest without the input embedding.
EXPERTS = 32 * 8 * 3 * 4096 * 14_336  # 45.10e9
OTHERS = 46_702_792_704 - EXPERTS - 32_000 * 4096  # 1.47e9


def offered(
    scenario: str,
    facts: WindowFacts,
    observed: Observed | None = None,
    tpot_limit_seconds: float | None = None,
) -> dict[str, Remedy]:
    split = attribute(facts, {}, observed)
    found = remedies(scenario, facts, split, observed=observed, tpot_limit_seconds=tpot_limit_seconds)
    return {remedy.title: remedy for remedy in found}


def span(remedy: Remedy) -> tuple[float, float]:
    assert remedy.low is not None
    assert remedy.high is not None
    return remedy.low, remedy.high


# A: the dense deployment is Llama 3.1 70B, TP 4, batch 12.4 at 1 480 tokens, in a step of 13.4 ms.
# f = 10.82 ms, o = f / 0.860 - f = 1.762 ms of kernel ceiling; of the 160 x 8.8465 us = 1.415 ms that communication is
# estimated to take only 13.4 - 10.82 - 1.762 = 0.815 ms fit into the step.
DENSE = decoding(llama_70b(), 0.0134)
KV = 12.4 * 1481 * 327_680  # 6.018 GB
F, X = (139.0142e9 + KV) / (4 * H100_BANDWIDTH), 160 * 8.8465e-6
REST = F / ETA_MEMORY - F
FITS = 0.0134 - F - REST


def ranged(new_floor: float, floor: float, rest: float, fixed: float) -> tuple[float, float]:
    low, high = sorted((new_floor * (1 + rest / floor) + fixed, new_floor + rest + fixed))
    return low, high


def test_a_fp8_weights() -> None:
    remedy = offered("A", DENSE)["Quantise the weights to FP8"]
    # 69 503 033 344 parameters are read; the output head's 1 050 673 152 stay in 16 bit, norms too: 70.55 GB,
    # and 6.02 GB of cache: 76.6 GB, 5.71 ms.
    after = ((69_503_033_344 - 1_050_673_152) + 2 * 1_050_673_152 + KV) / (4 * H100_BANDWIDTH)
    assert span(remedy) == pytest.approx(ranged(after, F, REST, FITS), rel=2e-3)
    assert "145.0 -> 76.6 GB read per step, floor 10.8 -> 5.7 ms" in remedy.detail
    assert remedy.metric == "decode.step_time"
    # It moves MBU for the worse: 5.71 ms of floor in 7.5 to 8.3 ms.
    low, high = span(remedy)
    assert f"decode MBU then {after / high * 100:.0f} .. {after / low * 100:.0f} %" in remedy.effect


def test_a_four_bit_weights_keep_the_compute_roof() -> None:
    remedy = offered("A", DENSE)["Quantise the weights to 4 bits (AWQ, GPTQ)"]
    low, high = span(remedy)
    assert low < span(offered("A", DENSE)["Quantise the weights to FP8"])[0]
    assert low < high < 0.0134
    assert "in 16" in remedy.detail


def test_a_fp8_cache_comes_first_where_it_is_the_larger_part() -> None:
    # 8B, 128 sequences at 4 000 tokens: 67.1 GB of cache beside 15.0 GB of weights; 24.5 ms of floor in 30 ms.
    facts = decoding(llama_8b(), 0.030, batch=128, context=4000)
    titles = list(offered("A", facts))
    assert titles.index("Keep the KV cache in FP8") < titles.index("Quantise the weights to FP8")
    weights, cache = 15.0097e9, 128 * 4001 * 131_072
    floor = (weights + cache) / H100_BANDWIDTH
    after = (weights + cache / 2) / H100_BANDWIDTH
    assert span(offered("A", facts)["Keep the KV cache in FP8"]) == pytest.approx(
        ranged(after, floor, 0.030 - floor, 0.0), rel=1e-3
    )
    dense = list(offered("A", DENSE))
    assert "Keep the KV cache in FP8" not in dense  # 3.0 of 145.0 GB: 1.7 % of the step


def test_a_another_model_is_last() -> None:
    facts = decoding(llama_8b(), 0.030, batch=128, context=4000)
    titles = list(offered("A", facts))
    assert titles[-1] == "Choose a model with a smaller KV cache"
    remedy = offered("A", facts)[titles[-1]]
    assert remedy.high == pytest.approx(0.030)
    assert "82 %" in remedy.detail  # 67.1 of 82.1 GB


def test_a_larger_batch_up_to_what_memory_holds() -> None:
    remedy = offered("A", DENSE)["Run larger batches"]
    # (4 x 80 GB x 0.9 - 141.1 GB) / (1 480 x 327 680 B) = 302.8 sequences.
    batch = (4 * 80e9 * 0.9 - 141.1155e9) / (1480 * 327_680)
    assert "about 303" in remedy.detail
    # 302.8 x 1 481 x 327 680 B = 146.9 GB of cache: floor 21.3 ms; tokens/s = B' / T(B').
    after = (139.0142e9 + batch * 1481 * 327_680) / (4 * H100_BANDWIDTH)
    low, high = ranged(after, F, REST, FITS)
    assert span(remedy) == pytest.approx((batch / high, batch / low), rel=2e-3)
    assert remedy.metric == "output.tokens_per_second"


def test_a_larger_batch_up_to_the_latency_limit() -> None:
    remedy = offered("A", DENSE, tpot_limit_seconds=0.016)["Run larger batches"]
    # 16 ms at the slower end, f' (1 + o / f) + x: f' = (16 - 0.815) / (1 + 1.762 / 10.82) = 13.06 ms, 175.0 GB, 74.
    floor = (0.016 - FITS) / (1 + REST / F)
    batch = (floor * 4 * H100_BANDWIDTH - 139.0142e9) / (1481 * 327_680)
    assert f"about {batch:.0f}" in remedy.detail
    assert "limit" in remedy.detail


def test_a_larger_batch_keeps_the_latency_limit_at_its_slower_end() -> None:
    # At the 303 sequences that memory holds a step takes 23.8 to 25.5 ms: 24.5 ms ask for fewer.
    # f' = (24.5 - 0.815) / (1 + 1.762 / 10.82) = 20.37 ms, 273.0 GB: 276 sequences.
    remedy = offered("A", DENSE, tpot_limit_seconds=0.0245)["Run larger batches"]
    batch = ((0.0245 - FITS) / (1 + REST / F) * 4 * H100_BANDWIDTH - 139.0142e9) / (1481 * 327_680)
    assert f"about {batch:.0f}" in remedy.detail
    # 26 ms ask for none: memory is what limits. 1 480 tokens are 142.9 GFLOP on 485.3 MB: 294.5 FLOP/B, of 295.3.
    lenient = offered("A", DENSE, tpot_limit_seconds=0.026)["Run larger batches"]
    assert lenient.detail.endswith(
        " Memory allows 303 sequences of 1480 tok in each replica; no batch reaches the ridge at this context (the "
        "intensity tends to 294 FLOP/B)."
    )


def test_a_larger_batch_of_several_tokens_a_step_has_as_much_more_time() -> None:
    # Two tokens a step: a limit of 8 ms for each leaves the step of 16 ms that a limit of 16 ms leaves with one.
    assert DENSE.decode is not None
    two = replace(DENSE, decode=replace(DENSE.decode, tokens_per_step=2.0))
    found = offered("A", two, tpot_limit_seconds=0.008)["Run larger batches"]
    one = offered("A", DENSE, tpot_limit_seconds=0.016)["Run larger batches"]
    assert found.detail == one.detail
    # And its time per output token is half of the step's.
    drafts = speculation(Situation(two, attribute(two, {})))
    assert drafts is not None
    assert drafts.text.startswith("time per output token 6.70 ms toward ")


def test_a_larger_batch_up_to_the_ridge() -> None:
    # 8B at 100 tokens: 15.01 GB / ((15.01 + 0.05 GFLOP) / 295.3 - 101 x 131 072 B) = 15.01 / 0.03776 = 397.5 sequences;
    # memory holds (72 - 16.06 GB) / 13.1 MB = 4 268.
    batch = ridge_batch(llama_8b(), Step(16, 100))
    assert batch == pytest.approx(397.5, rel=1e-3)
    remedy = offered("A", decoding(llama_8b(), 0.0060, batch=16, context=100))["Run larger batches"]
    assert remedy.detail.endswith(
        f"(about {batch:.0f}), or send the traffic to fewer replicas. At {batch:.0f} sequences arithmetic becomes the "
        "limit."
    )


def test_a_throughput_that_nothing_counted_is_that_of_the_steps() -> None:
    # 12.4 sequences of two tokens each 13.4 ms in three replicas: 5 552 tok/s; counted are 925.
    assert DENSE.decode is not None
    facts = replace(DENSE, deployment=llama_70b(data_parallel=3), decode=replace(DENSE.decode, tokens_per_step=2.0))
    for lacking in (replace(facts, generated_tokens=None), replace(facts, duration_seconds=None)):
        found = larger_batch(Situation(lacking, attribute(facts, {})))
        assert found is not None
        assert found.text.startswith(f"{grouped(3 * 2 * 12.4 / 0.0134)} tok/s toward ")
    counted = larger_batch(Situation(facts, attribute(facts, {})))
    assert counted is not None
    assert counted.text.startswith("925 tok/s toward ")


def test_a_draft_of_a_model_of_unknown_layers_takes_no_time() -> None:
    model = Figures("mine", 70e9, 70e9, 70e9, given_weight_bytes=139e9, given_kv_bytes_per_token=327_680)
    facts = decoding(llama_70b(model=model), 0.0134)
    floor = (139e9 + 12.4 * 1481 * 327_680) / (4 * H100_BANDWIDTH)
    verify = (139e9 + 12.4 * 1484 * 327_680) / (4 * H100_BANDWIDTH)
    split = attribute(facts, {})
    assert split is not None
    rest = split.seconds * split.share("kernel ceiling", "not attributed")
    low, high = ranged(verify, floor, rest, 0.0134 - floor - rest)
    found = speculation(Situation(facts, split))
    assert found is not None
    assert found.low == pytest.approx(low / 2.952, rel=1e-3)
    assert found.high == pytest.approx(high / 2.176, rel=1e-3)


def test_a_model_without_a_cache_has_no_smaller_one() -> None:
    model = Figures("mine", 70e9, 70e9, 70e9, given_weight_bytes=139e9, layers=80)
    facts = decoding(llama_70b(model=model), 0.0134)
    assert smaller_cache(Situation(facts, attribute(facts, {}))) is None


def test_a_what_moves_most_stands_first_by_the_middle_of_its_range() -> None:
    here = Situation(DENSE, attribute(DENSE, {}))
    drafts, batches, weights = speculation(here), larger_batch(here), fp8_weights(here)
    assert drafts is not None
    assert batches is not None
    assert weights is not None
    # (13.4 ms - the middle) / 13.4 ms of times, (the middle - now) / now of rates: 12.4 sequences in 13.4 ms, 925 tok/s
    for effect, now, sign in ((drafts, 0.0134, 1), (batches, 12.4 / 0.0134, -1), (weights, 0.0134, 1)):
        assert effect.low is not None
        assert effect.high is not None
        assert effect.gain == pytest.approx(sign * (now - (effect.low + effect.high) / 2) / now)


def test_a_no_larger_batch_where_memory_is_full() -> None:
    facts = decoding(llama_70b(tensor_parallel=2), 0.030, batch=30, context=1000)
    # 2 x 72 GB - 141.1 GB = 2.9 GB hold 8 sequences of 1 000 tokens.
    assert "Run larger batches" not in offered("A", facts)
    # Of four GPUs' 302.8 sequences 290 run: a tenth more, 319, does not fit; of 270 (297) it does.
    assert "Run larger batches" not in offered("A", decoding(llama_70b(), 0.030, batch=290))
    assert "Run larger batches" in offered("A", decoding(llama_70b(), 0.030, batch=270))


def test_the_ridge_batch() -> None:
    # 70B at 4 096 tokens: 149.7 GFLOP per token on 1.342 GB of cache: the intensity tends to 112 FLOP/B, never 295.
    assert ridge_batch(llama_70b(), Step(1, 4096)) is None
    note = no_ridge(Situation(DENSE, None), Step(1, 4096))
    assert note is not None
    assert "tends to 112 FLOP/B" in note
    # At 100 tokens: 139.0 GB / (139.3 GFLOP / 295.3 - 33.1 MB) = 317 sequences.
    per_token = 2 * 69_502_000_000 + 80 * 64 * 128 * 4 * 101
    expected = 139.0142e9 / (per_token / (H100_BF16 / H100_BANDWIDTH) - 101 * 327_680)
    assert ridge_batch(llama_70b(), Step(1, 100)) == pytest.approx(expected, rel=2e-2)


def test_a_speculation() -> None:
    remedy = offered("A", DENSE)["Speculative decoding"]
    # Verifying 3 drafts: the same weights, 3 more tokens written per sequence (12 MB): floor as before.
    verify = (139.0142e9 + KV + 12.4 * 3 * 327_680) / (4 * H100_BANDWIDTH)
    # A draft pass: 1 of 80 layers (68.45e9 / 80) and the head (1.05e9), 2 B each, over 4 GPUs: 0.285 ms.
    draft = 2 * (68.452e9 / 80 + 1.0507e9) / (4 * H100_BANDWIDTH)
    # m = 1 + a + a^2 + a^3: 2.176 at 60 %, 2.952 at 80 %.
    low, high = ranged(verify, F, REST, FITS)
    expected = ((low + 3 * draft) / 2.952, (high + 3 * draft * 0.0134 / F) / 2.176)
    assert span(remedy) == pytest.approx(expected, rel=5e-3)
    assert remedy.metric == "tpot.mean"
    assert "2.2 to 3.0 tokens per pass at an acceptance of 60 % to 80 %" in remedy.detail


def test_a_on_a_mixture_of_experts() -> None:
    # Mixtral, TP 2, batch 16 at 1 000 tokens: 8 (1 - 0.75^16) = 7.92 experts of each layer.
    hit = 1 - 0.75**16
    cache = 16 * 1001 * 131_072
    floor = (2 * (OTHERS + EXPERTS * hit) + cache) / (2 * H100_BANDWIDTH)  # 14.1 ms
    facts = decoding(mixtral(), floor / 0.80, batch=16, context=1000)
    # 64 all-reduces of 131 072 B: 8 us + 131 072 / 360e9 each, 0.54 ms; all of it fits beside the kernel ceiling.
    transport = 64 * (8e-6 + 131_072 / 360e9)
    rest = floor / 0.80 - floor - transport
    assert rest > floor / ETA_MEMORY - floor
    found = offered("A", facts)
    # FP8: everything but the head (131 072 000) in one byte; routers and norms (0.02 %) stay.
    head = 32_000 * 4096
    after = (OTHERS - head + 2 * head + EXPERTS * hit + cache) / (2 * H100_BANDWIDTH)
    assert span(found["Quantise the weights to FP8"]) == pytest.approx(ranged(after, floor, rest, transport), rel=3e-3)
    # Verifying 3 drafts of 16 sequences reaches all experts: 64 tokens, 8 (1 - 0.75^64) = 8.00.
    verify = (2 * (OTHERS + EXPERTS * (1 - 0.75**64)) + cache) / (2 * H100_BANDWIDTH)
    low, _ = ranged(verify, floor, rest, transport)
    draft = 2 * (12.749e9 / 32 + head) / (2 * H100_BANDWIDTH)
    assert found["Speculative decoding"].low == pytest.approx((low + 3 * draft) / 2.952, rel=1e-2)


def test_a_does_not_offer_what_is_there_already() -> None:
    quantised = decoding(llama_70b(weights="w4a16", kv_cache="fp8", compute="bf16", speculative_tokens=3), 0.0060)
    titles = set(offered("A", quantised))
    assert not titles & {"Quantise the weights to FP8", "Quantise the weights to 4 bits (AWQ, GPTQ)",
                         "Keep the KV cache in FP8", "Speculative decoding"}  # fmt: skip


def test_a_offers_int8_where_there_is_no_fp8() -> None:
    on_a100 = decoding(llama_70b(accelerator=accelerator("a100")), 0.022)
    titles = set(offered("A", on_a100))
    assert "Quantise the weights to 8 bits" in titles
    assert "Quantise the weights to FP8" not in titles


def test_a_given_size_of_weights_is_not_quantised() -> None:
    model = Figures("mine", 70e9, 70e9, 70e9, given_weight_bytes=140e9, given_kv_bytes_per_token=327_680, layers=80)
    facts = decoding(llama_70b(model=model), 0.0134)
    assert not any(title.startswith("Quantise") for title in offered("A", facts))


# B


def test_b_chunks_keep_a_step_at_the_ridge() -> None:
    assert chunk_tokens(llama_70b()) == pytest.approx(295.3, abs=0.1)
    # Mixtral: 295.3 x 2 B / 2 x 8 / 2.
    assert chunk_tokens(mixtral()) == pytest.approx(1181.4, abs=0.5)
    # DeepSeek-V3 in FP8: 590.7 x 1 B / 2 x 256 / 8.
    model = Figures("deepseek-v3", 671e9, 37e9, 37e9, experts=256, experts_per_token=8)
    fp8 = Deployment(model, accelerator("h100"), weights="fp8", compute="fp8")
    assert chunk_tokens(fp8) == pytest.approx(9451, abs=1)


def test_b_chunked_prefill_shortens_steps_with_prompts() -> None:
    facts = decoding(llama_70b(), 0.0262, interleaved=0.004, phase="mixed")
    held = Step(prefills=(Prefill(2048.0, logits=0.0),))
    facts = replace(facts, prefill=PrefillFacts(exactly(100_000.0), 100.0, exactly(49.0), False, held))
    remedy = offered("B", facts)["Chunk the prefill"]
    assert "about 295 prompt tokens" in remedy.detail
    assert "The time to the first token does not fall" in remedy.detail
    # 2 048 tokens: 280 TFLOP / (4 x 989.4) = 72 ms of floor; 295: 10.9 ms of arithmetic, 10.8 ms of memory.
    assert remedy.high is not None
    assert remedy.high < 0.03
    short = Step(prefills=(Prefill(200.0),))
    small = replace(facts, prefill=PrefillFacts(exactly(1.0), 1.0, exactly(1.0), False, short))
    assert "Chunk the prefill" not in offered("B", small)


def test_b_disaggregation_takes_prefill_out_of_the_step() -> None:
    facts = decoding(llama_70b(), 0.0262, interleaved=0.004, phase="mixed")
    assert span(offered("B", facts)["Serve prefill and decode on GPUs of their own"]) == pytest.approx((0.0222, 0.0222))
    assert "Serve prefill and decode on GPUs of their own" not in offered("B", DENSE)


# Prefill: 100 prompts of 4 096 tokens on the 8B, 61.575 TFLOP each, in 11.53 s (54.0 % of the peak).
PREFILL = prefilling(llama_8b(), 4096, 100, 11.53)
FLOPS = 61_574_775_570_432
ATTENTION = 4 * 32 * 128 * 32 * 4096 * 4097 / 2  # causal scores and sums: 4.40 TFLOP, 7.1 %
COMPUTE = FLOPS / H100_BF16 * 100


def test_b_fp8_gemms() -> None:
    remedy = offered("B", PREFILL)["Compute in FP8"]
    share = ATTENTION / FLOPS
    # Linear layers on 1 978.9 x 0.557 in place of 989.4 x 0.771 TFLOP/s: 1.445 times as fast; all of it 1.40.
    before = COMPUTE / ETA_BF16
    after = before * (share + (1 - share) * H100_BF16 * ETA_BF16 / (H100_FP8 * ETA_FP8))
    assert span(remedy) == pytest.approx((11.53 * after / before, 11.53 - before + after), rel=2e-3)
    assert "about 1.4 times as fast" in remedy.detail
    # MFU of 53.9 % (2 P_a per token) against twice the peak, 1.27 times as fast: the value reads lower.
    mfu = 2 * 7.5049e9 * 4096 * 100 / H100_BF16 / 11.53
    then = mfu * H100_BF16 / H100_FP8 * 11.53 / (sum(span(remedy)) / 2)
    assert f"{mfu * 100:.0f} -> {then * 100:.0f} %" in remedy.detail


def test_b_attention_kernels() -> None:
    remedy = offered("B", PREFILL)["Use FlashAttention-3 or FlashInfer"]
    floor = COMPUTE * ATTENTION / FLOPS
    # From 35 % of the peak to 55 .. 70 %.
    low, high = (11.53 - floor * (1 / 0.35 - 1 / after) for after in (0.70, 0.55))
    assert span(remedy) == pytest.approx((low, high), rel=1e-3)
    assert "7.1 % of the arithmetic" in remedy.detail


def test_b_attention_kernels_are_not_offered_where_they_run() -> None:
    seen = Observed("trace", modern_attention=True)
    assert "Use FlashAttention-3 or FlashInfer" not in offered("B", PREFILL, seen)
    # 32 000 tokens: attention is 38 % of the arithmetic. At 35 % of the peak it would take longer than was measured.
    long = prefilling(llama_8b(), 32_000, 10, 9.7)
    assert "Use FlashAttention-3 or FlashInfer" not in offered("B", long)


def test_b_prefix_caching_has_no_figure_before_it_is_tried() -> None:
    remedy = offered("B", PREFILL)["Share prompts' prefixes"]
    assert (remedy.metric, remedy.low, remedy.high) == (None, None, None)
    # The work without the front: all of 11.53 s, a tenth of it.
    assert remedy.effect == "each tenth of the prompt tokens that is shared saves 1.15 s of 11.5 s"


# C, D, F: 26.2 ms with 34 % exposed communication and 4 % idle.
SEEN = Observed("trace", transport=0.34, idle_within=0.03, idle_between=0.01)
STALLED = decoding(llama_70b(), 0.0262)


def test_c_inside_the_nvlink_domain() -> None:
    remedy = offered("C", STALLED, SEEN)["Keep tensor parallelism inside the NVLink domain"]
    # 26.2 x (1 - 0.34) = 17.29 ms, and with the 1.42 ms that NVLink takes 18.71 ms.
    assert span(remedy) == pytest.approx((0.0262 * 0.66, 0.0262 * 0.66 + X), rel=1e-4)
    assert remedy.effect == "step 26.2 ms toward 17.3 .. 18.7 ms"


def test_c_fused_all_reduce() -> None:
    remedy = offered("C", STALLED, SEEN)["Fused or custom all-reduce"]
    # 160 x (8 us + 0.8465 us) up to 160 x (20 us + 0.8465 us) in place of 8.91 ms.
    assert span(remedy) == pytest.approx((0.0262 * 0.66 + X, 0.0262 * 0.66 + 160 * 20.8465e-6), rel=1e-4)


def test_c_lower_degree_over_pcie() -> None:
    # 8B over 4 GPUs on PCIe: 80 % of 15 ms are communication. TP 2 keeps 98 % of it: 64 x 31.3 us of 64 x 31.9 us.
    facts = decoding(llama_8b(tensor_parallel=4, interconnect="pcie"), 0.015, batch=8, context=1000)
    seen = Observed("trace", transport=0.80, idle_within=0.02)
    remedy = offered("C", facts, seen)["Lower the tensor-parallel degree"]
    assert remedy.detail.startswith("TP 4 -> 1:")
    floor = facts.decode.floor.seconds if facts.decode and facts.decode.floor else 0.0
    rest = 0.015 * 0.18 - floor
    # f t / t' = 4 f, no transport at all, idle stays: 0.3 ms. Kernels reach 86 % of the roof of one GPU, too.
    slow = rest - floor * (1 / ETA_MEMORY - 1)
    low, high = 4 * floor / ETA_MEMORY + slow, 4 * (floor + rest)
    assert span(remedy) == pytest.approx((low + 0.015 * 0.02, high + 0.015 * 0.02), rel=5e-3)


def test_c_at_most_a_lower_degree_reaches_what_kernels_reach() -> None:
    # 8B on one GPU, said to be eight: 15.01 GB of weights and 8 x 1 001 x 131 072 bytes of cache, 16.06 GB in 4.79 ms
    # at 3.35 TB/s; no kernel reads them faster than at 86 % of that, in 5.57 ms.
    facts = decoding(llama_8b(tensor_parallel=8), 0.006, batch=8, context=1000)
    (remedy,) = [one for one in remedies("C or D", facts, attribute(facts, {})) if one.title.startswith("Lower")]
    assert remedy.detail.startswith("TP 8 -> 1:")
    assert span(remedy)[0] == pytest.approx(16.06e9 / H100_BANDWIDTH / ETA_MEMORY, rel=2e-3)


def test_c_a_degree_that_does_not_fit_is_not_offered() -> None:
    # 141 GB on 2 GPUs leave no room for 12.4 sequences; on 1 they do not fit at all.
    assert "Lower the tensor-parallel degree" not in offered("C", STALLED, SEEN)


def test_c_pipeline_across_nodes() -> None:
    facts = decoding(llama_70b(tensor_parallel=16), 0.0100)
    seen = Observed("trace", transport=0.5, idle_within=0.02)
    found = offered("C", facts, seen)
    remedy = found["Pipeline parallelism across nodes"]
    assert remedy.detail.startswith("TP 8 inside a node and PP 2 across nodes")
    # Now: 160 x (20 us + 2 x 15/16 x 203 162 B / 40 GB/s) = 4.72 ms estimated.
    # Then: 80 x (8 us + 2 x 7/8 x 203 162 / 360e9) + half a hand-over of 20 us + 203 162 / 40e9 = 0.731 ms.
    now = 160 * (20e-6 + 1.875 * 203_161.6 / 40e9)
    then = 80 * (8e-6 + 1.75 * 203_161.6 / 360e9) + 0.5 * (20e-6 + 203_161.6 / 40e9)
    expected = 0.010 * 0.5 + 0.010 * 0.5 * then / now
    assert span(remedy) == pytest.approx((expected, expected), rel=1e-3)
    assert "Keep tensor parallelism inside the NVLink domain" not in found


def test_c_experts_across_nodes() -> None:
    facts = decoding(mixtral(tensor_parallel=16), 0.0100, batch=256, context=500)
    seen = Observed("trace", transport=0.5, idle_within=0.02)
    assert "Expert parallelism across nodes" in offered("C", facts, seen)
    dense = decoding(llama_70b(tensor_parallel=16), 0.0100)
    assert "Expert parallelism across nodes" not in offered("C", dense, seen)


def test_d_idle_time_goes() -> None:
    seen = Observed("trace", transport=0.05, idle_within=0.25, idle_between=0.10)
    found = offered("D", STALLED, seen)
    assert span(found["Capture decode steps in CUDA graphs"]) == pytest.approx((0.0262 * 0.75, 0.0262 * 0.75))
    assert span(found["Schedule while the GPU works"]) == pytest.approx((0.0262 * 0.90, 0.0262 * 0.90))


def test_d_what_moves_less_than_three_per_cent_is_not_offered() -> None:
    seen = Observed("trace", transport=0.05, idle_within=0.25, idle_between=0.02)
    assert list(offered("D", STALLED, seen)) == ["Capture decode steps in CUDA graphs"]


def test_f_slow_kernels_go() -> None:
    seen = Observed("trace", transport=0.06, idle_within=0.02)
    slow = 0.0262 * 0.92 - F / ETA_MEMORY
    found = offered("F", STALLED, seen)
    assert list(found) == ["Fuse and compile kernels"]
    assert span(found["Fuse and compile kernels"]) == pytest.approx((0.0262 - slow, 0.0262 - slow), rel=1e-3)
    assert "Tune the experts' kernels" in offered("F", decoding(mixtral(), 0.05, 16, 1000), seen)
    assert "Use tuned kernels for the quantised layers" in offered("F", decoding(llama_70b(weights="fp8"), 0.05), seen)


def test_c_or_d_offers_both_as_upper_bounds() -> None:
    found = offered("C or D", STALLED)
    # 26.2 - 10.82 - 1.76 - 1.42 = 12.2 ms that nothing explains: at most all of it goes.
    rest = 0.0262 - F / ETA_MEMORY - X
    for title, cause in [("Keep tensor parallelism inside the NVLink domain", "communication stalls"),
                         ("Capture decode steps in CUDA graphs", "host launch bubbles")]:  # fmt: skip
        low, high = span(found[title])
        assert low == pytest.approx(0.0262 - rest, rel=1e-3)
        assert high == pytest.approx(0.0262)
        assert found[title].effect == f"at most: step 26.2 ms toward 14.0 ms, if the cause is {cause}"


def test_one_gpu_is_never_told_to_mind_its_links() -> None:
    found = offered("D or F", decoding(llama_8b(), 0.0150, 16, 1000))
    titles = ["Capture decode steps in CUDA graphs", "Schedule while the GPU works", "Fuse and compile kernels"]
    assert list(found) == titles


# All


def test_g_and_nothing_have_no_remedies() -> None:
    assert remedies("G", DENSE, attribute(DENSE, {})) == ()
    assert remedies(None, DENSE, attribute(DENSE, {})) == ()


@pytest.mark.parametrize("letter", LETTERS)
def test_nothing_is_offered_without_model_and_gpu(letter: str) -> None:
    facts = replace(decoding(Deployment(), 0.02), window=window())
    assert remedies(letter, facts, attribute(facts, {})) == ()


def test_every_effect_in_the_data_is_computed_and_every_computation_used() -> None:
    written = {entry.effect for scenario in scenarios().values() for entry in scenario.remedies}
    assert written == set(EFFECTS)


def test_a_range_whose_ends_read_the_same_is_one_figure() -> None:
    assert numbers("14 594", "17 864") == "14 594 .. 17 864"
    assert numbers("6600", "6600") == "6600"
    assert durations(0.0173, 0.01902) == "17.3 .. 19.0 ms"
    assert durations(0.01731, 0.01733) == "17.3 ms"


def test_every_option_that_engines_name_is_of_an_engine_and_is_used() -> None:
    options = load("options.yaml")
    assert all({"vllm", "other"} <= words.keys() <= {*load("engines.yaml"), "other"} for words in options.values())
    said = str(load("scenarios.yaml")) + str(load("vendors.yaml"))
    assert [name for name in options if f"{{{name}}}" not in said] == []
