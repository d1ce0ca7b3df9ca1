"""Lines that are lost from a page: what they counted is unknown, never 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from engine_pages import Page, dynamo, llamacpp, lmdeploy, sglang, tgi, trtllm
from engine_pages import write as write_engine
from vllm_pages import write_pages

from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.assess import assess
from pytest_llmroof.data import load
from pytest_llmroof.errors import SourceError
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.telemetry.quantities import COUNTERS, GAUGES, HISTOGRAMS
from pytest_llmroof.telemetry.reading import read_window

Lost = Callable[[str], bool]
GATES = ["errors.rate <= 1%", "output.tokens_per_second >= 1", "input.tokens_per_second >= 1"]


def words(folder: Path, page: str, lost: Lost) -> dict[str, str]:
    """The verdicts on a window of two pages, one of which has lost lines."""
    cut(folder / page, lost)
    return {one.gate.metric: one.word for one in verdicts(folder, GATES)}


def cut(page: Path, lost: Lost) -> None:
    page.write_text("".join(line for line in page.read_text().splitlines(keepends=True) if not lost(line)))


def verdicts(folder: Path, gates: list[str]) -> Sequence[Verdict]:
    keys = {"telemetry": ["before.prom", "after.prom"], "gates": gates}
    return assess(window_spec(keys, id="w", name="w", base=folder)).verdicts


def series(name: str, label: str = "") -> Lost:
    return lambda line: line.startswith(name) and label in line


@pytest.fixture
def failing_requests(tmp_path: Path) -> Path:
    """103 requests of TensorRT-LLM of which 3 failed: 2.9 %."""
    write_engine(tmp_path, trtllm)
    return tmp_path


def test_errors_that_are_counted_fail_the_gate(failing_requests: Path) -> None:
    assert words(failing_requests, "after.prom", lambda line: False)["errors.rate"] == "fail"


def test_a_count_of_errors_that_is_gone_is_not_a_run_without_errors(failing_requests: Path) -> None:
    found = words(failing_requests, "after.prom", series("trtllm_request_error_total"))
    assert found == {"errors.rate": "no data", "output.tokens_per_second": "pass", "input.tokens_per_second": "pass"}


def test_a_reason_that_is_gone_is_not_one_that_nothing_ended_for(tmp_path: Path) -> None:
    write_pages(tmp_path)
    gone = series("vllm:request_success_total", 'finished_reason="abort"')
    assert words(tmp_path, "after.prom", gone)["errors.rate"] == "no data"


@pytest.mark.parametrize("metric", ["input", "output"])
def test_a_series_without_labels_does_not_begin_at_zero(tmp_path: Path, metric: str) -> None:
    """llama-server shows every counter from its start: one that a page declares and does not hold was cut out."""
    page: Page = partial(llamacpp, prompt=5000)
    write_engine(tmp_path, page)
    name = {"input": "llamacpp:prompt_tokens_total", "output": "llamacpp:tokens_predicted_total"}[metric]
    assert words(tmp_path, "before.prom", series(name))[f"{metric}.tokens_per_second"] == "no data"


@pytest.mark.parametrize(("name", "metric", "known", "word"), [
    # A quarter of the 64 requests had finished before the first page.
    ("sglang:e2e_request_latency_seconds", "e2e.mean", 9.0, "no data"),
    ("sglang:time_to_first_token_seconds", "ttft.mean", 0.15, "no data"),
    ("sglang:inter_token_latency_seconds", "itl.mean", 0.02, "no data"),
    # 64 requests in 60 s, by the latencies' count; 64 x 501 tokens, by the requests that finished: not those since
    # the start.
    ("sglang:num_requests_total", "requests_per_second", 64 / 60, "pass"),
    ("sglang:realtime_tokens_total", "output.tokens_per_second", 64 * 501 / 60, "pass"),
])  # fmt: skip
def test_what_appears_with_its_first_event_is_lost_where_that_had_come(
    tmp_path: Path, name: str, metric: str, known: float, word: str
) -> None:
    write_engine(tmp_path, sglang)
    gates = [f"{metric} <= {known * 1.01}", f"{metric} >= {known * 0.99}"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass", "pass"]
    cut(tmp_path / "before.prom", series(name))
    assert {one.word for one in verdicts(tmp_path, gates)} == {word}


def test_preemptions_that_had_not_come_yet_begin_at_zero(tmp_path: Path) -> None:
    write_engine(tmp_path, sglang)
    cut(tmp_path / "before.prom", series("sglang:num_retracted_requests_total"))
    # 4 x 1.25 in the last page, and nothing before.
    assert [one.word for one in verdicts(tmp_path, ["preemptions <= 5", "preemptions <= 4"])] == ["pass", "fail"]


def test_a_declared_series_of_labels_is_lost_where_requests_had_fed_it(tmp_path: Path) -> None:
    write_pages(tmp_path)
    cut(tmp_path / "before.prom", series("vllm:time_to_first_token_seconds"))
    assert [one.word for one in verdicts(tmp_path, ["ttft.mean <= 10"])] == ["no data"]


def test_a_series_of_several_that_add_up_is_lost_from_the_last_page(tmp_path: Path) -> None:
    # 48 of the 64 requests stream: without them, of the 80 since the start 20 are left, and 4 more than the 16 before.
    write_engine(tmp_path, sglang)
    gate = ["e2e.mean <= 10"]
    assert [one.word for one in verdicts(tmp_path, gate)] == ["pass"]
    cut(tmp_path / "after.prom", series("sglang:e2e_request_latency_seconds", 'is_streaming="true"'))
    (found,) = verdicts(tmp_path, gate)
    assert found.word == "no data"
    assert isinstance(found.outcome, NoData)
    assert "a series of sglang:e2e_request_latency_seconds is not in the last scrape" in found.outcome.reason


def test_the_series_that_counts_is_lost_beside_its_siblings(tmp_path: Path) -> None:
    # 64 prompts of 800 tokens that hit nothing, in 60 s of which the engine says it idled 10: 1024 tokens a second.
    # With a quarter of them before the first page, which still has the hits of the same name, they would be 1280.
    write_engine(tmp_path, partial(sglang, hits=200))
    gate = ["prefill.tokens_per_second >= 1100"]
    assert [one.word for one in verdicts(tmp_path, gate)] == ["fail"]
    cut(tmp_path / "before.prom", series("sglang:realtime_tokens_total", 'mode="prefill_compute"'))
    assert [one.word for one in verdicts(tmp_path, gate)] == ["fail"]  # by prompts less cached ones


def test_a_first_page_whose_series_name_no_model_does_not_make_the_window_begin_at_the_start(tmp_path: Path) -> None:
    write_engine(tmp_path, sglang)
    before = tmp_path / "before.prom"
    before.write_text(before.read_text().replace('model_name="m",', "").replace(',model_name="m"', ""))
    with pytest.raises(SourceError, match="no engine is in two scrapes"):
        read_window([(tmp_path / name, name) for name in ("before.prom", "after.prom")])


def test_rules_of_what_feeds_what_name_quantities_that_there_are() -> None:
    known = {*COUNTERS, *HISTOGRAMS, "requests_served"}
    data = load("feeding.yaml")
    rules = data["rules"]
    assert rules
    assert {*data["optional"]} <= COUNTERS | GAUGES
    for rule in rules:
        assert {name for key, names in rule.items() if key != "event" for name in names} <= known


@pytest.mark.parametrize(("engine", "says"), [
    (sglang, "sglang.launch_server ... --speculative-algorithm"),
    (lmdeploy, "lmdeploy serve api_server ... --backend pytorch --speculative-algorithm"),
    (dynamo, "start the server with speculative decoding, or leave the gate out"),
    (tgi, "leave the gate out"),  # it counts no drafts
])  # fmt: skip
def test_a_remedy_speaks_the_engine_s_own_words(tmp_path: Path, engine: Page, says: str) -> None:
    write_engine(tmp_path, engine)
    (found,) = verdicts(tmp_path, ["speculative.acceptance_rate >= 50%"])
    assert isinstance(found.outcome, NoData)
    assert says in str(found.outcome.remedy)
    assert "vllm" not in str(found.outcome.remedy)


@pytest.mark.parametrize("pages", [["before.prom"], ["before.prom", "after.prom"]])
def test_requests_without_those_of_the_usual_reason_are_not_all(tmp_path: Path, pages: list[str]) -> None:
    # 142 requests end by length, and have a latency each. Without the 14 before the first page 156 would have ended,
    # and without the reason none: neither count speaks for the other where they differ.
    write_pages(tmp_path, requests=142)
    gates = ["requests_per_second <= 3", "e2e.mean <= 100 s"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass", "pass"]
    for page in pages:
        cut(tmp_path / page, series("vllm:request_success_total", 'finished_reason="length"'))
    assert [one.word for one in verdicts(tmp_path, gates)] == ["no data", "no data"]


def test_prompts_whose_cached_tokens_are_lost_are_not_all_computed(tmp_path: Path) -> None:
    # 100 requests of 500 prompt tokens, of which 100 were cached: 400 x 100 tokens in 60 s, not 500 x 100.
    write_engine(tmp_path, trtllm)
    gates = ["prefill.tokens_per_second >= 1"]
    assert [one.word for one in verdicts(tmp_path, gates)] == ["pass"]
    cut(tmp_path / "after.prom", series("trtllm_prompt_cached_tokens_total"))
    assert [one.word for one in verdicts(tmp_path, gates)] == ["no data"]
