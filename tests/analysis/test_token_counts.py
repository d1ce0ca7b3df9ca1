"""Tokens of a window by hand: what stands for what is not counted, what hides at the edges, and which steps hold it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from made_windows import around, deployment, engine, window

from pytest_llmroof.analysis.floors import decode_step
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.prompts import counted_prompt_steps, in_steps
from pytest_llmroof.analysis.residency import context_from_blocks
from pytest_llmroof.analysis.tokens import (
    Tokens,
    count_tokens,
    finished_requests,
    lengths_are_representative,
    requests_at,
)
from pytest_llmroof.telemetry.window import Engine, Histogram, Series, Window

NOTHING = deployment(None, None)


def counted(**changes: Any) -> Tokens:
    """1 000 prompt tokens of which all were computed, 2 000 output tokens, 10 requests."""
    known: dict[str, Any] = {"prompt": 1000.0, "computed": 1000.0, "generated": 2000.0, "first": 10.0,
                             "finished": 10.0, "mean_prompt": 100.0, "mean_output": 200.0}  # fmt: skip
    return Tokens(**{**known, **changes})


def bare(**kept: Any) -> Engine:
    return Engine("engine 0", "m", counters={"prompt_tokens": 1000.0, "generation_tokens": 2000.0}, **kept)


def test_requests_are_those_that_began_else_those_that_ended() -> None:
    # 1 000 prompt tokens of 8 first outputs are 125 each, of 10 that finished 100; of neither nobody knows.
    begun = count_tokens(window(bare(histograms={"ttft": around(0.1, 8)}, finished={"stop": 10.0})))
    assert (begun.mean_prompt, begun.first, begun.finished) == (125, 8, 10)
    ended = count_tokens(window(bare(finished={"stop": 10.0})))
    assert (ended.mean_prompt, ended.mean_output, ended.first) == (100, 200, None)
    assert count_tokens(window(bare())).mean_prompt is None


def test_finished_requests_by_the_first_that_tells_them() -> None:
    def finished(**kept: Any) -> float | None:
        return finished_requests(window(engine_of(**kept), replace(engine_of(**kept), identity="engine 1")))

    reasons, ended = {"stop": 10.0, "abort": 2.0}, {"e2e": around(2.0, 7)}
    assert finished(counters={"requests_finished": 9.0}, finished=reasons, histograms=ended) == 18
    assert finished(finished=reasons, histograms=ended) == 24
    assert finished(histograms=ended) == 14
    assert finished() is None


def engine_of(**kept: Any) -> Engine:
    return Engine("engine 0", "m", **kept)


def test_a_sum_needs_every_engine() -> None:
    counting, silent = engine_of(counters={"decode_tokens": 500.0}), replace(engine_of(), identity="engine 1")
    also = replace(counting, identity="engine 1")
    assert count_tokens(window(counting, also)).counted_decodes == 1000
    assert count_tokens(window(counting, silent)).counted_decodes is None
    assert count_tokens(window(silent)).counted_decodes is None


def test_of_outputs_of_unknown_length_the_longest_sequence_of_any_engine_is_the_bound() -> None:
    def holding(longest: float, name: str) -> Engine:
        gauges = {"running": Series((0.0, 60.0), (3.0, 2.0)), "longest_sequence": Series((0.0, 60.0), (90.0, longest))}
        return replace(bare(gauges=gauges), identity=name)

    made = window(holding(300.0, "engine 0"), holding(500.0, "engine 1"), conventions=frozenset({"tokens_at_finish"}))
    assert count_tokens(made).outputs_in_flight == (6 * 500, 4 * 500)


def test_prompt_tokens_that_came_damaged_are_not_made_up_from_others() -> None:
    computed = {"prompt_tokens_computed": 900.0}
    sound, damaged = engine_of(counters=computed), engine_of(counters=computed, unusable={"prompt_tokens": "it fell"})
    assert count_tokens(window(sound)).prompt == 900
    assert count_tokens(window(damaged)).prompt is None
    assert count_tokens(window(sound, replace(damaged, identity="engine 1"))).prompt is None


def present(one: Engine, *others: Engine, **changes: Any) -> tuple[float | None, float | None]:
    made = window(one, *others, **changes)
    return requests_at(made, 0), requests_at(made, -1)


def test_requests_at_a_windows_ends_are_those_that_run_and_those_that_wait() -> None:
    run, wait = Series((0.0, 30.0, 60.0), (3.0, 9.0, 5.0)), Series((0.0, 30.0, 60.0), (2.0, 9.0, 7.0))
    one, other = bare(gauges={"running": run, "waiting": wait}), bare(gauges={"running": run})
    assert present(one) == (5, 12)
    assert present(one, replace(other, identity="engine 1")) == (8, 17)
    # Of an engine that does not tell what runs nothing is known of the whole, nor of one that does not tell what waits.
    assert present(one, replace(bare(), identity="engine 1")) == (None, None)
    assert present(bare(gauges={"waiting": wait})) == (None, None)


def test_a_gauge_that_is_not_on_an_ends_page_does_not_tell_of_it() -> None:
    run, usage = Series((0.0, 30.0), (3.0, 9.0)), Series((0.0, 30.0, 60.0), (0.1, 0.5, 0.3))
    assert present(bare(gauges={"running": run, "kv_usage": usage})) == (3, None)
    late = Series((30.0, 60.0), (9.0, 5.0))
    assert present(bare(gauges={"running": late, "kv_usage": usage})) == (None, 5)
    whole = Series((0.0, 60.0), (3.0, 5.0))
    assert present(bare(gauges={"running": whole, "waiting": Series((0.0, 30.0), (1.0, 1.0))})) == (4, None)
    # The pages of the window were 60 s apart; an engine that was there for 30 s of them had its own.
    progress = Series((0.0, 60.0), (0.0, 100.0))
    assert present(bare(gauges={"running": run}), progress=progress) == (3, None)
    assert present(bare(gauges={"running": run}, seen=(0.0, 30.0)), progress=progress) == (3, 9)


@pytest.mark.parametrize(
    ("running", "since_start", "mean"),
    [((0.0, 2.0), False, 250), ((3.0, 2.0), False, None), ((3.0, 2.0), True, 250), (None, False, None)],
)
def test_outputs_of_requests_that_began_are_those_of_a_window_that_began_idle(
    running: tuple[float, float] | None, since_start: bool, mean: float | None
) -> None:
    # 2 000 tokens of 8 first outputs; nothing counts those that finish.
    gauges = {"running": Series((0.0, 60.0), running)} if running is not None else {}
    made = window(bare(histograms={"ttft": around(0.1, 8)}, gauges=gauges), since_start=since_start)
    assert count_tokens(made).mean_output == mean


def test_a_share_of_hits_is_one_whatever_was_computed_twice() -> None:
    assert counted(computed=400.0).hit_rate == pytest.approx(0.6)
    # Requests that were thrown out of the cache were computed again: more than was asked.
    assert counted(computed=1200.0).hit_rate == 0
    assert counted(computed=0.0).hit_rate == 1
    assert counted(computed=None).hit_rate is None
    assert counted(prompt=0.0).hit_rate is None


def test_what_a_client_counts_hides_nothing_at_the_edges() -> None:
    tokens = counted()
    assert tokens.computed_bounds is not None
    assert tokens.generated_bounds is not None
    assert tokens.computed_bounds.exact
    assert tokens.generated_bounds.exact
    assert tokens.decoded == 1990


def test_decoded_are_all_but_the_first_token_of_each_request() -> None:
    assert counted(first=8.0).decoded == 1992
    assert counted(first=None).decoded == 1990
    assert counted(first=None, finished=None).decoded == 2000
    assert counted(generated=8.0).decoded == 0  # first ones came that are not counted yet
    assert counted(generated=None).decoded is None
    assert counted(counted_decodes=1985.0).decoded == 1985


def test_where_nothing_tells_hits_only_one_token_of_each_request_was_computed_for_certain() -> None:
    def least(**changes: Any) -> float | None:
        bounds = counted(hits_counted=False, **changes).computed_bounds
        return bounds.low if bounds is not None else None

    assert least(first=8.0) == 8
    assert least(first=None) == 10
    assert least(first=None, finished=None) == 0
    assert least(computed=5.0) == 5
    assert least(first=8.0, in_flight=(6.0, 0.0)) == 2
    assert least(first=8.0, in_flight=(9.0, 0.0)) == 0
    assert least(computed=None) is None


def test_hits_are_told_where_every_engine_tells_them() -> None:
    telling = engine(prompt=100, requests=10)
    silent = replace(bare(finished={"stop": 10.0}), identity="engine 1")
    assert count_tokens(window(telling)).hits_told
    assert not count_tokens(window(silent)).hits_told
    assert not count_tokens(window(telling, silent)).hits_told


@pytest.mark.parametrize(
    ("generated", "present", "alike"),
    [
        (2000.0, (3.0, 2.0), True),
        (2600.0, (3.0, 2.0), False),  # 10 of 200 tokens finished: of 30 % more most are of others
        (1400.0, (3.0, 2.0), False),
        (2600.0, (0.0, 2.0), False),
        (2600.0, (3.0, 0.0), False),
        (2600.0, (0.0, 0.0), True),  # nothing reaches beyond
        (0.0, (3.0, 2.0), True),
        # Where no gauge tells of any only a steady load is known to be one.
        (2000.0, None, True),
        (2600.0, None, False),
    ],
)
def test_finished_requests_speak_for_all_where_few_reach_beyond_the_window(
    generated: float, present: tuple[float, float] | None, alike: bool
) -> None:
    made = window(engine(prompt=100, requests=10, output=200, present=present))
    assert lengths_are_representative(made, counted(generated=generated)) is alike


@pytest.mark.parametrize(
    ("running", "since_start", "low", "high"),
    [
        # Outputs of 200 tokens each: three that ran at the start may be of before, two at the end are not counted yet.
        ((3.0, 2.0), False, 2000 - 600, 2000 + 400),
        ((3.0, 2.0), True, 2000, 2000 + 400),  # counters that began at zero with the window
        ((0.0, 0.0), False, 2000, 2000),
        (None, False, 0, math.inf),
    ],
)
def test_tokens_that_count_at_the_finish_are_bounded_by_what_runs_at_the_edges(
    running: tuple[float, float] | None, since_start: bool, low: float, high: float
) -> None:
    gauges = {"running": Series((0.0, 60.0), running)} if running is not None else {}
    made = window(bare(finished={"stop": 10.0}, gauges=gauges), conventions=frozenset({"tokens_at_finish"}))
    bounds = count_tokens(replace(made, since_start=since_start)).generated_bounds
    assert bounds is not None
    assert (bounds.low, bounds.value, bounds.high) == (low, 2000, high)


@pytest.mark.parametrize("conventions", [(), ("tokens_at_finish", "whole_requests")])
def test_tokens_that_count_as_they_come_hide_none(conventions: tuple[str, ...]) -> None:
    made = window(bare(gauges={"running": Series((0.0, 60.0), (3.0, 2.0))}), conventions=frozenset(conventions))
    tokens = count_tokens(made)
    assert tokens.generated_bounds is not None
    assert tokens.generated_bounds.exact == (not conventions)
    # Prompts are computed before they count, but where whole requests are told.
    assert tokens.in_flight == ((0.0, 0.0) if conventions else (math.inf, math.inf))


@pytest.mark.parametrize(("since_start", "least"), [(False, 700), (True, 1000)])
def test_prompts_under_way_at_the_start_may_have_been_computed_before(since_start: bool, least: float) -> None:
    # Three requests of 100 prompt tokens each; where counters began with the window, nothing was before it.
    made = window(engine(prompt=100, requests=10, present=(3, 2)), since_start=since_start)
    bounds = count_tokens(made).computed_bounds
    assert bounds is not None
    assert (bounds.low, bounds.value, bounds.high) == (least, 1000, 1200)


def test_steps_with_prompts_have_twice_the_tokens_of_those_that_decode() -> None:
    # Buckets from 8, 16, 32 and 64 tokens on; decoding makes 8 a step: those from 16 on hold prompts, 5 + 3 + 2.
    steps = Histogram((8.0, 16.0, 32.0, 64.0, math.inf), (100.0, 20.0, 5.0, 3.0, 2.0), 2000.0)
    one = engine(histograms={"step_tokens": steps, "ttft": around(0.1, 50)})
    assert counted_prompt_steps(one, 8.0) == 10
    assert counted_prompt_steps(one, 8.1) == 5
    assert counted_prompt_steps(one, 0.0) == 50  # all 130, but no more than there were first outputs
    assert counted_prompt_steps(replace(one, histograms={"step_tokens": steps}), 0.0) == 130
    assert counted_prompt_steps(replace(one, histograms={}), 8.0) is None


def test_where_nothing_decodes_all_steps_hold_prompts() -> None:
    # Ten requests of four tokens: four steps of a single one, and six of two to eight.
    steps = Histogram((1.0, 8.0, math.inf), (4.0, 6.0, 0.0), 40.0)
    made = engine(prompt=4, requests=10, histograms={"step_tokens": steps})
    prefill = gather(window(made), NOTHING).prefill
    assert prefill is not None
    assert (prefill.steps.value, prefill.estimated) == (10, False)


def test_prompts_are_computed_behind_what_the_cache_held_of_them() -> None:
    # Of ten prompts of 100 tokens 400 were computed: 40 of each behind 60, all ten in one step; in 20 steps 20 tokens
    # each, behind 60 and half of the other 20.
    prefill = gather(window(engine(prompt=100, requests=10, computed=400)), NOTHING).prefill
    assert prefill is not None
    assert prefill.steps.value == 1
    (together,) = prefill.step.prefills
    assert (together.tokens, together.cached, together.sequences) == pytest.approx((40, 60, 10))
    (chunk,) = in_steps(prefill, 20.0).prefills
    assert (chunk.tokens, chunk.cached, chunk.sequences, chunk.logits) == pytest.approx((20, 70, 1, 0.5))


@pytest.mark.parametrize(
    ("longest", "requests"),
    [((90.0, 300.0), 1000 / 300), ((300.0, 90.0), 1000 / 300), ((2000.0,), 1), ((0.0,), 1), ((), 1)],
)
def test_requests_that_nothing_counts_are_no_fewer_than_the_longest_allows(
    longest: tuple[float, ...], requests: float
) -> None:
    gauge = {"longest_sequence": Series(tuple(float(at) for at in range(len(longest))), longest)} if longest else {}
    prefill = gather(window(engine_of(counters={"prompt_tokens": 1000.0}, gauges=gauge)), NOTHING).prefill
    assert prefill is not None
    assert prefill.requests == pytest.approx(requests)


def cached(usage: tuple[float, ...], running: tuple[float, ...]) -> Window:
    """1 000 blocks of 16 tokens."""
    times = tuple(float(number) for number in range(len(usage)))
    return window(engine(
        gauges={"kv_usage": Series(times, usage), "running": Series(times, running)}, present=None,
        facts={"num_gpu_blocks": "1000", "block_size": "16"},
    ))  # fmt: skip


def test_samples_without_cache_or_requests_tell_no_context() -> None:
    # 0.5 x 16 000 / 8 - 8 = 992 tokens, 0.25 x 16 000 / 8 - 8 = 492: mean 742. The others are of no running request.
    found = context_from_blocks(cached((0.0, 0.5, 0.25, 0.1), (8, 8, 8, 0)), None)
    assert found is not None
    assert (found.low, found.value, found.high) == (492, 742, 992)
    assert context_from_blocks(cached((0.0, 0.1), (8, 0)), None) is None


def test_no_context_is_none_in_a_steps_cost() -> None:
    made = engine(itl=0.02, outputs=8000, steps=1000, present=(8, 8))
    decode = gather(window(made), NOTHING).decode
    assert decode is not None
    assert decode.context is None
    assert decode_step(decode).context == 0
    assert decode_step(decode, "high").sequences == decode.batch.high


def test_no_more_sequences_than_began_and_were_there_already() -> None:
    # Three at the start, five at the end, and ten that began: 13 at the most, where two scrapes frame a load, nothing
    # counts steps, and nobody knows how long prompts took.
    made = engine(itl=0.02, outputs=8000, prompt=100, requests=10, present=(3, 5))
    decode = gather(window(made), NOTHING).decode
    assert decode is not None
    assert (decode.batch.value, decode.batch.high) == pytest.approx((8000 * 0.02 / 60, 13))


def test_one_request_at_a_time_decodes_alone() -> None:
    # 1 000 outputs in 1 010 steps, 50 of which held prompts: a batch of 0.99. Had those decoded nothing it was 1.04,
    # but never more than one ran.
    steps = Histogram((1.0, 64.0, math.inf), (960.0, 0.0, 50.0), 6000.0)
    made = engine(itl=0.02, outputs=1000, steps=1010, prompt=100, requests=50, present=(1, 1),
                  histograms={"step_tokens": steps})  # fmt: skip
    decode = gather(window(made), NOTHING).decode
    assert decode is not None
    assert (decode.batch.low, decode.batch.high) == pytest.approx((1000 / 1010, 1.0))
    two = gather(window(replace(made, gauges={"running": Series((0.0, 60.0), (2.0, 2.0))})), NOTHING).decode
    assert two is not None
    assert (two.batch.low, two.batch.high) == pytest.approx((1000 / 1010, 1000 / 960))
