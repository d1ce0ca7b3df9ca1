"""Counters of one server that cannot all be right, counts that nothing fed, and GPUs that rested while bytes moved."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_counters import gpu, gpus, watched
from made_windows import around, deployment, engine, window

from pytest_llmroof.analysis.contradicted_counts import tokens
from pytest_llmroof.analysis.counter_checks import rested
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData
from pytest_llmroof.telemetry.window import Engine


def facts(one: Engine, **changes: Any) -> WindowFacts:
    return gather(window(one, **changes), deployment("llama-3.1-8b"))


def load(**counters: float) -> Engine:
    """100 requests of 1 000 prompt tokens and 100 outputs in steps of 20 ms: 10 000 tokens generated."""
    return engine(itl=0.02, outputs=9_900, steps=990, prompt=1000, output=100, requests=100, counters=counters)


def test_more_tokens_than_went_through_the_steps() -> None:
    # 110 000 tokens passed: 100 000 of prompts and 10 000 of outputs.
    assert list(tokens(facts(load(step_tokens=110_000.0)))) == []
    # Up to 1.5 times what all steps held: 100 000 / 67 000 = 1.49, / 66 000 = 1.52; 10 000 / 6 000 = 1.67.
    for held, contradicted in ((67_000.0, 0), (66_000.0, 1), (6_000.0, 2)):
        assert len(list(tokens(facts(load(step_tokens=held))))) == contradicted, held
    found = measure(facts(load(step_tokens=6_000.0)))["output.tokens_per_second"]
    assert isinstance(found, Impossible)
    assert (
        "vllm:generation_tokens grew by 10000, but all steps of the window held 6000 tokens (vllm:step_tokens)"
        in found.reason
    )
    assert "that both scrapes are of one server" in found.check


def test_more_tokens_than_outputs_can_hold() -> None:
    """9 900 outputs after the first and 100 first ones, of at most 64 tokens each: steps may be scheduled together."""
    assert list(tokens(facts(load(generation_tokens=640_000.0)))) == []
    many = load(generation_tokens=650_000.0)
    (found,) = tokens(facts(many))
    assert found.reason == "vllm:generation_tokens grew by 650000 in 10000 outputs: more than 64 tokens in each"
    assert found.counts == ("output.",)
    # 64 drafts a step and the token behind them are 65 in each, 63 are no more than there were.
    for drafts, contradicted in ((64.0, 0), (63.0, 1)):
        speculating = load(generation_tokens=650_000.0, draft_steps=100.0, draft_tokens=drafts * 100)
        assert len(list(tokens(facts(speculating)))) == contradicted
    # Where an engine observes one latency a token, not a step, outputs hold one each by definition.
    assert list(tokens(facts(many, conventions=frozenset()))) == []


def test_a_share_of_more_than_all_is_impossible() -> None:
    drafts = {"draft_steps": 100.0, "draft_tokens": 300.0}
    accepted = measure(facts(load(**drafts, accepted_tokens=150.0)))["speculative.acceptance_rate"]
    assert isinstance(accepted, Measurement)
    assert accepted.value == 0.5
    beyond = measure(facts(load(**drafts, accepted_tokens=330.0)))["speculative.acceptance_rate"]
    assert isinstance(beyond, Impossible)
    assert "grew by 330" in beyond.reason
    assert "by 300 only: a share of 110 %" in beyond.reason


def test_where_nothing_was_drafted_there_is_no_rate_of_it() -> None:
    none = measure(facts(load(draft_steps=0.0, draft_tokens=0.0, accepted_tokens=0.0)))
    for metric, why in (
        ("speculative.acceptance_rate", "no token was drafted in this window"),
        ("speculative.tokens_per_step", "nothing was drafted in this window"),
    ):
        outcome = none[metric]
        assert isinstance(outcome, NoData)
        assert outcome.reason == why


# GPUs that rested --------------------------------------------------------------------------------------------------


def steps(count: float) -> Engine:
    """Steps of 26.2 ms of 12.4 sequences, which keep the memory of four H100 busy for 40 %."""
    return engine(itl=0.0262, outputs=12.4 * count, steps=count, prompt=1000, output=960, requests=30, present=(12, 12))


@pytest.mark.parametrize(
    ("active", "contradicted"),
    [(0.32, True), (0.34, False), (0.9, False)],  # needed 41 %, and 1.25 times what was seen: 40 % and 42.5 %
)
def test_engines_rest_less_than_the_bytes_need(active: float, contradicted: bool) -> None:
    seen = watched(window(steps(2290.0)), *gpus(4, gr_engine=active))
    found = rested(gather(seen, deployment(tensor_parallel=4), "decode"))
    assert (found is not None) is contradicted


def test_steps_that_do_not_fill_the_time_leave_room_for_pauses() -> None:
    """1 000 steps of 26.2 ms in a minute under load: the engines may rest for more than half of it."""
    seen = watched(window(steps(1000.0)), *gpus(4, gr_engine=0.1))
    assert rested(gather(seen, deployment(tensor_parallel=4), "decode")) is None


def test_without_counters_or_a_step_nothing_rests() -> None:
    assert rested(gather(window(steps(2290.0)), deployment(tensor_parallel=4), "decode")) is None
    prompts = engine(prompt=4096, requests=100, output=1, histograms={"ttft": around(0.1, 100)})
    assert rested(gather(watched(window(prompts), gpu(0, gr_engine=0.1)), deployment("llama-3.1-8b"))) is None
    unnamed = gather(watched(window(steps(2290.0)), *gpus(4, gr_engine=0.03)), deployment(None, tensor_parallel=4))
    assert rested(unnamed) is None
