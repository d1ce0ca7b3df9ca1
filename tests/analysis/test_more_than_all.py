"""Utilisations above what hardware can do: refused where that is certain, a lower bound where routing may be skewed."""

from __future__ import annotations

from typing import Any

import pytest
from made_windows import around, deployment, engine, moving, window

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.telemetry.window import Series

TIMES = tuple(float(second) for second in range(61))


def skewed() -> Measurements:
    """A mixture of 128 experts, 8 active: 32 sequences in 3.7 ms a step.

    Even routing reaches 112 of 128 experts: 16 ms. The 8 that all tokens may share, the rest and the cache: 3.3 ms.
    """
    load = engine(
        itl=0.0037, outputs=32 * 16_000, steps=16_000, prompt=100, requests=160, output=3_200, present=(32, 32)
    )  # fmt: skip
    return measure(gather(window(load), deployment("qwen3-30b-a3b"), "decode"))


@pytest.mark.parametrize("metric", ["decode.mbu", "window.mbu", "roofline.efficiency"])
def test_even_routing_that_would_take_more_than_all_bandwidth_leaves_a_lower_bound(metric: str) -> None:
    one = skewed()[metric]
    assert isinstance(one, Measurement)
    assert one.judged_by == "bounds"
    assert one.value < 1 < one.bounded.high
    assert "even routing" in (one.undecided or "")
    assert judge(parse_gate(f"{metric} >= 20%"), one).word == "pass"
    assert judge(parse_gate(f"{metric} >= 95%"), one).word == "no data"
    assert judge(parse_gate(f"{metric} <= 99%"), one).word == "no data"


def test_a_floor_above_the_step_is_none() -> None:
    one = skewed()["decode.floor"]
    assert isinstance(one, Measurement)
    assert one.judged_by == "bounds"
    assert one.value < 0.0037


def prompts(requests: int, **changes: Any) -> Measurements:
    """Prompts of 4 096 tokens, one output each, between 10 and 30 s of a minute."""
    load = engine(
        prompt=4096, requests=requests, output=1, present=None,
        gauges={name: Series(TIMES, (0.0,) * 61) for name in ("running", "waiting")}, **changes,
    )  # fmt: skip
    made = window(load, progress=moving(TIMES, 10.0, 30.0), samples=61)
    return measure(gather(made, deployment("llama-3.1-8b"), "prefill"))


@pytest.mark.parametrize("metric", ["prefill.mfu", "window.mfu", "roofline.efficiency"])
def test_more_than_the_peak_over_the_busy_time_is_impossible(metric: str) -> None:
    # 600 x 4 096 x 2 x 7.5e9 = 36.9 PFLOP in the 20 s of the load are 186 % of one H100, 62 % over the whole minute.
    found = prompts(600)[metric]
    assert isinstance(found, Impossible)
    assert "the tokens of this load (20 s) need" in found.reason
    assert "tensor_parallel" in found.check


def test_boost_clocks_are_healthy() -> None:
    # 330 prompts: 20.3 PFLOP and 1.2 % of attention in 20 s, 104 % of the peak.
    assert isinstance(prompts(330)["prefill.mfu"], Measurement)


def test_prompts_that_share_a_step_are_not_served_one_at_a_time() -> None:
    # 200 prompts, two in each step of 0.2 s: 40 s of prefill time in the 20 s of the load, and no sample saw either.
    one = prompts(200, histograms={"prefill_time": around(0.2, 200)})["prefill.mfu"]
    assert isinstance(one, Measurement)
    assert "one at a time" not in one.method
    assert one.value == pytest.approx(200 * 4096 * 2 * 7_504_924_672 / 989.4e12 / 19, rel=0.01)  # 18 .. 20 s


def test_a_prompt_is_at_work_before_it_is_counted() -> None:
    # The gauges see requests from 5 s on; the first prompt is through at 10 s.
    present = tuple(1.0 if 5 <= time < 30 else 0.0 for time in TIMES)
    load = engine(prompt=100_000, requests=4, output=1, present=None, gauges={"running": Series(TIMES, present)})
    facts = gather(window(load, progress=moving(TIMES, 10.0, 30.0), samples=61), deployment("llama-3.1-8b"), "prefill")
    assert facts.busy is not None
    assert (facts.busy.seconds.low, facts.busy.seconds.high) == (24.0, 26.0)  # 4 .. 5 s to 29 .. 30 s


def test_two_samples_that_frame_a_load_do_not_bound_its_batch() -> None:
    # 64 sequences for 10 of the 60 s. No step counter; one request was there at the first scrape, none at the last.
    load = engine(itl=0.008, outputs=64 * 1250, prompt=100, requests=64, output=1251, present=(1, 0))
    found = measure(gather(window(load), deployment("llama-3.1-8b"), "decode"))
    batch, efficiency = found["decode.batch"], found["roofline.efficiency"]
    assert isinstance(batch, Measurement)
    assert batch.bounded.low == pytest.approx(64 * 10 / 60, rel=0.01)
    assert batch.bounded.high >= 64
    assert isinstance(efficiency, Measurement)
    assert efficiency.judged_by == "bounds"
    assert judge(parse_gate("roofline.efficiency <= 70%"), efficiency).word == "no data"
