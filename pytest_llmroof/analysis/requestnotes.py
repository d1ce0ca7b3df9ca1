"""What to say of a window's requests with every verdict: those that failed, and that they were few."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmroof.analysis.clientfacts import belongs
from pytest_llmroof.analysis.failed import failed_requests
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.analysis.tokens import Tokens, finished_requests, requests_at
from pytest_llmroof.telemetry.window import Window
from pytest_llmroof.units import grouped


def request_notes(window: Window, tokens: Tokens) -> Iterator[str]:
    """A sentence on failed requests, each as the one who counted them has it, and on few ones."""
    client = window.client
    if client is not None and client.failed:
        yield f"{_of(client.failed, client.total or client.failed)} failed ({client.title})"
    if failed := failed_requests(window):
        yield f"{_of(failed.count, failed.requests)} failed ({_who(window)})"
    if aborted := window.counter("requests_aborted"):
        yield f"{_of(aborted, max(aborted, finished_requests(window) or 0.0))} were aborted ({window.engine_title})"
    seen = _seen(window, tokens)
    if 0 < seen < threshold("few_requests"):
        many = threshold("few_requests")
        yield f"only {_count(seen)}: latencies and rates of fewer than {many:.0f} say little of the next ones"


def _seen(window: Window, tokens: Tokens) -> float:
    """As many requests as anything tells of; 0 where nothing counts them, or a client meant them to be few."""
    client = window.client
    if client is not None and client.batch is not None:
        return 0.0
    if client is not None and (not window.engines or belongs(window) is not False):
        return client.total or 0.0
    present = [count for at in (0, -1) if (count := requests_at(window, at)) is not None]
    return max(tokens.first or 0.0, tokens.finished or 0.0, *present, 0.0)


def _who(window: Window) -> str:
    front = window.front
    return front.title if front is not None and front.seen.counters.get("requests_errored") else window.engine_title


def _of(part: float, whole: float) -> str:
    """``6 of 294 requests``."""
    return f"{grouped(part)} of {_count(whole)}"


def _count(requests: float) -> str:
    return f"{grouped(requests)} request{'' if round(requests) == 1 else 's'}"
