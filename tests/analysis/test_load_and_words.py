"""How idle a window was, what its phase may be, and sentences with figures in them: by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_counters import gpus, watched
from hand_facts import decoding, engine, llama_8b, llama_70b, measured, series

from pytest_llmroof.analysis.admission import idleness, saturation
from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.clocks import clock_notes
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.evidence import of_roofs
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.observing import differ
from pytest_llmroof.analysis.phases import contradiction
from pytest_llmroof.analysis.slices import mapping
from pytest_llmroof.analysis.sources import source, sources
from pytest_llmroof.roofline.catalogue import accelerator
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.window import Series

# Load ----------------------------------------------------------------------------------------------------------------


def sampled(*running: float) -> WindowFacts:
    """A benchmark that is all of the load: 2 000 output tokens of 10 requests in 30 s of the minute."""
    client = Client("tool", "a tool", "run.json", duration_seconds=30.0, completed=10, failed=0, output_tokens=2000.0)
    one = engine(
        counters={"generation_tokens": 2000.0}, finished={"stop": 10.0}, gauges={"running": series(*running)},
        names={"running": "vllm:num_requests_running"},
    )  # fmt: skip
    facts = decoding(llama_8b(), 0.0066, 16, 1000, engines=(one,))
    return replace(facts, window=replace(facts.window, client=client))


def test_idle_time_around_a_benchmark_is_nobodys() -> None:
    # Twenty samples, of which the first five and the last five frame the load; inside two of ten are without a request.
    facts = sampled(*[0.0] * 5, 4, 4, 4, 0, 4, 4, 0, 4, 4, 4, *[0.0] * 5)
    found = idleness(facts)
    assert found is not None
    assert (found.share, found.statement) == (0.2, "no request ran or waited in 2 of 10 samples")
    assert found.source == "vllm:num_requests_running"
    # Of the whole window, but for its very ends, 10 of 18 were.
    whole = idleness(facts, whole=True)
    assert whole is not None
    assert (whole.share, whole.statement) == (10 / 18, "no request ran or waited in 10 of 18 samples")
    assert idleness(sampled(*[0.0] * 20)) is None  # no sample saw any of the load
    assert idleness(sampled(0, 4, 4, 4, 4, 0)) is None  # four samples are too few


def test_requests_that_wait_for_prompts_to_be_computed() -> None:
    found = saturation(replace(decoding(llama_8b(), 0.0066), prefill_share=0.604))
    assert found is not None
    assert found.statement == "prefill makes 60 % of the work: requests wait for prompts to be computed"
    assert (found.cause, found.source) == ("compute", "token counters")
    by_floor = saturation(replace(decoding(llama_8b(), 0.0066), prefill_share=0.604, prefill_floor_seconds=1.0))
    assert by_floor is not None
    assert by_floor.source == "roofline"
    assert saturation(replace(decoding(llama_8b(), 0.0066), prefill_share=0.4)) is None


def test_only_a_written_phase_can_be_belied() -> None:
    assert contradiction("mixed", 0.999, True) is None
    assert contradiction("decode", None, True) is None
    assert contradiction("prefill", None, False) is None
    said = contradiction("decode", 0.996, True)
    assert said == (
        "the window is written as decode, but its traffic is not: prefill 100 % of the work's floor, decode 0 %"
    )
    assert contradiction("prefill", 0.996, True) is None
    # By tokens only a window without any of the written phase is refused.
    assert contradiction("decode", 0.996, False) is None
    assert contradiction("decode", 1.0, False) is not None


@pytest.mark.parametrize(("of", "asked"), [("decode", "decode"), ("prefill", "prefill"), ("idle", None)])
def test_a_window_without_the_steps_asked_for_says_how_to_get_some(of: Family, asked: str | None) -> None:
    facts = replace(decoding(llama_8b(), 0.0066, phase="mixed"), decode=None, busy=None)
    told = list(map(str, diagnose(facts, {}, None, of).missing))
    for steps in ("decode", "prefill"):
        assert any(f"measure {steps} in a window of its own" in line for line in told) == (steps == asked)


# Words ---------------------------------------------------------------------------------------------------------------


def test_a_slice_of_an_unknown_gpu_is_one_to_fill_in() -> None:
    assert mapping(None, accelerator("h100")).startswith("`gpu: {name: ..., base: h100-sxm5-80gb, peaks: {bf16: ...")
    assert mapping("1g.10gb", None).startswith("`gpu: {name: ..., base: NAME, peaks: {bf16: ...")
    assert mapping(None, None).startswith("`gpu: {name: ..., base: NAME, peaks: {bf16: ...")
    given = replace(accelerator("h100"), confidence="given")
    assert mapping(None, given).startswith("`gpu: {name: ..., base: NAME, peaks: {bf16: ...")


def test_a_source_is_the_first_that_the_engine_exports() -> None:
    names = {"kv_usage": "vllm:kv_cache_usage_perc", "running": "vllm:num_requests_running"}
    window = decoding(llama_8b(), 0.0066, engines=(engine(names=names),)).window
    assert source(window, "kv_usage", "running") == "vllm:kv_cache_usage_perc"
    assert source(window, "waiting", "running", "kv_usage") == "vllm:num_requests_running"
    assert source(window, "waiting") == "vllm"
    assert sources(window, "kv_usage", "waiting", "running") == (
        "vllm:kv_cache_usage_perc, vllm, vllm:num_requests_running"
    )


def test_a_small_mfu_is_said_with_its_threshold() -> None:
    facts = decoding(llama_8b(), 0.0066)
    found = list(of_roofs(measured(decode__mbu=0.8, decode__mfu=0.031), attribute(facts, {}), True))
    assert [(one.scenario, one.supports, one.statement) for one in found] == [
        ("A", True, "decode MBU 80 %, above 75 %"), ("A", True, "decode MFU 3.10 %, below 5 %"),
    ]  # fmt: skip
    low = list(of_roofs(measured(decode__mbu=0.3, decode__mfu=0.031), attribute(facts, {}), True))
    assert [(one.scenario, one.supports) for one in low] == [("A", False), ("B", False)]
    assert len(list(of_roofs(measured(decode__mbu=0.3, decode__mfu=0.06), attribute(facts, {}), True))) == 1


def test_a_distortion_that_says_what_it_does_is_not_said_twice() -> None:
    seen = Observed(
        "trace", transport=0.34, idle_within=0.03, idle_between=0.01,
        distortions=("shapes were recorded: the host was slower", "the capture was short"),
    )  # fmt: skip
    facts = decoding(llama_70b(), 0.0262)
    said = [one.statement for one in diagnose(facts, {}, attribute(facts, {}, seen), "decode", seen).evidence]
    assert "shapes were recorded: the host was slower" in said
    assert "the capture was short: gaps and communication may look longer than they are" in said


def test_a_lowered_clock_is_said_with_its_share_of_the_time() -> None:
    def note(**reasons: float) -> str:
        facts = decoding(llama_70b(), 0.0262, engines=(engine(gauges={"running": Series((0.0, 60.0), (12.0, 12.0))}),))
        seen = gpus(4, gr_engine=0.9, sm_clock_hertz=1.281e9, changes={"throttle_reasons": reasons})
        (said,) = clock_notes(replace(facts, window=watched(replace(facts.window, started=0.0), *seen)))
        return said

    # 59.6 %; 1 281 of 1 830 MHz are 70 %.
    heat, power = note(thermal=0.596), note(power=0.596)
    assert heat.startswith(
        "gpu 0 of host-1 was throttled for heat in 60 % of the time at 1.28 GHz, 70 % of the 1.83 GHz at which its "
        "peaks hold, and 3 more GPUs: look at fans"
    )
    assert power == (
        "gpu 0 of host-1 ran at 1.28 GHz, 70 % of the 1.83 GHz at which its peaks hold, capped by power in 60 % of the "
        "time"
    )


@pytest.mark.parametrize(
    ("first", "second", "worth"),
    [
        (0.10, 0.13, True),  # 3 % of the whole, 23 % of the larger
        (0.01, 0.02, False),  # twice as much, and 1 % of the whole
        (0.90, 0.95, False),  # 5 % of the whole, and 5 % of the larger
        (0.80, 0.95, True),
    ],
)
def test_two_figures_are_shown_where_they_differ_in_both_ways(first: float, second: float, worth: bool) -> None:
    assert differ(first, second) is worth
    assert differ(second, first) is worth
