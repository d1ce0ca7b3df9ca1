"""Statistics of latencies that a tool states, against each other: what cannot be of one set of values is none."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from pytest_llmroof.analysis.clientwords import more, source_of
from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.units import format_quantity

#: Figures are rounded where they are written.
_ROUNDED: Final = 1e-6
#: Of values of which so many lie above a percentile the mean holds as much of it; less where few are interpolated.
_LEAST: Final = 0.5


def unstated(
    client: Client, metric: str, base: str, what: str, statistic: str, values: Mapping[str, float]
) -> NoData | None:
    """No data where a statistic of a latency is not stated, or is stated of nothing, or contradicts the others."""
    told = source_of(client)
    if statistic not in values:
        held = ", ".join(values)
        return NoData(metric, f"{told} holds no {statistic} of {what}, only {held}", more(client, "percentiles"))
    if not values[statistic] and (statistic in ("mean", "max") or base in ("ttft", "e2e")):
        reason = f"{told} states 0 for the {statistic} of {what} beside others: it was not measured"
        return NoData(metric, reason, more(client, "requests"))
    if (wrong := _out_of_order(values)) is not None:
        return NoData(metric, f"{told} states {wrong} of {what}: they are not of the same", more(client, "requests"))
    missing = [name for name in ("mean", "p50") if name not in values]
    if base == "itl" and statistic.startswith("p") and missing:
        names = " and no ".join(missing)
        reason = f"{told} states no {names} of {what}, so that nothing tells whether several tokens came in one piece"
        return NoData(metric, reason, more(client, "percentiles"))
    return None


def _out_of_order(values: Mapping[str, float]) -> str | None:
    """Two statistics of which the higher one is less, in words; a mean holds its share of every percentile."""
    rising = sorted((float(name[1:]), name) for name in values if name[:1] == "p")
    ordered = [(name, values[name]) for name in [*(name for _, name in rising), *({"max"} & values.keys())]]
    pairs = [*pairwise(ordered)]
    if "mean" in values:
        mean = ("mean", values["mean"])
        pairs += [(mean, one) for one in ordered if one[0] == "max"]
        shares = {name: _LEAST * (1 - share / 100) for share, name in rising}
        pairs += [(one, mean) for one in ordered if one[0] in shares and mean[1] < shares[one[0]] * one[1]]
    for (low_name, low), (high_name, high) in pairs:
        if high < low * (1 - _ROUNDED):
            figures = [format_quantity(figure, "seconds") for figure in (low, high)]
            return f"{low_name} {figures[0]} and {high_name} {figures[1]}"
    return None
