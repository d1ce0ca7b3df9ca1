"""What a simulated engine did is what its pages say: nothing is lost between the run and the scrapes."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from simulator import llamacpp_page, sglang_page, trtllm_page, vllm_page
from simulator.bench_result import result
from simulator.counted import Counted
from simulator.draw import draw
from simulator.plan import Flavour, Plan
from simulator.run import Run
from simulator.scheduler import simulate
from simulator.truth import busy_shares, decode_shares

#: Closed and open loops, whole and steady windows, speculation, preemption, prefix hits, prompts alone.
SEEDS = (1, 5, 12, 27, 33)


def run_of(seed: int, flavour: Flavour = "vllm 0.25", **changes: object) -> Run:
    drawn = draw(seed)
    plan: Plan = replace(drawn.plan, flavour=flavour, separate=flavour.startswith("sglang"), **changes)  # type: ignore[arg-type]
    return simulate(plan, drawn.typical)


def value(text: str, name: str, **labels: str) -> float:
    """The sum of a sample's series, 0 where there is none."""
    found = 0.0
    for line in text.splitlines():
        match = re.fullmatch(r"([^{#]+)\{(.*)\} (\S+)", line)
        if match and match[1] == name and all(f'{key}="{of}"' in match[2] for key, of in labels.items()):
            found += float(match[3])
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens_emitted_are_tokens_in_the_scrapes(seed: int) -> None:
    run = run_of(seed)
    counted = Counted(run)
    before, after = (vllm_page.page(counted, moment) for moment in (run.opened, run.closed))
    emitted = sum(
        pieces for one in run.requests for at, pieces in zip(one.times, one.pieces, strict=True)
        if run.opened < at <= run.closed
    )  # fmt: skip
    assert value(after, "vllm:generation_tokens_total") - value(before, "vllm:generation_tokens_total") == emitted
    assert emitted == sum(step.tokens + step.first for step in run.window)
    outputs = value(after, "vllm:inter_token_latency_seconds_count") - value(
        before, "vllm:inter_token_latency_seconds_count"
    )
    firsts = sum(run.opened < (one.first or 0.0) <= run.closed for one in run.requests)
    pieces = sum(run.opened < at <= run.closed for one in run.requests for at in one.times)
    assert outputs == pieces - firsts
    finished = sum(one.finished and run.opened < (one.last or 0.0) <= run.closed for one in run.requests)
    assert value(after, "vllm:request_success_total") - value(before, "vllm:request_success_total") == finished


@pytest.mark.parametrize("seed", SEEDS)
def test_every_engine_tells_of_the_same_whole_run(seed: int) -> None:
    """From an idle start to an idle end all requests are counted alike, by whichever names."""
    totals = set()
    for flavour, page, prefix in (
        ("vllm 0.8.5", vllm_page.page, "vllm:"),
        ("vllm 0.25", vllm_page.page, "vllm:"),
        ("sglang 0.4.8", sglang_page.page, "sglang:"),
        ("sglang 0.5.20", sglang_page.page, "sglang:"),
        ("trtllm 1.2", trtllm_page.page, "trtllm_"),
    ):
        run = run_of(seed, flavour, frame="whole", drafted=0)  # type: ignore[arg-type]
        text = page(Counted(run), run.closed)
        prompts, answers = (value(text, f"{prefix}{name}_tokens_total") for name in ("prompt", "generation"))
        assert prompts == sum(one.prompt for one in run.requests)
        assert answers == sum(one.output for one in run.requests)
        totals.add((value(text, f"{prefix}e2e_request_latency_seconds_count"), len(run.requests)))
    assert all(first == second for first, second in totals)


def test_live_tokens_are_the_finished_ones_in_the_end() -> None:
    run = run_of(27, "sglang 0.5.20", frame="whole", drafted=0)
    text = sglang_page.page(Counted(run), run.closed)
    decoded = value(text, "sglang:realtime_tokens_total", mode="decode")
    assert decoded == sum(one.output - 1 for one in run.requests)
    idle = value(text, "sglang:scheduler_idle_seconds_total")
    assert idle == pytest.approx(run.closed - sum(step.end - step.start for step in run.steps))


def test_llama_server_counts_calls_live_and_tokens_at_the_end() -> None:
    run = run_of(27, "llama.cpp", frame="whole", drafted=0)
    text = llamacpp_page.page(Counted(run), run.closed)
    assert value(text, "llamacpp:prompt_tokens_total") == sum(one.prompt - one.cached for one in run.requests)
    assert value(text, "llamacpp:tokens_predicted_total") == sum(one.output for one in run.requests)
    assert value(text, "llamacpp:n_decode_total") == len(run.steps)
    slots = sum(step.work.decodes + len(step.work.chunks) for step in run.steps)
    assert value(text, "llamacpp:n_busy_slots_per_decode") == pytest.approx(slots / len(run.steps))
    assert value(text, "llamacpp:n_tokens_max") == max(one.prompt + one.output for one in run.requests)
    begun = llamacpp_page.page(Counted(run), run.steps[0].end)
    assert value(begun, "llamacpp:n_decode_total") == 1
    assert value(begun, "llamacpp:tokens_predicted_total") == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_follow_each_other_and_are_the_sum_of_their_parts(seed: int) -> None:
    run = run_of(seed)
    assert all(later.start >= earlier.end - 1e-12 for earlier, later in pairwise(run.steps))
    for step in run.steps:
        assert step.end - step.start == pytest.approx(step.parts.total, rel=1e-9)
        assert step.parts.kernels > step.parts.floor.seconds * 0.8
    for shares in filter(None, (decode_shares(run), busy_shares(run))):
        whole = shares.floor + shares.interleaved + shares.beyond + shares.communication + shares.idle
        assert whole == pytest.approx(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_get_what_they_asked_for(seed: int) -> None:
    run = run_of(seed)
    for one in run.requests:
        assert one.finished
        assert sum(one.pieces) == one.output
        assert one.scheduled is not None
        assert one.first is not None
        assert one.arrived <= one.scheduled < one.first
        assert one.times == sorted(one.times)


def test_the_cache_holds_no_more_than_it_can() -> None:
    run = run_of(27)
    assert run.preemptions
    assert max(step.cache_used for step in run.steps) <= 1.0


def test_a_client_saw_the_same_tokens() -> None:
    run = run_of(33, frame="whole", drafted=0)
    told = result(run)
    assert told["completed"] == len(run.requests)
    assert told["total_output_tokens"] == sum(one.output for one in run.requests)
    gaps = [gap for gaps in told["itls"] for gap in gaps]
    assert told["mean_itl_ms"] == pytest.approx(1e3 * sum(gaps) / len(gaps))
