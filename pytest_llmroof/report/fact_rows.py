"""The facts of a gate between its finding and its diagnosis: the failing text and the HTML report tell the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pytest_llmroof.report.facts_text import (
    convention_text,
    counters_text,
    deployment_text,
    roofline_text,
    step_time_row,
    window_text,
)
from pytest_llmroof.report.figures import precise
from pytest_llmroof.report.headline import one_line
from pytest_llmroof.report.limits import baseline_text, limit_text, supports
from pytest_llmroof.report.rows import Row
from pytest_llmroof.report.wire import Document

_MOST_REPORTS: Final = 3


def measured(gate: Document) -> bool:
    """Whether a gate's text holds figures of its time."""
    return gate["verdict"] in ("pass", "fail", "inconclusive")


def fact_rows(window: Document, gate: Document, *, supported: bool = True) -> Iterator[Row]:
    """What was tested, where its roof lies, what the limit came from, and where the time went.

    ``supported``: with the limit that the window would support, where nothing else says it.
    """
    if deployment := deployment_text(window):
        yield Row("deployment", deployment)
    if (text := window_text(window)) and text != gate["reason"]:  # a window that could not be read: said already
        yield Row("window", text)
    if measured(gate) and (convention := convention_text(window, gate)):
        yield Row("convention", convention)
    if measured(gate) and (roofline := roofline_text(window, gate)):
        yield Row("roofline", roofline)
    yield from limit_rows(gate, supported=supported)
    yield from _baseline_rows(gate)
    if measured(gate) and (step_time := step_time_row(window, gate)):
        yield step_time
    if measured(gate) and (counters := counters_text(window, gate)):
        yield Row("GPU counters", counters, rank=1)


def limit_rows(gate: Document, *, supported: bool = True) -> Iterator[Row]:
    """That nobody set a default limit, what is known to be reached, and the limit that the window would support."""
    parts = []
    if gate["default"]:
        parts.append(f"{limit_text(gate)} is the default, nobody set it.")
        if known := gate["known"]:
            low, high = (precise(known[end], "fraction") for end in ("low", "high"))
            parts.append(f"Known for {known['what']}: {low.removesuffix(' %')} to {high}.")
    if supported and gate["value"] is not None and (limit := supports(gate)):
        parts.append(f"This window supports: {limit}")
    if parts:
        yield Row("limit", " ".join(parts), single=True)


def _baseline_rows(gate: Document) -> Iterator[Row]:
    """Which reports the limit was made from, and what was another load there."""
    baseline = gate["baseline"]
    if baseline is None:
        return
    names = baseline["reports"]
    shown = ", ".join(map(one_line, names[:_MOST_REPORTS]))
    more = f" and {len(names) - _MOST_REPORTS} more" if len(names) > _MOST_REPORTS else ""
    parts = [f"{baseline_text(gate)}: {shown}{more}", *map(one_line, baseline["conditions"])]
    yield Row("baseline", "; ".join(parts))
