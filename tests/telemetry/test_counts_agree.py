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


@pytest.mark.parametrize(("name", "metric"), [("e2e_request_latency", "e2e.p95"), ("time_to_first_token", "ttft.p95")])
def test_a_series_that_is_lost_from_the_first_page(tmp_path: Path, name: str, metric: str) -> None:
    # 48 of 64 requests stream, and 12 more had before the first page: without those the latencies are of 76 requests,
    # and SGLang's count of requests grew by 64.
    write(tmp_path, sglang)
    gates = [f"{metric} <= 100s", "requests_per_second <= 1.1"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass", "pass"]
    cut(tmp_path, BOTH[:1], f"sglang:{name}_seconds", 'is_streaming="true"')
    found = verdicts(tmp_path, gates)
    assert found[0].word == "no data"
    assert f"{name}_seconds_count grew by 76, and sglang:" in reason(found[0])
    assert "by 64" in reason(found[0])


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
    assert {one.word for one in verdicts(tmp_path, gates)} == {"fail"}
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
