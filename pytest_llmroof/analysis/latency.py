"""Latencies from histograms: exact means, percentiles between buckets, maxima by their bucket."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Final

from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.failed import Failed, failed_requests, held_by_failed
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.quantiles import Quantile, edges, maximum, quantile, without_zeros
from pytest_llmroof.analysis.sources import not_exported, source
from pytest_llmroof.analysis.thresholds import remedy, threshold
from pytest_llmroof.analysis.tokens import observations, total
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.data import load
from pytest_llmroof.telemetry.window import Histogram
from pytest_llmroof.units import format_quantity, grouped

LATENCIES: Final = ("ttft", "tpot", "itl", "e2e", "queue")


def latency_statistic(facts: WindowFacts, base: str, statistic: str) -> Outcome:
    """One statistic of one latency over all replicas."""
    metric = f"{base}.{statistic}"
    what = str(load("measuring.yaml")["latencies"][base])
    count = observations(facts.window, base)
    if count is None:
        return not_exported(facts, metric, f"histogram of {what}", "latency")
    if count <= 0:
        return NoData(metric, f"no {what} was observed in this window: 0 observations", remedy("load"))
    zeros = _single_token_outputs(facts) if base == "tpot" else 0.0
    if base != "queue" and (unstamped := _of_no_time(facts, base)) is not None and count > zeros:
        # A zero would hold every limit.
        reason = f"{grouped(unstamped)} observations of {what} add up to 0 s: nothing of it was measured"
        return NoData(metric, reason, remedy("latency"))
    failed = failed_requests(facts.window) if base != "queue" else None
    if statistic == "mean":
        mean = _mean(facts, metric, base, what, count, zeros)
        many = failed is not None and failed.count >= threshold("failed_share") * failed.requests
        return _held(mean, statistic, failed) if many else mean
    try:
        histogram = facts.window.histogram(base)
    except ValueError:
        reason = "the replicas' histograms have different buckets, so their percentiles cannot be joined"
        return NoData(metric, reason, "hold the gate for each: {gate: ..., per: replica}")
    if histogram is None:
        raise AssertionError("observations were counted above")
    histogram = without_zeros(histogram, zeros)
    if histogram.count <= 0:
        return _only_single_tokens(metric, count)
    if statistic == "max":
        return _held(_maximum(facts, metric, base, what, histogram), statistic, failed)
    share = float(statistic.removeprefix("p")) / 100
    if failed is None or base == "itl":
        found = quantile(histogram, share, _independent(facts, base))
    else:
        found = quantile(histogram, share, None, failed.count, failed.requests)
    if found is None:
        raise AssertionError("the histogram is not empty")
    measured = _percentile(facts, metric, base, what, histogram, found)
    if not found.failed:
        return measured
    return _held(replace(measured, bounded=Bounded.exactly(found.bounded.low)), statistic, failed)


def _held(measured: Outcome, statistic: str, failed: Failed | None) -> Outcome:
    """The statistic, which failed requests hold where there are any."""
    if failed is None or not isinstance(measured, Measurement):
        return measured
    return held_by_failed(measured, statistic, failed.count, failed.requests)


def _of_no_time(facts: WindowFacts, base: str) -> float | None:
    """Observations of an engine that took no time at all, which nothing does but waiting in a queue; None without."""
    found = (engine.histograms[base] for engine in facts.window.engines if base in engine.histograms)
    return next((one.count for one in found if one.count > 0 and one.total == 0), None)


def _mean(facts: WindowFacts, metric: str, base: str, what: str, count: float, zeros: float) -> Outcome:
    if count - zeros <= 0:
        return _only_single_tokens(metric, count)
    without = f" without {grouped(zeros)} outputs of a single token, which have none" if zeros else ""
    return Measurement(
        metric=metric,
        bounded=Bounded.exactly((total(facts.window, base) or 0.0) / (count - zeros)),
        unit="seconds",
        source=source(facts.window, base),
        method=f"{what}, sum over count of its histogram (exact){without}",
        samples=round(count - zeros),
    )


def _maximum(facts: WindowFacts, metric: str, base: str, what: str, histogram: Histogram) -> Outcome:
    bounded = maximum(histogram)
    if bounded is None:
        raise AssertionError("the histogram is not empty")
    low, high = (format_quantity(edge, "seconds") for edge in (bounded.low, bounded.high))
    beyond = math.isinf(bounded.high)
    return Measurement(
        metric=metric,
        bounded=bounded,
        unit="seconds",
        source=source(facts.window, base),
        method=f"largest {what}, known by its histogram bucket and the mean only",
        samples=round(histogram.count),
        judged_by="bounds",
        undecided=(
            f"the largest {what} lies beyond the last bucket: above {low}, however far"
            if beyond
            else f"the largest {what} lies somewhere between {low} and {high}, as the mean and its bucket tell"
        ),
        settle=remedy("per_request"),
        bucketed=True,
    )


def _percentile(
    facts: WindowFacts, metric: str, base: str, what: str, histogram: Histogram, found: Quantile
) -> Measurement:
    low, high = (format_quantity(edge, "seconds") for edge in found.edges)
    statistic = metric.removeprefix(f"{base}.")
    ranks = f"interval from exact binomial ranks (95 %) over {_units(facts, base)}"
    measured = partial(
        Measurement, metric=metric, bounded=found.bounded, source=source(facts.window, base), unit="seconds",
        samples=round(histogram.count), bucketed=True,
    )  # fmt: skip
    if found.beyond:
        return measured(
            method=f"{statistic} of {what}: in the last, open bucket of its histogram; {ranks}",
            judged_by="bounds",
            undecided=f"{statistic} lies beyond the last bucket: above {low}, however far",
            settle=remedy("per_request"),
        )
    return measured(
        method=f"{statistic} of {what}, interpolated in its histogram bucket {low} .. {high}; {ranks}",
        settle=_settle(facts, base, histogram, found),
    )


def _settle(facts: WindowFacts, base: str, histogram: Histogram, found: Quantile) -> str | None:
    """What would narrow a percentile's interval."""
    if found.bounded.exact:
        return None
    low, high = (format_quantity(edge, "seconds") for edge in found.edges)
    bounds = f"a limit on a bucket bound ({low} or {high})" if found.edges[0] else f"a limit on the bucket bound {high}"
    unit = "steps" if base == "itl" else "requests"
    more = ""
    if found.needed is not None:
        have = min(histogram.count, _independent(facts, base) or math.inf)
        missing = max(1, math.ceil(found.needed - have))
        more = f"{missing} more {unit} ({found.needed} bound this percentile from above), "
    return f"{more}per-request data, or {bounds}"


