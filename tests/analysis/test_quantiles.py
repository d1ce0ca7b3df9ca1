"""Percentiles from buckets: exact binomial ranks, edges, and what lies beyond the last bucket."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.analysis.binomial import binomial_cdf, needed, rank_shares, ranks
from pytest_llmroof.analysis.quantiles import maximum, quantile, without_zeros
from pytest_llmroof.telemetry.window import Histogram


@pytest.mark.parametrize(
    ("share", "count"),
    # The largest of n observations bounds the quantile if q^n <= 2.5 %:
    # ln 0.025 / ln 0.95 = 71.9, / ln 0.99 = 367.04, / ln 0.999 = 3687.04.
    [(0.95, 72), (0.99, 368), (0.999, 3688)],
)
def test_the_number_of_observations_that_bound_a_percentile(share: float, count: int) -> None:
    assert needed(share) == count
    assert ranks(count, share)[1] == count
    assert ranks(count - 1, share)[1] == count  # one too few: the rank is beyond the last observation
    assert rank_shares(count, share)[1] == 1.0
    assert rank_shares(count - 1, share)[1] == math.inf


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (7, 0.3), (40, 0.95), (300, 0.99)])
def test_binomial_cdf_is_the_sum_of_its_terms(n: int, p: float) -> None:
    total = 0.0
    for k in range(n + 1):
        total += math.comb(n, k) * p**k * (1 - p) ** (n - k)
        assert binomial_cdf(k, n, p) == pytest.approx(total, abs=1e-12)


def test_ranks_of_a_median_of_twenty() -> None:
    # Bin(20, 1/2): P(X <= 5) = 21700 / 2^20 = 2.07 % and P(X <= 6) = 5.77 %: l = 6. By symmetry u = 20 + 1 - 6 = 15.
    assert ranks(20, 0.5) == (6, 15)


@given(st.integers(1, 3000), st.sampled_from([0.5, 0.75, 0.9, 0.95, 0.99, 0.999]))
def test_ranks_are_the_tightest_that_keep_the_confidence(n: int, share: float) -> None:
    low, high = ranks(n, share)
    assert binomial_cdf(low - 1, n, share) <= 0.025
    assert binomial_cdf(low, n, share) > 0.025
    assert 0 <= low <= high <= n + 1
    if high <= n:
        assert binomial_cdf(high - 1, n, share) >= 0.975
    assert binomial_cdf(high - 2, n, share) < 0.975


CASE_31 = Histogram(bounds=(1.0, 10.0, 60.0, math.inf), counts=(10, 70, 10, 10), total=3000.0)


def test_a_quantile_above_the_last_finite_bucket_has_only_a_lower_bound() -> None:
    # 10 below 1 s, 70 below 10 s, 10 below 60 s, 10 above: rank 99 of 100 lies above 60 s, however far.
    found = quantile(CASE_31, 0.99)
    assert found is not None
    assert found.beyond
    assert (found.bounded.value, found.bounded.low, found.bounded.high) == (60.0, 60.0, math.inf)
    assert found.needed == 368


def test_the_median_is_interpolated_and_its_interval_is_its_bucket() -> None:
    # Rank 50 is the 40th of the 70 in (1, 10]: 1 + 9 * 40 / 70 = 6.142857. Ranks 40 and 61 lie in the same bucket.
    found = quantile(CASE_31, 0.5)
    assert found is not None
    assert not found.beyond
    assert found.bounded.value == pytest.approx(1 + 9 * 40 / 70)
    assert (found.bounded.low, found.bounded.high) == (1.0, 10.0)
    assert CASE_31.mean == 30.0


def test_an_interval_spans_buckets_where_the_ranks_do() -> None:
    # p95 of 100: P(X <= 89) = 1.15 %, P(X <= 90) = 2.82 %, above 2.5 %: l = 90;
    # P(X <= 98) = 96.3 %, P(X <= 99) = 99.4 %, above 97.5 %: u = 100.
    assert ranks(100, 0.95) == (90, 100)
    histogram = Histogram((0.1, 0.2, 0.5, math.inf), (80, 14, 6, 0), 12.0)
    found = quantile(histogram, 0.95)
    assert found is not None
    # Rank 95 is the first of the 6 in (0.2, 0.5]: 0.2 + 0.3 / 6 = 0.25; l lies in (0.1, 0.2], u in (0.2, 0.5].
    assert found.bounded.value == pytest.approx(0.25)
    assert (found.bounded.low, found.bounded.high) == (0.1, 0.5)
    assert found.edges == (0.2, 0.5)
    assert found.needed is None


def test_fewer_independent_observations_widen_the_interval() -> None:
    # 12 240 latencies of 2 066 steps: the ranks are those of the steps.
    histogram = Histogram((0.01, 0.025, 0.05, 0.075, math.inf), (11688, 528, 16, 8, 0), 58.4)
    many, few = quantile(histogram, 0.99), quantile(histogram, 0.99, independent=100)
    assert many is not None
    assert few is not None
    assert (many.bounded.low, many.bounded.high) == (0.01, 0.025)
    assert few.bounded.high == math.inf
    assert few.needed == 368
    # Even of less than one observation something is known: its bucket.
    least = quantile(histogram, 0.5, independent=0.5)
    assert least is not None
    assert (least.bounded.low, least.bounded.high) == (0.0, math.inf)


def test_an_empty_histogram_has_no_quantile() -> None:
    empty = Histogram((1.0, math.inf), (0, 0), 0.0)
    assert quantile(empty, 0.5) is None
    assert maximum(empty) is None
    assert empty.mean is None


def test_the_maximum_is_known_by_its_bucket_and_the_mean_only() -> None:
    found = maximum(Histogram((0.1, 0.5, math.inf), (3, 1, 0), 0.4))  # mean 0.4 / 4 = 0.1, the edge itself
    assert found is not None
    assert (found.value, found.low, found.high) == (0.1, 0.1, 0.5)
    # 127 steps of 7.5 ms, all in the bucket that ends with 10 ms: the longest took no less than the mean.
    alike = maximum(Histogram((0.01, math.inf), (127, 0), 127 * 0.0075))
    assert alike is not None
    assert alike.value == alike.low == pytest.approx(0.0075)
    assert alike.high == 0.01
    above = maximum(CASE_31)
    assert above is not None
    assert above.high == math.inf


def test_zeros_of_single_token_outputs_are_taken_out() -> None:
    # Five requests of one token (0 each) and five of 20 ms: the mean is 20 ms, not 10.
    observed = Histogram((0.01, 0.025, math.inf), (5, 5, 0), 0.1)
    cleaned = without_zeros(observed, 5)
    assert list(cleaned.counts) == [0, 5, 0]
    assert cleaned.mean == pytest.approx(0.02)
    median = quantile(cleaned, 0.5)
    assert median is not None
    assert median.bounded.low == 0.01


HISTOGRAMS = st.lists(st.integers(0, 500), min_size=2, max_size=8).filter(any).map(
    lambda counts: Histogram((*(0.1 * 2**i for i in range(len(counts) - 1)), math.inf), tuple(counts), 1.0)
)  # fmt: skip


@given(HISTOGRAMS, st.floats(0.01, 0.999), st.floats(0.01, 0.999))
def test_intervals_hold_their_value_and_rise_with_the_quantile(histogram: Histogram, one: float, other: float) -> None:
    low, high = sorted((one, other))
    first, second = quantile(histogram, low), quantile(histogram, high)
    assert first is not None
    assert second is not None
    for found in (first, second):
        assert found.bounded.low <= found.bounded.value <= found.bounded.high
    assert first.bounded.value <= second.bounded.value * (1 + 1e-9)
    assert first.bounded.low <= second.bounded.low
    assert first.bounded.high <= second.bounded.high


@given(HISTOGRAMS, st.floats(0.01, 0.999))
def test_more_of_the_same_never_widens_the_interval(histogram: Histogram, share: float) -> None:
    more = Histogram(histogram.bounds, tuple(10 * count for count in histogram.counts), 10 * histogram.total)
    few, many = quantile(histogram, share), quantile(more, share)
    assert few is not None
    assert many is not None
    assert few.bounded.value == pytest.approx(many.bounded.value)
    assert few.bounded.low <= many.bounded.low
    assert many.bounded.high <= few.bounded.high
