"""Latencies, failures and rates as a load generator saw them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pytest_llmroof.advice import behind
from pytest_llmroof.analysis.binomial import rank_shares
from pytest_llmroof.analysis.clientcut import partly
from pytest_llmroof.analysis.clientopen import opened
from pytest_llmroof.analysis.clientwords import failures, more, source_of
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.failed import held_by_failed
from pytest_llmroof.analysis.goodput import goodput
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.orderstats import OrderStatistic, order_statistic, percentile
from pytest_llmroof.analysis.stated import unstated
from pytest_llmroof.analysis.thresholds import remedy, threshold
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.data import load
from pytest_llmroof.telemetry.client import Client, Summary
from pytest_llmroof.units import Unit, format_quantity

_RATES: Final = {
    "output.tokens_per_second": ("output_tokens", "output_rate", "tokens/s", "output tokens of completed requests"),
    "input.tokens_per_second": ("input_tokens", "input_rate", "tokens/s", "prompt tokens of completed requests"),
    "requests_per_second": ("completed", "request_rate", "requests/s", "completed requests"),
}  # fmt: skip


def client_metric(facts: WindowFacts, client: Client, metric: str) -> Outcome | None:
    """What the client says of a metric; None where no client could."""
    return opened(client, metric, _client_metric(facts, client, metric))


def _client_metric(facts: WindowFacts, client: Client, metric: str) -> Outcome | None:
    if metric.startswith("goodput("):
        return goodput(client, metric)
    base, _, statistic = metric.partition(".")
    if base in ("ttft", "tpot", "itl", "e2e"):
        return _latency(client, metric, base, statistic)
    if metric == "errors.rate":
        return _errors(client, metric)
    if metric.removesuffix(".per_gpu") in _RATES:
        return _rate(client, metric, facts.deployment.gpus)
    return _speculative(client, metric) if base == "speculative" else None


def all_failed(client: Client, metric: str) -> NoData | None:
    """No data where no request succeeded, whatever a tool wrote for its latencies."""
    if client.completed != 0:
        return None
    count = f"all {client.failed:.0f} requests failed" if client.failed else "no request was completed"
    why = f": {client.failure}" if client.failure else ""
    again = "look at the server's log, and run the benchmark again"
    return NoData(metric, f"{count}{why} ({source_of(client)})", again)


def _latency(client: Client, metric: str, base: str, statistic: str) -> Outcome:
    nothing = all_failed(client, metric)
    if nothing is not None:
        return nothing
    what = str(load("measuring.yaml")["latencies"][base])
    values = _values(client, base)
    if any(values):
        return _of_values(client, metric, base, what, statistic, values)
    if base in ("tpot", "itl") and (single := _single_tokens(client)):
        reason = f"all {single} completed requests had one output token: there is no time between tokens"
        return NoData(metric, reason, remedy("longer_outputs"))
    summary = client.summaries.get(base)
    if summary is None and not values:
        return NoData(metric, f"{source_of(client)} holds no {what}", more(client, "requests"))
    if summary is None or not any(summary.values.values()):
        # Tools write zeros where they had nothing to measure, and a zero would hold every limit.
        reason = f"{source_of(client)} states 0 for all of {what}: nothing of it was measured"
        return NoData(metric, reason, more(client, "requests"))
    return _of_summary(client, metric, base, what, statistic, summary)


def _single_tokens(client: Client) -> int:
    """How many requests were completed, where each had one output token; else 0."""
    if client.complete and all(one.output_tokens == 1 for one in client.succeeded):
        return len(client.succeeded)
    open_ = any(one.most_tokens is not None for one in client.succeeded)
    if client.completed and client.output_tokens == client.completed and not open_:
        return round(client.completed)
    return 0


def _values(client: Client, base: str) -> list[float]:
    """Every value there is; nothing where a part of them is missing."""
    if not client.complete:
        return []
    if base == "itl":
        return [gap for request in client.succeeded for gap in request.itls]
    found = [request.seconds(base) for request in client.succeeded]
    if base == "tpot":
        needed = [request for request in client.succeeded if request.output_tokens != 1]
        known = [value for value in found if value is not None]
        return known if len(known) >= len(needed) else []
    return [value for value in found if value is not None] if None not in found else []


def _of_values(
    client: Client, metric: str, base: str, what: str, statistic: str, values: Sequence[float]
) -> Outcome:  # fmt: skip
    failed = round(client.failed or 0.0)
    of = f"of {len(values)} {'times between pieces' if base == 'itl' else 'requests'}"
    how = f"{what}, {client.definitions.get(base, '')}".rstrip(", ") + _without(client, base, values, failed)
    common = Measurement(metric, Bounded.exactly(0.0), "seconds", source_of(client), how, samples=len(values))
    if statistic in ("mean", "max"):
        value = sum(values) / len(values) if statistic == "mean" else max(values)
        named = replace(common, method=f"{statistic} {of}: {how}")
        return _with_failures(named, statistic, value, failed, len(client.succeeded))
    if base == "itl" and _chunked(percentile(sorted(values), 0.5), sum(values) / len(values)):
        return _no_percentiles(client, metric, percentile(sorted(values), 0.5), sum(values) / len(values))
    share = float(statistic.removeprefix("p")) / 100
    alike = _alike(client) if base == "itl" else None
    found = order_statistic(values, share, failed if base != "itl" else 0, len(values) / alike if alike else None)
    measured = replace(common, bounded=found.bounded, method=f"{statistic} {of}, exact: {how}; {_RANKS}")
    if not found.failed:
        return _settled(measured, found, values)
    return held_by_failed(measured, statistic, failed, failed + len(values))


_RANKS: Final = "interval from exact binomial ranks (95 %)"


def _alike(client: Client) -> float | None:
    """How many outputs come from one step, so that their times are alike: the sequences that decode at a time."""
    spent = sum(sum(request.itls) for request in client.succeeded)
    return max(1.0, spent / client.duration_seconds) if client.duration_seconds else None


def _without(client: Client, base: str, values: Sequence[float], failed: int) -> str:
    parts = []
    single = len(client.succeeded) - len(values)
    if base == "tpot" and single > 0:
        count = len(client.succeeded)
        parts.append(f"{single} of {count} requests had one output token, and so none")
    if failed:
        parts.append(f"{failures(failed)} not among them")
    return "".join(f"; {part}" for part in parts)


def _with_failures(measured: Measurement, statistic: str, value: float, failed: int, succeeded: int) -> Measurement:
    """A mean or maximum of the successful requests: the failed hold the maximum, and where many failed, the mean."""
    measured = replace(measured, bounded=Bounded.exactly(value))
    if statistic == "max":
        return held_by_failed(measured, statistic, failed, failed + succeeded) if failed else measured
    share = failed / (failed + succeeded) if failed else 0.0
    if share < threshold("failed_share"):
        return measured
    untold = f"{failed} of {failed + succeeded} requests failed, and only the others' times are known"
    return replace(held_by_failed(measured, statistic, failed, failed + succeeded), undecided=untold)


def _settled(measured: Measurement, found: OrderStatistic, values: Sequence[float]) -> Measurement:
    if found.bounded.exact:
        return measured
    if found.needed is None:
        return replace(measured, settle="more requests")
    more = max(1, found.needed - len(values))
    return replace(measured, settle=f"{more} more requests ({found.needed} bound this percentile from above)")


def _of_summary(
    client: Client, metric: str, base: str, what: str, statistic: str, summary: Summary
) -> Outcome:  # fmt: skip
    values = summary.values
    if (nothing := unstated(client, metric, base, what, statistic, values)) is not None:
        return nothing
    median, mean = values.get("p50"), values.get("mean")
    if base == "itl" and statistic.startswith("p") and _chunked(median, mean):
        return _no_percentiles(client, metric, median, mean)
    failed = round(client.failed or 0.0)
    how = f"{statistic} of {what} as {client.title} states it ({summary.name}): {summary.definition}"
    how += f"; {failures(failed)} not among them" if failed else ""
    samples = round(client.completed) if client.completed else None
    value = values[statistic]
    measured = Measurement(metric, Bounded.exactly(value), "seconds", source_of(client), how, samples=samples)
    if statistic in ("mean", "max"):
        measured = _with_failures(measured, statistic, value, failed, samples or 0)
    elif base != "itl" and samples:
        measured = _between_stated(client, measured, statistic, values, samples, failed)
    elif base != "itl":
        # A percentile of nobody knows how many requests.
        measured = replace(measured, bounded=Bounded(value, 0.0, math.inf), settle=more(client, "requests"))
    return _stretched(measured, summary)


def _between_stated(
    client: Client, measured: Measurement, statistic: str, values: dict[str, float] | object, samples: int, failed: int
) -> Measurement:
    """A stated percentile's interval: the nearest stated ones beyond its binomial ranks."""
    if not isinstance(values, dict):
        raise AssertionError("summaries hold their values in a dict")
    share, count, value = float(statistic.removeprefix("p")) / 100, samples + failed, measured.value
    if math.ceil(share * count) > samples:
        return held_by_failed(measured, statistic, failed, count)
    low_share, high_share = (end * count / samples for end in rank_shares(count, share))
    stated = {float(name[1:]) / 100: held for name, held in values.items() if name.startswith("p")}
    stated |= {1.0: values["max"]} if "max" in values else {}
    low = max((held for at, held in stated.items() if at <= low_share), default=0.0)
    high = min((held for at, held in stated.items() if at >= high_share), default=math.inf)
    return replace(
        measured,
        bounded=Bounded(value, min(low, value), max(high, value)),
        method=f"{measured.method}; interval from binomial ranks (95 %) between the percentiles that it states",
        settle=more(client, "requests"),
    )


