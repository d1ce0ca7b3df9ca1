"""Effects of remedies on a mixture of experts, each by hand: Mixtral 8x7B in bf16 on H100."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_facts import H100_BANDWIDTH, decoding, exactly, mixtral, prefilling

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.diagnosis import Remedy
from pytest_llmroof.analysis.effects_bytes import no_ridge, ridge_batch
from pytest_llmroof.analysis.facts import PrefillFacts, WindowFacts
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.remedies import remedies
from pytest_llmroof.analysis.situation import Situation
from pytest_llmroof.roofline.step import Prefill, Step

H100_BF16, H100_FP8 = 989.4e12, 1978.9e12
ETA_MEMORY, ETA_BF16, ETA_FP8 = 0.860, 0.771, 0.557

# 32 layers of 8 experts with 3 x 4 096 x 14 336 parameters, 2 of them per token; all that else is read of a step; the
# head; a token's keys and values in 2 x 32 x 8 x 128 elements of 2 bytes.
EXPERTS = 32 * 8 * 3 * 4096 * 14_336
OTHERS = 46_702_792_704 - EXPERTS - 32_000 * 4096
HEAD = 32_000 * 4096
TOKEN = 131_072

# TP 4, 256 sequences of 4 000 tokens: every expert is read. 93.1 + 134.3 GB over 4 x 3.35 TB/s: 17.0 ms of 22.
WEIGHTS, CACHE = 2 * (OTHERS + EXPERTS), 256 * 4001 * TOKEN
F = (WEIGHTS + CACHE) / (4 * H100_BANDWIDTH)
T = 0.022
# 64 all-reduces of 256 x 4 096 x 2 B = 2.10 MB: 20 us + 2 x 3/4 x 2.10 MB / 360 GB/s, 1.84 ms
X = 64 * (20e-6 + 1.5 * 2_097_152 / 360e9)
BUSY = decoding(mixtral(tensor_parallel=4), T, batch=256, context=4000)


def offered(scenario: str, facts: WindowFacts, observed: Observed | None = None) -> dict[str, Remedy]:
    found = remedies(scenario, facts, attribute(facts, {}, observed), observed=observed)
    return {remedy.title: remedy for remedy in found}


def span(remedy: Remedy) -> tuple[float, float]:
    assert remedy.low is not None
    assert remedy.high is not None
    return remedy.low, remedy.high


def ranged(new_floor: float, floor: float, rest: float, fixed: float) -> tuple[float, float]:
    low, high = sorted((new_floor * (1 + rest / floor) + fixed, new_floor + rest + fixed))
    return low, high


def hit(tokens: float) -> float:
    """The share of the experts that so many tokens reach under even routing."""
    return 1 - float(0.75**tokens)


def test_a_weights_in_8_and_4_bits() -> None:
    rest = T - F - X
    found = offered("A", BUSY)
    linear = OTHERS - HEAD + EXPERTS
    # 46.7 GB of weights in place of 93.1 GB; routers and norms, 0.01 %, keep their bits
    eight = (linear + 2 * HEAD + CACHE) / (4 * H100_BANDWIDTH)
    assert span(found["Quantise the weights to FP8"]) == pytest.approx(ranged(eight, F, rest, X), rel=2e-3)
    # 4 bits, and 2.5 bytes of scale and zero point for each 128: 4.156 bits
    four = (linear * 4.15625 / 8 + 2 * HEAD + CACHE) / (4 * H100_BANDWIDTH)
    remedy = found["Quantise the weights to 4 bits (AWQ, GPTQ)"]
    assert span(remedy) == pytest.approx(ranged(four, F, rest, X), rel=2e-3)


def test_a_cache_in_fp8_comes_first_where_it_is_the_larger_part() -> None:
    after = (WEIGHTS + CACHE / 2) / (4 * H100_BANDWIDTH)
    found = offered("A", BUSY)
    assert span(found["Keep the KV cache in FP8"]) == pytest.approx(ranged(after, F, T - F - X, X), rel=1e-3)
    titles = list(found)
    assert titles.index("Keep the KV cache in FP8") < titles.index("Quantise the weights to FP8")


def test_a_larger_batch_reads_more_experts() -> None:
    # TP 2, batch 4 at 1 000 tokens: 1 - 0.75^4 = 68 % of the experts.
    floor = (2 * (OTHERS + EXPERTS * hit(4)) + 4 * 1001 * TOKEN) / (2 * H100_BANDWIDTH)
    facts = decoding(mixtral(), floor / 0.80, batch=4, context=1000)
    # (2 x 80 GB x 0.9 - 93.41 GB) / (1 000 x 131 072 B) = 386 sequences, which reach all of them; the KV projections
    # of 8 heads are shared by both ranks, routers and norms are on each (9 MB).
    batch = (2 * 80e9 * 0.9 - 2 * 46_702_792_704) / (1000 * TOKEN)
    after = (2 * (OTHERS + EXPERTS) + batch * 1001 * TOKEN) / (2 * H100_BANDWIDTH)
    transport = 64 * (8e-6 + 4 * 8192 / 360e9)
    low, high = ranged(after, floor, floor / 0.80 - floor - transport, transport)
    remedy = offered("A", facts)["Run larger batches"]
    assert f"about {batch:.0f}" in remedy.detail
    assert span(remedy) == pytest.approx((batch / high, batch / low), rel=3e-3)


def test_no_batch_reaches_the_ridge_at_a_thousand_tokens() -> None:
    # 2 x 12.749e9 + 4 x 32 x 128 x 32 x 1 000 = 26.0 GFLOP on 131.2 MB of cache: the intensity tends to 198 FLOP/B.
    assert ridge_batch(mixtral(), Step(1, 1000)) is None
    note = no_ridge(Situation(BUSY, None), Step(1, 1000))
    assert note is not None
    assert "tends to 198 FLOP/B" in note
    # At 100 tokens: 93.1 GB / (25.5 GFLOP / 295.3 - 13.2 MB) = 1 271 sequences: four times those of a dense model.
    per_token = 2 * 12_748_587_008 + 4 * 32 * 128 * 32 * 100
    expected = WEIGHTS / (per_token / (H100_BF16 / H100_BANDWIDTH) - 101 * TOKEN)
    assert expected == pytest.approx(1271, abs=1)
    assert ridge_batch(mixtral(), Step(1, 100)) == pytest.approx(expected, rel=5e-3)


def test_b_chunks_are_longer_by_the_experts() -> None:
    facts = decoding(mixtral(), 0.030, batch=16, context=1000, interleaved=0.010, phase="mixed")
    held = Step(prefills=(Prefill(8192.0, logits=0.0),))
    facts = replace(facts, prefill=PrefillFacts(exactly(100_000.0), 100.0, exactly(12.0), False, held))
    found = offered("B", facts)
    # 295.3 x 8 / 2
    assert "about 1181 prompt tokens" in found["Chunk the prefill"].detail
    assert span(found["Serve prefill and decode on GPUs of their own"]) == pytest.approx((0.020, 0.020))


# 50 prompts of 4 096 tokens on 2 GPUs, each a step of its own, in 5 s.
BODY = 12_748_587_008 - HEAD
ATTENTION = 4 * 32 * 128 * 32 * 4096 * 4097 / 2
FLOPS = 2 * BODY * 4096 + 2 * HEAD + ATTENTION
PREFILL = prefilling(mixtral(), 4096, 50, 5.0)


def test_b_fp8_products() -> None:
    before = 50 * FLOPS / (2 * H100_BF16 * ETA_BF16)
    share = ATTENTION / FLOPS
    after = before * (share + (1 - share) * H100_BF16 * ETA_BF16 / (H100_FP8 * ETA_FP8))
    # 64 all-reduces of 33.6 MB a prompt stay as they are: 20 us + 33.6 MB / 360 GB/s each, 0.36 s
    fixed = 50 * 64 * (20e-6 + 4096 * 8192 / 360e9)
    remedy = offered("B", PREFILL)["Compute in FP8"]
    assert span(remedy) == pytest.approx(((5.0 - fixed) * after / before + fixed, 5.0 - before + after), rel=5e-3)


def test_b_attention_kernels() -> None:
    # 10 prompts of 16 384 tokens in 4.5 s: 70.4 of 484 TFLOP each are attention's, 14.5 %.
    attention = 4 * 32 * 128 * 32 * 16_384 * 16_385 / 2
    floor = 10 * attention / (2 * H100_BF16)
    low, high = (4.5 - floor * (1 / 0.35 - 1 / after) for after in (0.70, 0.55))
    remedy = offered("B", prefilling(mixtral(), 16_384, 10, 4.5))["Use FlashAttention-3 or FlashInfer"]
    assert span(remedy) == pytest.approx((low, high), rel=1e-3)
    assert "15 % of the arithmetic" in remedy.detail


SEEN = Observed("trace", transport=0.34, idle_within=0.10, idle_between=0.05)


def test_c_communication() -> None:
    facts = decoding(mixtral(), 0.0262, batch=16, context=1000)
    found = offered("C", facts, SEEN)
    # 64 all-reduces of 131 kB: 8 us + 131 072 / 360e9 each, 0.54 ms in place of 8.9 ms
    one_shot, library = (64 * (latency + 131_072 / 360e9) for latency in (8e-6, 20e-6))
    inside = found["Keep tensor parallelism inside the NVLink domain"]
    assert span(inside) == pytest.approx((0.0262 * 0.66, 0.0262 * 0.66 + one_shot), rel=1e-4)
    fused = found["Fused or custom all-reduce"]
    assert span(fused) == pytest.approx((0.0262 * 0.66 + one_shot, 0.0262 * 0.66 + library), rel=1e-4)


def test_c_experts_across_nodes() -> None:
    # TP 16 over two nodes, 256 tokens of 8 192 B. Now 64 x (20 us + 2 x 15/16 x 2.10 MB / 40 GB/s).
    now = 64 * (20e-6 + 1.875 * 2_097_152 / 40e9)
    # Then one all-reduce a layer, and two exchanges of 256 x 2 x 8 192 x 15/16 / 16 = 246 kB.
    sent = 256 * 2 * 8192 * 15 / 16 / 16
    then = 32 * (20e-6 + 1.875 * 2_097_152 / 40e9) + 32 * 2 * (20e-6 + sent / 40e9)
    facts = decoding(mixtral(tensor_parallel=16), 0.0150, batch=256, context=500)
    remedy = offered("C", facts, Observed("trace", transport=0.5, idle_within=0.02))["Expert parallelism across nodes"]
    expected = 0.0150 * 0.5 + 0.0150 * 0.5 * then / now
    assert span(remedy) == pytest.approx((expected, expected), rel=1e-3)


def test_d_idle_time_goes() -> None:
    facts = decoding(mixtral(), 0.040, batch=16, context=1000)
    found = offered("D", facts, Observed("trace", transport=0.05, idle_within=0.25, idle_between=0.10))
    assert span(found["Capture decode steps in CUDA graphs"]) == pytest.approx((0.030, 0.030))
    assert span(found["Schedule while the GPU works"]) == pytest.approx((0.036, 0.036))


def test_f_slow_kernels_go() -> None:
    floor = (2 * (OTHERS + EXPERTS * hit(16)) + 16 * 1001 * TOKEN) / (2 * H100_BANDWIDTH)
    facts = decoding(mixtral(), 0.040, batch=16, context=1000)
    seen = Observed("trace", transport=0.06, idle_within=0.02)
    slow = 0.040 * 0.92 - floor / ETA_MEMORY
    found = offered("F", facts, seen)
    assert span(found["Tune the experts' kernels"]) == pytest.approx((0.040 - slow, 0.040 - slow), rel=1e-3)
    assert span(found["Fuse and compile kernels"]) == pytest.approx((0.040 - slow, 0.040 - slow), rel=1e-3)
