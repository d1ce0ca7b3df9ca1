"""The report as Prometheus text 0.0.4, for the textfile collectors of node_exporter and its like.

A page with one series twice, or with a family in two places, is refused whole: names are unique, and families stand
together. What was not measured has no sample, so that an old value cannot be taken for a new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from pytest_llmroof.report.files import write_whole
from pytest_llmroof.report.headline import judged, one_line
from pytest_llmroof.report.names import gate_names, window_names
from pytest_llmroof.report.wire import Document, visible

#: Every family, and what it holds.
FAMILIES: Final[Mapping[str, str]] = {
    "llmroof_info": "Which version wrote this page, and the labels of the run. Always 1.",
    "llmroof_report_timestamp_seconds": "When the report was made, Unix time.",
    "llmroof_measurement": "What was measured, in the unit that the label names; shares are 0 to 1. Absent where only "
    "bounds are known.",
    "llmroof_measurement_low": "Low end of the measurement's interval.",
    "llmroof_measurement_high": "High end of the measurement's interval; absent where it is unbounded.",
    "llmroof_gate_judged": "1 where a value was held against the gate's limit, 0 where it could not be.",
    "llmroof_gate_passed": "1 where the gate holds, 0 where it does not; absent where it was not judged.",
    "llmroof_gate_margin_ratio": "Distance to the limit, negative on the wrong side: of shares in points / 100, "
    "else relative to the limit.",
    "llmroof_step_seconds": "Where the time went that the label `of` names; the causes add up to it.",
    "llmroof_scenario": "1 for each scenario that the window's diagnosis names.",
}

Labels = dict[str, str]


@dataclass
class _Page:
    """Samples by family, in the order of the families."""

    samples: dict[str, list[str]] = field(default_factory=lambda: {family: [] for family in FAMILIES})

    def add(self, family: str, labels: Labels, value: float | None) -> None:
        """A sample; none where there is no value."""
        if value is not None:
            self.samples[family].append(f"{family}{_label_set(labels)} {_number(value)}")

    def text(self) -> str:
        """The page; families without a sample are left out."""
        return "".join(
            f"# HELP {family} {help_text}\n# TYPE {family} gauge\n" + "\n".join(self.samples[family]) + "\n"
            for family, help_text in FAMILIES.items()
            if self.samples[family]
        )


def write(path: Path, document: Document) -> None:
    """Write the page; a collector never reads half of it. Raises OSError."""
    write_whole(path, rendered(document))


def rendered(document: Document) -> str:
    """The text of the page."""
    page = _Page()
    page.add("llmroof_info", {"version": document["version"], **_user_labels(document["labels"])}, 1)
    page.add("llmroof_report_timestamp_seconds", {}, _unix_time(document["created"]))
    windows = document["windows"]
    for window, labels in zip(windows, _scopes(windows), strict=True):
        for sample in (*_measurements(window), *_gates(window), *_causes(window)):
            family, own, value = sample
            page.add(family, {**own, **labels}, value)
    return page.text()


def _scopes(windows: list[Document]) -> Iterator[Labels]:
    """Which window, and what it measured."""
    for window, name in zip(windows, window_names(windows), strict=True):
        scope = {"file": name.file, "window": name.window, "phase": window["phase"] or ""}
        scope |= {part: window[part]["name"] if window[part] else "" for part in ("model", "gpu")}
        yield {key: value for key, value in scope.items() if value or key == "window"}


_Sample = tuple[str, Labels, float | None]


def _measurements(window: Document) -> Iterator[_Sample]:
    for metric, measured in window["measurements"].items():
        labels = {"metric": metric, "unit": measured["unit"]}
        # Where only an end of the interval is known, no figure is exported that a dashboard would take for the value.
        yield "llmroof_measurement", labels, None if _is_end(measured) else measured["value"]
        if measured["value"] is not None:
            yield "llmroof_measurement_low", labels, measured["low"]
            yield "llmroof_measurement_high", labels, measured["high"]


def _is_end(measured: Document) -> bool:
    value, low, high = measured["value"], measured["low"], measured["high"]
    return low != high and value in (low, high)


def _gates(window: Document) -> Iterator[_Sample]:
    for gate, name in zip(window["gates"], gate_names(window["gates"]), strict=True):
        labels = {"gate": name, "metric": gate["metric"], "severity": gate["severity"]}
        if gate["id"]:
            labels["id"] = gate["id"]
        was_judged = judged(gate)
        yield "llmroof_gate_judged", labels, int(was_judged)
        if was_judged:
            yield "llmroof_gate_passed", labels, int(gate["verdict"] == "pass")
            yield "llmroof_gate_margin_ratio", labels, gate["margin"]


def _causes(window: Document) -> Iterator[_Sample]:
    if window["attributed"]:
        for share in window["attribution"]:
            labels = {"cause": share["cause"], "of": window["attributed"]["of"]}
            yield "llmroof_step_seconds", labels, share["seconds"]
    for letter in dict.fromkeys(window["diagnosis"]["candidates"]) if window["diagnosis"] else ():
        yield "llmroof_scenario", {"scenario": letter}, 1


def _user_labels(labels: Mapping[str, str]) -> Labels:
    """The run's own labels, under names that a page may hold: ``label_commit``. Of two with one name the first."""
    found: Labels = {}
    for key, value in labels.items():
        found.setdefault("label_" + re.sub(r"[^a-zA-Z0-9_]", "_", key), value)
    return found


def _label_set(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return one_line(visible(value)).replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(int(value))


def _unix_time(created: str) -> float | None:
    """Seconds of an RFC 3339 time; None where it is none."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo else None
