"""Requests that failed are slower than any: they hold the maximum, and every percentile that lies among them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from benchmark_files import detailed, measured, vllm_result, write
from made_windows import deployment, engine, window

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.analysis.quantiles import quantile
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.telemetry.window import Histogram

MAXIMA = ("ttft.max", "tpot.max", "itl.max", "e2e.max")


def gate(expression: str) -> Gate:
    return parse_gate(expression)


def found(measurements: Measurements, metric: str) -> Measurement:
    outcome = measurements[metric]
    assert isinstance(outcome, Measurement), outcome
    return outcome


def word(measurements: Measurements, expression: str) -> str:
    asked = gate(expression)
    return judge(asked, measurements[asked.metric]).word


def test_of_single_requests_the_failed_hold_every_maximum(tmp_path: Path) -> None:
    # 49 requests: 0.1 s, then 10 times 0.02 s, hence 0.3 s in all. One failed.
    requests = [(0.1, [0.02] * 10)] * 49
    broken = measured(write(tmp_path / "broken.json", detailed(requests, failed=1)))
    whole = measured(write(tmp_path / "whole.json", detailed(requests)))
    for metric in MAXIMA:
        held = found(broken, metric)
        assert held.low == held.value == found(whole, metric).value
        assert math.isinf(held.high)
        assert held.undecided == "1 of 50 requests failed: counted as slower than any, they hold the max"
        assert (word(broken, f"{metric} <= 1s"), word(whole, f"{metric} <= 1s")) == ("no data", "pass")
    # What was seen of the others breaches all the same.
    assert word(broken, "e2e.max <= 200ms") == "fail"


def test_of_stated_statistics_too(tmp_path: Path) -> None:
    # As inference-perf had it: 60 of 5591 failed, 1.07 %.
    run = vllm_result(num_prompts=5591, completed=5531, failed=60, max_ttft_ms=700.0)
    measurements = measured(write(tmp_path / "run.json", run))
    assert found(measurements, "ttft.max").undecided == (
        "60 of 5591 requests failed: counted as slower than any, they hold the max"
    )
    assert word(measurements, "ttft.max <= 1s") == "no data"
    # A mean of the others stands while few failed.
    assert word(measurements, "ttft.mean <= 1s") == "pass"


def inference_perf(failures: int) -> dict[str, Any]:
    latency = {"mean": 2.0, "min": 1.0, "median": 2.0, "p90": 3.0, "p99": 3.5, "p99.9": 3.9, "max": 4.0}
    return {
        "load_summary": {"count": 5531 + failures},
        "successes": {
            "count": 5531,
            "latency": {"request_latency": latency},
            "throughput": {"output_tokens_per_sec": 100.0, "requests_per_sec": 10.0},
            "prompt_len": {"mean": 100.0},
            "output_len": {"mean": 100.0},
        },
        "failures": {"count": failures},
    }


@pytest.mark.parametrize(("failures", "verdict"), [(0, "pass"), (60, "no data")])
def test_of_another_tool_as_well(tmp_path: Path, failures: int, verdict: str) -> None:
    path = tmp_path / "summary_lifecycle_metrics.json"
    path.write_text(json.dumps(inference_perf(failures)))
    assert word(measured(path), "e2e.max <= 10s") == verdict


def server(errors: float, *, inside: bool) -> Measurements:
    """100 requests of 1.0 to 2.0 s that finished, and errors, which the histogram holds in its first bucket or not."""
    slow = Histogram((0.5, 2.0, math.inf), (errors if inside else 0.0, 100.0, 0.0), 150.0)
    seen = engine(
        itl=0.02, outputs=5000.0, requests=100.0, prompt=10.0, output=50.0, histograms={"e2e": slow, "tpot": slow},
        counters={"requests_finished": 100.0 + errors, "requests_errored": errors},
    )  # fmt: skip
    return measure(gather(window(seen), deployment("llama-3.1-8b")))


@pytest.mark.parametrize("inside", [True, False])
def test_a_servers_maxima_are_held_by_its_errors_whether_its_histogram_counts_them(inside: bool) -> None:
    for metric in MAXIMA:
        assert word(server(2.0, inside=inside), f"{metric} <= 10s") == "no data"
        assert word(server(0.0, inside=inside), f"{metric} <= 10s") == "pass"
    # A wait in the queue is the server's own to tell.
    assert word(server(2.0, inside=inside), "e2e.mean <= 10s") == "pass"


@pytest.mark.parametrize("inside", [True, False])
def test_a_servers_percentile_among_its_errors_is_no_data(inside: bool) -> None:
    measurements = server(2.0, inside=inside)
    # 102 requests: p99 is the 101st (0.99 * 102 = 100.98), and only 100 are sound.
    assert word(measurements, "e2e.p99 <= 10s") == "no data"
    assert "2 of 102 requests failed" in str(found(measurements, "e2e.p99").undecided)
    assert found(measurements, "e2e.p99").low == 0.5
    # The median is the 51st: of 1 to 2 s, wherever the two stand.
    assert word(measurements, "e2e.p50 <= 2s") == "pass"


def test_errors_that_a_histogram_holds_may_stand_anywhere_in_it() -> None:
    """1 000 of 10 000 failed; observed are 2 000 up to 1 s and 8 000 up to 2 s.

    The 1 500th, p15, is among those up to 1 s if the failed are none of them; else it is the 2 500th (1 500 + 1 000) of
    the observed, up to 2 s. Binomial ranks move it by 70 (two standard deviations of 36).
    """
    histogram = Histogram((1.0, 2.0, math.inf), (2000.0, 8000.0, 0.0), 15000.0)
    plain, told = quantile(histogram, 0.15), quantile(histogram, 0.15, None, 1000.0, 10000.0)
    assert plain is not None
    assert told is not None
    assert (plain.bounded.low, plain.bounded.high) == (0.0, 1.0)
    assert (told.bounded.low, told.bounded.high) == (0.0, 2.0)
    last = quantile(histogram, 0.95, None, 1000.0, 10000.0)
    assert last is not None
    # The 9 500th of 10 000, of which 9 000 are sound.
    assert last.failed
    assert math.isinf(last.bounded.high)


def test_many_errors_leave_a_servers_mean_without_an_upper_end() -> None:
    """10 of 110 requests: 9 %, above 5 %."""
    assert word(server(10.0, inside=False), "e2e.mean <= 10s") == "no data"
    assert word(server(10.0, inside=False), "e2e.mean <= 1s") == "fail"
