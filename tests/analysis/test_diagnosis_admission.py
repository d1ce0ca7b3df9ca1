"""Admission saturation with its cause, and windows without load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hand_facts import decoding, engine, exactly, llama_8b, mean_of, measured, prefilling, series, window

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.diagnosis import Diagnosis, Evidence
from pytest_llmroof.analysis.facts import Busy, WindowFacts
from pytest_llmroof.analysis.measurement import Outcomes
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.telemetry.window import Engine

QUEUED = {"ttft": mean_of(2.0), "queue": mean_of(1.6), "prefill_time": mean_of(0.3), "e2e": mean_of(10.0)}
NAMES = {
    "queue": "vllm:request_queue_time_seconds", "kv_usage": "vllm:kv_cache_usage_perc",
    "running": "vllm:num_requests_running", "preemptions": "vllm:num_preemptions_total",
}  # fmt: skip
FIRST_TOKEN = measured(ttft__mean=2.0, queue__mean=1.6, e2e__mean=10.0)


def saturated(**kept: object) -> WindowFacts:
    """Decode near the memory roof, and a queue of 1.6 s in front of it."""
    return decoding(llama_8b(), 0.0066, 16, 1000, engines=(engine(histograms=QUEUED, names=NAMES, **kept),))


def diagnosed(facts: WindowFacts, of: Family = "ttft", outcomes: Outcomes = FIRST_TOKEN) -> Diagnosis:
    return diagnose(facts, outcomes, attribute(facts, outcomes), of)


def test_e_the_queue_alone_suffices() -> None:
    found = diagnosed(saturated())
    # 1.6 s of 2.0 s; nothing was sampled that tells why.
    assert (found.scenario, found.confidence, found.title) == ("E", "medium", "admission saturation")
    statement = found.evidence[0]
    assert statement.statement == "the queue is 80 % of the time to first token (2 s)"
    assert statement.source == "vllm:request_queue_time_seconds"
    assert "python -m pytest_llmroof record" in str(found.missing[0])


def test_a_late_first_token_is_e_even_where_decode_is_a() -> None:
    facts = saturated()
    outcomes = {**FIRST_TOKEN, **measured(decode__mbu=0.786)}
    assert diagnosed(facts, "ttft", outcomes).scenario == "E"
    assert diagnosed(facts, "decode", outcomes).scenario == "A"


def test_e_with_a_full_cache() -> None:
    gauges = {"waiting": series(0, 5, 9, 12, 0), "running": series(0, 20, 22, 24, 0),
              "kv_usage": series(0.0, 0.96, 0.99, 0.98, 0.1)}  # fmt: skip
    found = diagnosed(saturated(gauges=gauges))
    assert (found.scenario, found.candidates) == ("E", ("E",))
    assert found.title == "admission saturation (the KV cache is full)"
    assert found.evidence[1].statement == "the KV cache was over 95 % used in 3 of 3 samples with waiting requests"
    assert found.evidence[1].source == "vllm:kv_cache_usage_perc"
    assert found.missing == ()


def test_e_with_preemptions_between_two_scrapes() -> None:
    found = diagnosed(saturated(counters={"preemptions": 12.0}))
    assert found.title == "admission saturation (the KV cache is full)"
    assert found.evidence[1].statement == "12 requests were thrown out of the KV cache and computed again"


def test_e_with_every_slot_taken() -> None:
    gauges = {"waiting": series(0, 5, 9, 12, 8), "running": series(10, 64, 64, 64, 63),
              "kv_usage": series(0.1, 0.4, 0.5, 0.5, 0.5)}  # fmt: skip
    found = diagnosed(saturated(gauges=gauges))
    assert found.title == "admission saturation (every slot for running requests is taken)"
    assert found.evidence[1].statement == (
        "running requests stood at their maximum of 64 in 4 of 4 samples with waiting requests, and the KV cache was "
        "not full"
    )


def test_too_few_samples_do_not_tell_slots() -> None:
    gauges = {"waiting": series(0, 5), "running": series(10, 64), "kv_usage": series(0.1, 0.4)}
    assert diagnosed(saturated(gauges=gauges)).title == "admission saturation"


def test_e_where_prefill_fills_the_steps_has_b_as_its_cause() -> None:
    facts = prefilling(llama_8b(), 4096, 100, 11.53)
    facts = replace(facts, window=window(engine(histograms=QUEUED, names=NAMES)))
    found = diagnosed(facts)
    assert (found.scenario, found.candidates) == ("E", ("E", "B"))
    assert found.title == "admission saturation (prefill fills the steps)"
    assert {one.scenario for one in found.evidence if one.supports} == {"E", "B"}
    # Remedies of the symptom and of its cause.
    assert any(remedy.title == "Compute in FP8" for remedy in found.remedies)


def test_no_e_where_the_queue_is_short() -> None:
    kept: dict[str, Any] = {**QUEUED, "queue": mean_of(0.02)}
    facts = decoding(llama_8b(), 0.0066, 16, 1000, engines=(Engine("engine 0", "m", histograms=kept),))
    found = diagnosed(facts, "ttft", measured(ttft__mean=2.0))
    # 2.0 s - 0.02 s - 0.3 s: the front end takes 84 %.
    assert found.scenario is None
    assert found.title == "the front end (tokenisation, API server) takes most of the time to the first token"


def test_prefill_makes_the_first_token_late() -> None:
    kept: dict[str, Any] = {"ttft": mean_of(0.125), "queue": mean_of(0.004), "prefill_time": mean_of(0.115)}
    facts = prefilling(llama_8b(), 4096, 100, 11.53)
    facts = replace(facts, window=window(Engine("engine 0", "m", histograms=kept)))
    # 62.2 of 125 ms are floor, 18.5 ms ceiling.
    found = diagnosed(facts, "ttft", measured(ttft__mean=0.125))
    assert (found.scenario, found.regime) == ("B", "compute")
    # (62.2 + 18.5) / 125 = 65 %
    statement = (
        "the prompt's arithmetic is 65 % of the time to first token (125 ms): floor 62.2 ms, kernel ceiling 18.5 ms"
    )
    assert Evidence("B", True, statement, "roofline") in found.evidence


def test_a_full_cache_explains_admission_itself() -> None:
    gauges = {"waiting": series(0, 5, 9, 12, 0), "kv_usage": series(0.0, 0.96, 0.99, 0.98, 0.1)}
    assert diagnosed(saturated(gauges=gauges), "none").scenario == "E"
    assert diagnosed(saturated(), "none").scenario is None


def test_e_for_whole_requests_where_the_queue_is_most_of_them() -> None:
    facts = saturated()
    assert diagnosed(facts, "window", {**FIRST_TOKEN, **measured(e2e__mean=2.9)}).scenario == "E"
    assert diagnosed(facts, "window").scenario != "E"


def test_g_a_window_mostly_without_requests() -> None:
    facts = replace(saturated(), busy=Busy(exactly(10.4), "the counters' movement in the samples"))
    found = diagnosed(facts, "window")
    assert (found.scenario, found.title, found.remedies) == ("G", "too little load", ())
    # 1 - 10.4 / 60 = 83 %.
    assert found.evidence[0].statement == "the engine worked for 10.4 s of 60.0 s: 83 % idle"
    assert "record" in str(found.missing[0])


def test_an_idle_window_leaves_its_decode_steps_what_they_are() -> None:
    facts = replace(saturated(), busy=Busy(exactly(10.4), "the counters' movement in the samples"))
    found = diagnosed(facts, "decode", {**FIRST_TOKEN, **measured(decode__mbu=0.786)})
    assert found.scenario == "A"
    assert not any(one.supports for one in found.evidence if one.scenario != "A")


def test_g_where_there_was_no_load_at_all() -> None:
    facts = replace(saturated(), decode=None, prompt_tokens=0.0, computed_prompt_tokens=0.0, generated_tokens=0.0)
    families: tuple[Family, ...] = ("decode", "prefill", "window")
    for family in families:
        assert diagnosed(facts, family, {}).scenario == "G"


def test_two_scrapes_do_not_prove_idleness() -> None:
    bound = Busy(replace(exactly(60.0), low=0.0), "the window")
    assert diagnosed(replace(saturated(), busy=bound), "window").scenario != "G"


def test_g_from_samples_without_requests() -> None:
    quiet = series(0, 1, 0, 0, 0, 0, 0, 0, 1, 0)
    facts = saturated(gauges={"running": quiet, "waiting": series(*([0.0] * 10))})
    found = diagnosed(facts, "window")
    # Between the first and the last sample 6 of 8 are idle.
    assert found.scenario == "G"
    assert found.evidence[0].statement == "no request ran or waited in 6 of 8 samples: 75 % idle"


def test_other_requests_prefill_makes_the_first_token_late() -> None:
    # 100 requests' prefill of 1 s each in 11.53 s of work: 88 % of it is other requests' work.
    kept: dict[str, Any] = {"ttft": mean_of(1.1), "queue": mean_of(0.02), "prefill_time": mean_of(1.0)}
    facts = prefilling(llama_8b(), 4096, 100, 11.53)
    facts = replace(facts, window=window(Engine("engine 0", "m", histograms=kept)))
    found = diagnosed(facts, "ttft", measured(ttft__mean=1.1))
    # How near the roof others' prompts are computed is not known from this.
    assert (found.scenario, found.confidence) == ("B", "low")
    assert any("other requests' prefill is 80 %" in one.statement for one in found.evidence)


def test_a_slow_prefill_is_a_loss() -> None:
    # 62 ms of floor in 400 ms of prefill: 70 % of the time to first token is neither floor nor ceiling.
    kept: dict[str, Any] = {"ttft": mean_of(0.41), "queue": mean_of(0.004), "prefill_time": mean_of(0.40)}
    facts = prefilling(llama_8b(), 4096, 100, 40.0)
    facts = replace(facts, window=window(Engine("engine 0", "m", histograms=kept)))
    found = diagnosed(facts, "ttft", measured(ttft__mean=0.41))
    assert (found.scenario, found.regime) == ("D or F", "overhead")
