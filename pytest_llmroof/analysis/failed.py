"""Requests that failed, among latencies: they count as slower than any, whether a histogram holds them or not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.analysis.tokens import finished_requests
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.window import Window

_AGAIN: Final = "gate errors.rate, and measure again once the server answers"


@dataclass(frozen=True)
class Failed:
    """How many of how many requests failed."""

    count: float
    requests: float


def failed_requests(window: Window) -> Failed | None:
    """The requests that ended in an error, as whoever stands nearest to the clients counted them; None without any.

    Aborted ones are not among them: most are those of clients that left.
    """
    if window.front is not None and window.front.seen.counters.get("requests_errored"):
        window = replace(window, engines=(window.front.seen,), front=None)
    failed = window.counter("requests_errored")
    return Failed(failed, max(failed, finished_requests(window) or 0.0)) if failed else None


def held_by_failed(measured: Measurement, statistic: str, failed: float, requests: float) -> Measurement:
    """A statistic that lies among the failed: no less than what was measured of the others, however much more."""
    return replace(
        measured,
        bounded=Bounded(measured.value, measured.value, math.inf),
        judged_by="bounds",
        undecided=f"{failed:.0f} of {requests:.0f} requests failed: "
        f"counted as slower than any, they hold the {statistic}",
        settle=_AGAIN,
    )
