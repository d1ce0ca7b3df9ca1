"""Where the time went: every share against arithmetic by hand, and shares that always add up to 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hand_facts import (
    H100_BANDWIDTH,
    LLAMA_70B_READ,
    decoding,
    engine,
    exactly,
    llama_8b,
    llama_70b,
    mean_of,
    measured,
    mixtral,
    prefilling,
    window,
)
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.analysis.attribute import attribute, attribute_decode, attribute_prefill, excess, step_kinds
from pytest_llmroof.analysis.attribute_ttft import attribute_ttft, own_prompt
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.facts import Busy, PrefillFacts, WindowFacts
from pytest_llmroof.analysis.measurement import Impossible
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.step import Prefill, Step
from pytest_llmroof.telemetry.window import Histogram

PROFILE = Observed("decode.pt.trace.json.gz", transport=0.34, idle_within=0.04)

# KV of 12.4 sequences at 1 480 tokens: 327 680 B each, one more written per sequence. 145.03 GB in all, over 4 GPUs.
KV = 12.4 * 1481 * 327_680
FLOOR = (LLAMA_70B_READ + KV) / (4 * H100_BANDWIDTH)  # 10.82 ms


def split(facts: WindowFacts, observed: Observed | None = None) -> Attribution:
    found = attribute(facts, {}, observed)
    assert found is not None
    return found


def test_a_step_with_a_profile() -> None:
    found = split(decoding(llama_70b(), 0.0262), PROFILE)
    # 10.82 / 26.2 ms = 41.3 %; ceiling: H100 streams weights at 86.0 %: 10.82 / 0.860 - 10.82 = 1.762 ms = 6.7 %.
    ceiling = FLOOR * (1 / 0.860 - 1)
    assert found.share("memory floor: weights", "memory floor: KV") == pytest.approx(FLOOR / 0.0262, rel=1e-4)
    assert found.share("kernel ceiling") == pytest.approx(ceiling / 0.0262, rel=1e-4)
    assert found.share("exposed communication: transport") == pytest.approx(0.34)
    assert found.share("idle: within steps") == pytest.approx(0.04)
    # What is left of the work: 1 - 0.413 - 0.067 - 0.34 - 0.04 = 14.0 %.
    assert found.share("slow kernels") == pytest.approx(1 - 0.38 - (FLOOR + ceiling) / 0.0262, rel=1e-3)
    assert found.share("not attributed") == 0
    observed = {part.cause for part in found.shares if part.observed}
    assert observed == {"exposed communication: transport", "idle: within steps", "slow kernels"}
    assert {part.source for part in found.shares if part.cause == "idle: within steps"} == {"decode.pt.trace.json.gz"}


def test_a_step_with_telemetry_alone() -> None:
    found = split(decoding(llama_70b(), 0.0262))
    # Estimated: 160 all-reduces of 8 us + 0.8465 us = 1.415 ms. Nothing tells what the remaining 46.6 % are.
    assert found.share("exposed communication: transport") == pytest.approx(1.4154e-3 / 0.0262, rel=1e-3)
    rest = 0.0262 - FLOOR / 0.860 - 1.4154e-3
    assert found.share("not attributed") == pytest.approx(rest / 0.0262, rel=1e-3)
    assert not any(part.observed for part in found.shares)


def test_one_gpu_has_no_communication() -> None:
    found = split(decoding(llama_8b(), 0.009))
    assert found.share("exposed communication: transport") == 0
    # With idle time known, and nobody to wait for, the rest of the work is slow kernels.
    seen = split(decoding(llama_8b(), 0.009), Observed("trace", idle_within=0.1))
    assert seen.share("not attributed") == 0
    assert seen.share("slow kernels") > 0


def test_half_of_an_observation_leaves_the_rest_open() -> None:
    facts = decoding(llama_70b(), 0.0262)
    assert split(facts, Observed("dcgm.prom", by="gpu counters", idle_within=0.1)).share("not attributed") > 0.3
    assert split(facts, Observed("trace", transport=0.1)).share("not attributed") > 0.3


def test_estimates_shrink_before_anything_observed() -> None:
    # 41.3 % floor and 55 % observed leave 3.7 %: the ceiling of 6.7 % shrinks to that, and no slow kernels are left.
    found = split(decoding(llama_70b(), 0.0262), Observed("trace", transport=0.45, idle_within=0.10))
    assert found.share("exposed communication: transport") == pytest.approx(0.45)
    assert found.share("kernel ceiling") == pytest.approx(1 - 0.55 - FLOOR / 0.0262, rel=1e-3)
    assert found.share("slow kernels") == 0


def test_observed_shares_beyond_the_step_are_told() -> None:
    facts = decoding(llama_70b(), 0.0262)
    assert excess(facts, PROFILE) == 0
    # 0.413 + 0.5 + 0.2 - 1 = 11.3 %
    too_much = Observed("trace", transport=0.5, idle_within=0.2)
    assert excess(facts, too_much) == pytest.approx(FLOOR / 0.0262 - 0.3, rel=1e-3)


def test_a_compute_bound_step_has_a_compute_floor() -> None:
    facts = decoding(llama_8b(), 0.05, batch=1024, context=100)
    assert facts.decode is not None
    assert facts.decode.floor is not None
    found = split(facts)
    # 1 024 x (2 x 7.505e9 FLOP + attention) = 15.4 TFLOP at 989.4 TFLOP/s, against 15.01 GB + 13.4 GB in 8.5 ms.
    assert found.share("memory floor: weights", "memory floor: KV") == 0
    assert found.share("compute floor") == pytest.approx(facts.decode.floor.compute_seconds / 0.05)


def test_interleaved_prefill_is_what_the_joint_floor_adds() -> None:
    found = split(decoding(llama_70b(), 0.0262, interleaved=0.004, phase="mixed"))
    assert found.share("interleaved prefill") == pytest.approx(0.004 / 0.0262)
    # Its own ceiling is that of arithmetic: 4 ms / 0.771 - 4 ms = 1.188 ms beside 1.762 ms of memory.
    ceiling = 0.004 * (1 / 0.771 - 1) + FLOOR * (1 / 0.86 - 1)
    assert found.share("kernel ceiling") == pytest.approx(ceiling / 0.0262, rel=1e-3)


def test_steps_with_prompts_communicate_for_their_tokens_too() -> None:
    # 200 of 1 000 steps hold 512 prompt tokens beside 12.4 sequences that verify one draft each: 24.8 tokens.
    facts = decoding(llama_70b(), 0.06, interleaved=0.004, phase="mixed")
    assert facts.decode is not None
    decode = replace(facts.decode, draft_tokens=1.0)
    assert decode.steps == pytest.approx(1000)
    held = Step(prefills=(Prefill(512.0),))
    mixed = replace(facts, prefill=PrefillFacts(exactly(102_400.0), 100.0, exactly(200.0), False, held))
    kinds = [value for kind in step_kinds(mixed, decode) for value in kind]
    assert kinds == pytest.approx([0.8, 24.8, 0.2, 536.8])
    # Where prompts take nothing of the steps, or nobody knows of any, all are alike.
    for alike in (step_kinds(mixed, replace(decode, interleaved_seconds=0.0)), step_kinds(facts, decode)):
        assert [value for kind in alike for value in kind] == pytest.approx([1.0, 24.8])


def test_a_thermal_clock_is_a_cause_and_a_power_limit_is_not() -> None:
    facts = decoding(llama_8b(), 0.05, batch=1024, context=100)
    assert facts.decode is not None
    assert facts.decode.floor is not None
    floor = facts.decode.floor.seconds
    hot = Observed("nvidia-smi.csv", by="gpu counters", clock=0.8, clock_cause="thermal")
    # Kernels reach 77.1 % of the peak: at 80 % of the clock a quarter of what they need for arithmetic is lost.
    assert split(facts, hot).share("clock") == pytest.approx(0.25 * floor / 0.771 / 0.05, rel=1e-3)
    capped = split(facts, replace(hot, clock_cause="power"))
    assert capped.share("clock") == 0
    assert capped.share("kernel ceiling") == pytest.approx((1.25 / 0.771 - 1) * floor / 0.05, rel=1e-3)


def test_memory_does_not_feel_the_clock() -> None:
    hot = Observed("nvidia-smi.csv", by="gpu counters", clock=0.8, clock_cause="thermal")
    assert split(decoding(llama_70b(), 0.0262), hot).share("clock") == 0


def test_nothing_is_split_without_a_floor_or_a_step() -> None:
    assert attribute(decoding(Deployment(), 0.02), {}) is None
    assert attribute(replace(decoding(llama_70b(), 0.0262), decode=None), {}) is None


def test_without_a_floor_what_was_observed_is_still_told() -> None:
    found = split(decoding(Deployment(), 0.02), Observed("trace", transport=0.3, idle_within=0.2))
    assert found.share("exposed communication: transport") == pytest.approx(0.3)
    assert found.share("not attributed") == pytest.approx(0.5)


def test_a_floor_above_the_step_is_not_split() -> None:
    assert attribute(decoding(llama_70b(), 0.0100), {}) is None
    contradiction = {"decode.mbu": Impossible("decode.mbu", "over 100 %", "TP")}
    assert attribute(decoding(llama_70b(), 0.0262), contradiction) is None


def test_skewed_experts_leave_less_to_read_than_expected() -> None:
    facts = decoding(mixtral(), 0.0100, batch=4, context=500)
    assert facts.decode is not None
    assert facts.decode.cost is not None
    # Even routing reaches 8 (1 - 0.75^4) = 5.47 experts, 63 GB, in 9.4 ms; skewed routing 2 experts, 25 GB, in 3.8 ms:
    # a step of 8 ms is possible, and all of it floor.
    found = split(replace(facts, decode=replace(facts.decode, step_seconds=exactly(0.008))))
    assert found.share("memory floor: weights", "memory floor: KV") == pytest.approx(1.0)


def test_a_prefill_window() -> None:
    facts = prefilling(llama_8b(), 4096, 100, 11.53)
    found = attribute(facts, {})
    assert found is not None
    # 61.57 TFLOP of 4 096 tokens (causal, one row of logits) at 989.4 TFLOP/s: 62.23 ms each, 54.0 % of 115.3 ms.
    assert found.of == "prefill"
    assert found.share("compute floor") == pytest.approx(61_574_775_570_432 / 989.4e12 * 100 / 11.53, rel=1e-4)
    # Ceiling at 77.1 %: 54.0 % / 0.771 - 54.0 % = 16.0 %.
    assert found.share("kernel ceiling") == pytest.approx(found.share("compute floor") * (1 / 0.771 - 1), rel=1e-4)
    assert found.share("not attributed") == pytest.approx(0.300, abs=2e-3)


def test_prefill_is_only_split_in_a_window_of_its_own() -> None:
    assert attribute_prefill(decoding(llama_8b(), 0.009)) is None


def test_the_time_to_first_token() -> None:
    kept = engine(
        histograms={"ttft": mean_of(0.30), "queue": mean_of(0.05), "prefill_time": mean_of(0.20)},
        names={"queue": "vllm:request_queue_time_seconds"},
    )
    facts = replace(decoding(llama_8b(), 0.009, engines=(kept,)), busy=Busy(exactly(15.0), "samples"))
    found = attribute_ttft(facts, measured(ttft__mean=0.30))
    assert found is not None
    # 300 ms - 50 ms queue - 200 ms prefill = 50 ms of front end.
    assert found.share("queue") == pytest.approx(50 / 300)
    assert found.share("front end") == pytest.approx(50 / 300)
    # 100 requests' prefill takes 20 s in 15 s of work: 1 - 15 / 20 of each is other requests' work.
    assert found.share("other requests' prefill") == pytest.approx(0.25 * 200 / 300)
    # Own floor: 1 000 tokens x 2 x 6.98e9 (layers) + causal attention 131 072 x 1 000 x 1 001 + one row of logits.
    flops = 1000 * 2 * 6_979_321_856 + 4 * 32 * 128 * 32 * 1000 * 1001 / 2 + 2 * 128_256 * 4096
    assert found.share("compute floor") == pytest.approx(flops / 989.4e12 / 0.30, rel=1e-3)
    assert sum(part.share for part in found.shares) == pytest.approx(1)
    # Each part by what its engine calls it, else by what the whole is called.
    sources = {part.cause: part.source for part in found.shares}
    assert sources["queue"] == "vllm:request_queue_time_seconds"
    assert sources["front end"] == "after.prom: neither queue nor prefill"
    assert sources["other requests' prefill"] == "after.prom"
    assert sources["kernel ceiling"].startswith("estimated: kernels reach 77 % of the bf16 peak (")


@pytest.mark.parametrize(("busy_seconds", "others"), [(15.0, 0.25), (25.0, 0.0)])
def test_replicas_compute_prompts_side_by_side(busy_seconds: float, others: float) -> None:
    # Two replicas' 100 requests of 0.2 s each are 40 s in 2 x 15 s of work: 1 - 30 / 40 of each is other requests'.
    # In 2 x 25 s there was room for all of it.
    each = engine(histograms={"ttft": mean_of(0.30), "prefill_time": mean_of(0.20)})
    two = (each, replace(each, identity="engine 1"))
    facts = replace(decoding(llama_8b(), 0.009, engines=two), busy=Busy(exactly(busy_seconds), "samples"))
    found = attribute_ttft(facts, measured(ttft__mean=0.30))
    assert found is not None
    assert found.share("other requests' prefill") == pytest.approx(others * 200 / 300)


def test_a_first_token_of_which_half_is_told() -> None:
    """200 ms, of a prompt of 4 096 tokens whose 61.575 TFLOP take 62.2 ms at the peak."""
    facts = prefilling(llama_8b(), 4096, 100, 11.53)
    outcomes = measured(ttft__mean=0.2)

    def with_times(**histograms: Histogram) -> WindowFacts:
        return replace(facts, window=window(engine(histograms={"ttft": mean_of(0.2), **histograms})))

    queued = attribute_ttft(with_times(queue=mean_of(0.08)), outcomes)
    assert queued is not None
    assert queued.share("queue") == pytest.approx(0.4)
    assert queued.share("compute floor") == pytest.approx(61.575e12 / 989.4e12 / 0.2, rel=1e-3)
    assert queued.share("kernel ceiling") == pytest.approx(61.575e12 / 989.4e12 * (1 / 0.771 - 1) / 0.2, rel=2e-3)
    # What is neither queue nor prefill is only known where both are.
    assert queued.share("front end", "other requests' prefill") == 0
    # Prefill of 100 x 0.15 s in 11.53 s of work: 1 - 11.53 / 15 of it is other requests'.
    computed = attribute_ttft(with_times(prefill_time=mean_of(0.15)), outcomes)
    assert computed is not None
    assert computed.share("other requests' prefill") == pytest.approx(0.15 * (1 - 11.53 / 15) / 0.2)
    assert computed.share("queue", "front end") == 0
    # Nothing tells how long the engine was busy: no part of it is said to be others'.
    alone = attribute_ttft(replace(with_times(prefill_time=mean_of(0.15)), busy=None), outcomes)
    assert alone is not None
    assert alone.share("other requests' prefill") == 0


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({}, 4096),
        ({"computed_prompt_tokens": 102_400.0}, 1024),  # a quarter of 409 600 was computed, the rest found in the cache
        ({"computed_prompt_tokens": None}, 4096),  # nobody knows: all of it
        ({"mean_prompt_tokens": None}, None),
    ],
)
def test_the_own_prompt_is_what_was_computed_of_it(changes: dict[str, Any], tokens: float | None) -> None:
    own = own_prompt(replace(prefilling(llama_8b(), 4096, 100, 11.53), **changes))
    assert (own.tokens if own else None) == tokens
    if own is not None and tokens is not None:
        assert own.cached == 4096 - tokens


def test_a_first_token_without_a_model_has_no_floor() -> None:
    facts = replace(decoding(llama_8b(model=None), 0.009), window=window(engine(histograms={"queue": mean_of(0.05)})))
    found = attribute_ttft(facts, measured(ttft__mean=0.2))
    assert found is not None
    assert {part.cause: part.share for part in found.shares} == pytest.approx({"queue": 0.25, "not attributed": 0.75})


def test_a_first_token_without_queue_or_prefill_is_not_split() -> None:
    assert attribute_ttft(decoding(llama_8b(), 0.009), measured(ttft__mean=0.3)) is None
    assert attribute_ttft(decoding(llama_8b(), 0.009), {}) is None


fractions = st.none() | st.floats(0, 1)


@given(
    step=st.floats(0.006, 1.0),
    batch=st.floats(1, 64),
    interleaved=st.floats(0, 0.5),
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    transport=fractions,
    waiting=fractions,
    idle_within=fractions,
    idle_between=fractions,
    slow=fractions,
    clock=st.none() | st.floats(0.1, 1.2),
)
def test_shares_add_up_to_one(
    step: float,
    batch: float,
    interleaved: float,
    tensor_parallel: int,
    transport: float | None,
    waiting: float | None,
    idle_within: float | None,
    idle_between: float | None,
    slow: float | None,
    clock: float | None,
) -> None:
    facts = decoding(llama_8b(tensor_parallel=tensor_parallel), step, batch, 500, interleaved=interleaved)
    observed = Observed(
        "trace", transport=transport, waiting=waiting, idle_within=idle_within, idle_between=idle_between,
        slow_kernels=slow, clock=clock, clock_cause="thermal",
    )  # fmt: skip
    for source in (None, observed):
        found = attribute_decode(facts, source)
        if found is None:
            continue
        assert sum(part.share for part in found.shares) == pytest.approx(1)
        assert sum(part.seconds for part in found.shares) == pytest.approx(step)
        assert all(0 < part.share <= 1 for part in found.shares)
        assert len({part.cause for part in found.shares}) == len(found.shares)