def _stretched(measured: Measurement, summary: Summary) -> Measurement:
    """Where a tool counts pieces of the stream, a token may take longer."""
    if summary.stretch < threshold("piece"):
        return measured
    bounded = measured.bounded
    said = f"by latency, TTFT and output tokens a token took {summary.stretch:.3g} times as long as a piece"
    return replace(
        measured,
        bounded=Bounded(bounded.value, bounded.low, bounded.high * summary.stretch),
        method=f"{measured.method}; {said}",
        settle="per-request data, or a client that counts tokens",
    )


def _chunked(median: float | None, mean: float | None) -> bool:
    return median is not None and mean is not None and median * threshold("chunked") < mean


def _no_percentiles(client: Client, metric: str, median: float | None, mean: float | None) -> NoData:
    p50, average = (format_quantity(value or 0.0, "seconds") for value in (median, mean))
    reason = (
        f"several tokens came in one chunk (p50 {p50}, mean {average} between pieces at {source_of(client)}), "
        "so their times are no inter-token latencies"
    )
    return NoData(metric, reason, behind("gate tpot, or ", remedy("server")))


def _errors(client: Client, metric: str) -> Outcome:
    if client.completed is None or client.failed is None or not client.total:
        return NoData(metric, f"{source_of(client)} does not count failed requests", more(client, "failed"))
    how = "failed requests over all that were sent and ended"
    value = Bounded.exactly(client.failed / client.total)
    return Measurement(metric, value, "fraction", source_of(client), how, samples=round(client.total))


