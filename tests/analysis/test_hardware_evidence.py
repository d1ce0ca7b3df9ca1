"""What GPU counters say of lost time, in windows with planted losses: they decide what engine metrics leave open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_counters import gpu, gpus, watched
from hand_facts import decoding, engine, exactly, llama_8b, llama_70b, prefilling, series
from made_windows import moving

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.facts import Busy, WindowFacts
from pytest_llmroof.analysis.hardware_evidence import counters_missing, observed_by_counters
from pytest_llmroof.analysis.hardware_notes import hardware_notes
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.analysis.observing import observe
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.hardware import Gpu
from pytest_llmroof.telemetry.window import Series

TP8 = llama_70b(tensor_parallel=8)
LOADED = (engine(gauges={"running": Series((0.0, 60.0), (12.0, 12.0)), "waiting": Series((0.0, 60.0), (0.0, 0.0))}),)
BURST = (engine(gauges={"running": Series((0.0, 60.0), (0.0, 0.0))}),)


def seen(facts: WindowFacts, *counters: Gpu, averaging: float | None = 1.0, **changes: object) -> WindowFacts:
    """The facts of a minute under load, with these counters."""
    window = replace(facts.window, started=0.0, engines=facts.window.engines if facts.decode else LOADED)
    return replace(facts, window=watched(window, *counters, averaging=averaging, **changes))


def planted(**values: Any) -> WindowFacts:
    """70B at TP 8 in steps of 26.2 ms, of which 5.41 ms (20.7 %) are floor: most of each step is lost."""
    return seen(decoding(TP8, 0.0262, engines=LOADED), *gpus(8, **values))


def explained(facts: WindowFacts, of: Family = "decode") -> tuple[Diagnosis, Attribution]:
    observed, outcomes = observe(facts), measure(facts)
    split = attribute(facts, outcomes, observed)
    assert split is not None
    return diagnose(facts, outcomes, split, of, observed), split


def test_engine_metrics_alone_leave_it_open() -> None:
    found, _ = explained(decoding(TP8, 0.0262, engines=LOADED))
    assert (found.scenario, found.candidates, found.confidence) == ("C or D", ("C", "D", "F"), "low")


def test_planted_exchanges_over_busy_links_are_c() -> None:
    # 300 GB/s sent of the 450 that one direction of NVLink 4 can: 67 %. Engines always active, on few multiprocessors.
    facts = planted(gr_engine=0.98, sm_active=0.40, dram=0.21, tensor=0.03, nvlink_sent_bytes_per_second=300e9,
                    nvlink_received_bytes_per_second=250e9)  # fmt: skip
    found, split = explained(facts)
    assert (found.scenario, found.confidence) == ("C", "medium")
    # What is left: 1 - 0.207 floor - 0.034 ceiling - 0.02 idle = 74 %, observed.
    assert split.share("exposed communication: transport") == pytest.approx(0.740, abs=2e-3)
    assert split.share("not attributed") == 0
    assert sum(part.share for part in split.shares) == pytest.approx(1)
    statements = [one.statement for one in found.evidence if one.supports and one.scenario == "C"]
    assert statements[-1] == (
        "engines active 98 %, multiprocessors 40 %, memory interface 21 %, tensor pipe 3 %, links 67 %: the links are "
        "busy, and little else"
    )


def test_small_exchanges_cannot_be_told_from_kernels_that_fill_few_multiprocessors() -> None:
    # Decode's all-reduces run on a few multiprocessors and hardly load a link: idle gaps are ruled out, and no more.
    facts = planted(gr_engine=0.98, sm_active=0.40, dram=0.21, tensor=0.03, nvlink_sent_bytes_per_second=4e9,
                    nvlink_received_bytes_per_second=4e9)  # fmt: skip
    found, split = explained(facts)
    assert (found.scenario, found.candidates, found.confidence) == ("C or F", ("C", "F"), "low")
    assert split.share("idle: between steps") == pytest.approx(0.02)
    assert any(one.scenario == "D" and not one.supports for one in found.evidence)
    assert not any("DCGM's counters" in line for line in map(str, found.missing))  # they are here already
    assert any("PyTorch profile" in line for line in map(str, found.missing))


def test_planted_host_gaps_are_d() -> None:
    facts = planted(gr_engine=0.45, sm_active=0.40, dram=0.21, tensor=0.03)
    found, split = explained(facts)
    assert (found.scenario, found.confidence) == ("D", "medium")
    assert split.share("idle: between steps") == pytest.approx(0.55)  # 1 - 0.45
    # Counters do not tell gaps within steps from those between: each remedy, for the most that it can give.
    # 26.2 ms less 55 %: 11.8 ms.
    effect = "at most: step 26.2 ms toward 11.8 ms, if the cause is gaps"
    assert [(one.title, one.effect) for one in found.remedies] == [
        ("Capture decode steps in CUDA graphs", f"{effect} within steps"),
        ("Schedule while the GPU works", f"{effect} between steps"),
    ]
    assert "the GPUs waited while there was load" in next(
        one.statement for one in found.evidence if one.statement.startswith("engines active 45 %")
    )


def test_one_gpu_that_its_host_keeps_is_d_though_the_others_seem_active() -> None:
    """Seven of eight wait for it inside of their exchanges: 55 % of its time is active, and each step is as long."""
    base = decoding(TP8, 0.0262, engines=LOADED)
    others = [gpu(index, gr_engine=0.98, sm_active=0.45, dram=0.21, tensor=0.03) for index in range(1, 8)]
    late = gpu(0, gr_engine=0.55, sm_active=0.40, dram=0.21, tensor=0.03)
    found, split = explained(seen(base, late, *others))
    assert found.scenario == "D"
    assert split.share("idle: between steps") == pytest.approx(0.45)
    # Two replicas of four have steps of their own: the mean of all, 1 - (0.55 + 7 x 0.98) / 8 = 7.4 %.
    two = replace(base, deployment=llama_70b(data_parallel=2))
    observed = observed_by_counters(seen(two, late, *others))
    assert observed is not None
    assert observed.idle_between == pytest.approx(0.07375)


def test_both_planted_stay_both() -> None:
    # 30 % idle, and 40 % of the step that is neither idle nor floor.
    found, split = explained(planted(gr_engine=0.70, sm_active=0.30, dram=0.21, tensor=0.03))
    assert (found.scenario, found.candidates) == ("C or D", ("C", "D", "F"))
    assert split.share("idle: between steps") == pytest.approx(0.30)


def test_nothing_planted_is_nothing_lost() -> None:
    # 10.82 ms of floor in 13.0 ms: near the memory roof, with the memory interface active 84 % of the time.
    facts = seen(decoding(llama_70b(), 0.0130, engines=LOADED),
                 *gpus(4, gr_engine=0.99, sm_active=0.93, dram=0.84, tensor=0.04))  # fmt: skip
    found, _ = explained(facts)
    assert (found.scenario, found.confidence) == ("A", "medium")
    assert any(one.statement.endswith("tensor pipe 4 %: memory is what is busy") for one in found.evidence)
    assert hardware_notes(facts) == ()


def test_one_gpu_with_slow_kernels_is_f() -> None:
    # 8B at batch 16: 5.42 ms of floor in 15 ms, kernels all the time.
    facts = seen(decoding(llama_8b(), 0.015, 16, engines=LOADED),
                 gpu(gr_engine=0.99, sm_active=0.95, dram=0.37, tensor=0.03))  # fmt: skip
    found, split = explained(facts)
    assert (found.scenario, found.confidence) == ("F", "medium")
    assert split.share("slow kernels") == pytest.approx(1 - 0.01 - 0.361 / 0.86, abs=5e-3)


def test_several_gpus_whose_multiprocessors_all_work_are_f() -> None:
    facts = planted(gr_engine=0.98, sm_active=0.94, dram=0.21, tensor=0.03, nvlink_bytes_per_second=10e9)
    found, split = explained(facts)
    assert (found.scenario, found.confidence) == ("F", "medium")
    assert split.share("slow kernels") > 0.6


def test_prefill_near_the_roof_is_b() -> None:
    # 62.2 ms of arithmetic for each of 100 prompts: 6.22 s of 11.5 s.
    facts = seen(prefilling(llama_8b(), 4096, 100, 11.53),
                 gpu(gr_engine=0.99, sm_active=0.97, dram=0.30, tensor=0.62, sm_clock_hertz=1.83e9))  # fmt: skip
    facts = replace(facts, busy=Busy(exactly(11.53), "the counters' movement"))
    found, _ = explained(facts, "prefill")
    assert found.scenario == "B"
    assert any("tensor pipe 62 %: the tensor cores are what is busy" in one.statement for one in found.evidence)


def test_averages_that_reach_beyond_the_load_say_nothing() -> None:
    # Averages over 90 s of a window of 60.
    facts = seen(decoding(TP8, 0.0262, engines=LOADED), *gpus(8, gr_engine=0.45, dram=0.2), averaging=90.0)
    assert observed_by_counters(facts) is None
    found, _ = explained(facts)
    assert found.scenario == "C or D"
    assert any("an average over 90 s, and none of them lies inside" in line for line in map(str, found.missing))


def test_the_load_is_taken_off_a_window_that_was_not_all_busy() -> None:
    # Averages over 30 s cover the window of 60 s, of which 20 s (at least) were busy: engines were active 30 % of the
    # window, 18 s. Idle inside busy time = (1 - 0.30) 60 - (60 - 20) = 2 s of 20: 10 %.
    facts = decoding(TP8, 0.0262, engines=BURST)
    rested = gpus(8, times=[30, 60], gr_engine=0.30, dram=0.1)
    window = watched(replace(facts.window, started=0.0), *rested, averaging=30.0)
    facts = replace(facts, window=window, busy=Busy(Bounded(22, 20, 24), "first to last movement of the counters"))
    observed = observed_by_counters(facts)
    assert observed is not None
    assert observed.idle_between == pytest.approx(0.10)
    assert observed.signs == ()  # the table is for averages inside the load
    # Two scrapes say nothing of idle time: an upper bound is no busy time.
    bound = replace(facts, busy=Busy(Bounded(60, 5, 60), "the window"))
    assert observed_by_counters(bound) is None
    assert "nor is the busy time known" in str(next(iter(counters_missing(bound, ("C", "D")))))


def test_the_load_is_taken_off_the_time_that_the_averages_cover() -> None:
    # Averages over 15 s at 30 and 45 s cover 15 to 45 s. Engines were active for 11 s of them.
    def idle(begun: float, ended: float) -> float | None:
        facts = decoding(TP8, 0.0262, engines=BURST)
        progress = moving(tuple(range(61)), begun, ended)
        rested = gpus(8, times=[30, 45], gr_engine=11 / 30, dram=0.1)
        window = watched(replace(facts.window, started=0.0, progress=progress), *rested, averaging=15.0)
        busy = Busy(Bounded(20, 19, 21), "first to last movement of the counters")
        observed = observed_by_counters(replace(facts, window=window, busy=busy))
        return None if observed is None else observed.idle_between

    # (1 - 11 / 30) 30 - (30 - 19) = 8 of 19 s: not (1 - 11 / 30) 60 - (60 - 19), which is below 0.
    assert idle(20, 40) == pytest.approx(8 / 19)
    # Of a load from 0 to 20 s only a quarter was seen.
    assert idle(0, 20) is None


def test_a_busy_time_that_is_hardly_known_tells_no_idle_time() -> None:
    facts = decoding(TP8, 0.0262, engines=BURST)
    window = watched(replace(facts.window, started=0.0), *gpus(8, times=[30, 60], gr_engine=0.30), averaging=30.0)
    facts = replace(facts, window=window, busy=Busy(Bounded(24, 20, 28), "first to last movement of the counters"))
    # 10 % of 20 s, or 10 of 28 s.
    assert observed_by_counters(facts) is None


def test_missing_and_silent_fields_abstain_and_say_what_to_switch_on() -> None:
    # Case: GPU_UTIL 99 % and 642 W, and every profiled field at 0.
    silent = planted(utilization=0.99, gr_engine=0.0, dram=0.0, tensor=0.0)
    assert observed_by_counters(silent) is None
    (line,) = counters_missing(silent, ("C", "D"))
    told = str(line)
    assert told.startswith("DCGM_FI_PROF_GR_ENGINE_ACTIVE reads 0 while the GPU works: it was not measured; have DCGM")
    # Case: no profiled field at all.
    without = seen(decoding(TP8, 0.0262, engines=LOADED), *gpus(8, utilization=1.0),
                   missing={"gr_engine": "DCGM_FI_PROF_* are absent: load the profiling module"})  # fmt: skip
    assert observed_by_counters(without) is None
    assert list(counters_missing(without, ("C", "D"))) == [
        "nothing in dcgm.prom tells the activity of the GPU's engines; "
        "DCGM_FI_PROF_* are absent: load the profiling module"
    ]
    found, _ = explained(without)
    assert found.scenario == "C or D"


def test_without_multiprocessors_idle_gaps_are_still_told() -> None:
    # dcgm-exporter leaves SM_ACTIVE out by default: engines, memory and tensor pipe are there.
    found, _ = explained(planted(gr_engine=0.50, dram=0.21, tensor=0.03))
    assert found.scenario == "D"
    busy, _ = explained(planted(gr_engine=0.99, dram=0.21, tensor=0.03))
    assert busy.candidates == ("C", "F")
    assert any("tells the activity of the multiprocessors" in line for line in map(str, busy.missing))


def test_bubbles_of_a_pipeline_are_not_host_gaps() -> None:
    facts = seen(decoding(llama_70b(pipeline_parallel=2), 0.0262, engines=LOADED), *gpus(8, gr_engine=0.45))
    observed = observed_by_counters(facts)
    assert observed is None or observed.idle_between is None


def test_the_engine_goes_before_the_counters_and_both_are_shown() -> None:
    # The engine computed for 48 s of 60 s of steps: 20 % idle; the counters say 35 %.
    told = replace(LOADED[0], counters={"forward_seconds": 48.0, "timed_step_seconds": 60.0},
                   names={"forward_seconds": "sglang:forward_seconds"})  # fmt: skip
    facts = seen(decoding(TP8, 0.0262, engines=(told,)), *gpus(8, gr_engine=0.65, sm_clock_hertz=1.83e9))
    observed = observe(facts)
    assert observed is not None
    assert observed.by == "engine"
    assert observed.idle_between == pytest.approx(0.2)
    assert observed.clock == pytest.approx(1.0)
    (note,) = hardware_notes(facts)
    assert "20 % by the engine's own account (sglang:forward_seconds" in note
    assert "35 % by the GPUs' counters (DCGM_FI_PROF_GR_ENGINE_ACTIVE)" in note
    close = seen(decoding(TP8, 0.0262, engines=(told,)), *gpus(8, gr_engine=0.79))  # 21 % against 20: as good as one
    assert hardware_notes(close) == ()


def test_an_idle_replica_is_no_host_gap() -> None:
    # Two replicas, one without requests for all but the edges: its GPUs rest for want of work.
    times = tuple(float(time) for time in range(0, 61, 5))
    there = {"running": Series(times, (4.0,) * 13)}
    gone = {"running": Series(times, (4.0,) + (0.0,) * 12)}
    two = (engine(gauges=there), replace(engine(gauges=gone), identity="engine 1"))
    facts = decoding(llama_8b(data_parallel=2), 0.015, 16, engines=two)
    window = watched(replace(facts.window, started=0.0, progress=Series(times, times)),
                     gpu(0, gr_engine=0.98), gpu(1, gr_engine=0.02))  # fmt: skip
    # Only the whole window is left: what was busy is known, and nobody's gap.
    assert observed_by_counters(replace(facts, window=window)) is None


@pytest.mark.parametrize(
    ("dram", "words"),
    [
        # Floor 10.82 ms in 13.0 ms: MBU 83 %.
        (0.45, "memory moves nothing while it rests, so model (llama-3.1-70b, given), weights (bf16, given), "
               "tensor_parallel (4, given) may not be what the server runs"),
        (0.95, "more is moved than a step needs"),
        (0.74, "the two do not quite agree"),
    ],
)  # fmt: skip
def test_memory_that_contradicts_the_model_is_named(dram: float, words: str) -> None:
    facts = seen(decoding(llama_70b(), 0.0130, engines=LOADED), *gpus(4, gr_engine=0.99, dram=dram))
    (note,) = hardware_notes(facts)
    start = f"decode MBU is 83 % by the model's bytes, the memory interface was active {dram * 100:.0f} % of the time"
    assert note.startswith(start)
    assert words in note
    found, _ = explained(facts)
    assert (found.scenario, found.confidence) == ("A", "low" if dram == 0.45 else "medium")


def test_memory_is_not_compared_in_a_mixed_window() -> None:
    facts = replace(decoding(llama_70b(), 0.0130, engines=LOADED), phase="mixed")
    assert hardware_notes(seen(facts, *gpus(4, gr_engine=0.99, dram=0.40))) == ()


def test_more_flops_executed_than_needed_speak_for_f_in_prefill_only() -> None:
    # 62.2 ms of arithmetic for each of 100 prompts in 20 s: MFU 31 %; the tensor pipe was active 70 % of the cycles at
    # the clock of the peak: HFU 70 %, more than twice that.
    facts = seen(prefilling(llama_8b(), 4096, 100, 20.0),
                 gpu(gr_engine=0.99, sm_active=0.97, dram=0.60, tensor=0.70, sm_clock_hertz=1.83e9))  # fmt: skip
    found, _ = explained(facts, "prefill")
    assert found.scenario == "F"
    (statement,) = [one.statement for one in found.evidence if "the hardware executed" in one.statement]
    assert "2.3 times what the prompts need (HFU 70 %, MFU 31 %)" in statement
    decode = planted(gr_engine=0.98, sm_active=0.94, tensor=0.2, dram=0.2, sm_clock_hertz=1.83e9)
    assert not any("the hardware executed" in one.statement for one in explained(decode)[0].evidence)


def test_heat_is_a_cause_of_its_own_with_what_to_do() -> None:
    # A step of 40.9 ms, compute-bound: 1 024 sequences; the slowest GPU ran at 1 281 of 1 830 MHz, 70 %.
    base = decoding(llama_8b(), 1.0, 1024, 100, engines=LOADED)
    assert base.decode is not None
    assert base.decode.floor is not None
    floor = base.decode.floor.seconds
    facts = seen(
        decoding(llama_8b(), floor / 0.5, 1024, 100, engines=LOADED),
        gpu(gr_engine=0.99, tensor=0.4, sm_clock_hertz=1.281e9, changes={"throttle_reasons": {"thermal": 0.45}}),
    )
    found, split = explained(facts)
    # Floor 50 %, of which kernels reach 77.1 %: 64.9 %; at 70 % of the clock 0.649 / 0.70 - 0.649 = 27.8 % longer.
    assert split.share("clock") == pytest.approx(0.5 / 0.771 * (1 / 0.7 - 1), abs=1e-3)
    # The rest is the ceiling's: 0.649 - 0.5 = 14.9 %, and 100 - 50 - 27.8 - 14.9 = 7.3 % are left.
    assert 1 - split.share("compute floor", "clock", "kernel ceiling") == pytest.approx(0.073, abs=2e-3)
    assert found.title == "the GPUs ran at a lowered clock"
    assert (found.scenario, found.confidence) == (None, "medium")
    assert found.remedies[0].title == "Cool the GPUs"
    assert "gpu 0 of host-1 was throttled for heat in 45 % of the time and ran at 1.28 GHz, 70 % of the 1.83 GHz" in (
        found.remedies[0].detail
    )
    notes = hardware_notes(facts)
    assert any("throttled for heat in 45 % of the time" in note and "air flow" in note for note in notes)


@pytest.mark.parametrize(
    ("changes", "title", "confidence", "remedy"),
    [
        ({"throttle_reasons": {"thermal": 0.45}}, "heat lowered the GPUs' clock", "medium", "Cool the GPUs"),
        ({"throttle_reasons": {"power": 0.45}}, "a power cap lowered the GPUs' clock", "medium", "Raise the power cap"),
        ({}, "the GPUs ran at a lowered clock", "low", "Find what lowers the clock"),
    ],
    ids=["heat", "power", "unknown"],
)
def test_a_low_clock_is_explained_by_its_own_cause(
    changes: dict[str, object], title: str, confidence: str, remedy: str
) -> None:
    """A memory-bound decode step that lost most of its time, C or D: not what lowers a clock."""
    counters = [gpu(index, gr_engine=0.98, sm_clock_hertz=1.281e9, changes=changes) for index in range(8)]
    facts = seen(decoding(TP8, 0.0262, engines=LOADED), *counters)
    assert explained(facts)[0].candidates == ("C", "F")
    found, _ = explained(facts, "clock")
    assert (found.scenario, found.candidates, found.title, found.confidence) == (None, (), title, confidence)
    (one,) = found.remedies
    assert (one.title, one.effect) == (remedy, "clock 70 % toward 100 %")  # 1 281 / 1 830
    assert (one.metric, one.high) == ("hardware.clock", 1.0)
    assert one.low == pytest.approx(0.7)
    assert "ran at 1.28 GHz, 70 % of the 1.83 GHz" in one.detail
    assert found.evidence == ()


def test_a_clock_that_nothing_lowered_has_nothing_to_raise() -> None:
    found, _ = explained(planted(gr_engine=0.98, sm_clock_hertz=1.83e9), "clock")
    assert (found.title, found.remedies) == ("the GPUs ran at the clock of their peaks", ())
    unknown, _ = explained(planted(gr_engine=0.98), "clock")
    assert (unknown.title, unknown.remedies) == ("not diagnosed", ())


def test_idle_time_is_the_hosts_whatever_else_took_more() -> None:
    # 30 % idle, and 40 % of the step that is neither idle nor floor: C or D for the step, D for its idle time.
    facts = planted(gr_engine=0.70, sm_active=0.30, dram=0.21, tensor=0.03)
    assert explained(facts)[0].scenario == "C or D"
    found, _ = explained(facts, "idle")
    assert (found.scenario, found.candidates, found.confidence) == ("D", ("D",), "medium")
    assert found.evidence[0].statement == "idle time of the GPU is 30 % of the step"
    assert all(one.scenario == "D" and one.supports for one in found.evidence)


def test_idle_stages_of_a_pipeline_wait_for_another_one_or_for_their_host() -> None:
    facts = seen(decoding(llama_70b(pipeline_parallel=2), 0.0262, engines=LOADED), *gpus(8, gr_engine=0.45))
    found, _ = explained(facts, "idle")
    assert (found.scenario, found.candidates, found.confidence) == ("C or D", ("C", "D"), "low")


def test_idle_time_that_nothing_tells_under_load_is_not_diagnosed() -> None:
    facts = seen(decoding(TP8, 0.0262, engines=LOADED), *gpus(8, gr_engine=0.45, dram=0.2), averaging=90.0)
    found, _ = explained(facts, "idle")
    assert (found.scenario, found.confidence, found.remedies) == (None, "low", ())
    assert any("an average over 90 s, and none of them lies inside" in line for line in map(str, found.missing))


def test_a_power_cap_is_part_of_the_ceiling() -> None:
    base = decoding(llama_8b(), 1.0, 1024, 100, engines=LOADED)
    assert base.decode is not None
    assert base.decode.floor is not None
    facts = seen(
        decoding(llama_8b(), base.decode.floor.seconds / 0.5, 1024, 100, engines=LOADED),
        # 30 of 60 s by the violation counter.
        gpu(gr_engine=0.99, sm_clock_hertz=1.647e9, changes={"counters": {"power_seconds": 30.0}}),
    )
    found, split = explained(facts)
    assert split.share("clock") == 0
    assert not any("clock" in remedy.title for remedy in found.remedies)
    (note,) = hardware_notes(facts)
    assert note == (
        "gpu 0 of host-1 ran at 1.65 GHz, 90 % of the 1.83 GHz at which its peaks hold, capped by power in 50 % of the "
        "time"
    )


def test_the_slowest_gpu_sets_the_clock() -> None:
    seen_gpus = [gpu(index, gr_engine=0.9, sm_clock_hertz=1.83e9 if index else 1.464e9) for index in range(8)]
    observed = observed_by_counters(seen(decoding(TP8, 0.0262, engines=LOADED), *seen_gpus))
    assert observed is not None
    assert observed.clock == pytest.approx(0.8)  # 1 464 / 1 830


def test_counters_never_give_high_confidence() -> None:
    for engines in (0.3, 0.6, 0.95, 1.0):
        for multiprocessors in (0.2, 0.9):
            figures = {"gr_engine": engines, "sm_active": engines * multiprocessors, "dram": 0.2, "tensor": 0.1}
            found, split = explained(planted(**figures, nvlink_bytes_per_second=1e9))
            assert found.confidence in ("low", "medium")
            assert sum(part.share for part in split.shares) == pytest.approx(1)


def test_a_window_without_counters_has_no_notes() -> None:
    facts = decoding(TP8, 0.0262, engines=(engine(gauges={"running": series(4, 4)}),))
    assert hardware_notes(facts) == ()
    assert list(counters_missing(facts, ("C", "D"))) == []
