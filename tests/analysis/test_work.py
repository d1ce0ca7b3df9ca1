"""Prefill and whole-window measurements: their time bases, and what is said where one of them is missing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from made_windows import GOLDEN_GPU, around, deployment, engine, figures, moving, window

from pytest_llmroof.analysis.beyond import within_reach
from pytest_llmroof.analysis.facts import PrefillFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.analysis.prefillmetrics import _of_tokens
from pytest_llmroof.analysis.prompts import prompt_step
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.window import Engine, Series, Window

exactly = Bounded.exactly
EIGHT = deployment(figures(parameters=8e9), GOLDEN_GPU)


def of(made: Window, on: Deployment = EIGHT) -> Measurements:
    return measure(gather(made, on))


def measured(outcome: Outcome) -> Measurement:
    assert isinstance(outcome, Measurement), outcome
    return outcome


def no_data(outcome: Outcome) -> NoData:
    assert isinstance(outcome, NoData), outcome
    return outcome


def decoding(**changes: Any) -> Engine:
    made: dict[str, Any] = {"itl": 0.02, "outputs": 24_000, "steps": 3000, "prompt": 100, "output": 800, "requests": 30}
    return engine(**{**made, "present": (8, 8), **changes})


def test_the_window_counts_idle_time_and_efficiency_does_not() -> None:
    # 30 s of decoding (1 500 steps of 8 sequences, 16 GB each) in a window of 60 s: 4.776 ms of 20 ms while it works.
    times = [0.5 * i for i in range(121)]
    running = Series(tuple(times), tuple(8.0 if 10 <= time <= 40 else 0.0 for time in times))
    made = decoding(outputs=12_000, steps=1500, requests=15, prompt=0, gauges={"running": running}, present=None)
    m = of(window(made, progress=moving(times, 10.0, 40.0), samples=121))
    assert measured(m["window.mbu"]).value == pytest.approx(1500 * 16e9 / (3.35e12 * 60))
    assert measured(m["roofline.efficiency"]).value == pytest.approx(1500 * 16e9 / (3.35e12 * 30), rel=1e-3)
    assert measured(m["decode.mbu"]).value == pytest.approx(16e9 / (3.35e12 * 0.02))
    # Every token that passed through the model: 12 000 x 16e9 FLOP over 60 s.
    assert measured(m["window.mfu"]).value == pytest.approx(12_000 * 16e9 / (989e12 * 60))


def test_efficiency_takes_the_larger_roof_and_its_high_end_both() -> None:
    # 3 000 decode steps read 16 GB each: 14.33 s of 60. 240 000 prompt tokens compute 3.88 s. Together 18.2 at most.
    m = of(window(decoding(prompt=8000, requests=30, present=(8, 8))))
    found = measured(m["roofline.efficiency"])
    memory = 3000 * 16e9 / 3.35e12
    assert found.value == pytest.approx(memory / 60, rel=1e-3)
    assert found.bounded.high == pytest.approx((memory + 240_000 * 16e9 / 989e12) / 60, rel=0.06)


def test_one_request_at_a_time_is_exact() -> None:
    # Thirty prompts of 8 000 tokens, 0.5 s each, one after the other: 15 s of prefill whatever the window.
    times = tuple(float(i) for i in range(61))
    made = engine(
        prompt=8000, requests=30, present=None, histograms={"prefill_time": around(0.5, 30)},
        gauges={"running": Series(times, (1.0,) * 61), "waiting": Series(times, (0.0,) * 61)},
    )  # fmt: skip
    mfu = measured(of(window(made, progress=moving(times, 0.0, 60.0), samples=61))["prefill.mfu"])
    assert mfu.value == pytest.approx(240_000 * 16e9 / (989e12 * 15))
    assert "one at a time" in mfu.method
    assert mfu.judged_by == "value"


def test_prefill_bandwidth_by_estimated_steps() -> None:
    # 240 000 tokens in steps of 2 048: 118 passes over 16 GB; 15 at the largest budget; 16 chunks a prompt at most.
    m = of(window(engine(prompt=8000, requests=30, present=(1, 1))))
    mbu = measured(m["prefill.mbu"])
    assert "118 steps with prompts, estimated," in mbu.method
    assert mbu.value == pytest.approx(118 * 16e9 / (3.35e12 * 60))
    # Of the 30 prompts one may have been computed before, and another one that runs at the end, too.
    assert mbu.bounded.low == pytest.approx(29 / 30 * 15 * 16e9 / (3.35e12 * 60))
    assert mbu.bounded.high == pytest.approx(31 / 30 * 480 * 16e9 / (3.35e12 * 60))
    # A mean step of 2 034 tokens: 2 034 x 16e9 FLOP over 16e9 bytes.
    assert measured(m["prefill.intensity"]).value == pytest.approx(240_000 / 118)


@pytest.mark.parametrize("metric", ["prefill.mfu", "prefill.mbu", "prefill.tokens_per_second", "roofline.efficiency"])
def test_without_any_clock_there_is_no_time_to_measure_over(metric: str) -> None:
    outcome = no_data(of(window(engine(prompt=8000, requests=30, present=(0, 0)), seconds=None))[metric])
    assert "how long the engine was at work" in outcome.reason
    assert "scraped_at" in str(outcome.remedy)


@pytest.mark.parametrize("metric", ["window.mfu", "window.mbu"])
def test_the_whole_window_needs_a_clock(metric: str) -> None:
    assert "no clock" in no_data(of(window(decoding(), seconds=None))[metric]).reason


def test_prompts_that_were_all_cached_or_not_counted() -> None:
    cached = window(decoding(computed=0.0))
    assert "no prompt token was computed" in no_data(of(cached)["prefill.mfu"]).reason
    made = decoding()
    kept = {name: made.counters[name] for name in ("steps", "generation_tokens")}
    uncounted = of(window(replace(made, counters=kept)))
    assert "exports no count of prompt tokens" in no_data(uncounted["prefill.mfu"]).reason


def test_decoded_tokens_without_latencies_still_count_as_work() -> None:
    made = decoding()
    kept = {name: held for name, held in made.histograms.items() if name != "itl"}
    m = of(window(replace(made, histograms=kept)))
    # 24 000 decoded and 3 000 prompt tokens of 16e9 FLOP in 60 s.
    assert measured(m["window.mfu"]).value == pytest.approx(27_000 * 16e9 / (989e12 * 60))
    assert "no steps" in no_data(m["window.mbu"]).reason
    assert "exports no histogram of inter-token latencies" in no_data(m["decode.mbu"]).reason
    nothing = of(window(replace(made, counters={}, histograms={})))
    assert "exports no count of tokens" in no_data(nothing["window.mfu"]).reason


def test_decode_time_stands_in_for_latencies() -> None:
    made = decoding(histograms={"decode_time": around(16.0, 30)})
    kept = {name: held for name, held in made.histograms.items() if name != "itl"}
    decode = of(window(replace(made, histograms=kept))).facts.decode
    assert decode is not None
    assert decode.step_seconds.value == pytest.approx(30 * 16 / 24_000)
    assert "decode time" in decode.basis


def test_requests_own_times_bound_the_busy_time() -> None:
    # Ten requests of 0.1 s prefill and 1 s decode each cannot have kept the engine busy for longer than 11 s.
    made = decoding(
        itl=0.1, outputs=100, steps=50, requests=10, present=(0, 0),
        histograms={"prefill_time": around(0.1, 10), "decode_time": around(1.0, 10)},
    )  # fmt: skip
    busy = of(window(made)).facts.busy
    assert busy is not None
    assert busy.seconds.high == pytest.approx(11.0)
    assert busy.seconds.low == pytest.approx(5.0)  # 50 steps of 100 ms
    assert "own prefill and decode time" in busy.basis
    partly = of(window(made, decoding(identity="engine 1", present=(0, 0)))).facts.busy
    assert partly is not None
    assert partly.seconds.high == pytest.approx((11.0 + 60.0) / 2)


def test_exact_flops_count_attention() -> None:
    made = window(engine(prompt=8192, requests=60, present=(1, 1)))
    by_model = measured(of(made, deployment("llama-3.1-8b"))["prefill.mfu"])
    exact = measured(of(made, deployment("llama-3.1-8b", flops="exact"))["prefill.mfu"])
    # A prompt of 8 192: 8 192 x 2 x 6.98e9 without logits, and 4 x 32 x 128 x 32 x 8 192² / 2 of causal attention.
    dense = 8192 * 2 * (7_504_924_672 - 128_256 * 4096) + 2 * 128_256 * 4096
    attention = 4 * 32 * 128 * 32 * 8192 * 8193 / 2
    assert exact.value == pytest.approx((dense + attention) * 60 / (989.4e12 * 60), rel=2e-3)
    assert by_model.value == pytest.approx(8192 * 2 * 7_504_924_672 * 60 / (989.4e12 * 60), rel=1e-3)
    assert "convention exact" in exact.method


def test_a_decode_window_of_one_token_outputs_has_no_decode() -> None:
    made = engine(prompt=100, output=1, requests=30, present=(1, 1), histograms={"itl": around(0.0, 0.0)})
    assert "every request had one output token" in no_data(of(window(made))["decode.step_time"]).reason


def test_gauges_of_servers_with_clocks_of_their_own() -> None:
    # Two servers sampled at different moments: at each moment the last sample of either counts.
    def server(name: str, offset: float) -> Engine:
        times = tuple(offset + i for i in range(20))
        return decoding(identity=name, present=None, gauges={"running": Series(times, (4.0,) * 20)})

    m = of(window(server("a", 0.0), server("b", 0.5), seconds=19.5))
    running = measured(m["running.mean"])
    assert running.value == 8.0
    assert running.samples == 39


def test_memory_contradictions_say_what_each_gpu_holds() -> None:
    outcome = of(window(decoding()), deployment("llama-3.1-405b", "h100", 4))["decode.mbu"]
    assert isinstance(outcome, Impossible)
    # 405.9e9 parameters of two bytes on four GPUs: 203 GB on each.
    assert "weights 812 GB do not fit (203 GB on each GPU): 4 x h100-sxm5-80gb with 80 GB each" in outcome.reason
    assert "tensor_parallel: 16" in outcome.check


def test_more_decode_flops_than_the_peak() -> None:
    # 2 000 sequences of 16e9 FLOP in 20 ms: 1 600 TFLOP/s of 989, while 16 GB could be read in that time.
    made = decoding(outputs=2000 * 3000, requests=7500, present=(2000, 2000))
    outcome = of(window(made))["decode.mfu"]
    assert isinstance(outcome, Impossible)
    assert outcome.implied == pytest.approx(2000 * 16e9 / (989e12 * 0.02), rel=1e-3)
    assert "boost clocks included: 162 % of the peak" in outcome.reason


def test_requests_left_at_the_end_are_in_no_time_of_finished_ones() -> None:
    # Ten requests finished, 11 s of prefill and decode; those that still run have times of their own. Where no gauge
    # tells how many there are, the window is the bound.
    times = {"prefill_time": around(0.1, 10), "decode_time": around(1.0, 10)}
    for present in ((0, 4), None):
        made = decoding(itl=0.1, outputs=100, steps=50, requests=10, present=present, histograms=times)
        busy = of(window(made)).facts.busy
        assert busy is not None
        assert busy.seconds.high == pytest.approx(60.0)


def test_work_that_the_requests_own_times_have_no_room_for_is_impossible() -> None:
    # 1 500 steps read 16 GB each: 1 500 x 16e9 / 3.35e12 = 7.16 s, and the requests say 15 x (0.1 + 0.1) = 3 s.
    times = {"prefill_time": around(0.1, 15), "decode_time": around(0.1, 15)}
    made = decoding(outputs=12_000, steps=1500, requests=15, prompt=0, present=(0, 0), histograms=times)
    m = of(window(made))
    found = m["roofline.efficiency"]
    assert isinstance(found, Impossible)
    assert "takes 7.16 s at least" in found.reason
    assert "at work for 3 s at most (the requests' own prefill and decode time" in found.reason
    # The step's own time is another counter, and the window's clock is nobody's.
    assert measured(m["decode.mbu"]).value == pytest.approx(16e9 / (3.35e12 * 0.02))
    assert measured(m["window.mbu"]).value == pytest.approx(1500 * 16e9 / (3.35e12 * 60))
    enough = {"prefill_time": around(0.1, 15), "decode_time": around(0.4, 15)}  # 15 x 0.5 = 7.5 s
    m = of(window(decoding(outputs=12_000, steps=1500, requests=15, prompt=0, present=(0, 0), histograms=enough)))
    assert measured(m["roofline.efficiency"]).value == pytest.approx(7.164 / 7.5, rel=1e-3)


@pytest.mark.parametrize(("prompt_seconds", "fits"), [(0.01518, True), (0.005, False)])
def test_several_gpus_have_room_for_the_work_of_several(prompt_seconds: float, fits: bool) -> None:
    # 100 prompts of 1 000 tokens of 16e9 FLOP: 1.6e15 / (2 x 989e12) = 0.809 s of two GPUs. The requests' own times are
    # 100 x (15.18 + 1 ms) = 1.618 s, or 100 x (5 + 1 ms) = 0.6 s.
    times = {"prefill_time": around(prompt_seconds, 100), "decode_time": around(0.001, 100)}
    made = engine(prompt=1000, requests=100, present=(0, 0), histograms=times)
    found = of(window(made), replace(EIGHT, tensor_parallel=2))["roofline.efficiency"]
    assert isinstance(found, Measurement if fits else Impossible)
    if isinstance(found, Measurement):
        assert found.value == pytest.approx(0.809 / 1.618, rel=1e-2)


@pytest.mark.parametrize(("lost", "counted", "left_out"), [
    (("generation_tokens",), 3_000, "generated tokens"),
    (("prompt_tokens", "prompt_tokens_computed"), 24_000, "prompt tokens"),
])  # fmt: skip
def test_tokens_that_are_not_counted_make_a_lower_bound(lost: tuple[str, ...], counted: int, left_out: str) -> None:
    # 24 000 decoded and 3 000 prompt tokens of 16e9 FLOP in 60 s: what is counted of them, and nobody knows the rest.
    made = decoding(present=(0, 0))
    rid = replace(
        made,
        counters={name: value for name, value in made.counters.items() if name not in lost},
        histograms={name: held for name, held in made.histograms.items() if name != "itl"},
    )
    mfu = measured(of(window(rid))["window.mfu"])
    assert mfu.value == mfu.bounded.low == pytest.approx(counted * 16e9 / (989e12 * 60))
    assert mfu.bounded.high == math.inf
    assert mfu.judged_by == "bounds"
    assert f"{left_out} are not counted here" in mfu.method


def test_steps_that_nobody_tells_leave_a_lower_bound() -> None:
    # Of 3 000 prompt tokens 8 x 100 may be from before the first sample. With 24 000 decoded ones, 26 200 x 16e9 /
    # 989e12 = 0.424 s of 60; how often the weights were read for them is not known. Nor is which part of the 60 s was
    # prefill's: at the least its tokens took all of it.
    made = decoding()
    untold = replace(made, histograms={name: held for name, held in made.histograms.items() if name != "itl"})
    m = of(window(untold))
    efficiency = measured(m["roofline.efficiency"])
    assert efficiency.value == efficiency.bounded.low == pytest.approx(26_200 * 16e9 / 989e12 / 60)
    assert efficiency.bounded.high == math.inf
    assert "nothing tells the decode steps" in (efficiency.undecided or "")
    mfu = measured(m["prefill.mfu"])
    assert mfu.value == mfu.bounded.low == pytest.approx(2_200 * 16e9 / (989e12 * 60))
    assert mfu.judged_by == "bounds"
    assert "nothing tells prefill's part of the time" in (mfu.undecided or "")


def test_only_what_errors_of_measuring_explain_is_said_to_be_explained_by_them() -> None:
    facts = of(window(decoding())).facts

    def reached(share: float) -> Measurement | Impossible:
        return within_reach(facts, Measurement("decode.mbu", Bounded.exactly(share), "fraction", "vllm", "how"))

    slightly, far, below = reached(1.016), reached(2.39), reached(0.9)
    assert isinstance(slightly, Measurement)
    assert slightly.doubted == (
        "102 % of a peak is more than any hardware reaches, though not by more than errors of measuring explain"
    )
    assert isinstance(far, Impossible)
    assert "239 % of a peak is more than any hardware reaches, and by more than errors of measuring" in far.reason
    assert isinstance(below, Measurement)
    assert below.doubted is None


def test_no_rounding_moves_an_end_beyond_its_value() -> None:
    """Bytes times a number of tokens over the same number are not always the same bytes to the last bit."""
    step = prompt_step(1000.0, 1.0, 0.0, 1.0)
    moved = exactly(542_400_487_424.00006)
    assert any(moved.value * tokens / tokens > moved.value for tokens in range(1, 2000))
    for tokens in range(1, 2000):
        prefill = PrefillFacts(exactly(float(tokens)), 1.0, exactly(1.0), False, step)
        assert _of_tokens(moved, prefill) == moved
