"""Other requests' prompts in a decode step: how long their floor is, where their steps are counted and where not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_facts import decoding, engine, exactly, llama_8b, series

from pytest_llmroof.analysis.attribute import attribute_decode
from pytest_llmroof.analysis.attribution import Cause
from pytest_llmroof.analysis.facts import DecodeFacts, PrefillFacts, WindowFacts
from pytest_llmroof.analysis.floors import with_decode_floors, with_prefill_floors, with_prompts_apart
from pytest_llmroof.analysis.interleaved import prompts_in
from pytest_llmroof.analysis.losses import candidates, losses
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.prompts import prompt_step
from pytest_llmroof.bounded import Bounded

STEP = 0.009
#: A profile that saw all of a step: no idle time, nobody to exchange with.
SEEN = Observed("decode.json", transport=0.0, waiting=0.0, idle_within=0.0, idle_between=0.0)


def prompts(tokens: float, requests: float, steps: Bounded) -> PrefillFacts:
    step = prompt_step(tokens, requests, 0.0, steps.value)
    return with_prefill_floors(
        PrefillFacts(exactly(tokens), requests, steps, estimated=not steps.exact, step=step), llama_8b()
    )


def decode_of(facts: WindowFacts) -> DecodeFacts:
    assert facts.decode is not None
    return replace(facts.decode, steps=400.0)


def window(low: float, value: float, high: float) -> WindowFacts:
    """Decode steps of 9 ms on one H100 whose prompts' floor is that long, in ms."""
    facts = decoding(llama_8b(), STEP, interleaved=value / 1e3)
    ends = (low / 1e3, high / 1e3)
    assert facts.decode is not None
    return replace(facts, decode=replace(facts.decode, interleaved_ends=ends))


def share(facts: WindowFacts, cause: Cause, observed: Observed | None) -> float:
    found = attribute_decode(facts, observed)
    assert found is not None
    return found.share(cause)


# How long it is where nothing counts the steps -----------------------------------------------------------------------


def test_beside_decodes_few_long_steps_cost_more_than_many_short_ones() -> None:
    """100 prompts of 1 024 tokens beside 400 steps of 12.4 sequences of 1 480 tokens, Llama 3.1 8B on one H100.

    A prompt: 2 x 6 979 321 856 weights of the layers x 1 024 + 4 x 32 x 32 x 128 x 1 024 x 1 025 / 2 of attention + one
    row of logits = 14.57 TFLOP, 14.73 ms of 989.4 TFLOP/s; 100 of them over 400 steps 3.68 ms.
    The decodes' floor is 15.01 + 2.41 GB over 3.35 TB/s = 5.20 ms, and what they compute 12.4 x (15.0 GFLOP + 0.78 of
    attention) = 196 GFLOP, 0.20 ms: each step that prompts fill saves 5.00 ms. In 7 steps: 3.68 - 7 / 400 x 5.00 = 3.59
    ms; in 200 of 512 tokens (and half a row of logits each): 3.68 - 200 / 400 x 5.00 = 1.18 ms.
    """
    steps = Bounded(50.0, 7.0, 200.0)
    found = with_decode_floors(decode_of(decoding(llama_8b(), STEP)), prompts(102_400, 100, steps), llama_8b())
    assert found.interleaved.low == pytest.approx(1.18e-3, rel=0.02)
    assert found.interleaved.value == pytest.approx(3.68e-3 - 50 / 400 * 5.00e-3, rel=0.02)
    assert found.interleaved.high == pytest.approx(3.59e-3, rel=0.02)


def test_in_steps_of_their_own_many_short_ones_read_the_weights_each() -> None:
    """100 prompts of 128 tokens: 15.01 GB and 17 MB, 4.49 ms, in a step each; all 12 800 in one compute 0.18 s."""
    steps = Bounded(7.0, 1.0, 100.0)
    decode = decode_of(decoding(llama_8b(), STEP))
    found = with_prompts_apart(decode, prompts(12_800, 100, steps), llama_8b())
    assert found.interleaved.high == pytest.approx(100 / 400 * 4.49e-3, rel=2e-3)
    # 12 800 x 2 x 6.979 GFLOP + 100 x 4 x 32 x 32 x 128 x 8 256 of attention = 179.1 TFLOP over 989.4 TFLOP/s.
    assert found.interleaved.low == pytest.approx(0.181 / 400, rel=0.02)
    assert found.interleaved.low <= found.interleaved.value <= found.interleaved.high


