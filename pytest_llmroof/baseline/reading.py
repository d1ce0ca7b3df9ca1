"""Earlier reports as a baseline needs them: what is compared of their windows, checked, and nothing else kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.report.json_report import load
from pytest_llmroof.report.wire import Document, visible

#: The parts of a window that a comparison needs, and of which kind each is; most may be null.
_PARTS: Final[Mapping[str, type]] = {
    "labels": dict, "gpu": dict, "model": dict, "deployment": dict, "provenance": dict, "facts": dict,
    "attributed": dict, "attribution": list,
}  # fmt: skip
_FACTS: Final = ("decode", "own_prompt")
_GATE_PARTS: Final = ("expression", "metric", "per", "severity", "verdict", "found")
_MEASURED: Final = ("value", "low", "high")


@dataclass(frozen=True)
class EarlierWindow:
    """One window of an earlier report: ``report`` names the file, ``labels`` are the report's and the window's own."""

    report: str
    created: str
    labels: Mapping[str, str]
    document: Document

    @property
    def breached(self) -> bool:
        """Whether a gate that can fail a run failed by its value."""
        return any(gate["verdict"] == "fail" and gate["severity"] == "error" for gate in self.document["gates"])


def in_view(measurements: Mapping[str, Any], metric: str, view: str | None) -> Mapping[str, Any] | None:
    """What a window measured of a metric in the same view: a client's TTFT is no baseline for a server's.

    Reports that do not tell the view are believed. The view that was not judged there has no repeats.
    """
    measured: Mapping[str, Any] | None = measurements.get(metric)
    if measured is None or view is None or measured.get("view") in (None, view):
        return measured
    other = measured.get("other")
    return {"repeats": [], **other} if other and other.get("view") == view else None


def read_report(path: Path, shown: str) -> tuple[EarlierWindow, ...]:
    """The windows of a report. SourceError, naming ``shown`` and the place in it, where it is none or is damaged."""
    content = load(path, shown)
    name = visible(shown)
    created = content.get("created")
    if not isinstance(created, str):
        raise _damaged(name, "created", "is not a text")
    labels = _texts(content.get("labels", {}), name, "labels")
    windows = []
    for index, window in enumerate(content["windows"]):
        place = f"windows[{index}]"
        lean = _window(window, name, place)
        windows.append(EarlierWindow(name, visible(created), {**labels, **lean["labels"]}, lean))
    return tuple(windows)


def _window(window: Document, name: str, place: str) -> Document:
    lean: Document = {"id": window["id"], "name": window["name"], "phase": window.get("phase")}
    if lean["phase"] is not None and not isinstance(lean["phase"], str):
        raise _damaged(name, f"{place}.phase", "is not a text")
    for part, kind in _PARTS.items():
        value = window.get(part)
        if value is not None and not isinstance(value, kind):
            raise _damaged(name, f"{place}.{part}", f"is not {'a list' if kind is list else 'a mapping'}")
        _refuse_unbounded(value, name, f"{place}.{part}")
        lean[part] = value
    for part in _FACTS:
        if not isinstance((lean["facts"] or {}).get(part), dict | None):
            raise _damaged(name, f"{place}.facts.{part}", "is not a mapping")
    lean["labels"] = _texts(lean["labels"] or {}, name, f"{place}.labels")
    lean["measurements"] = {
        metric: _measurement(one, name, f"{place}.measurements[{visible(metric)!r}]")
        for metric, one in window["measurements"].items()
    }
    lean["gates"] = [
        _gate(gate, name, f"{place}.gates[{index}]") for index, gate in enumerate(window["gates"])
    ]  # fmt: skip
    return lean


def _measurement(one: Any, name: str, place: str) -> Document:
    if not isinstance(one, dict):
        raise _damaged(name, place, "is not a mapping")
    kept = _bounded(one, name, place)
    other = one.get("other")
    if not isinstance(other, dict | None):
        raise _damaged(name, f"{place}.other", "is not a mapping")
    repeats = one.get("repeats") or []
    if not isinstance(repeats, list):
        raise _damaged(name, f"{place}.repeats", "is not a list")
    kept_repeats = [_number(value, name, f"{place}.repeats") for value in repeats]
    return {
        **kept,
        "repeats": [value for value in kept_repeats if value is not None],
        "other": _bounded(other, name, f"{place}.other") if other else None,
    }


def _bounded(one: Mapping[str, Any], name: str, place: str) -> Document:
    """A value with its interval, and whose view it is."""
    kept: Document = {key: _number(one.get(key), name, f"{place}.{key}") for key in _MEASURED}
    ends = [end for end in (kept["low"], kept["value"], kept["high"]) if end is not None]
    if ends != sorted(ends):
        raise _damaged(name, place, "holds a value outside of its interval")
    return {**kept, "view": one.get("view") if one.get("view") in ("client", "server") else None}


def _gate(gate: Document, name: str, place: str) -> Document:
    kept = {key: gate.get(key) for key in _GATE_PARTS}
    for key in ("metric", "severity", "verdict"):
        if not isinstance(kept[key], str):
            raise _damaged(name, f"{place}.{key}", "is not a text")
    kept["found"] = _number(kept["found"], name, f"{place}.found")
    return kept


def _number(value: Any, name: str, place: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _damaged(name, place, "is not a number")
    _refuse_unbounded(value, name, place)
    return float(value)


def _refuse_unbounded(value: Any, name: str, place: str) -> None:
    """Damage where a number is beyond all numbers: a report writes null there."""
    if isinstance(value, dict):
        for key, entry in value.items():
            _refuse_unbounded(entry, name, f"{place}.{visible(str(key))}")
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            _refuse_unbounded(entry, name, f"{place}[{index}]")
    elif isinstance(value, int | float) and not _finite(value):
        raise _damaged(name, place, "is no number that a report holds")


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _texts(value: Any, name: str, place: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _damaged(name, place, "is not a mapping")
    if not all(isinstance(entry, str) for entry in value.values()):
        raise _damaged(name, place, "holds something else than texts")
    return {visible(key): visible(entry) for key, entry in value.items()}


def _damaged(name: str, place: str, problem: str) -> SourceError:
    again = Advice("make it again", "pytest --llmroof-report=FILE.json")
    return SourceError(f"{name}: a damaged report: {place} {problem}", again)
