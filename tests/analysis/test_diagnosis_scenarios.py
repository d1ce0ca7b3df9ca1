"""Which scenario a step's time speaks for: near a roof, lost to one cause, to one of several, or to none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hand_facts import decoding, exactly, llama_8b, llama_70b, measured, mixtral, prefilling

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.diagnosis import Diagnosis, Evidence
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Outcomes
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.roofline.deployment import Deployment


def diagnosed(
    facts: WindowFacts, outcomes: Outcomes | None = None, observed: Observed | None = None, of: Family = "decode"
) -> Diagnosis:
    known = outcomes or {}
    return diagnose(facts, known, attribute(facts, known, observed), of, observed)


def about(diagnosis: Diagnosis, letter: str) -> list[Evidence]:
    return [one for one in diagnosis.evidence if one.scenario == letter]


def test_a_near_the_memory_roof() -> None:
    # 10.82 ms of floor in 13.4 ms: MBU 80.8 %, above 75 %; the framework's MFU is below 5 %.
    found = diagnosed(decoding(llama_70b(), 0.0134), measured(decode__mbu=0.808, decode__mfu=0.0325))
    assert (found.scenario, found.candidates, found.confidence) == ("A", ("A",), "medium")
    assert found.title == "memory-bandwidth-bound decode"
    assert found.regime == "memory: weights"
    statements = [one.statement for one in about(found, "A")]
    assert statements == ["decode MBU 80.8 %, above 75 %", "decode MFU 3.25 %, below 5 %"]
    assert {one.source for one in about(found, "A")} == {"after.prom"}
    assert not any(one.supports for one in about(found, "C"))


def test_a_at_nine_tenths_of_what_kernels_reach() -> None:
    # B200 streams weights at 79.0 %: 0.9 of that is 71.1 %, and 73 % counts as near the roof.
    from pytest_llmroof.roofline.catalogue import accelerator

    on_b200 = llama_70b(accelerator=accelerator("b200"))
    floor = decoding(on_b200, 1.0).decode
    assert floor is not None
    assert floor.floor is not None
    facts = decoding(on_b200, floor.floor.seconds / 0.73)
    assert diagnosed(facts, measured(decode__mbu=0.73)).scenario == "A"
    assert diagnosed(decoding(on_b200, floor.floor.seconds / 0.69), measured(decode__mbu=0.69)).scenario != "A"


def test_a_is_less_sure_where_the_interval_reaches_below_the_threshold() -> None:
    outcomes = dict(measured(decode__mbu=0.808))
    outcomes["decode.mbu"] = replace(outcomes["decode.mbu"], bounded=replace(exactly(0.808), low=0.70))
    assert diagnosed(decoding(llama_70b(), 0.0134), outcomes).confidence == "low"


def test_a_with_more_cache_than_weights_says_so() -> None:
    # 128 sequences at 4 000 tokens: 128 x 4 000 x 131 072 B = 67 GB of cache beside 15 GB of weights.
    facts = decoding(llama_8b(), 0.0300, batch=128, context=4000)
    assert diagnosed(facts, measured(decode__mbu=0.82)).regime == "memory: KV"


def test_b_prefill_near_the_compute_roof() -> None:
    found = diagnosed(prefilling(llama_8b(), 4096, 100, 11.53), measured(prefill__mfu=0.54), of="prefill")
    assert (found.scenario, found.confidence, found.regime) == ("B", "medium", "compute")
    assert about(found, "B")[0].statement == "prefill MFU 54 %, above 45 %"


def test_b_needs_the_roof() -> None:
    # 62.2 ms of arithmetic in 200 ms: 31 % of the peak, and 57 % of the time is lost.
    found = diagnosed(prefilling(llama_8b(), 4096, 100, 20.0), measured(prefill__mfu=0.31), of="prefill")
    assert found.scenario == "D or F"


def test_b_in_a_decode_step_where_others_prefill_is_its_largest_share() -> None:
    # 10.8 ms of decode and 14 ms of prefill in a step of 33 ms.
    found = diagnosed(decoding(llama_70b(), 0.033, interleaved=0.014, phase="mixed"), measured(decode__mbu=0.328))
    assert found.scenario == "B"
    assert Evidence("B", True, "interleaved prefill is 42 % of the step", "roofline") in found.evidence


def test_compute_bound_decode_is_a_regime_and_not_b() -> None:
    facts = decoding(llama_8b(), 1.0, batch=1024, context=100)
    assert facts.decode is not None
    assert facts.decode.floor is not None
    # 0.9 x 77.1 % = 69.4 %: a step at 74 % of the peak is near the compute roof.
    facts = decoding(llama_8b(), facts.decode.floor.seconds / 0.74, batch=1024, context=100)
    found = diagnosed(facts)
    assert (found.scenario, found.regime) == (None, "compute")
    assert found.title == "near the compute roof; a regime, not a fault"
    assert found.remedies == ()


def test_c_from_a_profile() -> None:
    found = diagnosed(decoding(llama_70b(), 0.0262), measured(decode__mbu=0.413),
                      Observed("decode.pt.trace.json.gz", transport=0.34, idle_within=0.04,
                               collective="all-reduce"))  # fmt: skip
    assert (found.scenario, found.candidates, found.confidence) == ("C", ("C",), "high")
    assert found.title == "communication and interconnect stalls"
    assert found.regime == "overhead"
    source = "decode.pt.trace.json.gz"
    assert about(found, "C") == [Evidence("C", True, "all-reduce kernels exposed for 34 % of the step", source)]
    assert about(found, "D") == [Evidence("D", False, "the GPU was idle 4 % of the step", source)]
    assert not about(found, "A")[0].supports
    assert found.missing == ()


def test_d_from_a_profile() -> None:
    found = diagnosed(decoding(llama_70b(), 0.0262), None,
                      Observed("trace", transport=0.06, idle_within=0.25, idle_between=0.10))  # fmt: skip
    assert (found.scenario, found.confidence) == ("D", "high")
    assert about(found, "D")[0].statement == "the GPU was idle 35 % of the step"


@pytest.mark.parametrize(
    ("gaps", "pauses", "told"),
    [
        # 4.0 and 4.6 % are 8.6 %, as timeline.idle has it: 9 % as it is printed, of which 4 and 9 - 4.
        (0.040, 0.046, "9 % of the step: 4 % in gaps, 5 % in pauses"),
        (0.0, 0.046, "5 % of the step: 0 % in gaps, 5 % in pauses"),
        (0.040, 0.004, "4 % of the step"),
    ],
)  # fmt: skip
def test_pauses_between_kernels_are_idle_time_and_no_gaps(gaps: float, pauses: float, told: str) -> None:
    seen = Observed("trace", transport=0.34, idle_within=gaps, idle_between=0.0, pauses=pauses)
    found = diagnosed(decoding(llama_70b(), 0.0262), None, seen)
    statement = about(found, "D")[0].statement
    assert statement.removesuffix(" of microseconds between kernels that were submitted in time") == (
        f"the GPU was idle {told}"
    )


def test_f_from_a_profile() -> None:
    # Of 26.2 ms 41.3 % are floor, 6.7 % ceiling, 8 % observed losses: 44 % are kernels slower than they could be.
    found = diagnosed(decoding(llama_70b(), 0.0262), None, Observed("trace", transport=0.06, idle_within=0.02))
    assert (found.scenario, found.confidence) == ("F", "high")
    assert about(found, "F")[0].statement == "work beyond what kernels need is 44 % of the step"


def test_gpu_counters_are_worth_less_than_a_profile() -> None:
    seen = Observed("dcgm.prom", by="gpu counters", idle_within=0.40)
    assert diagnosed(decoding(llama_8b(), 0.0150, 16, 1000), None, seen).confidence == "medium"


@pytest.mark.parametrize(
    "changes",
    [
        {"distortions": ("the profiler recorded stacks",)},
        # The profile's own step is 20 ms, the window's 26.2 ms: 24 % apart.
        {"step_seconds": 0.020},
    ],
    ids=["distorted", "another step"],
)
def test_what_makes_a_profile_doubtful_lowers_the_confidence(changes: dict[str, Any]) -> None:
    seen = replace(Observed("trace", transport=0.34, idle_within=0.04), **changes)
    found = diagnosed(decoding(llama_70b(), 0.0262), None, seen)
    assert (found.scenario, found.confidence) == ("C", "medium")
    assert any(one.source == "trace" and not one.supports for one in about(found, "C"))


@pytest.mark.parametrize("seen", [None, Observed("trace", transport=0.05), Observed("trace", transport=0.22)])
def test_what_is_not_sure_to_be_the_cause_is_no_promise(seen: Observed | None) -> None:
    found = diagnosed(decoding(llama_70b(), 0.0262), None, seen)
    assert found.confidence == "low"
    assert found.remedies
    assert all(", if the cause is " in one.effect for one in found.remedies)


def test_two_losses_alike_are_both_named() -> None:
    # 22 % against 20 %: less than 1.3 times as much; slow kernels are below a tenth.
    found = diagnosed(decoding(llama_70b(), 0.0262), None, Observed("trace", transport=0.22, idle_within=0.20))
    assert (found.scenario, found.candidates, found.confidence) == ("C or D", ("C", "D"), "medium")
    assert found.title == "communication stalls or host launch bubbles"


def test_waiting_is_charged_to_what_the_late_rank_lost() -> None:
    facts = decoding(llama_70b(), 0.0262)
    seen = Observed("trace", transport=0.05, waiting=0.30, idle_within=0.05, ranks=4)
    assert diagnosed(facts, None, replace(seen, waiting_cause="host gaps")).scenario == "D"
    assert diagnosed(facts, None, replace(seen, waiting_cause="imbalance")).scenario == "C"
    straggler = diagnosed(facts, None, replace(seen, ranks=1))
    assert straggler.scenario == "C or D"
    statement = about(straggler, "C or D")[0].statement
    assert statement.startswith("30 % of the step is waiting for a late rank: a straggler")


def test_telemetry_alone_cannot_tell_c_from_d() -> None:
    found = diagnosed(decoding(llama_70b(), 0.0262), measured(decode__mbu=0.413))
    assert (found.scenario, found.candidates, found.confidence) == ("C or D", ("C", "D", "F"), "low")
    assert about(found, "C or D")[0].supports
    assert about(found, "C or D")[0].statement.startswith("47 % of the step is neither floor, kernel ceiling")
    assert any("--profiler-config" in line for line in map(str, found.missing))
    assert any("nsys profile" in line for line in map(str, found.missing))
    assert any("DCGM_FI_PROF" in line for line in map(str, found.missing))
    missing = [*map(str, found.missing)]
    assert any(line.startswith("communication that nothing hides") and "`telemetry:`" in line for line in missing)
    assert any("python -m pytest_llmroof record" in line and ":9400" in line for line in map(str, found.missing))


def test_one_gpu_rules_c_out() -> None:
    found = diagnosed(decoding(llama_8b(), 0.0150, 16, 1000), measured(decode__mbu=0.34))
    assert (found.scenario, found.candidates, found.confidence) == ("D or F", ("D", "F"), "low")
    nobody = "one GPU serves each replica: there is nobody to wait for"
    assert about(found, "C") == [Evidence("C", False, nobody, "the deployment")]


def test_one_gpu_that_was_only_assumed_is_no_evidence() -> None:
    assumed = replace(llama_8b(), provenance={"tensor_parallel": "assumed"})
    assert about(diagnosed(decoding(assumed, 0.0150, 16, 1000), measured(decode__mbu=0.34)), "C") == []


def test_replicas_of_one_gpu_rule_c_out_too() -> None:
    assert diagnosed(decoding(llama_8b(data_parallel=8), 0.0150, 16, 1000)).candidates == ("D", "F")


def test_experts_over_replicas_do_communicate() -> None:
    facts = decoding(mixtral(tensor_parallel=1, data_parallel=8, expert_parallel=True), 0.0300, 16, 500)
    assert "C" in diagnosed(facts).candidates


def test_an_estimate_alone_decides_with_low_confidence_at_most() -> None:
    # TP 4 over PCIe: 160 x 35.95 us = 5.75 ms of 18.8 ms; floor 10.82, ceiling 1.76: 0.47 ms are left for D and F.
    found = diagnosed(decoding(llama_70b(interconnect="pcie"), 0.0188), measured(decode__mbu=0.576))
    assert (found.scenario, found.confidence) == ("C", "low")
    assert about(found, "C")[0].statement == "communication that nothing hides is about 31 % of the step"
    assert about(found, "C")[0].source.startswith("estimated: 160 all-reduces of 203 kB over PCIe")
    assert found.missing
    assert found.remedies
    assert all(one.effect.endswith(", if the cause is communication stalls") for one in found.remedies)


def test_nothing_is_named_where_nothing_is_lost() -> None:
    # 10.82 ms of floor and 1.76 of ceiling and 1.42 of communication in 14.6 ms: MBU 74 %, 4 % left.
    found = diagnosed(decoding(llama_70b(), 0.0146), measured(decode__mbu=0.741))
    assert (found.scenario, found.candidates, found.remedies) == (None, (), ())
    assert found.title == "no single loss stands out"


def test_a_passing_window_has_a_diagnosis_of_every_time() -> None:
    facts, outcomes = decoding(llama_70b(), 0.0134), measured(decode__mbu=0.808)
    families: tuple[Family, ...] = ("decode", "prefill", "ttft", "window", "none")
    for family in families:
        found = diagnosed(facts, outcomes, of=family)
        assert found.of == family
        assert found.title


def test_without_model_and_gpu_the_missing_options_are_named() -> None:
    deployment = Deployment(missing={"gpu": "no accelerator is named", "model": "it is unknown: give `model:`"})
    found = diagnosed(decoding(deployment, 0.02))
    assert (found.scenario, found.regime) == (None, None)
    assert str(found.missing[0]).startswith("gpu: no accelerator is named; write `gpu:` or --llmroof-gpu=NAME")
    assert found.missing[1] == "model: it is unknown: give `model:`"


def test_the_time_of_prefill_in_a_window_of_decode_is_asked_for() -> None:
    found = diagnosed(decoding(llama_70b(), 0.0262), of="prefill")
    assert found.scenario is None
    assert "prefill in a window of its own" in str(found.missing[0])


def test_communication_seen_leaves_the_host_and_the_kernels() -> None:
    found = diagnosed(decoding(llama_70b(), 0.0262), None, Observed("trace", transport=0.05))
    assert (found.scenario, found.confidence) == ("D or F", "low")


def test_idle_time_seen_leaves_other_gpus_and_the_kernels() -> None:
    seen = Observed("dcgm.prom", by="gpu counters", idle_within=0.03)
    assert diagnosed(decoding(llama_70b(), 0.0262), None, seen).scenario == "C or F"


_HIDDEN = "communication of a further 20 % of the step is hidden behind computation"


def test_hidden_communication_speaks_against_c() -> None:
    seen = Observed("trace", transport=0.02, idle_within=0.40, hidden_communication=0.2)
    found = diagnosed(decoding(llama_70b(), 0.0262), None, seen)
    assert found.scenario == "D"
    assert Evidence("C", False, _HIDDEN, "trace") in found.evidence


@pytest.mark.parametrize(
    ("deployment", "told"),
    [
        # One H100 at 79 % of 3.35 TB/s, said to be eight: 16.06 GB in 6.07 ms; two would read 39 %.
        (llama_8b(tensor_parallel=8), "check the inputs first: with tensor_parallel 1 decode MBU would read 79 %"),
        (llama_8b(tensor_parallel=8, provenance={"tensor_parallel": "telemetry", "weights": "config"}), None),
        (llama_8b(), None),  # 79 % are no riddle
        # 4 bits of each weight, where 16 are read: about a quarter of 79 %, and with 8 bits half of it.
        (llama_8b(weights="int4"), "check the inputs first: with weights bf16 decode MBU would read 79 %"),
    ],
)
def test_inputs_come_first_where_others_would_explain_the_step(deployment: Deployment, told: str | None) -> None:
    facts = decoding(deployment, 0.00607, batch=8, context=1000)
    found = diagnose(facts, {}, attribute(facts, {}), "decode").missing
    first = found[0] if found and str(found[0]).startswith("check the inputs") else None
    assert first == told
