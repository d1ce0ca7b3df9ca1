"""TensorRT-LLM's iteration statistics: JSON lists of records, added up to totals."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engine_pages import trtllm, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Engine, Window


def record(number: int, **changes: Any) -> dict[str, Any]:
    """One iteration that decodes 8 sequences with contexts of 1,000 tokens in 10 ms, 8 of which the GPU computes."""
    return {
        "iter": number,
        "iterLatencyMS": 19.0,
        "hostStepTimeMS": 10.0,
        "gpuForwardTimeMS": 8.0,
        "schedulerMode": "overlap",
        "numActiveRequests": 8,
        "numQueuedRequests": 2,
        "numCompletedRequests": 0,
        "kvCacheStats": {"usedNumBlocks": 250, "maxNumBlocks": 1000, "tokensPerBlock": 32},
        "inflightBatchingStats": {
            "numGenRequests": 8,
            "numContextRequests": 0,
            "numCtxTokens": 0,
            "avgNumDecodedTokensPerIter": 1.0,
        },
        "numGenKvTokens": 8000,
        **changes,
    }


def prefill(number: int) -> dict[str, Any]:
    """An iteration with one prompt of 2,000 tokens, 30 ms of which the GPU computes in 28."""
    statistics = {"numGenRequests": 0, "numContextRequests": 1, "numCtxTokens": 2000, "avgNumDecodedTokensPerIter": 0}
    return record(
        number, hostStepTimeMS=30.0, gpuForwardTimeMS=28.0, inflightBatchingStats=statistics, numGenKvTokens=0,
        numCompletedRequests=1,
    )  # fmt: skip


LOAD = [prefill(0), *(record(number) for number in range(1, 100))]


def read(*paths: Path) -> Window:
    return read_window([(path, path.name) for path in paths])


def only(window: Window) -> Engine:
    (engine,) = window.engines
    return engine


def stats(folder: Path, records: object, name: str = "stats.json") -> Path:
    path = folder / name
    path.write_text(records if isinstance(records, str) else json.dumps(records), encoding="utf-8")
    return path


def test_records_add_up(tmp_path: Path) -> None:
    """99 decode iterations of 8 sequences and one with a prompt."""
    window = read(stats(tmp_path, LOAD))
    counters = only(window).counters
    assert window.kind == "trtllm-iterations"
    assert (counters["steps"], counters["decode_steps"], counters["prefill_steps"]) == (100, 99, 1)
    assert counters["decode_step_seconds"] == pytest.approx(0.99)
    assert counters["step_seconds"] == pytest.approx(1.02)  # the loop's time; iterLatencyMS spans two loops
    assert counters["forward_seconds"] == pytest.approx(99 * 0.008 + 0.028)
    assert counters["decode_tokens"] == counters["decode_sequences"] == 99 * 8
    assert counters["decode_context_tokens"] == 99 * 8000
    assert counters["prompt_tokens_computed"] == 2000
    assert counters["generation_tokens"] == 99 * 8 + 1
    assert counters["overlapping_steps"] == 0
    assert set(only(window).gauges["kv_usage"].values) == {0.25}
    assert window.duration_seconds == pytest.approx(1.02)
    assert window.started is None
    assert any("no clock" in note for note in window.notes)


def test_gauges_have_the_time_of_their_iterations(tmp_path: Path) -> None:
    series = only(read(stats(tmp_path, LOAD))).gauges["running"]
    assert series.times[:3] == pytest.approx((0.03, 0.04, 0.05))
    assert series.times[-1] == pytest.approx(1.02)


def test_many_records_make_few_samples(tmp_path: Path) -> None:
    window = read(stats(tmp_path, [record(number) for number in range(3001)]))
    assert window.counter("steps") == 3001
    assert len(only(window).gauges["running"].times) <= 501
    assert window.duration_seconds == pytest.approx(30.01)


def test_files_follow_each_other(tmp_path: Path) -> None:
    """Reading drains the queue: each answer is a list of its own, appended or in files. The same one counts once."""
    first, second = LOAD[:40], LOAD[40:]
    appended = stats(tmp_path, f"{json.dumps(first)}\n{json.dumps(second)}\n", "appended.json")
    one, other = stats(tmp_path, first, "1.json"), stats(tmp_path, second, "2.json")
    lines = stats(tmp_path, "\n".join(json.dumps(each) for each in LOAD), "lines.jsonl")
    whole = only(read(stats(tmp_path, LOAD))).counters
    for paths in ((appended,), (one, other), (one, other, one), (lines,)):
        assert only(read(*paths)).counters == pytest.approx(whole)
    folder = tmp_path / "recording"
    folder.mkdir()
    stats(folder, first, "stats-1.json")
    stats(folder, second, "stats-2.json")
    assert only(read(folder)).counters == pytest.approx(whole)


def test_ranks_are_engines(tmp_path: Path) -> None:
    """Attention data parallelism: every rank has records of its own, side by side."""
    records = [record(number, attentionDpRank=rank) for number in range(50) for rank in (0, 1)]
    window = read(stats(tmp_path, records))
    assert [engine.identity for engine in window.engines] == ["engine 0", "engine 1"]
    assert [engine.counters["steps"] for engine in window.engines] == [50, 50]
    assert window.duration_seconds == pytest.approx(0.5)


def test_latencies_that_span_two_loops_are_marked(tmp_path: Path) -> None:
    """Older releases have no time of the loop."""
    old = [{key: value for key, value in record(n).items() if key not in ("hostStepTimeMS", "gpuForwardTimeMS")}
           for n in range(10)]  # fmt: skip
    counters = only(read(stats(tmp_path, old))).counters
    assert counters["overlapping_steps"] == 10
    assert counters["decode_step_seconds"] == pytest.approx(0.19)
    assert "forward_seconds" not in counters
    alone = [{**one, "schedulerMode": "non_overlap"} for one in old]
    assert only(read(stats(tmp_path, alone))).counters["overlapping_steps"] == 0


def test_records_beside_a_page_fill_in_its_steps(tmp_path: Path) -> None:
    """Requests by the page, steps by the records; tokens are not counted twice."""
    window = read(*write(tmp_path, trtllm), stats(tmp_path, LOAD))
    counters = only(window).counters
    assert window.kind == "trtllm"
    assert counters["generation_tokens"] == 20_100  # the page's
    assert counters["decode_steps"] == 99
    assert only(window).histograms["ttft"].count == 100
    assert [source.kind for source in window.sources] == ["trtllm", "trtllm", "trtllm-iterations"]
    assert window.duration_seconds == 60


DAMAGED = [
    (json.dumps(LOAD)[:-40], "stats.json:1:"),  # cut off
    ('[{"iter": 1, "iterLatencyMS": 1.0, "kvCacheStats": {...}}]', "stats.json:1:53"),  # as documentation shows it
    (json.dumps([record(1), {"other": 1}]), "record 2 has no iter or iterLatencyMS"),
    (json.dumps([record(1, iterLatencyMS="soon", hostStepTimeMS=None)]), "record 1 does not tell how long"),
    (json.dumps([record(1, iterLatencyMS=-1, hostStepTimeMS=0)]), "record 1 does not tell how long"),
]


@pytest.mark.parametrize(("text", "problem"), DAMAGED)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SourceError) as error:
        read(stats(tmp_path, text))
    assert problem in error.value.reason


def test_a_number_of_hundreds_of_digits_is_none(tmp_path: Path) -> None:
    """It would be more than any float holds."""
    huge = [record(0), record(1, numGenKvTokens=10**400, numQueuedRequests=-(10**400)), record(2)]
    assert only(read(stats(tmp_path, json.dumps(huge)))).counters["decode_context_tokens"] == 2 * 8000


def test_json_that_is_something_else_is_not_read(tmp_path: Path) -> None:
    pages = write(tmp_path, trtllm)
    window = read(*pages, stats(tmp_path, [{"iter": 1}], "other.json"))
    assert window.unread == ("other.json: JSON, and no reader here knows it",)


def test_records_under_the_name_of_a_page(tmp_path: Path) -> None:
    """`curl .../metrics > after.prom` on the wrong one of the two endpoints."""
    assert read(stats(tmp_path, LOAD, "after.prom")).counter("steps") == 100


def test_odd_values_do_no_harm(tmp_path: Path) -> None:
    odd = record(1, kvCacheStats=None, numGenKvTokens="many", numActiveRequests=True, numQueuedRequests=float("inf"))
    engine = only(read(stats(tmp_path, json.dumps([odd, record(2)]))))
    assert engine.counters["steps"] == 2
    assert engine.counters["decode_context_tokens"] == 8000


def test_documentation_s_sample_is_refused_with_its_place(shared_data: Path) -> None:
    path = shared_data / "engines" / "trtllm-serve-docs-iteration-stats-excerpt.json.txt"
    with pytest.raises(SourceError, match=r":1:\d+: this JSON is damaged"):
        read(path)


@given(cuts=st.lists(st.integers(0, len(LOAD)), max_size=4))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_the_records_are_cut_the_totals_are_the_same(tmp_path: Path, cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(LOAD)]
    text = "\n".join(json.dumps(LOAD[first:last]) for first, last in pairwise(ends))
    counters = only(read(stats(tmp_path, text))).counters
    assert counters["steps"] == 100
    assert counters["decode_step_seconds"] == pytest.approx(0.99)
