"""One sentence for a release, and gates in plain words."""

from __future__ import annotations

from typing import Any

import assessments as made
import pytest

from pytest_llmroof.report.document import SUMMARY, report_document, window_document
from pytest_llmroof.report.release import (
    asked_in_words,
    blocks,
    came_to,
    metric_in_words,
    outcome_sentence,
    what_was_tested,
)


def sentence(**counts: int) -> str:
    summary = dict.fromkeys(SUMMARY, 0) | {name.replace("_", " "): count for name, count in counts.items()}
    return outcome_sentence({"summary": summary})


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"fail": 1, "no_data": 1, "impossible": 1, "pass": 6}, "Blocked: 1 of 9 gates failed, 2 were not measured"),
        ({"fail": 2, "pass": 1, "approximate": 2}, "Blocked: 2 of 3 gates failed"),
        ({"inconclusive": 1}, "Blocked: 1 of 1 gate was not measured"),
        ({"not_run": 2, "pass": 1}, "Blocked: 2 of 3 gates did not run"),
        ({"fail": 1, "warned": 1, "not_run": 1}, "Blocked: 1 of 3 gates failed, 1 did not run; 1 gave a warning"),
        ({"pass": 9}, "Passed: all 9 gates hold"),
        ({"pass": 1}, "Passed: the only gate holds"),
        ({"pass": 1, "warned": 2}, "Passed: 1 of 3 gates holds; 2 gave a warning"),
        ({}, "Blocked: no gate was judged"),
    ],
)
def test_the_sentence(counts: dict[str, int], said: str) -> None:
    assert sentence(**counts) == said


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("decode.mbu", "decode MBU"),
        ("tpot.p99.9", "TPOT p99.9"),
        ("kv_cache.usage.max", "KV cache usage max"),
        ("output.tokens_per_second.per_gpu", "output tokens per second per gpu"),
        ("goodput(ttft<=2s, tpot<=50ms)", "goodput(ttft<=2s, tpot<=50ms)"),
        ("kernels(cutlass.*).mfu", "kernels(cutlass.*).mfu"),
    ],
)
def test_metrics_in_words(metric: str, words: str) -> None:
    assert metric_in_words(metric) == words


def rows(*verdicts: Any) -> list[dict[str, Any]]:
    gates: list[dict[str, Any]] = window_document(made.assessment(*verdicts))["gates"]
    return gates


def test_what_was_asked_and_what_it_came_to() -> None:
    ttft = made.gate("ttft.p99", "<=", 2.0, "2s", "seconds")
    failed, missing, contradiction, unrun, warned = rows(
        made.flagship_verdict(),
        made.verdict(ttft, made.no_data("ttft.p99", "no series."), "no data"),
        made.verdict(made.gate(), made.impossible(), "impossible"),
        made.verdict(made.gate(), made.no_data(reason="deselected"), "not run"),
        made.verdict(made.gate(severity="warn"), made.mbu()),
    )
    assert asked_in_words(failed) == "decode MBU >= 75 %"
    assert came_to(failed) == "measured 41.3 %"
    assert (asked_in_words(missing), came_to(missing)) == ("TTFT p99 <= 2 s", "not measured: no series")
    assert came_to(contradiction).startswith("not measured, impossible: a step took 5.20 ms")
    assert came_to(unrun) == "not run: deselected"
    assert [blocks(row) for row in (failed, missing, contradiction, unrun, warned)] == [True, True, True, True, False]


def test_what_was_tested() -> None:
    window = window_document(made.assessment())
    document = report_document([window, window], labels={"commit": "abc", "engine": "vllm"}, created="")
    assert what_was_tested(document) == [
        "commit abc, engine vllm",
        "4 x NVIDIA H100 SXM5 80GB, bf16 989 TFLOP/s dense, 3.35 TB/s; Llama 3.1 70B bf16, TP 4",
    ]
