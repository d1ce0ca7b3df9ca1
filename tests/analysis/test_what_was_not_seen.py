"""A source rules out what it would have seen, no more: gaps within a pass, an unknown cache, steps of other kinds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from engine_pages import sglang, write
from hand_facts import decoding, engine, llama_8b, llama_70b, mean_of, measured, prefilling

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.floors import with_decode_floors, with_prompts_apart
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.observing import observe
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.reading import read_window

#: A profile that saw all of its steps' time.
ALL_SEEN = Observed("decode.pt.trace.json.gz", transport=0.0, waiting=0.0, idle_within=0.0, idle_between=0.02)


def split(facts: WindowFacts, observed: Observed) -> Attribution:
    found = attribute(facts, {}, observed)
    assert found is not None
    return found


def test_an_engine_that_times_its_passes_does_not_see_the_gaps_within(tmp_path: Path) -> None:
    """It computed 49 of 50 s by its own clock, from the first kernel of a pass to the last: launches may be late.

    A step of 20 ms whose floor is 5.4 ms loses most of its time to the host or to slow kernels; nothing tells which.
    """
    paths = write(tmp_path, partial(sglang, forward_decode=45.0, forward_prefill=4.0))
    facts = gather(read_window([(path, path.name) for path in paths]), llama_8b())
    outcomes, observed = measure(facts), observe(facts)
    assert observed is not None
    assert observed.idle_between == pytest.approx(0.02)
    assert not observed.idle_known
    found = attribute(facts, outcomes, observed)
    assert found is not None
    assert found.share("slow kernels") == 0
    told = diagnose(facts, outcomes, found, "decode", observed=observed)
    assert told.candidates == ("D", "F")
    assert told.confidence == "low"
    (idle,) = (one for one in told.evidence if one.scenario == "D")
    assert idle.statement == "idle time of the GPU between steps is 2 % of the step"


def test_a_prefill_window_is_no_step_to_hold_a_profile_against() -> None:
    """100 prompts in 11.53 s: the profile's step of 110 ms is not "another one than the window's" of 11.53 s."""
    facts = prefilling(llama_8b(), 4096, 100, 11.53)
    observed = replace(ALL_SEEN, idle_within=0.25, step_seconds=0.11)
    told = diagnose(facts, {}, split(facts, observed), "prefill", observed=observed)
    assert (told.candidates, told.confidence) == (("D",), "high")
    assert not any("the shares may differ" in one.statement for one in told.evidence)


def test_what_steps_lost_is_not_what_the_first_token_lost() -> None:
    """300 ms to the first token, of which 150 ms are neither queue nor prefill nor front end: the steps' profile saw
    none of that, and does not make it slow kernels.
    """
    kept = engine(histograms={"ttft": mean_of(0.30), "queue": mean_of(0.02)})
    facts = decoding(llama_8b(), 0.0065, engines=(kept,))
    outcomes = measured(ttft__mean=0.30)
    told = diagnose(facts, outcomes, split(facts, ALL_SEEN), "ttft", observed=ALL_SEEN)
    assert set(told.candidates) == {"D", "F"}
    assert told.confidence == "low"


def without_context(step_seconds: float) -> WindowFacts:
    """A decode step of which nobody knows how long its sequences are."""
    facts = decoding(llama_8b(), step_seconds, context=0.0)
    assert facts.decode is not None
    unknown = with_decode_floors(replace(facts.decode, context=None), None, facts.deployment)
    return replace(facts, decode=unknown)


def test_a_cache_of_unknown_size_is_no_slow_kernel() -> None:
    """9 ms, of which the weights take 15.01 GB / 3.35 TB/s = 4.48 ms (5.2 ms as kernels reach it): the rest may be read
    of a cache that could fill the other 65 GB.
    """
    facts = without_context(0.009)
    found = split(facts, ALL_SEEN)
    assert found.share("slow kernels") == 0
    assert found.share("not attributed") == pytest.approx(1 - 0.02 - 0.004481 / 0.860 / 0.009, abs=2e-3)
    told = diagnose(facts, {}, found, "decode", observed=ALL_SEEN)
    assert told.candidates == ()
    assert any("the context of a sequence" in line for line in map(str, told.missing))


def test_a_cache_is_no_fuller_than_of_sequences_as_long_as_the_longest() -> None:
    """12.4 sequences of at most 2 000 tokens: 12.4 x 2 000 x 131 072 B over 0.860 x 3.35 TB/s = 1.13 ms of 9 ms."""
    facts = without_context(0.009)
    assert facts.decode is not None
    longest = replace(facts.decode, context=Bounded(0.0, 0.0, 2000.0), only_longest="no context is measurable")
    found = split(replace(facts, decode=longest), ALL_SEEN)
    assert found.share("not attributed") == pytest.approx(1.128e-3 / 0.009, rel=2e-3)
    assert found.share("slow kernels") == pytest.approx(1 - 0.02 - (0.004481 / 0.860 + 1.128e-3) / 0.009, abs=3e-3)


def test_what_no_cache_could_take_is_slow_kernels_all_the_same() -> None:
    """80 ms: a full memory is read in 80 GB / (0.860 x 3.35 TB/s) = 27.8 ms, and 65 % of the step are beyond that."""
    facts = without_context(0.080)
    found = split(facts, ALL_SEEN)
    assert found.share("slow kernels") == pytest.approx(1 - 0.02 - 80e9 / 3.35e12 / 0.860 / 0.080, abs=2e-3)
    told = diagnose(facts, {}, found, "decode", observed=ALL_SEEN)
    assert told.candidates == ("F",)


def test_steps_that_compute_prompts_are_not_those_that_were_profiled() -> None:
    """A mean step of 20 ms, a profiled one of 17.5 ms that only decodes: 0.5 ms are the prompts' floor, the other 2 ms
    are of steps that nobody saw. 20 % of the profiled step, 3.5 ms, is communication. Floor and ceiling of decoding are
    12.58 ms, the prompts' ceiling 0.15 ms: 1.27 ms are left to slow kernels.
    """
    facts = decoding(llama_70b(), 0.020, interleaved=0.0005)
    observed = replace(ALL_SEEN, transport=0.20, idle_between=0.0, step_seconds=0.0175)
    found = split(facts, observed)
    assert found.share("exposed communication: transport") == pytest.approx(0.0035 / 0.020)
    assert found.share("not attributed") == pytest.approx(0.002 / 0.020)
    assert found.share("slow kernels") == pytest.approx(0.00127 / 0.020, abs=1e-3)
    told = diagnose(facts, {}, found, "decode", observed=observed)
    assert set(told.candidates) >= {"C"}
    (unseen,) = (one for one in told.evidence if "not profiled" in one.statement)
    assert not unseen.supports


def test_prompts_in_steps_of_their_own_add_all_of_their_floor() -> None:
    """One step of prompts for every four of decoding adds a quarter of its floor to each, weights included."""
    facts, prompts = decoding(llama_8b(), 0.009), prefilling(llama_8b(), 128, 100, 5.0)
    assert facts.decode is not None
    assert prompts.prefill is not None
    assert prompts.prefill.floor is not None
    decode = with_prompts_apart(replace(facts.decode, steps=400.0), prompts.prefill, llama_8b())
    # 128 prompt tokens are memory-bound: 15.01 GB of weights and 17 MB of cache, 4.49 ms.
    assert decode.interleaved_seconds == pytest.approx(0.00449 / 4, rel=2e-3)
    joined = with_decode_floors(replace(facts.decode, steps=400.0), prompts.prefill, facts.deployment)
    assert joined.interleaved_seconds < 0.1 * decode.interleaved_seconds  # weights are read once for both