def _units(facts: WindowFacts, base: str) -> str:
    if base == "itl" and (steps := _independent(facts, base)) is not None:
        least = "" if facts.decode is not None else "at least "
        return f"{least}{grouped(steps)} steps, whose outputs are alike"
    return "the requests"


def _independent(facts: WindowFacts, base: str) -> float | None:
    """Independent observations, where they are fewer than the count: outputs of one step take the same time."""
    if base != "itl":
        return None
    if facts.decode is not None:
        return facts.decode.steps
    # All requests may have been in every step.
    requests = max(observations(facts.window, "ttft") or 0.0, facts.finished_requests or 0.0)
    return max(1.0, (observations(facts.window, "itl") or 0.0) / requests) if requests else 1.0


def _single_token_outputs(facts: WindowFacts) -> float:
    """Requests of one output token: engines count 0 for their time per further token, which they do not have."""
    if "tpot_zeros" not in facts.window.conventions:
        return 0.0
    ones = 0.0
    for engine in facts.window.engines:
        lengths, times = engine.histograms.get("generation_length"), engine.histograms.get("tpot")
        if lengths is None or times is None:
            continue
        single = sum(count for i, count in enumerate(lengths.counts) if edges(lengths, i)[1] <= 1.0)
        ones += min(single, times.counts[0])
    return ones


def _only_single_tokens(metric: str, count: float) -> NoData:
    reason = f"all {grouped(count)} requests had one output token: there is no time between tokens"
    return NoData(metric, reason, remedy("longer_outputs"))
