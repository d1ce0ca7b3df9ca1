"""Counts of the same requests that differ, and what must have been counted and is nowhere: no gate passes of either."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from engine_pages import Page, lmdeploy, sglang, tgi, trtllm, write
from vllm_pages import write_pages

from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.assess import assess
from pytest_llmroof.data import load
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.telemetry.quantities import COUNTERS, HISTOGRAMS

BOTH = ("before.prom", "after.prom")


def verdicts(folder: Path, gates: list[str]) -> Sequence[Verdict]:
    keys = {"telemetry": list(BOTH), "gates": gates, "gpu": "h100", "model": "llama-3.1-8b"}
    return assess(window_spec(keys, id="w", name="w", base=folder)).verdicts


def cut(folder: Path, pages: Sequence[str], name: str, label: str = "") -> None:
    for page in pages:
        lines = (folder / page).read_text().splitlines(keepends=True)
        kept = [line for line in lines if line.startswith("#") or not (line.startswith(name) and label in line)]
        (folder / page).write_text("".join(kept))


def reason(verdict: Verdict) -> str:
    assert isinstance(verdict.outcome, NoData)
    return verdict.outcome.reason


@pytest.mark.parametrize(("name", "metric", "says"), [
    ("e2e_request_latency", "e2e.p95", "has 1 series in the first scrape, others of its kind 2"),
    # 48 of 64 requests stream, and 12 more had before the first page: without those the first tokens are of 76
    # requests, and the latencies of 64.
    ("time_to_first_token", "ttft.p95", "seconds_count grew by 76, and sglang:e2e_request_latency_seconds_count grew "
                                        "by 64 with 0 requests under way before and 0 after"),
])  # fmt: skip
def test_a_series_that_is_lost_from_the_first_page(tmp_path: Path, name: str, metric: str, says: str) -> None:
    write(tmp_path, sglang)
    gates = [f"{metric} <= 100s", "requests_per_second <= 1.1"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass", "pass"]
    cut(tmp_path, BOTH[:1], f"sglang:{name}_seconds", 'is_streaming="true"')
    found = verdicts(tmp_path, gates)
    assert [one.word for one in found] == ["no data", "pass"]
    assert says in reason(found[0])


def test_of_two_counts_that_differ_neither_is_used(tmp_path: Path) -> None:
    # 64 requests of 501 tokens: 32064 by the histogram, and ten times as many by the counter.
    write(tmp_path, partial(sglang, live=False))
    gates = ["output.tokens_per_second >= 1"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass"]
    for page in BOTH:
        lines = (tmp_path / page).read_text().splitlines(keepends=True)
        (tmp_path / page).write_text("".join(map(tenfold, lines)))
    (found,) = verdicts(tmp_path, gates)
    told = "sglang:generation_tokens_total grew by 320640"
    assert f"sglang:generation_tokens_histogram_sum grew by 32064, and {told}: they do not agree" in reason(found)


def tenfold(line: str) -> str:
    head, _, value = line.rpartition(" ")
    return f"{head} {float(value) * 10}\n" if line.startswith("sglang:generation_tokens_total") else line


def test_what_must_have_been_counted_is_named(tmp_path: Path) -> None:
    write(tmp_path, trtllm)
    gates = ["e2e.mean <= 4.5s", "ttft.mean <= 0.5s"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass", "pass"]
    cut(tmp_path, BOTH, "trtllm_e2e_request_latency_seconds")
    found = verdicts(tmp_path, gates)
    assert [one.word for one in found] == ["no data", "pass"]
    assert "must have been counted" in reason(found[0])


@pytest.mark.parametrize("method", ["prefill", "decode"])
@pytest.mark.parametrize("pages", [BOTH, BOTH[1:]])
def test_steps_of_one_kind_that_are_lost_are_not_no_time(tmp_path: Path, method: str, pages: Sequence[str]) -> None:
    # TGI computes 80 prompts of 400 tokens in 0.1 s each: 32000 tokens in 8 s. It decodes 1000 steps of 25 ms.
    write(tmp_path, tgi)
    gates = ["prefill.tokens_per_second >= 4100", "decode.step_time <= 24ms", "roofline.efficiency >= 18%"]
    assert [one.word for one in verdicts(tmp_path, gates)][1:] == ["fail", "fail"]
    cut(tmp_path, pages, "tgi_batch_inference_duration", f'method="{method}"')
    assert "pass" not in {one.word for one in verdicts(tmp_path, gates)}


def test_series_that_are_there_from_the_start_do_not_begin_at_zero(tmp_path: Path) -> None:
    write(tmp_path, lmdeploy)
    gates = ["prefix_cache.hit_rate >= 1%"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass"]
    cut(tmp_path, BOTH[:1], "lmdeploy:cached_tokens_total")
    assert [one.word for one in verdicts(tmp_path, gates)] == ["no data"]


def test_hits_do_not_begin_at_zero_where_prompts_were_looked_up(tmp_path: Path) -> None:
    write_pages(tmp_path, hit_rate=0.5)
    gates = ["prefix_cache.hit_rate >= 40%"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass"]
    cut(tmp_path, BOTH[:1], "vllm:prefix_cache_hits_total")
    assert [one.word for one in verdicts(tmp_path, gates)] == ["no data"]


@pytest.mark.parametrize("page", [sglang, partial(sglang, running=3.0), tgi, trtllm, lmdeploy])
def test_whole_pages_agree(tmp_path: Path, page: Page) -> None:
    write(tmp_path, page)
    (found,) = verdicts(tmp_path, ["requests_per_second >= 1e-3"])
    assert found.word == "pass"


def test_rules_name_quantities_that_their_engine_has() -> None:
    for key, entry in load("engines.yaml").items():
        named = {name.partition(".")[0] for group in entry.get("agree", ()) for name in group}
        named |= {name for pair in entry.get("begun", {}).items() for name in pair} | {*entry.get("always", ())}
        given = {*entry.get("counters", ()), *entry.get("histograms", ())}
        assert named <= given & (COUNTERS | HISTOGRAMS), key


def test_drafts_do_not_begin_at_zero_where_requests_had_come(tmp_path: Path) -> None:
    # 64 requests of 501 tokens in 6400 verify calls: (501 - 1) / 100 = 5 tokens in each. 16 requests had come before.
    write(tmp_path, partial(sglang, accepted=4, verify_calls=6400))
    cut(tmp_path, BOTH, "sglang:realtime_tokens")
    gates = ["speculative.tokens_per_step <= 100", "decode.step_time <= 1s"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass", "pass"]
    cut(tmp_path, BOTH[:1], "sglang:spec_verify_calls")
    found = verdicts(tmp_path, gates)
    assert [one.word for one in found] == ["no data", "no data"]
    assert all("spec_verify_calls_total is not in the first scrape" in reason(one) for one in found)


def test_hits_that_appear_behind_prompts_may_have_been_there(tmp_path: Path) -> None:
    # 16 prompts of 1000 tokens had come before the first page; of the 80 since the start 200 tokens each were hits.
    write(tmp_path, partial(sglang, hits=200))
    gates = ["prefix_cache.hit_rate >= 10%"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass"]
    cut(tmp_path, BOTH[:1], "sglang:realtime_tokens", 'mode="prefill_cache"')
    cut(tmp_path, BOTH[:1], "sglang:cached_tokens")
    (found,) = verdicts(tmp_path, gates)
    assert found.word == "no data"
    assert "and prompts had come before that" in reason(found)


def test_what_one_rank_lost_is_missing_from_what_follows_of_it(tmp_path: Path) -> None:
    # Two ranks, 1000 tokens a prompt of which 200 hit. Without what one of them computed its look-ups are unknown, too:
    # the hits of both over the look-ups of one would be 40 %.
    write(tmp_path, partial(sglang, hits=200, dp_ranks=2))
    gates = ["prefix_cache.hit_rate >= 30%"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["fail"]
    cut(tmp_path, BOTH[:1], 'sglang:realtime_tokens_total{dp_rank="0"', 'mode="prefill_compute"')
    assert [one.word for one in verdicts(tmp_path, gates)] != ["pass"]


def test_steps_of_which_most_are_lost_do_not_make_the_batch_larger(tmp_path: Path) -> None:
    # 2000 steps of 16 sequences; a quarter of them without a graph. Without the others there would be 64 in each.
    write(tmp_path, partial(sglang, running=16.0))
    gates = ["decode.mfu >= 2%"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["fail"]
    cut(tmp_path, BOTH, "sglang:cuda_graph_passes", 'mode="decode_cuda_graph"')
    (found,) = verdicts(tmp_path, gates)
    assert (found.word, found.approximate) != ("pass", False)


@pytest.mark.parametrize(("part", "says"), [
    ("sum", "has less than nothing in one of its series"),
    ("count", "counts 59 observations, and 80 in its buckets"),
    ("bucket", "has buckets that are not cumulative"),
])  # fmt: skip
def test_less_than_nothing_in_one_of_several_series(tmp_path: Path, part: str, says: str) -> None:
    # 60 streamed requests of 9 s and 20 others: with -1 s of these the mean would be 540 / 80 = 6.7 s.
    write(tmp_path, sglang)
    gates = ["e2e.mean <= 7s"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["fail"]
    lines = (tmp_path / "after.prom").read_text().splitlines(keepends=True)
    name = f"sglang:e2e_request_latency_seconds_{part}"
    at = next(at for at, line in enumerate(lines) if line.startswith(name) and 'is_streaming="false"' in line)
    lines[at] = f"{lines[at].rpartition(' ')[0]} -1\n"
    (tmp_path / "after.prom").write_text("".join(lines))
    (found,) = verdicts(tmp_path, gates)
    assert says in reason(found)
