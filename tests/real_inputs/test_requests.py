"""Results of load generators that people misread: what a token's time is, what failed, what was cold, what is noise."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from judging import Judge


def result(
    requests: Sequence[tuple[float, float, int]],
    *,
    failed: int = 0,
    starts: Sequence[float] | None = None,
    duration: float = 100.0,
) -> str:
    """A detailed result of vllm bench serve: of each request its TTFT, its latency (seconds) and its output tokens.

    So many more failed before their first token, with a time of 0 as tools write it.
    """
    pauses = [[(e2e - ttft) / (count - 1)] * (count - 1) if count > 1 else [] for ttft, e2e, count in requests]
    whole = len(requests) + failed
    run = {
        "date": "20260301-120000", "backend": "vllm", "model_id": "m", "num_prompts": whole, "request_rate": "inf",
        "max_concurrency": 64, "duration": duration, "completed": len(requests), "failed": failed,
        "total_input_tokens": 100 * len(requests), "total_output_tokens": sum(count for _, _, count in requests),
        "request_throughput": len(requests) / duration, "request_goodput": None,
        "output_throughput": sum(count for _, _, count in requests) / duration, "total_token_throughput": 1.0,
        "mean_ttft_ms": 1.0, "median_ttft_ms": 1.0, "p99_ttft_ms": 1.0,
        "input_lens": [100] * whole,
        "output_lens": [count for _, _, count in requests] + [0] * failed,
        "ttfts": [ttft for ttft, _, _ in requests] + [0.0] * failed,
        "itls": [*pauses, *([] for _ in range(failed))],
        "errors": [""] * len(requests) + ["Service Unavailable"] * failed,
    }  # fmt: skip
    if starts is not None:
        run["start_times"] = [*starts, *([None] * failed)]
    return json.dumps(run)


def test_the_first_token_is_in_no_time_per_token(judge: Judge) -> None:
    # 100 tokens in 2.48 s, the first after 0.5 s: 1.98 / 99 = 20 ms; 2.48 / 100 = 24.8 ms is a latency per token, and
    # 1.98 / 100 = 19.8 ms divides by one too many. The rate of decoding is that of the time after the first token.
    found = judge("tpot.mean <= 22ms", "tpot.mean >= 19.9ms", files={"run.json": result([(0.5, 2.48, 100)])})
    assert found.verdicts == ["pass", "pass"]
    assert found.value("tpot.mean") == pytest.approx(0.020)
    assert "(latency - TTFT) / (output tokens - 1)" in found.method("tpot.mean")


def test_a_mean_over_tokens_is_not_one_over_requests(judge: Judge) -> None:
    # 10 tokens at 50 ms and 1,000 at 10 ms: requests' mean (50 + 10) / 2 = 30 ms; pauses' mean
    # (9 x 50 + 999 x 10) / 1,008 = 10.4 ms.
    requests = [(0.1, 0.1 + 9 * 0.05, 10), (0.1, 0.1 + 999 * 0.01, 1000)]
    found = judge("tpot.mean <= 20ms", "itl.mean <= 20ms", files={"run.json": result(requests)})
    assert found.verdicts == ["fail", "pass"]
    assert found.value("tpot.mean") == pytest.approx(0.030)
    assert found.value("itl.mean") == pytest.approx((9 * 0.05 + 999 * 0.01) / 1008)


def test_a_single_token_has_no_time_per_token(judge: Judge) -> None:
    # The other has 10 tokens: (1.119 - 0.120) / 9 = 111 ms. A zero of the first would halve the mean.
    requests = [(0.12, 0.12, 1), (0.12, 1.119, 10)]
    found = judge("tpot.mean <= 100ms", "tpot.p50 <= 100ms", files={"run.json": result(requests)})
    assert found.verdicts[0] == "fail"
    assert found.value("tpot.mean") == pytest.approx(0.111)
    assert "1 of 2 requests had one output token, and so none" in found.method("tpot.mean")
    alone = judge("tpot.mean <= 100ms", files={"run.json": result([(0.12, 0.12, 1)] * 2)})
    assert alone.verdicts == ["no data"]


def test_what_failed_is_no_fast_request(judge: Judge) -> None:
    # 52 of 100 refused with a time of 0: the median of all would be 0 ms. The 48 others' first tokens took 0.9 s each.
    run = result([(0.9, 2.9, 200)] * 48, failed=52)
    found = judge(
        "errors.rate <= 1%", "ttft.p50 <= 100ms", "ttft.p50 <= 1s", "ttft.mean <= 1s", "goodput(ttft<=1s) >= 90%",
        files={"run.json": run},
    )  # fmt: skip
    # Counted as slower than any, the failed ones hold the median: nothing says that it is within a second.
    assert found.verdicts == ["fail", "fail", "no data", "no data", "fail"]
    assert found.value("errors.rate") == pytest.approx(0.52)
    assert found.window["measurements"]["ttft.p50"]["low"] == pytest.approx(0.9)
    assert found.value("goodput(ttft<=1s)") == pytest.approx(0.48)


def test_an_answer_of_no_token_has_failed_whatever_its_status(judge: Judge) -> None:
    run = json.loads(result([(0.9, 2.9, 200)] * 48))
    for key, value in (("output_lens", 0), ("ttfts", 0.0), ("itls", []), ("errors", ""), ("input_lens", 100)):
        run[key] += [value] * 52
    run |= {"num_prompts": 100, "completed": 100}
    found = judge("errors.rate <= 1%", "ttft.p50 <= 100ms", files={"run.json": json.dumps(run)})
    assert found.verdicts == ["fail", "fail"]
    assert found.value("errors.rate") == pytest.approx(0.52)


def test_a_tool_that_took_no_times_has_none(judge: Judge) -> None:
    run = json.loads(result([(0.9, 2.9, 200)] * 40))
    keys = ("ttfts", "itls", "output_lens", "input_lens", "errors")
    summary = {key: value for key, value in run.items() if key not in keys}
    summary |= {"mean_ttft_ms": 0.0, "median_ttft_ms": 0.0, "p99_ttft_ms": 0.0}
    found = judge("ttft.p50 <= 100ms", "ttft.mean <= 1s", files={"run.json": json.dumps(summary)})
    assert found.verdicts == ["no data", "no data"]
    assert "states 0 for all of time to first token" in found.text


def record(issued: float, sent: float, first: float, tokens: int = 11, reasoning: int = 0) -> str:
    """One request of AIPerf: when it was meant to go, when it went, and its first token, in seconds."""
    start = int(1.8e18)
    metrics = {
        "time_to_first_token": {"value": 1e3 * (first - sent), "unit": "ms"},
        "request_latency": {"value": 1e3 * (first - sent) + 100.0, "unit": "ms"},
        "output_sequence_length": {"value": tokens, "unit": "tokens"},
        "input_sequence_length": {"value": 100, "unit": "tokens"},
        "inter_token_latency": {"value": 100 / (tokens - 1), "unit": "ms"},
    }
    metadata = {
        "credit_issued_ns": start + round(issued * 1e9), "request_start_ns": start + round(sent * 1e9),
        "request_end_ns": start + round(first * 1e9) + 10**8, "benchmark_phase": "profiling",
    }  # fmt: skip
    return json.dumps({"metadata": metadata, "metrics": metrics, "error": None})


def test_waiting_in_the_client_is_no_time_to_first_token(judge: Judge) -> None:
    # Meant to go at once, sent one at a time: 0.8, 15.9 and 30.7 s from when they were meant to go, 0.8, 0.9 and 0.7 s
    # from when they went. The wait is said beside it.
    lines = [record(0, 0, 0.8), record(0, 15, 15.9), record(0, 30, 30.7)]
    found = judge("ttft.max <= 1s", "ttft.mean <= 1s", files={"profile_export.jsonl": "\n".join(lines) + "\n"})
    assert found.verdicts == ["pass", "pass"]
    assert found.value("ttft.max") == pytest.approx(0.9)
    assert "without its wait in the client" in found.method("ttft.max")


def cold_and_warm() -> str:
    """10 requests at once whose first token took 48 s, then one a second from 60 s on, of 700, 701 ... 789 ms."""
    cold, warm = [(48.0, 49.0, 20)] * 10, [(0.7 + i / 1000, 1.7, 20) for i in range(90)]
    return result(cold + warm, starts=[0.0] * 10 + [60.0 + i for i in range(90)], duration=152.0)


def test_a_cold_wave_is_cut_where_a_warm_up_is_written(judge: Judge) -> None:
    # All: p50 at place 49.5 of the 100, 749.5 ms, and p95 in the wave. Without it: p50 at place 44.5 of 90, 744.5 ms;
    # p99 at place 88.11, 788.11 ms.
    whole = judge("ttft.p95 <= 1s", files={"run.json": cold_and_warm()})
    assert whole.verdicts == ["fail"]
    assert whole.value("ttft.p50") == pytest.approx(0.7495)
    warm = judge("ttft.p95 <= 1s", window="warmup: 1s", files={"run.json": cold_and_warm()})
    assert warm.verdicts == ["pass"]
    assert warm.value("ttft.p50") == pytest.approx(0.7445)
    assert warm.value("ttft.p99") == pytest.approx(0.78811)
    assert "10 of 100 requests started in the warm-up of 1 s: left out" in json.dumps(warm.window)


@pytest.mark.parametrize("milliseconds", [True, False])
def test_a_unit_is_the_one_that_a_file_names(judge: Judge, milliseconds: bool) -> None:
    # The same 800 ms, as AIPerf writes them in either unit.
    one = json.loads(record(0, 0, 0.8))
    if not milliseconds:
        for metric in one["metrics"].values():
            if metric["unit"] == "ms":
                metric |= {"value": metric["value"] / 1e3, "unit": "sec"}
    found = judge("ttft.mean <= 1s", "ttft.mean >= 700ms", files={"profile_export.jsonl": json.dumps(one) + "\n"})
    assert found.verdicts == ["pass", "pass"]
    assert found.value("ttft.mean") == pytest.approx(0.8)
