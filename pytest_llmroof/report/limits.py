"""Limits: how they are printed, and which limit a window would support."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from pytest_llmroof.report.figures import distance, precise, quantity
from pytest_llmroof.report.wire import Document
from pytest_llmroof.units import Unit

#: Relative errors of sums of floating-point numbers lie far below.
_DUST: Final = 1e-9


def limit_text(gate: Document, basis: bool = False) -> str:
    """``75 %``, ``85% of achievable = 72.7 %``, ``0.97x baseline = 46.2 %``, from a gate's document.

    With its ``basis``: ``0.97x baseline = 46.2 % (3 reports, median 47.6 %, spread 1.2 %)``.
    """
    limit, unit = gate["limit"], gate["unit"]
    if gate["limit_kind"] == "absolute" and gate["limit_written"] is not None:
        return precise(gate["limit_written"], unit)
    written: str = gate["expression"].partition(gate["operator"])[2].strip() or gate["expression"]
    if limit is None:
        return written
    came_to = f"{written} = {quantity(limit, unit)}"
    return f"{came_to} ({baseline_text(gate)})" if basis and gate["baseline"] else came_to


def baseline_text(gate: Document) -> str:
    """``3 reports, median 47.6 %, spread 1.2 %``: what a limit that hangs on a baseline was made from."""
    baseline, unit = gate["baseline"], gate["unit"]
    reports, windows = len(baseline["reports"]), baseline["windows"]
    counted = f"{reports} report{'s' * (reports > 1)}" + (f" of {windows} windows" if windows != reports else "")
    parts = [counted, f"median {quantity(baseline['value'], unit)}"]
    if baseline["spread"] is not None:
        spread = math.expm1(baseline["spread"])
        # Equal figures that were computed in another order differ in their last bits: no spread that anybody measured.
        parts.append(f"spread {quantity(spread if spread > _DUST else 0.0, 'fraction', 2)}")
    elif windows > 1:
        parts.append(f"{quantity(baseline['low'], unit)} to {quantity(baseline['high'], unit)}")
    return ", ".join(parts)


def expected(gate: Document, basis: bool = False) -> str:
    """``decode.mbu >= 75 %``; with the ``basis`` of a limit that hangs on a baseline."""
    per = f" per {gate['per']}" if gate["per"] else ""
    return f"{gate['metric']} {gate['operator']} {limit_text(gate, basis)}{per}"


def away(gate: Document) -> str:
    """``33.7 points short``, ``19.2 % over``, ``6.2 points to spare``: a judged gate's distance to its limit."""
    border = None if gate["limit_kind"] == "absolute" else quantity(gate["limit"], gate["unit"])
    side = "to spare" if gate["verdict"] == "pass" else "short" if gate["operator"] in (">=", ">") else "over"
    if only_a_bound(gate) and gate["value"] == gate["limit"]:
        return f"{side}, by how much is not known"
    return f"{distance(gate['value'], gate['limit'], gate['unit'], border)} {side}"


def only_a_bound(gate: Document) -> bool:
    """Whether nothing but a lower bound of a judged gate's value is known."""
    return gate["high"] is None and gate["value"] is not None and gate["value"] == gate["low"]


def supported_limit(supported: float, bound: float | None, operator: str, unit: Unit) -> float:
    """A supported limit rounded to what people write, never beyond the ``bound`` of the measurement itself.

    Two digits for shares (39 %), three for everything else; away from the bound where rounding would cross it.
    """
    digits = 2 if unit == "fraction" and supported >= 0.1 else 3
    rounded = _round(supported, digits, round)
    if bound is None or (rounded <= bound if operator in (">=", ">") else rounded >= bound):
        return rounded
    return _round(supported, 3, math.floor if operator in (">=", ">") else math.ceil)


def _round(value: float, digits: int, towards: Callable[[float], int]) -> float:
    if value == 0:
        return 0.0
    exponent = digits - 1 - math.floor(math.log10(abs(value)))
    whole = towards(value * 10.0**exponent)
    # Through decimal text, so that 0.39 is written and not 0.39000000000000001.
    return float(f"{whole}e{-exponent}")


def vacuous(limit: float, operator: str, unit: Unit) -> bool:
    """Whether no share could ever breach the limit."""
    return unit == "fraction" and operator in ("<=", "<") and limit >= 1


def supports(gate: Document) -> str | None:
    """``decode.mbu >= 39 %``: the limit that this window would support; None where nothing was measured."""
    if gate["supported"] is None:
        return None
    bound = gate["low"] if gate["operator"] in (">=", ">") else gate["high"]
    limit = supported_limit(gate["supported"], bound, gate["operator"], gate["unit"])
    if vacuous(limit, gate["operator"], gate["unit"]):
        return None
    return f"{gate['metric']} {gate['operator']} {precise(limit, gate['unit'])}"