def test_counted_steps_leave_one_figure() -> None:
    decode = decode_of(decoding(llama_8b(), STEP))
    assert with_decode_floors(decode, prompts(102_400, 100, exactly(50.0)), llama_8b()).interleaved.exact
    assert with_prompts_apart(decode, prompts(12_800, 100, exactly(50.0)), llama_8b()).interleaved.exact


def test_what_may_be_the_prompts_floor_is_no_loss_for_certain() -> None:
    """Of 9 ms between 0.2 and 2 ms may be prompts' floor: 2.2 % are, and 20 % may be, or may be lost."""
    facts = window(0.2, 0.5, 2.0)
    seen = replace(SEEN, by="gpu counters")
    assert share(facts, "interleaved prefill", seen) == pytest.approx(0.2 / 9)
    assert share(facts, "not attributed", seen) == pytest.approx(1.8 / 9)
    found = attribute_decode(facts, seen)
    assert found is not None
    assert found.may_be("prompts' floor")
    # 9 - 5.20 of floor - 0.85 of its ceiling (86.0 %) - 0.2 - 0.06 (77.1 %) - 1.8 ms.
    assert found.share("slow kernels") == pytest.approx(0.89 / 9, rel=0.02)
    lost = losses(found, facts.deployment, seen)
    assert lost.at_most("F") == pytest.approx(lost.at_least("F") + 0.2)


# What a profile's step without prompts tells -------------------------------------------------------------------------


def test_the_floor_of_prompts_is_no_longer_than_the_mean_step_exceeds_one_without_them() -> None:
    """Counted 0.9 ms in each step of 9 ms, but decoding alone takes 8.7: at an idle start nobody waited for them."""
    facts = decoding(llama_8b(), STEP, interleaved=0.9e-3)
    seen = replace(SEEN, step_seconds=8.7e-3)
    assert share(facts, "interleaved prefill", seen) == pytest.approx(0.3 / 9)
    assert share(facts, "not attributed", seen) == 0
    found = prompts_in(facts, decode_of(facts), seen)
    assert found.own_seconds == pytest.approx(8.7e-3)
    assert "no more than the mean step is longer than the profile's" in found.floor.source


def test_the_rest_of_what_prompts_take_was_not_profiled() -> None:
    """Decoding alone takes 8 of 9 ms: of the other 1 ms 0.9 are the prompts' floor."""
    facts = decoding(llama_8b(), STEP, interleaved=0.9e-3)
    seen = replace(SEEN, step_seconds=8.0e-3)
    assert share(facts, "interleaved prefill", seen) == pytest.approx(0.1)
    assert share(facts, "not attributed", seen) == pytest.approx(0.1 / 9)
    assert prompts_in(facts, decode_of(facts), seen).rest.maybe == {"unprofiled steps"}


def test_uncounted_prompts_take_no_more_than_the_step_is_longer() -> None:
    """Between 0.1 and 2 ms by their floor, 1 ms by the profile: 0.1 are theirs, and 0.9 more, floor or not."""
    facts = window(0.1, 0.2, 2.0)
    seen = replace(SEEN, step_seconds=8.0e-3)
    assert share(facts, "interleaved prefill", seen) == pytest.approx(0.1 / 9)
    assert share(facts, "not attributed", seen) == pytest.approx(0.9 / 9)
    found = attribute_decode(facts, seen)
    assert found is not None
    assert found.may_be("prompts' floor")
    assert found.may_be("unprofiled steps")
    assert candidates(losses(found, facts.deployment, seen)) == ("F",)  # 9 - 5.2 - 0.85 - 1 = 1.9 ms


