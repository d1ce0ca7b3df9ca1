"""What each engine's way of counting makes of the decode step, of busy and idle time, and what it cannot tell."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from engine_pages import Page, dynamo, llamacpp, lmdeploy, sglang, tgi, trtllm, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.engine_evidence import observed_by_engine
from pytest_llmroof.analysis.facts import DecodeFacts, WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.analysis.metrics import metric_names
from pytest_llmroof.errors import SourceError
from pytest_llmroof.roofline.catalogue import accelerator
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import named_model
from pytest_llmroof.telemetry.reading import read_window

EIGHT_B = Deployment(accelerator=accelerator("h100"), model=named_model("llama-3.1-8b"))


def facts_of(folder: Path, page: Page, deployment: Deployment = EIGHT_B, **options: Any) -> WindowFacts:
    paths = write(folder, page, **options)
    return gather(read_window([(path, path.name) for path in paths]), deployment)


def decode_of(facts: WindowFacts) -> DecodeFacts:
    assert facts.decode is not None
    return facts.decode


def measured(m: Measurements, metric: str) -> Measurement:
    found = m[metric]
    assert isinstance(found, Measurement), found
    return found


def no_data(m: Measurements, metric: str) -> NoData:
    found = m[metric]
    assert isinstance(found, NoData), found
    return found


# SGLang


def test_the_batch_is_decoded_tokens_over_decode_steps(tmp_path: Path) -> None:
    """32,000 tokens in 2,000 steps: 16 sequences, exactly; 20 ms between tokens are the step."""
    facts = facts_of(tmp_path, sglang)
    decode = decode_of(facts)
    assert decode.batch.value == 16
    assert decode.batch.exact
    assert decode.steps == 2000
    assert decode.step_seconds.value == pytest.approx(0.02)
    # 1,000 prompt tokens and half of 501, all requests alike.
    assert decode.context is not None
    assert decode.context.value == pytest.approx(1250.5, abs=0.3)


def test_latencies_per_token_make_a_step_of_several_tokens(tmp_path: Path) -> None:
    """Two accepted drafts a step: 20 / 3 ms between tokens, a step of 20 ms, 16 sequences."""
    decode = decode_of(facts_of(tmp_path, partial(sglang, accepted=2, verify_calls=32_000)))
    assert decode.tokens_per_step == pytest.approx(3.0)
    assert decode.step_seconds.value == pytest.approx(0.02)
    assert decode.batch.value == pytest.approx(16)


def test_a_gauge_tells_the_tokens_per_step_where_no_counter_does(tmp_path: Path) -> None:
    def old(done: float, at: float | None) -> str:
        return sglang(done, at, live=False, accepted=2).replace("spec_accept_length", "was") + (
            '# TYPE sglang:spec_accept_length gauge\nsglang:spec_accept_length{model_name="m"} 3.0\n'
        )

    facts = facts_of(tmp_path, old)
    assert decode_of(facts).step_seconds.value == pytest.approx(0.02)
    tokens = measured(measure(facts), "speculative.tokens_per_step")
    assert tokens.value == 3.0
    assert "last log interval" in tokens.method


def test_idle_time_inside_the_load(tmp_path: Path) -> None:
    """60 s, 10 of them without any request; of the other 50 the GPU computed 36 + 4: 20 % idle."""
    facts = facts_of(tmp_path, sglang)
    assert facts.busy is not None
    assert facts.busy.seconds.value == pytest.approx(50)
    observed = observed_by_engine(facts)
    assert observed is not None
    assert observed.by == "engine"
    assert observed.idle_between == pytest.approx(0.2)
    assert observed.source == "sglang:forward_execution_seconds_total, sglang:scheduler_idle_seconds_total"


def test_idle_time_is_scenario_d(tmp_path: Path) -> None:
    """On one GPU, where the GPU computes 20 of 50 s, idle gaps are 60 % of the step and nothing else comes near."""
    facts = facts_of(tmp_path, partial(sglang, forward_decode=18.0, forward_prefill=2.0))
    outcomes, observed = measure(facts), observed_by_engine(facts)
    split = attribute(facts, outcomes, observed)
    assert split is not None
    assert split.share("idle: between steps") == pytest.approx(0.6)
    found = diagnose(facts, outcomes, split, "decode", observed=observed)
    assert found.candidates == ("D",)
    assert found.confidence == "medium"
    without = diagnose(facts, outcomes, attribute(facts, outcomes), "decode")
    assert set(without.candidates) == {"D", "F"}


@pytest.mark.parametrize(
    ("changes", "deployment"),
    [
        ({"forward_decode": 80.0}, EIGHT_B),  # more than the time there was: seconds of something else
        ({"live": False}, EIGHT_B),  # not counted
        ({}, replace(EIGHT_B, pipeline_parallel=2)),  # bubbles
    ],
)
def test_no_evidence_is_no_evidence(tmp_path: Path, changes: dict[str, Any], deployment: Deployment) -> None:
    assert observed_by_engine(facts_of(tmp_path, partial(sglang, **changes), deployment)) is None


def test_without_a_clock_nothing_is_idle(tmp_path: Path) -> None:
    assert observed_by_engine(facts_of(tmp_path, sglang, clock=False)) is None


def test_tokens_counted_at_the_finish_may_belong_to_another_window(tmp_path: Path) -> None:
    """16 requests ran at either end: up to 16 x 501 tokens more or less in 60 s."""
    m = measure(facts_of(tmp_path, partial(sglang, live=False, running=16.0)))
    rate = measured(m, "output.tokens_per_second")
    assert rate.value == pytest.approx(64 * 501 / 60)
    assert rate.bounded.low == pytest.approx((64 - 16) * 501 / 60)
    assert rate.bounded.high == pytest.approx((64 + 16) * 501 / 60)
    live = measured(measure(facts_of(tmp_path / "live", partial(sglang, running=16.0))), "output.tokens_per_second")
    assert live.bounded.exact


def test_hits_by_tokens_not_by_the_last_batch(tmp_path: Path) -> None:
    """200 of 1,000 tokens; the gauge, which tells of the last batch, says 77 %."""
    for name, live in (("new", True), ("old", False)):
        m = measure(facts_of(tmp_path / name, partial(sglang, hits=200, live=live)))
        assert measured(m, "prefix_cache.hit_rate").value == pytest.approx(0.2), name
    m = measure(facts_of(tmp_path / "none", sglang))
    assert measured(m, "prefix_cache.hit_rate").value == 0


def test_data_parallel_ranks_have_a_batch_each(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, partial(sglang, dp_ranks=2, tp_ranks=4))
    assert decode_of(facts).batch.value == pytest.approx(16)
    assert decode_of(facts).steps == 4000
    assert facts.deployment.data_parallel == 2


# llama.cpp


def test_slots_and_steps(data: Path) -> None:
    """The real server: 8.58899 s of slots for 4,800 tokens, 1.79 ms a step; 4,800 / 1,245 = 3.86 sequences in it."""
    folder = data / "llamacpp-cpu"
    pages = [(folder / f"{name}.prom", name) for name in ("after-prefill", "after-decode")]
    facts = gather(read_window(pages, duration_seconds=3.0), EIGHT_B)
    decode = decode_of(facts)
    assert decode.step_seconds.value == pytest.approx(8.58899 / 4800)
    assert decode.batch.value == pytest.approx(4800 / 1245, rel=1e-5)
    assert decode.context is not None
    assert (decode.context.low, decode.context.high) == (0, 607)
    assert decode.only_longest is not None
    # Summed over slots, these seconds are more than the 3 s of the window: they bound nothing.
    assert facts.busy is not None
    assert facts.busy.seconds.high == 3.0


def test_a_batch_counted_at_every_step(tmp_path: Path) -> None:
    """1,000 steps made 4,000 tokens of requests that ended; 4.2 slots were busy on average."""
    batch = decode_of(facts_of(tmp_path, partial(llamacpp, steps=1000, tokens=4000, seconds=10.0, busy=4.2))).batch
    assert (batch.low, batch.value, batch.high) == pytest.approx((4.0, 4.2, 4.2))


def test_tokens_in_flight_without_a_length_are_bounded_by_the_longest(tmp_path: Path) -> None:
    """Two requests ran at either end, of 2,048 tokens at most."""
    m = measure(facts_of(tmp_path, partial(llamacpp, running=2.0)))
    rate = measured(m, "output.tokens_per_second").bounded
    assert rate.low == pytest.approx((5000 - 4096) / 60)
    assert rate.high == pytest.approx((5000 + 4096) / 60)


@pytest.mark.parametrize("metric", ["ttft.p99", "tpot.mean", "itl.p50", "e2e.p95", "queue.mean"])
def test_no_latency_from_llamacpp(tmp_path: Path, metric: str) -> None:
    missing = no_data(measure(facts_of(tmp_path, llamacpp)), metric)
    assert missing.reason == "llama.cpp exports no latency histogram"
    assert missing.remedy is not None
    assert "load generator" in str(missing.remedy)


def test_what_else_llamacpp_does_not_tell(tmp_path: Path) -> None:
    m = measure(facts_of(tmp_path, llamacpp))
    assert "not measurable from llama.cpp" in no_data(m, "decode.context").reason
    assert no_data(m, "requests_per_second").reason == "llama.cpp does not count requests"
    assert no_data(m, "requests_per_second.per_gpu").reason == "llama.cpp does not count requests"
    assert "preempts" in no_data(m, "preemptions").reason


# TGI, TensorRT-LLM, LMDeploy, Dynamo


def test_tgi_times_its_decode_steps(tmp_path: Path) -> None:
    """25 ms a step, 80 x 100 tokens in 1,000 of them; no prefill is in a decode step."""
    facts = facts_of(tmp_path, tgi)
    decode = decode_of(facts)
    assert (decode.step_seconds.value, decode.batch.value) == pytest.approx((0.025, 8.0))
    assert decode.interleaved_seconds == 0
    assert facts.busy is not None
    assert facts.busy.seconds.value == pytest.approx(33.0)
    assert facts.prefill is not None
    assert (facts.prefill.steps.value, facts.prefill.estimated) == (80, False)
    m = measure(facts)
    mbu = measured(m, "decode.mbu")
    assert mbu.judged_by == "value"
    assert mbu.source == "tgi_batch_inference_duration_sum"
    assert "no time to first token" in no_data(m, "ttft.p99").reason
    assert "first token" in no_data(m, "tpot.p99").reason
    assert measured(m, "errors.rate").value == pytest.approx(1 / 80)
    floors = (facts.joint_floor_seconds, facts.prefill_floor_seconds, facts.decode_floor_seconds)
    assert all(floor is not None for floor in floors)
    assert floors[0] == pytest.approx((floors[1] or 0) + (floors[2] or 0))  # no pass over the weights is shared


def test_tensorrt_llm_s_decode_time_of_requests(tmp_path: Path) -> None:
    """100 requests decoded 200 tokens each in 4 s: 20 ms. 400 s in 60 s of the window: 6.7 at a time, at least."""
    facts = facts_of(tmp_path, trtllm)
    assert decode_of(facts).step_seconds.value == pytest.approx(0.02)
    assert decode_of(facts).batch.value == pytest.approx(400 / 60)
    m = measure(facts)
    assert measured(m, "decode.step_time").source == "trtllm_request_decode_time_seconds"
    assert "whole requests" in no_data(m, "itl.p99").reason
    assert measured(m, "errors.rate").value == pytest.approx(3 / 103)


def test_a_batch_of_tokens_counted_at_the_finish_is_known_between_bounds(tmp_path: Path) -> None:
    """Six of 103 requests ran at either end, whose tokens may be of another window: so much of 400 s in 60 s."""
    batch = decode_of(facts_of(tmp_path, partial(trtllm, running=6.0))).batch
    assert batch.value == pytest.approx(400 / 60)
    assert batch.low == pytest.approx(400 / 60 * (1 - 6 / 103))
    # 100 prompts of 0.15 s each may have been computed while nothing decoded.
    assert batch.high == pytest.approx(400 / (60 - 15) * (1 + 6 / 103))


def test_iterations_tell_step_batch_context_and_idle_time(tmp_path: Path) -> None:
    """10 ms of the host, 7 of the GPU: 30 % idle. 8 sequences of 500 tokens that make two tokens each."""
    statistics = {"numGenRequests": 8, "numContextRequests": 0, "avgNumDecodedTokensPerIter": 2.0}
    record = {
        "iterLatencyMS": 19.0, "hostStepTimeMS": 10.0, "gpuForwardTimeMS": 7.0, "numGenKvTokens": 4000,
        "inflightBatchingStats": statistics,
    }  # fmt: skip
    path = tmp_path / "stats.json"
    path.write_text(json.dumps([{"iter": number, **record} for number in range(200)]))
    facts = gather(read_window([(path, path.name)]), EIGHT_B)
    decode = decode_of(facts)
    assert (decode.step_seconds.value, decode.batch.value, decode.tokens_per_step) == pytest.approx((0.01, 8, 2))
    assert decode.context is not None
    assert decode.context.value == 500
    assert decode.context.exact
    observed = observed_by_engine(facts)
    assert observed is not None
    assert observed.idle_between == pytest.approx(0.3)
    assert measured(measure(facts), "output.tokens_per_second").value == pytest.approx(200 * 16 / 2.0)


def test_a_latency_that_may_span_two_loops_is_an_interval(tmp_path: Path) -> None:
    statistics = {"numGenRequests": 8, "avgNumDecodedTokensPerIter": 1.0}
    records = [{"iter": n, "iterLatencyMS": 20.0, "inflightBatchingStats": statistics} for n in range(100)]
    path = tmp_path / "stats.json"
    path.write_text(json.dumps(records))
    step = decode_of(gather(read_window([(path, path.name)]), EIGHT_B)).step_seconds
    assert (step.low, step.value, step.high) == pytest.approx((0.01, 0.02, 0.02))


def test_lmdeploy_without_steps(tmp_path: Path) -> None:
    """100 s of latencies between outputs in 60 s: 1.7 sequences at a time, at least."""
    facts = facts_of(tmp_path, lmdeploy)
    assert decode_of(facts).batch.value == pytest.approx(100 / 60)
    assert decode_of(facts).batch.high > decode_of(facts).batch.value
    assert "not the time per output token" in no_data(measure(facts), "tpot.p99").reason


def test_a_frontend_knows_no_cache(tmp_path: Path) -> None:
    m = measure(facts_of(tmp_path, dynamo))
    missing = no_data(m, "kv_cache.usage.max")
    assert missing.remedy is not None
    assert "workers' pages" in str(missing.remedy)
    assert measured(m, "ttft.mean").value == pytest.approx(0.7)


# Whatever is left of a page


@pytest.mark.parametrize("engine", [sglang, llamacpp, trtllm, lmdeploy, tgi, dynamo])
@given(random=st.randoms(use_true_random=False), running=st.sampled_from((0.0, 3.0)))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_of_a_page_give_numbers_or_reasons(
    tmp_path: Path, engine: Page, random: Random, running: float
) -> None:
    """Families left out at random, as relabelling rules do."""
    page: Page = partial(sglang, running=running) if engine is sglang else engine
    if engine is llamacpp:
        page = partial(llamacpp, running=running)
    families = [line.split()[2] for line in page(1.0, None).splitlines() if line.startswith("# TYPE")]
    kept = {family for family in families if random.random() < 0.6} or set(families)

    def part(done: float, at: float | None) -> str:
        lines = page(done, at).splitlines()
        found = [line for line in lines if line.startswith("# scraped_at") or _family(line, families) in kept]
        return "\n".join(found) + "\n"

    paths = write(tmp_path, part)
    try:
        window = read_window([(path, path.name) for path in paths])
    except SourceError:
        return
    facts = gather(window, EIGHT_B)
    m = measure(facts)
    for name in metric_names():
        if "(" in name:
            continue
        outcome = m[name]
        if isinstance(outcome, Measurement):
            assert math.isfinite(outcome.value) or outcome.undecided
        else:
            assert outcome.reason
    attribute(facts, m, observed_by_engine(facts))


def _family(line: str, families: list[str]) -> str:
    name = line.split()[2] if line.startswith("#") else line.partition("{")[0].split()[0]
    return max((family for family in families if name.startswith(family)), key=len, default="")
