"""What clients measured: percentiles, goodput, failures, rates and the decode step, by hand from small results."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from benchmark_files import detailed, found, measured, missing, vllm_result, write
from hypothesis import given
from hypothesis import strategies as st
from made_windows import deployment

from pytest_llmroof.analysis.binomial import ranks
from pytest_llmroof.analysis.clientfacts import client_decode
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.analysis.orderstats import order_statistic, share_interval
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.telemetry.client import Client, Request
from pytest_llmroof.telemetry.window import Window


def of_requests(*requests: Request, duration: float = 10.0) -> Window:
    """A window of single requests."""
    failed = sum(request.failed for request in requests)
    good = [request for request in requests if not request.failed]
    client = Client(
        "vllm-serve", "vllm bench serve", "run.json", duration_seconds=duration, requests=requests,
        completed=float(len(good)), failed=float(failed),
        output_tokens=sum(request.output_tokens or 0.0 for request in good), input_tokens=100.0 * len(good),
    )  # fmt: skip
    return Window("vllm-serve", (), (), duration_seconds=duration, client=client)


def measure_window(window: Window, metric: str) -> Measurement:
    outcome = measure(gather(window, deployment("llama-3.1-8b")))[metric]
    assert isinstance(outcome, Measurement), outcome
    return outcome


def of_ttfts(*ttfts: float, failed: int = 0) -> Window:
    good = [Request(ttft=ttft, e2e=ttft + 1, output_tokens=11.0, tpot=0.1) for ttft in ttfts]
    return of_requests(*good, *[Request(failed=True)] * failed)


def test_percentiles_are_those_of_the_values() -> None:
    # 0.01 .. 1.00 s. Between the 50th and 51st of 100: 0.505; p99 lies 0.01 of the way from the 99th to the 100th.
    window = of_ttfts(*(number / 100 for number in range(1, 101)))
    assert measure_window(window, "ttft.p50").value == pytest.approx(0.505)
    assert measure_window(window, "ttft.p99").value == pytest.approx(0.9901)
    assert measure_window(window, "ttft.mean").value == pytest.approx(0.505)
    assert measure_window(window, "ttft.max").value == 1.0
    # Exact binomial ranks of the median of 100: 40 and 61.
    low, high = ranks(100, 0.5)
    median = measure_window(window, "ttft.p50").bounded
    assert (median.low, median.high) == (low / 100, high / 100) == (0.4, 0.61)
    assert measure_window(window, "ttft.p99").bounded.high == math.inf  # p99 needs 368
    assert "268 more requests" in str(measure_window(window, "ttft.p99").settle)


def test_three_formulas_are_called_tpot() -> None:
    # (2.48 - 0.5) / 99 = 20 ms; 2.48 / 100 = 24.8 and (2.48 - 0.5) / 100 = 19.8 are others.
    itls = [0.02] * 99
    client_window = of_requests(Request(ttft=0.5, e2e=2.48, tpot=sum(itls) / 99, output_tokens=100.0))
    assert measure_window(client_window, "tpot.p50").value == pytest.approx(0.02)


def test_a_single_token_has_no_time_per_output_token() -> None:
    # (1119 - 120) / 9 = 111 ms for the second request; the first counts for nothing, not for 0.
    one = Request(ttft=0.12, e2e=0.12, output_tokens=1.0)
    other = Request(ttft=0.12, e2e=1.119, tpot=0.999 / 9, output_tokens=10.0)
    outcome = measure_window(of_requests(one, other), "tpot.p50")
    assert outcome.value == pytest.approx(0.111)
    assert outcome.samples == 1
    assert "1 of 2 requests had one output token" in outcome.method


def test_failures_never_make_it_look_fast() -> None:
    # 48 answered in 900 ms, 52 failed: the median of all lies among the failed.
    window = of_ttfts(*[0.9] * 48, failed=52)
    median = measure_window(window, "ttft.p50")
    assert (median.value, median.bounded.high) == (0.9, math.inf)
    assert judge(parse_gate("ttft.p50 <= 1s"), median).word == "no data"
    assert judge(parse_gate("ttft.p50 <= 500ms"), median).word == "fail"
    assert judge(parse_gate("ttft.mean <= 1s"), measure_window(window, "ttft.mean")).word == "no data"
    errors = measure_window(window, "errors.rate")
    assert errors.value == 0.52
    assert judge(parse_gate("errors.rate <= 1%"), errors).word == "fail"


def test_few_failures_leave_low_percentiles_alone() -> None:
    window = of_ttfts(*[0.9] * 999, failed=1)
    assert measure_window(window, "ttft.p50").bounded.exact
    assert measure_window(window, "ttft.mean").bounded.exact


def test_of_an_all_failed_run_nothing_is_fast(tmp_path: Path) -> None:
    zeros = dict.fromkeys((key for key in vllm_result() if key.endswith("_ms")), 0.0)
    nothing = dict.fromkeys(("completed", "total_input_tokens", "total_output_tokens", "output_throughput"), 0)
    run = vllm_result(failed=500, **nothing, **zeros)
    measurements = measured(write(tmp_path / "run.json", run))
    assert missing(measurements, "ttft.p99").reason.startswith("all 500 requests failed")
    assert missing(measurements, "tpot.mean").reason.startswith("all 500 requests failed")
    assert found(measurements, "errors.rate").value == 1.0
    assert found(measurements, "output.tokens_per_second").value == 0.0


def test_goodput_is_of_all_that_were_sent() -> None:
    fast = Request(ttft=0.1, e2e=1.1, tpot=0.04, output_tokens=26.0)
    slow = Request(ttft=3.0, e2e=4.0, tpot=0.04, output_tokens=26.0)
    single, gone = Request(ttft=0.1, e2e=0.1, output_tokens=1.0), Request(failed=True)
    # 6 fast, 1 of a single token, 1 slow, 2 failed: 7 of 10.
    window = of_requests(*[fast] * 6, single, slow, gone, gone)
    goodput = measure_window(window, "goodput(ttft<=2s, tpot<=50ms)")
    assert (goodput.value, goodput.samples) == (0.7, 10)
    assert "2 failed requests among them" in goodput.method
    # Clopper and Pearson of 7 of 10: 0.3475 .. 0.9333.
    assert (goodput.bounded.low, goodput.bounded.high) == pytest.approx((0.3475, 0.9333), abs=1e-4)
    assert measure_window(window, "goodput(ttft<100ms)").value == 0.0  # 100 ms is not below 100 ms


def test_goodput_needs_every_latency_that_it_names() -> None:
    known, unknown = Request(ttft=0.1, e2e=1.1, tpot=0.04, output_tokens=26.0), Request(ttft=0.1, output_tokens=26.0)
    metric = "goodput(ttft<=2s, e2e<=2s)"
    assert measure_window(of_requests(known, known), metric).value == 1.0
    outcome = measure(gather(of_requests(known, unknown), deployment("llama-3.1-8b")))[metric]
    assert isinstance(outcome, NoData)
    assert "does not tell the request latency of every request" in outcome.reason
    # Of several tokens without a time for each, nothing is taken for granted: a single one has none.
    untimed = Request(ttft=0.1, e2e=1.1, output_tokens=26.0)
    single = Request(ttft=0.1, e2e=0.1, output_tokens=1.0)
    assert measure_window(of_requests(known, single), "goodput(tpot<=50ms)").value == 1.0
    outcome = measure(gather(of_requests(known, untimed), deployment("llama-3.1-8b")))["goodput(tpot<=50ms)"]
    assert isinstance(outcome, NoData)


def test_goodput_needs_single_requests(tmp_path: Path) -> None:
    lacking = missing(measured(write(tmp_path / "run.json", vllm_result())), "goodput(ttft<=2s)")
    assert "holds no single requests" in lacking.reason
    assert "--save-detailed" in str(lacking.remedy)


def test_a_summary_answers_only_what_it_holds(tmp_path: Path) -> None:
    measurements = measured(write(tmp_path / "run.json", vllm_result()))
    assert found(measurements, "ttft.p99").value == 0.4
    assert found(measurements, "ttft.p50").value == 0.1  # which it calls median
    lacking = missing(measurements, "ttft.p95")
    assert "holds no p95 of time to first token, only mean, p50, p99" in lacking.reason
    assert "--metric-percentiles" in str(lacking.remedy)
    assert "holds no request latency" in missing(measurements, "e2e.p99").reason


def test_a_stated_percentile_lies_between_the_stated_ones(tmp_path: Path) -> None:
    # Ranks of the median of 500: 228 and 273, so between p45 and p55: known are nothing below, and p99 above.
    median = found(measured(write(tmp_path / "run.json", vllm_result())), "ttft.p50").bounded
    assert (median.low, median.value, median.high) == (0.0, 0.1, 0.4)
    more = measured(write(tmp_path / "more.json", vllm_result(p40_ttft_ms=90.0, p60_ttft_ms=110.0)))
    assert (found(more, "ttft.p50").bounded.low, found(more, "ttft.p50").bounded.high) == (0.09, 0.11)


def test_chunked_delivery_has_no_percentiles_of_itl(tmp_path: Path) -> None:
    chunked = measured(write(tmp_path / "run.json", vllm_result(median_itl_ms=0.005)))
    assert "several tokens came in one chunk (p50 5 µs, mean 8.10 ms" in missing(chunked, "itl.p99").reason
    assert found(chunked, "itl.mean").value == pytest.approx(0.0081)
    # Of single requests: nine of ten pieces come at once.
    run = detailed([(0.1, [0.00001] * 18 + [0.1, 0.1]) for _ in range(4)])
    assert "several tokens" in missing(measured(write(tmp_path / "details.json", run)), "itl.p50").reason
    assert found(measured(write(tmp_path / "plain.json", vllm_result())), "itl.p99").value == 0.02


def test_rates_are_over_the_benchmark(tmp_path: Path) -> None:
    measurements = measured(write(tmp_path / "run.json", vllm_result()))
    assert found(measurements, "output.tokens_per_second").value == 2000.0  # 100 000 in 50 s
    assert found(measurements, "input.tokens_per_second").value == 1280.0  # 64 000 in 50 s
    assert found(measurements, "requests_per_second").value == 10.0
    two = measured(write(tmp_path / "two.json", vllm_result()), of=deployment("llama-3.1-8b", tensor_parallel=2))
    assert found(two, "output.tokens_per_second.per_gpu").value == 1000.0


def test_pieces_that_are_no_tokens_widen_the_time_per_token(tmp_path: Path) -> None:
    run = {
        "load_summary": {"count": 10},
        "successes": {
            "count": 10, "output_len": {"mean": 101.0}, "prompt_len": {"mean": 50.0},
            "throughput": {"requests_per_sec": 2.0},
            "latency": {"request_latency": {"mean": 1.1}, "time_to_first_token": {"mean": 0.1},
                        "time_per_output_token": {"mean": 0.005}},
        },
        "failures": {"count": 0},
    }  # fmt: skip
    tpot = found(measured(write(tmp_path / "summary.json", run)), "tpot.mean")
    # (1.1 - 0.1) / 100 = 10 ms a token, 5 ms a piece.
    assert (tpot.value, tpot.bounded.high) == pytest.approx((0.005, 0.01))
    assert "2 times as long as a piece" in tpot.method


def test_the_decode_step_of_a_client_lies_between_bounds() -> None:
    # 20 requests of 101 tokens, first token after 0.5 s, 2 s in all, four under way at a time for 10 s.
    requests = [
        Request(ttft=0.5, e2e=2.0, tpot=0.015, output_tokens=101.0, input_tokens=100.0, started=2.0 * (number // 4))
        for number in range(20)
    ]
    window = of_requests(*requests)
    step, batch = (measure_window(window, f"decode.{name}").bounded for name in ("step_time", "batch"))
    assert (step.value, step.high) == pytest.approx((0.015, 0.02))  # 1.5 s and 2 s over 100 tokens
    assert (batch.value, batch.high) == (3.0, 4.0)  # 20 x 1.5 s / 10 s; four at once
    assert measure_window(window, "decode.context").value == pytest.approx(100 + 101 / 2)
    mbu = measure_window(window, "decode.mbu").bounded
    # 15.01 GB of weights and 3 x 150.5 x 131 072 B of cache in 20 ms to 15 ms, and more for prefill in these steps.
    weights, cache = 15.0103e9, 131072 * 150.5
    assert mbu.low == pytest.approx((weights + 3 * cache) / 3.35e12 / 0.02, rel=2e-3)
    assert mbu.high >= (weights + 4 * cache) / 3.35e12 / 0.015 * 0.998


def test_replicas_share_what_a_client_saw_under_way() -> None:
    # The same 20 x 1.5 s in 10 s and four at once, over two replicas: 1.5 .. 2 each.
    requests = tuple(
        Request(ttft=0.5, e2e=2.0, tpot=0.015, output_tokens=101.0, input_tokens=100.0, started=2.0 * (number // 4))
        for number in range(20)
    )
    client = of_requests(*requests).client
    assert client is not None
    decode = client_decode(client, deployment("llama-3.1-8b", data_parallel=2))
    assert decode is not None
    assert (decode.batch.low, decode.batch.value, decode.batch.high) == (1.5, 1.5, 2.0)


def test_what_a_client_cannot_see_has_no_data(tmp_path: Path) -> None:
    measurements = measured(write(tmp_path / "run.json", vllm_result()))
    for metric in ("prefill.mfu", "prefill.tokens_per_second", "window.mfu", "roofline.efficiency", "decode.batch"):
        lacking = missing(measurements, metric)
        assert "does not see the engine's steps" in lacking.reason
        assert "record" in str(lacking.remedy)
    for metric in ("queue.mean", "kv_cache.usage.max", "running.max", "preemptions", "prefix_cache.hit_rate"):
        assert "vllm bench serve exports no" in missing(measurements, metric).reason


def test_a_cold_first_wave_is_said() -> None:
    cold = [Request(ttft=48.0, e2e=50.0, output_tokens=9.0, tpot=0.2, started=0.0)] * 10
    warm = [Request(ttft=0.7, e2e=2.0, output_tokens=9.0, tpot=0.2, started=60.0 + number) for number in range(90)]
    facts = gather(of_requests(*cold, *warm, duration=160.0), deployment("llama-3.1-8b"))
    assert "the first 10 requests waited 48 s for their first token, the others 700 ms" in facts.notes[0]
    assert not gather(of_requests(*warm, duration=100.0), deployment("llama-3.1-8b")).notes


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=60), st.integers(0, 20), st.sampled_from([0.5, 0.9, 0.99]))
def test_intervals_hold_their_value_and_failures_never_narrow_them(
    values: list[float], failed: int, share: float
) -> None:  # fmt: skip
    one, more = order_statistic(values, share, failed), order_statistic(values, share, failed + 5)
    assert one.bounded.low <= one.bounded.value <= one.bounded.high
    assert more.bounded.high >= one.bounded.high
    assert min(values) * (1 - 1e-9) <= one.bounded.value <= max(values) * (1 + 1e-9)


@given(st.integers(1, 400), st.data())
def test_a_share_lies_in_its_interval(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    found = share_interval(successes, trials)
    assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize("detailed_too", [True, False])
def test_one_token_each_has_no_time_between_tokens_whatever_a_tool_writes(tmp_path: Path, detailed_too: bool) -> None:
    """vllm bench serve --random-output-len 1 states 0.0 for tpot and itl: every limit would hold."""
    zeros = {f"{which}_{kind}_ms": 0.0 for which in ("mean", "median", "p99") for kind in ("tpot", "itl")}
    run = detailed([(0.1, []), (0.2, [])], failed=0, **zeros)
    if not detailed_too:
        run = vllm_result(completed=500, total_output_tokens=500, **zeros)
    measurements = measured(write(tmp_path / "run.json", run))
    for metric in ("tpot.mean", "tpot.p99", "itl.mean", "itl.p50"):
        assert "had one output token" in missing(measurements, metric).reason
    assert found(measurements, "ttft.mean").value > 0


def test_zeros_in_place_of_a_latency_are_no_data(tmp_path: Path) -> None:
    run = vllm_result(mean_itl_ms=0.0, median_itl_ms=0.0, p99_itl_ms=0.0)
    measurements = measured(write(tmp_path / "run.json", run))
    assert "states 0 for all of inter-token latency" in missing(measurements, "itl.p99").reason
    assert found(measurements, "tpot.p99").value == pytest.approx(0.0095)


@pytest.mark.parametrize("key", ["mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "mean_itl_ms"])
def test_one_zero_among_a_latencys_figures_is_no_data(tmp_path: Path, key: str) -> None:
    # Nothing is computed in no time; only of the times behind the first token some requests have none.
    statistic, latency, _ = key.split("_")
    measurements = measured(write(tmp_path / "run.json", vllm_result(**{key: 0.0})))
    assert f"states 0 for the {statistic} of" in missing(measurements, f"{latency}.{statistic}").reason
