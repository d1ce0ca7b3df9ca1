"""Utilisations against hand arithmetic: golden numbers, published runs, many GPUs, cached prompts, mixed windows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import hand_facts as hand
import pytest
from made_windows import GOLDEN_GPU, around, deployment, engine, figures, moving, window

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.window import Histogram, Series


def measured(measurements: Measurements, metric: str) -> Measurement:
    outcome = measurements[metric]
    assert isinstance(outcome, Measurement), outcome
    return outcome


def golden(seconds_per_step: float = 140e9 / 3.35e12) -> Measurements:
    # 70e9 parameters of two bytes, one sequence, no cache: a step reads 140 GB, 140e9 / 3.35e12 = 41.79 ms.
    steps = 1000.0
    load = engine(itl=seconds_per_step, outputs=steps, steps=steps, prompt=10, output=1001, requests=1, present=(1, 1))
    model = figures(parameters=70e9)
    return measure(gather(window(load, seconds=steps * seconds_per_step), deployment(model, GOLDEN_GPU), "decode"))


def test_the_golden_decode_step() -> None:
    m = golden()
    assert measured(m, "decode.floor").value == pytest.approx(0.041791, rel=1e-4)
    assert measured(m, "decode.step_time").value == pytest.approx(0.041791, rel=1e-4)
    assert measured(m, "decode.batch").value == 1.0
    assert measured(m, "decode.intensity").value == pytest.approx(1.0)  # 140 GFLOP over 140 GB
    assert measured(m, "decode.mbu").value == pytest.approx(1.0)
    # 2 x 70e9 / (989e12 x 0.041791) = 0.3387 %: with the ridge at 295.2 FLOP/B it is 1 / 295.2.
    assert measured(m, "decode.mfu").value == pytest.approx(1 / (989e12 / 3.35e12))
    assert measured(m, "decode.mfu").value == pytest.approx(0.00339, abs=5e-6)


def test_what_a_utilisation_tells_of_itself() -> None:
    m = golden()
    mbu, mfu = measured(m, "decode.mbu"), measured(m, "decode.mfu")
    assert mbu.source == "vllm:itl"
    assert mbu.unit == "fraction"
    assert mbu.samples == 1000
    assert "(140 GB: weights once, no cache counted" in mbu.method
    assert "batch = outputs / engine steps" in mbu.method
    assert "convention model" in mfu.method
    assert "dense bf16 peak" in mfu.method
    assert "2P / exact = 1.000" in mfu.method


def test_a_published_run_is_measured_by_steps_not_by_tokens() -> None:
    # Llama-3.3-70B in bf16, TP 4 on H100, batch 32, context 560, 43.8625 steps/s: weights read per step
    # (70 553 706 496 - 128 256 x 8 192 of the embedding) x 2 = 139.006 GB, cache 32 x 560 x 327 680 B = 5.872 GB.
    # (139.006 + 5.872) GB x 43.8625 / (4 x 3.35 TB/s) = 47.42 %. Weights times tokens/s would be 1 456 %.
    rate, batch = 43.8625, 32.0
    steps = 60 * rate
    load = engine(
        itl=1 / rate, outputs=batch * steps, steps=steps, prompt=60, output=1000, requests=84, present=(32, 32)
    )
    m = measure(gather(window(load), deployment("llama-3.1-70b", "h100", tensor_parallel=4), "decode"))
    mbu, context = measured(m, "decode.mbu"), measured(m, "decode.context")
    # All outputs lie in (500, 1000] with a mean of 1000: they are equal, and the context is 60 + 1000 / 2.
    assert (context.value, context.bounded.low, context.bounded.high) == pytest.approx((560, 560, 560))
    assert measured(m, "decode.batch").value == pytest.approx(32.0)
    assert mbu.value == pytest.approx(0.4742324867897313, rel=2e-3)
    assert mbu.bounded.high < 0.5
    assert mbu.achievable == pytest.approx(0.860)
    assert mbu.judged_by == "value"


def test_flops_of_many_gpus_are_held_against_all_of_them() -> None:
    # 1.5e14 FLOP/s on 16 A100: / (16 x 312e12) = 3.00 %, not 48 % of one. 7.5e9 active parameters: 1.5e10 FLOP a token,
    # so 1e4 tokens/s, 6e5 in a minute: 30 prompts of 20 000.
    load = engine(prompt=20_000, requests=30, present=(1, 1))
    made = deployment(figures(parameters=7.5e9), "a100", tensor_parallel=8, data_parallel=2)
    other = engine(identity="engine 1", prompt=0, requests=0, present=(0, 0))
    m = measure(gather(window(load, other), made, "prefill"))
    assert measured(m, "window.mfu").value == pytest.approx(0.030048, rel=1e-3)


def test_cached_prompt_tokens_are_not_computed() -> None:
    # 737 000 prompt tokens in 10 s, 414 931 of them cached: 32 206.9 computed tokens/s, 2 x 37e9 FLOP each,
    # on 8 x H100 in fp8 (1 978.9e12): 15.05 %; counting cached ones would give 34.45 %.
    load = engine(prompt=7370, requests=100, computed=737_000 - 414_931, present=(20, 20))
    made = deployment(figures(parameters=37e9), "h100", tensor_parallel=8, compute="fp8", weights="fp8")
    m = measure(gather(window(load, seconds=10.0), made, "prefill"))
    mfu = measured(m, "prefill.mfu")
    assert measured(m, "prefill.tokens_per_second").value == pytest.approx(32_206.9)
    assert mfu.value == pytest.approx(0.15054, rel=1e-3)
    assert "dense fp8 peak" in mfu.method
    # Twenty prompts of 7 370 tokens may hide at either edge.
    assert mfu.bounded.low < mfu.value < mfu.bounded.high


def test_prefill_over_a_bound_is_a_lower_bound() -> None:
    # Idle at both ends and no samples between: the engine may have worked for any part of the 60 s.
    load = engine(prompt=8192, requests=100, present=(0, 0))
    m = measure(gather(window(load), deployment("llama-3.1-8b"), None))
    mfu = measured(m, "prefill.mfu")
    assert mfu.judged_by == "bounds"
    # 819 200 tokens x 2 x 7 504 924 672 (without the embedding) / (989.4e12 x 60 s) = 20.7 %
    assert mfu.value == mfu.bounded.low == pytest.approx(819_200 * 2 * 7_504_924_672 / (989.4e12 * 60), rel=1e-3)
    assert mfu.bounded.high == math.inf
    assert mfu.undecided is not None
    assert "record" in str(mfu.settle)


def test_prefill_over_sampled_busy_time() -> None:
    # Counters move from 10 s to 40 s in samples a second apart; requests were seen at neither end of that stretch.
    times = [float(second) for second in range(61)]
    load = engine(prompt=8192, requests=100, gauges={"running": Series(tuple(times), (0.0,) * 61)}, present=(0, 0))
    facts = gather(window(load, progress=moving(times, 10.0, 40.0), samples=61), deployment("llama-3.1-8b"), None)
    assert facts.phase == "prefill"
    assert facts.busy is not None
    # It began within a second of 10 s and ended within a second of 40 s: 28 .. 30 s.
    assert (facts.busy.seconds.value, facts.busy.seconds.low, facts.busy.seconds.high) == (29.0, 28.0, 30.0)
    mfu = measured(measure(facts), "prefill.mfu")
    flops = 819_200 * 2 * 7_504_924_672 / 989.4e12
    assert mfu.judged_by == "value"
    assert mfu.bounded.low == pytest.approx(flops / 30, rel=1e-3)
    assert mfu.value == pytest.approx(flops / 29, rel=1e-3)
    assert mfu.bounded.high == pytest.approx(flops / 28, rel=1e-3)


def mixed(itl: float, steps: float = 1000.0, prompts: float = 1000.0) -> Measurements:
    """32 sequences at a context of 4 096; every one of the steps carries a chunk of 512 tokens, too."""
    held = Histogram((64.0, 256.0, 1024.0, math.inf), (0.0, 0.0, steps, 0.0), steps * 544)
    ended = around(7168, 33 * steps / 7168)  # as many tokens in the requests that finished as were generated
    load = engine(
        itl=itl, outputs=32 * steps, steps=steps, prompt=512, requests=prompts, present=(32, 32),
        histograms={"step_tokens": held, "generation_length": ended},
    )  # fmt: skip
    return measure(gather(window(load, seconds=itl * steps), deployment("llama-3.1-70b", "h100", tensor_parallel=4)))


def test_the_joint_floor_reads_the_weights_once() -> None:
    # 70B, TP 4: 32 decodes at 4 096 tokens read 139.0 + 42.9 GB: 13.6 ms. A prompt of 512 alone computes
    # 512 x 2 x 68.45e9 FLOP and a little attention: 17.8 ms; the decodes 32 x (2 x 69.5e9 + 4096 x 2.62e6): 1.2 ms.
    # Together 19.0 ms of arithmetic, not 13.6 + 17.8.
    facts = mixed(0.030).facts
    decode = facts.decode
    assert decode is not None
    assert decode.floor is not None
    assert decode.floor.seconds == pytest.approx(0.0136, rel=0.01)
    assert facts.prefill is not None
    assert facts.prefill.floor is not None
    assert facts.prefill.floor.seconds == pytest.approx(0.0178, rel=0.01)
    assert decode.joint_floor_seconds == pytest.approx(0.0190, rel=0.005)
    assert decode.interleaved_seconds == pytest.approx(0.0190 - 0.0136, rel=0.01)
    assert facts.phase == "mixed"
    assert facts.prefill_share == pytest.approx((0.0190 - 0.0136) / 0.0190, rel=0.01)


def test_interleaved_prefill_leaves_decode_between_bounds() -> None:
    mbu = measured(mixed(0.030), "decode.mbu")
    # [bytes / (W N T), bytes / (W N (T - longest prefill))]: 13.6 / 30 = 45 %. Kernels reach 0.771 of the peak, and
    # prefill half of that at the slowest: 5.4 / 0.771 / 0.5 = 14 ms of prefill, 13.6 / (30 - 14) = 85 %.
    assert mbu.judged_by == "bounds"
    assert mbu.value == mbu.bounded.low == pytest.approx(13.6 / 30, rel=0.01)
    assert mbu.bounded.high == pytest.approx(13.6 / (30 - 5.4 / 0.771 / 0.5), rel=0.01)
    assert "interleaved" in (mbu.undecided or "")
    assert "window of its own" in str(mbu.settle)


@pytest.mark.parametrize(("told", "longest"), [(0.010, 0.010), (0.001, 5.4e-3 / 0.771), (1.0, 5.4e-3 / 0.771 / 0.5)])
def test_prefill_took_no_longer_than_requests_say(told: float, longest: float) -> None:
    # 1,000 steps; of prefill times of 10 ms a step no more than these, of 1 ms no less than kernels need.
    held = mixed(0.030).facts.window
    (load,) = held.engines
    times = Histogram((0.001, 10.0, math.inf), (0.0, 1000.0, 0.0), told * 1000)
    known = replace(held, engines=(replace(load, histograms={**load.histograms, "prefill_time": times}),))
    mbu = measured(measure(gather(known, deployment("llama-3.1-70b", "h100", tensor_parallel=4))), "decode.mbu")
    assert mbu.bounded.high == pytest.approx(13.6e-3 / (0.030 - longest), rel=0.015)


def test_a_little_prefill_widens_decode_and_its_value_still_decides() -> None:
    # 8B: 62 prompts of 2,048 tokens in 2,000 steps of 13 ms: 2 x 7.5e9 x 127,000 / 989.4e12 / 2,000 = 1 ms a step at
    # the floor, 3.7 % of it ... 10 % where prefill is as slow as it can be.
    load = engine(itl=0.025, outputs=2000 * 16, steps=2000, prompt=2048, output=516, requests=62, present=(16, 16))
    facts = gather(window(load, seconds=50.0), deployment("llama-3.1-8b"))
    assert facts.decode is not None
    assert 0 < facts.decode.interleaved_seconds < 0.05 * 0.025
    mbu = measured(measure(facts), "decode.mbu")
    assert mbu.judged_by == "value"
    longest = facts.decode.interleaved_seconds / 0.771 / 0.5
    assert mbu.bounded.high >= mbu.value * 0.025 / (0.025 - longest) * 0.999


def test_prefill_in_a_mixed_window_can_pass_but_not_fail() -> None:
    mfu = measured(mixed(0.030), "prefill.mfu")
    assert mfu.judged_by == "bounds"
    assert mfu.value == mfu.bounded.low
    assert mfu.bounded.high == math.inf
    assert "window of its own" in str(mfu.settle)


def test_a_mixed_window_never_blends_its_phases() -> None:
    # 8B on one H100: 60 000 prompt tokens in 2 s (48.7 % MFU) and 1 280 steps of 64 sequences in 8 s (71.7 % MBU of
    # the weights); blended over 10 s they would read 23.0 % and 57.4 %. Only bounds are said.
    steps = Histogram((128.0, 4096.0, 8192.0, math.inf), (1280.0, 0.0, 10.0, 0.0), 60_000 + 81_920.0)
    load = engine(
        itl=8 / 1280, outputs=81_920, steps=1290, prompt=1000, output=1366, requests=60, present=(32, 32),
        histograms={"step_tokens": steps},
    )  # fmt: skip
    model = figures(parameters=8_030_261_248, weight_bytes=15_009_849_344)
    facts = gather(window(load, seconds=10.0), deployment(model))
    assert facts.phase == "mixed"
    m = measure(facts)
    mfu, mbu = measured(m, "prefill.mfu"), measured(m, "decode.mbu")
    assert mfu.judged_by == mbu.judged_by == "bounds"
    # Low ends: in-flight prompts are left out of prefill; decode's steps all count as if they held no prefill.
    assert mfu.bounded.low < 0.230 < 0.487 < mfu.bounded.high
    assert mbu.bounded.low == pytest.approx(0.7169, abs=1e-3)
    assert measured(m, "window.mfu").value < 0.35


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_written_phase_that_the_traffic_belies_is_no_data(phase: str) -> None:
    decodes = engine(itl=0.03, outputs=60_000, steps=2000, prompt=100, output=1000, requests=60, present=(30, 30))
    prompts = engine(prompt=8192, requests=100, itl=0.05, outputs=100, steps=200, output=2, present=(1, 1))
    facts = gather(
        window(prompts if phase == "decode" else decodes),
        deployment("llama-3.1-8b"),
        "decode" if phase == "decode" else "prefill",
    )
    outcome = measure(facts)["decode.mbu" if phase == "decode" else "prefill.mfu"]
    assert isinstance(outcome, NoData)
    assert f"written as {phase}" in outcome.reason
    assert "prefill" in outcome.reason
    assert "%" in outcome.reason
    assert outcome.reason.count("%") == 2  # both shares
    assert isinstance(measure(facts)["ttft.mean"], Measurement)


def test_speculative_steps_emit_more_tokens_than_sequences() -> None:
    # 1 000 steps of 8 sequences, 3 drafts each, 60 % accepted: 2.8 tokens per sequence and step.
    drafts = {"draft_steps": 8e3, "draft_tokens": 24e3, "accepted_tokens": 14_400.0, "generation_tokens": 22_410.0}
    load = engine(
        itl=0.02, outputs=8000, steps=1000, prompt=100, output=2241, requests=10, present=(8, 8), counters=drafts
    )  # fmt: skip
    m = measure(gather(window(load, seconds=20.0), deployment("llama-3.1-8b"), "decode"))
    decode = m.facts.decode
    assert decode is not None
    assert decode.tokens_per_step == pytest.approx(2.8)
    assert decode.draft_tokens == pytest.approx(3.0)
    assert measured(m, "speculative.acceptance_rate").value == pytest.approx(0.6)
    assert measured(m, "speculative.tokens_per_step").value == pytest.approx(2.8)
    assert measured(m, "decode.step_time").value == pytest.approx(0.02)
    # MFU counts the 8 x 2.8 tokens that came out: 22.4 x 2 x 7 504 924 672 / (989.4e12 x 0.02).
    assert measured(m, "decode.mfu").value == pytest.approx(22.4 * 2 * 7_504_924_672 / (989.4e12 * 0.02), rel=1e-3)


def test_an_unknown_context_leaves_the_bandwidth_between_weights_alone_and_a_full_memory() -> None:
    load = engine(itl=0.0077, outputs=5000, steps=5000, present=(1, 1))
    made = deployment(figures(parameters=8.03e9, weight_bytes=4.92e9, kv_bytes_per_token=131_072), "a100")
    mbu = measured(measure(gather(window(load, seconds=38.5), made, "decode")), "decode.mbu")
    # 4.92 GB / (2.039 TB/s x 7.7 ms) = 31.3 %; a full memory of 80 GB would be over 100 %.
    assert mbu.judged_by == "bounds"
    assert mbu.value == mbu.bounded.low == pytest.approx(0.313, abs=5e-4)
    assert mbu.bounded.high > 1
    assert "context" in (mbu.undecided or "")


def test_weights_within_the_caches_have_no_bandwidth_verdict() -> None:
    load = engine(itl=0.001, outputs=8000, steps=1000, prompt=32, output=256, requests=31, present=(8, 8))
    gpu = deployment(figures(parameters=30e6), GOLDEN_GPU).accelerator
    assert gpu is not None

    made = deployment(figures(parameters=30e6), replace(gpu, l2_bytes=50e6))
    outcome = measure(gather(window(load, seconds=1.0), made, "decode"))["decode.mbu"]
    assert isinstance(outcome, NoData)
    assert "L2" in outcome.reason


@pytest.mark.parametrize("metric", ["decode.mbu", "decode.floor", "prefill.mfu", "window.mfu", "roofline.efficiency"])
def test_what_is_not_named_is_asked_for(metric: str) -> None:
    load = engine(itl=0.02, outputs=8000, steps=1000, prompt=100, output=800, requests=10, present=(8, 8))
    without_gpu = deployment("llama-3.1-8b", None, missing={"gpu": "no gpu is named anywhere"})
    outcome = measure(gather(window(load), without_gpu))[metric]
    assert isinstance(outcome, NoData)
    assert outcome.reason == "no gpu is named anywhere"
    assert "--llmroof-gpu" in str(outcome.remedy)
    outcome = measure(gather(window(load), deployment(None)))[metric]
    assert isinstance(outcome, NoData)
    assert "model" in outcome.reason
    assert "--llmroof-model" in str(outcome.remedy)


def test_latency_and_throughput_need_neither_gpu_nor_model() -> None:
    load = engine(itl=0.02, outputs=8000, steps=1000, prompt=100, output=800, requests=10, present=(8, 8))
    m = measure(gather(window(load), deployment(None, None)))
    assert measured(m, "decode.batch").value == 8.0
    assert measured(m, "itl.mean").value == pytest.approx(0.02)
    assert measured(m, "output.tokens_per_second").value == pytest.approx(8010 / 60)
    assert m.facts.phase == "decode"


def test_an_unknown_peak_asks_for_it() -> None:
    load = engine(itl=0.02, outputs=8000, steps=1000, prompt=100, output=800, requests=10, present=(8, 8))
    outcome = measure(gather(window(load), deployment("llama-3.1-8b", "a100", compute="fp4"), "decode"))["decode.mfu"]
    assert isinstance(outcome, NoData)
    assert "fp4 peak" in outcome.reason
    assert "peaks: {fp4" in str(outcome.remedy)


def test_unconfirmed_assumptions_show_what_they_would_change() -> None:
    load = engine(itl=0.0065, outputs=8000, steps=1000, prompt=100, output=800, requests=10, present=(8, 8))
    assumed = deployment("llama-3.1-8b", provenance={"tensor_parallel": "assumed", "weights": "assumed"})
    mbu = measured(measure(gather(window(load, seconds=6.5), assumed, "decode")), "decode.mbu")
    by_assumption = {other.assumption: other.value for other in mbu.alternatives}
    assert by_assumption["tensor_parallel = 2 (assumed 1)"] == pytest.approx(mbu.value / 2, rel=0.01)
    assert by_assumption["weights = fp8 (assumed bf16)"] < 0.6 * mbu.value
    given = measured(measure(gather(window(load, seconds=6.5), deployment("llama-3.1-8b"), "decode")), "decode.mbu")
    assert given.alternatives == ()


def test_what_would_narrow_an_interval_is_its_widest_part() -> None:
    def settle(deployed: Deployment, **known: Any) -> str | None:
        facts = hand.decoding(deployed, 0.02)
        assert facts.decode is not None
        decode = replace(facts.decode, **known)
        told = measured(measure(replace(facts, decode=decode)), "decode.mbu").settle
        return None if told is None else str(told)

    # Everything is known; but for the step's time; the context, which moves the cache; or which experts are read.
    assert settle(hand.llama_8b()) is None
    time, context = Bounded(0.02, 0.018, 0.022), Bounded(1480.0, 1000.0, 2000.0)
    assert "how many microbatches are under way" in str(settle(hand.llama_8b(), step_seconds=time))
    assert "one fixed length" in str(settle(hand.llama_8b(), context=context))
    assert "how evenly tokens are routed to experts" in str(settle(hand.mixtral()))
