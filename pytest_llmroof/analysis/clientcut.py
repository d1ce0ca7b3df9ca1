"""Rates of a benchmark whose warm-up was cut off, between what is known and what may be."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.client import Client


def partly(client: Client, measured: Measurement, amount_name: str, gpus: int) -> Measurement:
    """A rate after a warm-up: what was still under way then ended after it, and gave a part that is not known."""
    if client.cut is None or not client.cut.under_way or not client.duration_seconds:
        return measured
    count = len(client.cut.under_way)
    amount = float(count) if amount_name == "completed" else client.cut.tokens(amount_name)
    value = measured.value
    return replace(
        measured,
        bounded=Bounded(value, value, value + amount / client.duration_seconds / gpus),
        judged_by="bounds",
        undecided=f"{count} requests that started in the warm-up ended after it, and count in no part",
        settle="a longer run",
    )
