"""Limits: how they are printed, and which limit a window would support."""

from __future__ import annotations

import math
from collections.abc import Callable

from pytest_llmroof.report.figures import distance, precise, quantity
from pytest_llmroof.report.wire import Document
from pytest_llmroof.units import Unit


def limit_text(gate: Document) -> str:
    """``75 %``, ``85 % of achievable (72.7 %)``, ``0.97x baseline (46.2 %)``, from a gate's document."""
    limit, unit = gate["limit"], gate["unit"]
    if gate["limit_kind"] == "absolute":
        return precise(gate["limit_written"], unit)
    written = gate["expression"].partition(gate["operator"])[2].strip() or gate["expression"]
    return written if limit is None else f"{written} ({quantity(limit, unit)})"


def expected(gate: Document) -> str:
    """``decode.mbu >= 75 %``."""
    per = f" per {gate['per']}" if gate["per"] else ""
    return f"{gate['metric']} {gate['operator']} {limit_text(gate)}{per}"


def away(gate: Document) -> str:
    """``33.7 points short``, ``19.2 % over``, ``6.2 points to spare``: a judged gate's distance to its limit."""
    border = None if gate["limit_kind"] == "absolute" else quantity(gate["limit"], gate["unit"])
    side = "to spare" if gate["verdict"] == "pass" else "short" if gate["operator"] in (">=", ">") else "over"
    return f"{distance(gate['value'], gate['limit'], gate['unit'], border)} {side}"


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
