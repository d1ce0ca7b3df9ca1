"""Verdicts, with the arithmetic beside each."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.analysis.measurement import Alternative, Impossible, Measurement, NoData
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.gates.baseline import Baseline
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.units import Unit


def measured(value: float, low: float, high: float, unit: Unit = "fraction", **more: Any) -> Measurement:
    return Measurement("m", Bounded(value, low, high), unit, "source", "method", **more)


def seconds(value: float, low: float, high: float, **more: Any) -> Measurement:
    return measured(value, low, high, "seconds", **more)


@pytest.mark.parametrize(
    ("expression", "outcome", "word", "approximate"),
    [
        ("decode.mbu >= 75%", measured(0.80, 0.78, 0.82), "pass", False),
        ("decode.mbu >= 75%", measured(0.413, 0.409, 0.418), "fail", False),
        ("decode.mbu >= 75%", measured(0.75, 0.75, 0.75), "pass", False),
        ("decode.mbu > 75%", measured(0.75, 0.75, 0.75), "fail", False),
        ("decode.mbu >= 75%", measured(0.76, 0.74, 0.78), "pass", True),
        ("decode.mbu >= 75%", measured(0.74, 0.72, 0.76), "fail", True),
        ("tpot.p99 <= 50ms", seconds(0.049, 0.048, 0.0499), "pass", False),
        ("tpot.p99 <= 50ms", seconds(0.049, 0.048, 0.051), "pass", True),
        ("tpot.p99 < 50ms", seconds(0.050, 0.050, 0.050), "fail", False),
        # Few requests: the upper rank lies beyond the sample, the value still decides.
        ("ttft.p99 <= 2s", seconds(1.5, 1.2, math.inf), "pass", True),
        ("ttft.p99 <= 1s", seconds(1.5, 1.2, math.inf), "fail", False),
        # A limit on the upper bound of a bucket (1 s, 2.5 s]: everything in it holds.
        ("ttft.p95 <= 2.5s", seconds(1.9, 1.0, 2.5, bucketed=True), "pass", False),
        # On its lower bound: nothing in it holds, as buckets leave that bound out.
        ("ttft.p95 <= 1s", seconds(1.9, 1.0, 2.5, bucketed=True), "fail", False),
        ("ttft.p95 <= 1s", seconds(1.9, 1.0, 2.5), "fail", True),
        ("ttft.p95 > 1s", seconds(1.9, 1.0, 2.5, bucketed=True), "pass", False),
        ("preemptions <= 0", measured(0, 0, 0, "count"), "pass", False),
        # The figure itself is in doubt, wherever the limit lies.
        ("decode.mbu >= 75%", measured(1.02, 1.02, 1.02, doubted="too much"), "pass", True),
        ("decode.mbu <= 75%", measured(1.02, 1.02, 1.02, doubted="too much"), "fail", True),
    ],
)  # fmt: skip
def test_the_value_decides(expression: str, outcome: Measurement, word: str, approximate: bool) -> None:
    verdict = judge(parse_gate(expression), outcome)
    assert (verdict.word, verdict.approximate) == (word, approximate)
    assert (verdict.reason is not None) == approximate
    strict = judge(parse_gate(expression), outcome, strict=True)
    assert strict.word == ("inconclusive" if approximate else word)


def test_an_approximate_verdict_says_what_would_settle_it() -> None:
    outcome = seconds(0.049, 0.045, 0.055, settle="1 200 more requests")
    reason = judge(parse_gate("tpot.p99 <= 50ms"), outcome).reason
    assert reason == "the limit 50 ms lies inside the interval of the measurement, 45 ms .. 55 ms; 1 200 more requests"


def test_a_limit_inside_the_interval_is_printed_as_it_was_written() -> None:
    reason = judge(parse_gate("decode.mbu >= 41.35%"), measured(0.4134, 0.4129, 0.4139)).reason
    assert reason is not None
    assert reason.startswith("the limit 41.35 % lies inside the interval of the measurement")


def test_several_doubts_are_settled_by_one_list_at_the_end() -> None:
    turns = Alternative("tensor_parallel = 2 (assumed 1)", 0.40)
    outcome = measured(0.75, 0.74, 0.76, settle="a longer window", alternatives=(turns,))
    verdict = judge(parse_gate("decode.mbu >= 75%"), outcome, strict=True)
    assert verdict.settle == "a longer window; write what holds under `deployment:` (tensor_parallel)"
    assert verdict.reason == (
        "the limit 75 % lies inside the interval of the measurement, 74 % .. 76 %; "
        f"tensor_parallel = 2 (assumed 1) would give 40 % and fail; {verdict.settle}"
    )


@pytest.mark.parametrize(
    ("expression", "outcome", "word"),
    [
        ("decode.mbu >= 60%", measured(0.62, 0.62, 0.70), "pass"),
        ("decode.mbu >= 75%", measured(0.62, 0.62, 0.70), "fail"),
        ("decode.mbu >= 65%", measured(0.62, 0.62, 0.70), "no data"),
        ("prefill.mfu >= 40%", measured(0.41, 0.41, math.inf), "pass"),
        ("prefill.mfu >= 90%", measured(0.41, 0.41, math.inf), "no data"),  # an unknown high end: never a fail
        ("decode.mbu <= 70%", measured(0.62, 0.62, 0.70), "pass"),
        ("decode.mbu <= 60%", measured(0.62, 0.62, 0.70), "fail"),
    ],
)
def test_bounds_decide_or_nothing_does(expression: str, outcome: Measurement, word: str) -> None:
    outcome = replace(outcome, judged_by="bounds", undecided="prefill is interleaved; measure decode on its own")
    verdict = judge(parse_gate(expression), outcome)
    assert verdict.word == word
    assert not verdict.approximate
    assert verdict.reason == (outcome.undecided if word == "no data" else None)
    assert (verdict.value is None) == (word == "no data")


@pytest.mark.parametrize(
    ("limit", "word"), [("5s", "fail"), ("10s", "no data"), ("60s", "no data"), ("1_000s", "no data")]
)
def test_a_quantile_beyond_the_last_bucket_never_passes(limit: str, word: str) -> None:
    # More than 10 s, nobody knows how much: below a limit of 5 s it is a breach, above the last bound it is unknown.
    outcome = seconds(math.inf, 10.0, math.inf)
    verdict = judge(parse_gate(f"ttft.p99 <= {limit}"), outcome)
    assert verdict.word == word
    assert verdict.value is None
    assert verdict.margin is None
    assert verdict.supported is None


def test_no_data_and_contradictions_pass_through() -> None:
    gate = parse_gate("decode.mbu >= 75%")
    missing = judge(gate, NoData("decode.mbu", "no inter-token latency", "record with ..."), strict=True)
    assert (missing.word, missing.reason) == ("no data", "no inter-token latency; record with ...")
    silent = judge(gate, NoData("decode.mbu", "no inter-token latency"))
    assert silent.reason == "no inter-token latency"
    wrong = judge(gate, Impossible("decode.mbu", "implies 145 % of the bandwidth", "gpu and tensor_parallel", 1.45))
    assert (wrong.word, wrong.reason) == ("impossible", "implies 145 % of the bandwidth; check gpu and tensor_parallel")
    assert wrong.value is wrong.limit is wrong.margin is wrong.supported is None


@pytest.mark.parametrize(
    ("expression", "outcome", "margin"),
    [
        ("decode.mbu >= 75%", measured(0.413, 0.413, 0.413), -0.337),  # 41.3 - 75: points of a share
        ("kv_cache.usage.max <= 95%", measured(0.90, 0.90, 0.90), 0.05),
        ("tpot.p99 <= 50ms", seconds(0.060, 0.060, 0.060), -0.2),  # (50 - 60) / 50
        ("output.tokens_per_second >= 2000tok/s", measured(2500, 2500, 2500, "tokens/s"), 0.25),  # (2500 - 2000) / 2000
        ("preemptions <= 0", measured(3, 3, 3, "count"), None),  # no fraction of zero
        ("preemptions <= 0", measured(0, 0, 0, "count"), 0.0),
    ],
)  # fmt: skip
def test_margin(expression: str, outcome: Measurement, margin: float | None) -> None:
    found = judge(parse_gate(expression), outcome).margin
    assert found == (None if margin is None else pytest.approx(margin))


def test_supported_limit() -> None:
    # The low end less 5 %: 0.409 * 0.95; for an upper limit the high end plus 5 %: 0.052 * 1.05.
    assert judge(parse_gate("decode.mbu >= 75%"), measured(0.413, 0.409, 0.418)).supported == pytest.approx(0.38855)
    assert judge(parse_gate("tpot.p99 <= 50ms"), seconds(0.05, 0.048, 0.052)).supported == pytest.approx(0.0546)


def test_of_achievable() -> None:
    # 85 % of the 0.86 that real kernels reach: 0.731.
    gate = parse_gate("decode.mbu >= 85% of achievable")
    verdict = judge(gate, measured(0.74, 0.74, 0.74, achievable=0.86))
    assert verdict.word == "pass"
    assert verdict.limit == pytest.approx(0.731)
    assert judge(gate, measured(0.72, 0.72, 0.72, achievable=0.86)).word == "fail"
    unknown = judge(gate, measured(0.99, 0.99, 0.99))
    assert unknown.word == "no data"
    assert unknown.reason is not None
    assert "no measured row" in unknown.reason


@pytest.mark.parametrize(
    ("expression", "limit", "word"),
    [
        ("tpot.p99 <= 1.05x baseline", 0.0420, "pass"),  # 1.05 * 40 ms
        ("tpot.p99 <= baseline", 0.0400, "fail"),
        ("tpot.p99 <= baseline + 5ms", 0.0450, "pass"),
        ("tpot.p99 <= baseline + 2%", 0.0408, "fail"),  # two per cent of the baseline: 0.8 ms
        ("tpot.p99 <= baseline - 2%", 0.0392, "fail"),
    ],
)
def test_against_a_baseline(expression: str, limit: float, word: str) -> None:
    verdict = judge(parse_gate(expression), seconds(0.0415, 0.0415, 0.0415), baseline=Baseline(0.040))
    assert verdict.word == word
    assert verdict.limit == pytest.approx(limit)


def test_an_offset_of_a_share_is_relative_to_the_baseline() -> None:
    # Two per cent of 0.50 is one point: 0.49, not 0.48.
    verdict = judge(parse_gate("decode.mbu >= baseline - 2%"), measured(0.485, 0.485, 0.485), baseline=Baseline(0.50))
    assert verdict.word == "fail"
    assert verdict.limit == pytest.approx(0.49)
    points = judge(parse_gate("decode.mbu >= baseline - 0.02"), measured(0.485, 0.485, 0.485), baseline=Baseline(0.50))
    assert points.word == "pass"
    assert points.limit == pytest.approx(0.48)


def test_a_missing_baseline_names_the_two_options() -> None:
    verdict = judge(parse_gate("tpot.p99 <= 1.05x baseline"), seconds(0.04, 0.04, 0.04))
    assert verdict.word == "no data"
    assert verdict.reason is not None
    assert "no baseline" in verdict.reason
    assert "--llmroof-report=" in verdict.reason
    assert "--llmroof-baseline=" in verdict.reason


def test_a_regression_inside_the_noise_is_approximate() -> None:
    # 42 ms against 40 ms is a ratio of 1.05 with an interval of 0.98 .. 1.12: 39.2 .. 44.8 ms hold the limit of 40 ms.
    noisy = Baseline(0.040, windows=5, spread=0.03, ratio=Bounded(1.05, 0.98, 1.12))
    verdict = judge(parse_gate("tpot.p99 <= baseline"), seconds(0.042, 0.042, 0.042), baseline=noisy)
    assert (verdict.word, verdict.approximate) == ("fail", True)
    assert verdict.reason is not None
    assert "within the noise of 5 baseline windows (" in verdict.reason
    single = judge(
        parse_gate("tpot.p99 <= baseline"), seconds(0.042, 0.042, 0.042), baseline=replace(noisy, windows=1)
    )
    assert "within the noise of 1 baseline window (" in (single.reason or "")
    clear = judge(parse_gate("tpot.p99 <= 1.2x baseline"), seconds(0.042, 0.042, 0.042), baseline=noisy)
    assert (clear.word, clear.approximate) == ("pass", False)
    absolute = judge(parse_gate("tpot.p99 <= 40ms"), seconds(0.042, 0.042, 0.042), baseline=noisy)
    assert (absolute.word, absolute.approximate) == ("fail", False)


def test_an_assumption_that_would_turn_the_verdict_is_named() -> None:
    turns = Alternative("tensor_parallel = 2 (assumed 1)", 0.40)
    harmless = Alternative("weights = fp16 (assumed bf16)", 0.80)
    outcome = measured(0.80, 0.79, 0.81, alternatives=(turns, harmless))
    verdict = judge(parse_gate("decode.mbu >= 75%"), outcome)
    assert (verdict.word, verdict.approximate) == ("pass", True)
    said = "tensor_parallel = 2 (assumed 1) would give 40 % and fail"
    assert verdict.settle == "write what holds under `deployment:` (tensor_parallel)"
    assert verdict.reason == f"{said}; {verdict.settle}"
    assert verdict.unconfirmed == ("tensor_parallel",)
    assert judge(parse_gate("decode.mbu >= 75%"), outcome, strict=True).word == "inconclusive"
    assert not judge(parse_gate("decode.mbu >= 35%"), outcome).approximate
    bounds = judge(parse_gate("decode.mbu >= 75%"), replace(outcome, judged_by="bounds"))
    assert (bounds.word, bounds.approximate) == ("pass", True)


@given(
    st.lists(st.floats(0, 2), min_size=4, max_size=4),
    st.sampled_from([">=", "<=", ">", "<"]),
    st.sampled_from(["value", "bounds"]),
    st.booleans(),
)
def test_a_plain_verdict_holds_everywhere_in_the_interval(
    numbers: list[float], operator: str, judged_by: Any, bucketed: bool
) -> None:
    low, value, high = sorted(numbers[:3])
    outcome = seconds(value, low, high, judged_by=judged_by, bucketed=bucketed)
    verdict = judge(parse_gate(f"ttft.mean {operator} {numbers[3]!r}s"), outcome, strict=True)
    inside = [min(high, low + share * (high - low)) for share in (0.25, 0.5, 0.75, 1.0)]
    compare = {">=": float.__ge__, "<=": float.__le__, ">": float.__gt__, "<": float.__lt__}[operator]
    if verdict.word == "pass":
        assert all(compare(each, numbers[3]) for each in inside)
    if verdict.word == "fail":
        assert not any(compare(each, numbers[3]) for each in inside if low < each)
    assert verdict.word in ("pass", "fail", "inconclusive", "no data")
