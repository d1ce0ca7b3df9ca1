"""Goodput: the share of requests that meet all limits, from a client's single requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pytest_llmroof.analysis.clientwords import failures, more, source_of
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.orderstats import share_interval
from pytest_llmroof.data import load
from pytest_llmroof.telemetry.client import Client, Request
from pytest_llmroof.units import parse_as

_CONDITION: Final = re.compile(r"(\w+)(<=|<)(.+)")


def goodput(client: Client, metric: str) -> Outcome:
    """Requests that meet every limit, over all that were sent: a failed one meets none."""
    total = round(client.total or 0.0) or len(client.requests)
    if not client.complete:
        of = f"{source_of(client)} holds no single requests"
        return NoData(metric, f"goodput needs several figures of the same request, and {of}", more(client, "requests"))
    limits = _limits(metric)
    met = 0
    for request in client.succeeded:
        meets = _meets(request, limits)
        if isinstance(meets, str):
            what = load("measuring.yaml")["latencies"][meets]
            reason = f"{source_of(client)} does not tell the {what} of every request"
            return NoData(metric, reason, more(client, "requests"))
        met += meets
    timed = any(name in ("tpot", "itl") for name, _, _ in limits)
    singles = sum(request.output_tokens == 1 for request in client.succeeded) if timed else 0
    how = f"requests that meet all limits over all {total} that were sent"
    how += f"; {failures(client.failed)} among them" if client.failed else ""
    how += f"; {singles} of one output token have no time per output token: the other limits hold" if singles else ""
    how += "; interval exact binomial (95 %)"
    return Measurement(
        metric, share_interval(met, total), "fraction", source_of(client), how, samples=total, settle="more requests"
    )


def _limits(metric: str) -> list[tuple[str, str, float]]:
    """The conditions of a canonical ``goodput(...)``."""
    found = []
    for part in metric.removeprefix("goodput(").removesuffix(")").split(","):
        match = _CONDITION.fullmatch(part.strip())
        if match is None:
            raise AssertionError(f"{metric} was parsed before")
        found.append((match[1], match[2], parse_as(match[3].strip(), "seconds")))
    return found


def _meets(request: Request, limits: Sequence[tuple[str, str, float]]) -> bool | str:
    """Whether a request meets all limits; the latency that nobody knows of it."""
    met = True
    for name, operator, limit in limits:
        value = request.seconds(name)
        if value is None:
            if name in ("tpot", "itl") and request.output_tokens == 1:
                continue
            return name
        met = met and (value <= limit if operator == "<=" else value < limit)
    return met