def _rate(client: Client, metric: str, gpus: int) -> Outcome:
    name = metric.removesuffix(".per_gpu")
    amount_name, stated_name, unit, what = _RATES[name]
    amount, stated = getattr(client, amount_name), getattr(client, stated_name)
    if stated is not None:
        value, how = stated, f"{what} per second of the benchmark, as {client.title} states it"
    elif amount is not None and client.duration_seconds:
        value, how = amount / client.duration_seconds, f"{what} over the benchmark's duration"
    else:
        return NoData(metric, f"{source_of(client)} tells no {what.rstrip(',')}", more(client, amount_name))
    each = metric != name
    how += f", over {gpus} GPUs" if each else ""
    how += f"; {failures(client.failed)} give none" if client.failed else ""
    samples = round(client.completed) if client.completed is not None else None
    typed: Unit = "tokens/s" if unit == "tokens/s" else "requests/s"
    measured = Measurement(
        metric, Bounded.exactly(value / gpus if each else value), typed, source_of(client), how, samples
    )  # fmt: skip
    return partly(client, measured, amount_name, gpus if each else 1)


def _speculative(client: Client, metric: str) -> Outcome | None:
    if metric == "speculative.tokens_per_step" and client.accept_length:
        how = f"mean tokens of a verify step, as the server told {client.title}"
        return Measurement(metric, Bounded.exactly(client.accept_length), "count", source_of(client), how)
    if metric == "speculative.acceptance_rate" and client.acceptance_rate is not None:
        how = f"accepted over drafted tokens, as the server told {client.title}"
        return Measurement(metric, Bounded.exactly(client.acceptance_rate), "fraction", source_of(client), how)
    return None


def belied(client: Client, metric: str, served: Measurement) -> bool:
    """Whether a percentile at the server lies below a lower one at the client, so that clients waited elsewhere."""
    base, _, statistic = metric.partition(".")
    summary = client.summaries.get(base)
    if summary is None or not statistic.startswith(("p", "max")):
        return False
    share = 100.0 if statistic == "max" else float(statistic[1:])
    lower = [held for name, held in summary.values.items() if name.startswith("p") and float(name[1:]) <= share]
    return bool(lower) and max(lower) > served.value
