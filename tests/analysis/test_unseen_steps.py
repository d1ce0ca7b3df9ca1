"""Decode steps that nothing counts are no work of nothing: they are reckoned for the phase, or it stays unknown."""

from __future__ import annotations

import math
from typing import Any

import pytest
from made_windows import around, deployment, window

from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.telemetry.window import Engine, Histogram, Series


def trtllm(
    *, requests: float = 400.0, prompt: float = 500.0, output: float = 200.0, tpot: float | None = 0.010,
    e2e: float | None = None, cached: float | None = 0.0,
) -> Engine:  # fmt: skip
    """A page without times between tokens: requests, their tokens, and how long they took on average."""
    histograms: dict[str, Histogram] = {"ttft": around(0.1, requests)}
    if tpot is not None:
        histograms["tpot"] = around(tpot, requests)
    if e2e is not None:
        histograms["e2e"] = around(e2e, requests)
    counters = {"prompt_tokens": prompt * requests, "generation_tokens": output * requests}
    if cached is not None:
        counters["prompt_tokens_cached"] = cached
    idle = {name: Series((0.0, 60.0), (0.0, 0.0)) for name in ("running", "waiting")}
    return Engine("engine", "m", counters, histograms, idle, {"length": requests}, {})


def facts(phase: Any = None, model: str | None = "llama-3.1-8b", **page: Any) -> WindowFacts:
    made = window(trtllm(**page), kind="trtllm", conventions=frozenset({"tokens_at_finish"}))
    return gather(made, deployment(model), phase)


def test_decode_time_by_littles_law_makes_the_work_of_decoding() -> None:
    """400 requests of 500 prompt and 200 output tokens in 60 s.

    79 600 decoded tokens of 10 ms are 796 s: 13.3 sequences at a time in 60 s, so 6 000 steps. A step reads 15.0 GB of
    weights and 13.3 x 600 x 131 072 B = 1.0 GB of cache: 16.1 GB / 3.35 TB/s = 4.8 ms; 6 000 of them 28.8 s.
    """
    found = facts()
    assert found.decode_floor_seconds == pytest.approx(28.8, rel=0.01)
    # 200 000 prompt tokens: 2 x 7.5e9 x 200 000 = 3.0e15 FLOP and some attention / 989.4e12 = 3 s at the most.
    assert found.prefill_floor_seconds == pytest.approx(2.85, rel=0.05)
    # Decode has more than nine tenths, though not 95 %.
    assert found.prefill_share == pytest.approx(0.077, abs=0.01)
    assert found.phase == "mixed"
    assert found.decode is None  # no metric rests on it
    assert found.notes == (
        "nothing counts decode steps: for the phase 6000 of them are reckoned, as 79 600 tokens of 10 ms each make "
        "13.3 sequences at a time",
    )


def test_a_written_decode_phase_is_not_contradicted() -> None:
    found = facts("decode")
    assert found.contradiction is None
    outcome = measure(found)["decode.mbu"]
    assert isinstance(outcome, NoData)
    assert "its traffic is not" not in outcome.reason
    # 28.8 s of 31.2 s in which both share the passes over the weights.
    assert facts("prefill").contradiction == (
        "the window is written as prefill, but its traffic is not: prefill 9 % of the work's floor, decode 91 %"
    )


def test_short_prompts_and_long_answers_are_a_decode_window() -> None:
    assert facts(prompt=50.0).phase == "decode"


def test_long_prompts_and_two_tokens_are_still_a_prefill_window() -> None:
    """400 tokens of 10 ms are 4 s: one sequence at a time, 400 steps of 4.5 ms; against that 400 x 8 000 tokens."""
    assert facts(prompt=8000.0, output=2.0).phase == "prefill"


def test_where_only_whole_requests_are_timed_their_ends_tell() -> None:
    """2.09 s in all less 0.1 s to the first token: 1.99 s for 199 tokens, the same 10 ms."""
    found = facts(tpot=None, e2e=2.09)
    assert found.decode_floor_seconds == pytest.approx(28.8, rel=0.01)


def test_where_nothing_tells_the_phase_stays_unknown_and_that_is_said() -> None:
    """98 % of the tokens are prompt: of time that says nothing."""
    found = facts(tpot=None, prompt=10_000.0)
    assert found.phase == "mixed"
    assert found.decode_floor_seconds is None
    assert found.notes == (
        "nothing tells how long the decoded tokens took: which phase took the time is not known; write `phase:`",
    )


def test_prompts_alone_have_no_decode_steps_to_reckon() -> None:
    found = facts(output=1.0, tpot=None)
    assert (found.phase, found.notes) == ("prefill", ())


def test_no_figure_counts_the_reckoned_steps() -> None:
    outcomes = measure(facts())
    assert isinstance(outcomes["window.mbu"], NoData)
    efficiency = outcomes["roofline.efficiency"]
    assert isinstance(efficiency, Measurement)
    assert math.isinf(efficiency.high)


@pytest.mark.parametrize(("outputs", "phase"), [(50.0, "prefill"), (2000.0, "mixed")])
def test_few_decoded_tokens_leave_a_window_of_prompts_what_it_is(outputs: float, phase: str) -> None:
    """llama.cpp counts no requests: each predicted token may be a decode step, of 15.0 GB / 3.35 TB/s = 4.5 ms.

    400 000 prompt tokens take 2 x 7.5e9 x 400 000 / 989e12 = 6 s at the least: 50 such steps are 0.2 s, or 4 %, and
    2 000 are 9 s.
    """
    engine = Engine("engine", "m", {"prompt_tokens_computed": 400_000.0, "generation_tokens": outputs}, {}, {}, {}, {})
    found = gather(window(engine, kind="llamacpp"), deployment("llama-3.1-8b"))
    assert found.phase == phase
    assert bool(found.notes) is (phase == "mixed")


def test_prompts_of_an_engine_that_counts_no_requests_are_no_longer_than_the_longest_sequence() -> None:
    """400 000 computed prompt tokens in 60 s; two sequences of at most 8 192 tokens run at either end.

    (400 000 - 16 384) / 60 = 6 393 a second at the least, (400 000 + 16 384) / 60 = 6 940 at the most.
    """
    gauges = {"running": Series((0.0, 60.0), (2.0, 2.0)), "longest_sequence": Series((0.0, 60.0), (8192.0, 8192.0))}
    counters = {"prompt_tokens_computed": 400_000.0, "generation_tokens": 50.0}
    engine = Engine("engine", "m", counters, {}, gauges, {}, {})
    measurements = measure(gather(window(engine, kind="llamacpp"), deployment("llama-3.1-8b")))
    rate = measurements["prefill.tokens_per_second"]
    assert isinstance(rate, Measurement)
    assert rate.value == pytest.approx(6667, abs=1)
    assert rate.low == pytest.approx(6393, abs=1)
    assert rate.high == pytest.approx(6940, abs=1)
    mfu = measurements["prefill.mfu"]
    assert isinstance(mfu, Measurement)
    # Fifty decode steps are no part of the time worth speaking of: it decides, and not as a bound.
    assert mfu.judged_by == "value"
    assert mfu.low == pytest.approx(mfu.value * 6393 / 6667, rel=1e-3)