def test_a_profiled_step_longer_than_the_mean_one_tells_nothing_of_prompts() -> None:
    facts = decoding(llama_8b(), STEP, interleaved=0.9e-3)
    seen = replace(SEEN, step_seconds=9.2e-3)
    assert share(facts, "interleaved prefill", seen) == pytest.approx(0.1)
    assert prompts_in(facts, decode_of(facts), seen).own_seconds == STEP


@pytest.mark.parametrize(("steps", "told"), [(100.0, True), (60.0, False)])
def test_a_much_shorter_step_is_of_the_same_load_where_steps_with_prompts_explain_it(steps: float, told: bool) -> None:
    """Decoding alone takes 7 of 9 ms, 22 % less. 100 of 400 steps with prompts that are 8 ms longer explain it, 25 % of
    steps twice as long; 60 of them would have to be more than twice as long.
    """
    facts = decoding(llama_8b(), STEP, interleaved=0.1e-3)
    facts = replace(facts, decode=decode_of(facts), prefill=prompts(51_200, 100, exactly(steps)))
    seen = replace(SEEN, step_seconds=7.0e-3)
    assert share(facts, "not attributed", seen) == pytest.approx(1.9 / 9 if told else 0.0)
    found = attribute_decode(facts, seen)
    assert found is not None
    assert found.may_be("unprofiled steps") is told


@pytest.mark.parametrize(("running", "part"), [(16.0, 6.0 / 12.4), (40.0, 1.0), (8.0, 1.0), (None, 1.0)])
def test_sequences_at_their_prompts_do_not_wait_for_them(running: float | None, part: float) -> None:
    """100 prompts in 10 steps, ten at once: of 16 sequences ever seen six may wait, where 12.4 decode in a step.

    Of 40 all 12.4 may; a gauge that saw fewer than the batch, or none, tells nothing.
    """
    facts = decoding(llama_8b(), STEP, interleaved=0.9e-3)
    gauges = {"running": series(running, running)} if running is not None else {}
    seen = replace(facts.window, engines=(engine(gauges=gauges),))
    facts = replace(facts, window=seen, prefill=prompts(10_240, 100, exactly(10.0)))
    assert share(facts, "interleaved prefill", SEEN) == pytest.approx(0.1 * part)
    assert share(facts, "interleaved prefill", None) == pytest.approx(0.1)


def test_in_a_mixed_window_the_steps_that_only_decode_tell() -> None:
    """Its typical steps hold prompts, too: what was seen is of them all, and nothing is of steps not looked at."""
    facts = decoding(llama_8b(), STEP, interleaved=0.9e-3, phase="mixed")
    assert share(facts, "interleaved prefill", replace(SEEN, step_seconds=8.7e-3)) == pytest.approx(0.1)
    seen = replace(SEEN, step_seconds=8.9e-3, decoding_seconds=8.7e-3)
    assert share(facts, "interleaved prefill", seen) == pytest.approx(0.3 / 9)
    found = prompts_in(facts, decode_of(facts), seen)
    assert (found.rest.seconds, found.own_seconds) == (0.0, STEP)


# What it makes of utilisation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("high", "told"), [(0.4, False), (0.5, True)])
def test_utilisation_is_known_between_bounds_where_uncounted_prompts_may_take_more_than_a_twentieth(
    high: float, told: bool
) -> None:
    """0.45 of 9 ms are 5 %: with up to 0.4 ms the value stands, with up to 0.5 ms its interval decides."""
    facts = window(0.1, 0.2, high)
    found = measure(facts)["decode.mbu"]
    assert isinstance(found, Measurement)
    assert found.judged_by == ("bounds" if told else "value")
    # Prefill at half of what kernels reach of the bf16 peak (77.1 %) took twice 0.5 / 0.771 = 1.30 ms at the longest.
    assert found.bounded.high == pytest.approx(found.bounded.low * 9 / (9 - 2 * high / 0.771), rel=0.01)
    if told:
        assert "prefill is interleaved (up to 500 µs of each step of 9 ms)" in str(found.undecided)
