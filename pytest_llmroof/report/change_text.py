"""The CHANGE section of a failing text: a time then and now, and what of the difference is traffic and what engine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmroof.analysis.metrics import OF_WINDOW
from pytest_llmroof.report.figures import quantity, short_count
from pytest_llmroof.report.headline import one_line
from pytest_llmroof.report.rows import Row
from pytest_llmroof.report.wire import Document

_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_TIMES: Final = {"decode step": "decode step", "ttft": "TTFT"}
#: Digits that a difference is printed with at least, and decimals that it may take.
_DIGITS: Final = 2
_MOST_DECIMALS: Final = 3
#: Parts that are smaller than this share of the whole difference are left to the JSON report.
_SMALL: Final = 0.02
_MOST_PARTS: Final = 4


@dataclass(frozen=True)
class Scale:
    """One unit and so many decimals for all the times of a section: then its sums can be checked by eye."""

    unit: float
    name: str
    decimals: int

    @classmethod
    def of(cls, largest: float, difference: float) -> Scale:
        """Three digits of the largest time, and two of the difference."""
        unit, name = next(((unit, name) for unit, name in _UNITS if largest >= unit), _UNITS[-1])
        decimals = max(0, 2 - _exponent(largest / unit))
        if difference:
            decimals = max(decimals, _DIGITS - 1 - _exponent(abs(difference) / unit))
        return cls(unit, name, min(decimals, _MOST_DECIMALS))

    def rounded(self, seconds: float) -> float:
        """In this unit, as printed."""
        return round(seconds / self.unit, self.decimals)

    def plain(self, value: float) -> str:
        """``9.0``: a rounded value."""
        return f"{value:.{self.decimals}f}"

    def signed(self, value: float) -> str:
        """``+3.3``: a rounded difference."""
        return f"{value + 0.0:+.{self.decimals}f}"


def change_of(window: Document, gate: Document) -> Document | None:
    """What changed of the time that a gate measures."""
    family = "ttft" if gate["family"] == "prefill" else gate["family"]
    changes = window["changes"]
    found: Document | None = changes.get(family) or (window["change"] if family in OF_WINDOW else None)
    return found


def change_rows(change: Document) -> Iterator[Row]:
    """The rows of the section. Every number in it follows from the other printed ones."""
    before, after = change["before_seconds"], change["after_seconds"]
    scale = Scale.of(max(before, after), after - before)
    shown = scale.rounded(before), scale.rounded(after)
    difference = shown[1] - shown[0]
    times = f"{scale.plain(shown[0])} -> {scale.plain(shown[1])} {scale.name} ({scale.signed(difference)})"
    yield Row("CHANGE", f"{_TIMES[change['of']]} {times} against {_baseline(change['baseline'])}", heading=True)
    facts = _facts(change["facts"])
    rest = difference
    if change["traffic_seconds"] is not None:
        floors = [scale.rounded(change[key]) for key in ("floor_before_seconds", "floor_after_seconds")]
        traffic = floors[1] - floors[0]
        rest -= traffic
        floor = f"floor {scale.plain(floors[0])} -> {scale.plain(floors[1])} {scale.name}"
        load = f"{facts}; {floor}" if facts else floor
        yield Row("traffic", f"{scale.signed(traffic)} {scale.name}: {load}")
    elif facts:
        yield Row("traffic", facts)
    if change["queue_seconds"] is not None:
        queue = scale.rounded(change["queue_seconds"])
        rest -= queue
        yield Row("queue", f"{scale.signed(queue)} {scale.name}")
    if change["engine_seconds"] is not None:
        parts = _parts(change, scale, rest)
        yield Row("engine", f"{scale.signed(rest)} {scale.name}{f', of it {parts}' if parts else ''}")
    for phrase in change["differences"]:
        yield Row("another", f"{one_line(phrase)}: the engines are not compared", rank=1)
    yield from (Row("missing", one_line(phrase), rank=1) for phrase in change["missing"])


def _baseline(baseline: Document) -> str:
    median = f", the median of {baseline['windows']}" if baseline["windows"] > 1 else ""
    return f"{one_line(baseline['report'])} of {one_line(baseline['created'])[:10]}{median}"


def _facts(facts: Sequence[dict[str, Any]]) -> str:
    return ", ".join(
        f"{fact['name']} {_shown(fact['before'], fact['unit'])} -> {_shown(fact['after'], fact['unit'])}"
        for fact in facts
        if _shown(fact["before"], fact["unit"]) != _shown(fact["after"], fact["unit"])
        or fact["name"] in ("batch", "context", "prefix hits")
    )


def _shown(value: float, unit: str) -> str:
    if unit == "tokens":
        return short_count(value)
    if unit == "fraction":
        return quantity(value, "fraction", 2)
    return quantity(value, "seconds") if unit == "seconds" else f"{value:.3g}"


def _parts(change: Document, scale: Scale, whole: float) -> str:
    """``exposed communication: transport +2.6, kernel ceiling +0.3``, the largest first, of a printed ``whole``.

    Where they come to more than the whole, or to the other side of nothing, what the others bring is said, too.
    """
    small = _SMALL * abs(change["seconds"])
    parts = [part for part in change["parts"] if part["of"] == "engine" and abs(part["seconds"]) > small]
    parts.sort(key=lambda part: -abs(part["seconds"]))
    shown = [(one_line(part["cause"]), scale.rounded(part["seconds"])) for part in parts[:_MOST_PARTS]]
    others = round(whole - sum(seconds for _, seconds in shown), scale.decimals)
    if shown and not 0 <= others * math.copysign(1.0, whole) <= round(abs(whole), scale.decimals):
        hidden = change["engine_seconds"] - sum(part["seconds"] for part in parts[:_MOST_PARTS])
        shown.append(("others" if scale.rounded(hidden) else "rounding", others))
    return ", ".join(f"{cause} {scale.signed(seconds)}" for cause, seconds in shown)


def _exponent(value: float) -> int:
    return math.floor(math.log10(value)) if value > 0 else 0
