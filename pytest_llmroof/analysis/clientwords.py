"""Words that measurements of a client share."""

from __future__ import annotations

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.analysis.thresholds import remedy
from pytest_llmroof.telemetry.client import Client


def source_of(client: Client) -> str:
    """The client as the source of a figure."""
    return f"{client.title} ({client.location})"


def more(client: Client, key: str) -> AnyAdvice:
    """What makes the tool tell more: to stream, where its single requests are there and tell no times of tokens."""
    if key in ("requests", "percentiles") and client.complete and "streaming" in client.remedies:
        return client.remedies["streaming"]
    return client.remedies.get(key) or client.remedies.get("requests") or remedy("per_request")


def failures(count: float) -> str:
    """``1 failed request``, ``12 failed requests``."""
    return f"{count:.0f} failed request{'' if count == 1 else 's'}"
