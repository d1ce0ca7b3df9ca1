"""Slow kernels in a profile, and a clock that nothing tells: healthy kernels at a low one look the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_facts import decoding, llama_8b, prefilling

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.analysis.observed import Observed

SEEN = Observed("trace.json", transport=0.0, waiting=0.0, idle_within=0.0, idle_between=0.0)
UNTOLD = "nothing tells the clock: at a low one healthy kernels look slow"


def said(facts: WindowFacts, of: Family, observed: Observed) -> Diagnosis:
    split = attribute(facts, {}, observed)
    assert split is not None
    # 100 prompts of 1 024 tokens need 1.47 s, 1.91 s as kernels reach 77.1 %: 52 % of 4 s are slow. Of a decode step of
    # 12 ms the memory needs 5.2, 6.1 as kernels reach 86 %: 50 %.
    assert split.share("slow kernels") == pytest.approx(0.51, abs=0.03)
    return diagnose(facts, {}, split, of, observed=observed)


def test_prefill_that_a_profile_alone_shows_to_be_slow_is_f_and_not_for_certain() -> None:
    facts = prefilling(llama_8b(), 1024, 100, 4.0)
    found = said(facts, "prefill", SEEN)
    assert (found.scenario, found.confidence) == ("F", "medium")
    assert UNTOLD in [one.statement for one in found.evidence if not one.supports]
    told = said(facts, "prefill", replace(SEEN, clock=1.0))
    assert (told.scenario, told.confidence) == ("F", "high")
    assert UNTOLD not in [one.statement for one in told.evidence]


def test_decoding_waits_for_memory_whatever_the_clock() -> None:
    found = said(decoding(llama_8b(), 0.012), "decode", SEEN)
    assert (found.scenario, found.confidence) == ("F", "high")
    assert UNTOLD not in [one.statement for one in found.evidence]
