"""A gate: a metric, an operator, a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_llmroof.errors import Position
from pytest_llmroof.units import Unit

Operator = Literal[">=", "<=", ">", "<"]
Severity = Literal["error", "warn"]
LimitKind = Literal["absolute", "of achievable", "x baseline", "baseline"]


@dataclass(frozen=True)
class Limit:
    """``absolute``: ``value`` in the metric's unit. ``of achievable``: a fraction of what real kernels reach.

    ``x baseline``: a factor. ``baseline``: ``value`` is added to the baseline (0 for the baseline itself); where it is
    ``relative`` it is that fraction of the baseline (``baseline - 2%``: -0.02).
    """

    kind: LimitKind
    value: float
    relative: bool = False


@dataclass(frozen=True)
class Gate:
    """One gate. ``expression`` is as written, ``canonical`` has one space round the operator.

    ``name`` is the item's name (``canonical`` with ``::`` as ``.``, brackets as braces, and ``#2`` where it is needed).
    ``labels`` are those that a report must carry to count as its baseline.
    """

    metric: str
    operator: Operator
    limit: Limit
    unit: Unit
    expression: str
    canonical: str
    name: str
    id: str | None = None
    why: str | None = None
    severity: Severity = "error"
    per: Literal["replica", "gpu"] | None = None
    default: bool = False
    position: Position | None = None
    labels: tuple[tuple[str, str], ...] = ()
