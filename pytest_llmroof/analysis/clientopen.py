"""Figures of outputs of which a client knows the fewest and the most tokens only: nobody counted them."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmroof.analysis.goodput import goodput
from pytest_llmroof.analysis.measurement import Measurement, Outcome
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.client import Client


def opened(client: Client, metric: str, outcome: Outcome | None) -> Outcome | None:
    """The outcome with all that open numbers of tokens leave possible; the same where every number is known.

    With more tokens the time per token is shorter, the rate higher, and more requests meet a limit on that time.
    """
    if not isinstance(outcome, Measurement) or all(one.most_tokens is None for one in client.succeeded):
        return outcome
    bounded = outcome.bounded
    if metric.startswith("tpot."):
        bounded = replace(bounded, low=bounded.low * fewest_share(client))
    elif metric.startswith("output.tokens_per_second"):
        more = sum(one.more_tokens for one in client.succeeded)
        bounded = replace(bounded, high=bounded.high * (1 + more / (client.output_tokens or 1.0)))
    elif metric.startswith("goodput(") and "tpot" in metric:
        fastest = replace(client, requests=tuple(replace(one, tpot=one.least_tpot) for one in client.requests))
        best = goodput(fastest, metric)
        if isinstance(best, Measurement):
            bounded = Bounded(bounded.value, bounded.low, max(bounded.high, best.bounded.high))
    if bounded == outcome.bounded:
        return outcome
    return replace(
        outcome,
        bounded=bounded,
        judged_by="bounds",
        undecided="how many tokens each piece of the stream holds is not told",
        settle="a server that reports usage",
    )


def fewest_share(client: Client) -> float:
    """How much shorter a token may have taken than by the fewest tokens: 1 where all numbers are known."""
    shares = [
        (one.output_tokens - 1) / (one.most_tokens - 1)
        for one in client.succeeded
        if one.most_tokens is not None and one.output_tokens is not None
    ]
    return min(shares, default=1.0)
