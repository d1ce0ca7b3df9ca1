"""The account of a run: one report document from everything that the aggregator holds, and the files made from it."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final

import pytest

from pytest_llmroof.aggregate import Aggregator
from pytest_llmroof.errors import LlmroofError
from pytest_llmroof.formats import REPORT_WRITERS
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.items import COMMAND_LINE, command_line_spec
from pytest_llmroof.options import settings
from pytest_llmroof.report.document import report_document, window_document
from pytest_llmroof.report.terminal import summary_lines
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.windows import Assessed, Document, completed, with_default_gates

_COLOURS: Final = {
    "FAIL": {"red": True}, "NOT MEASURED": {"red": True}, "WARNED": {"yellow": True}, "PASS": {"green": True},
}  # fmt: skip
#: What a row of a gate that did not run must not show, though its window was measured for others.
_FOUND: Final = (
    "value", "limit", "margin", "supported", "scenario", "in_words", "low", "high", "settle", "remedy", "check",
    "because",
)  # fmt: skip


def account(found: Aggregator) -> Document:
    """The report document of the run: every window, every gate that ran, and every other one with the reason."""
    windows = _merged(found)
    judged = {row["node_id"] for window in windows for row in window["gates"] if row["verdict"] != "not run"}
    unrun = _not_run(found, judged)
    known = {row["node_id"]: row for window in windows for row in window["gates"]}
    for node_id in list(unrun):
        if node_id in known:
            known[node_id]["reason"] = unrun.pop(node_id)
    windows += _unmeasured_windows(found.config, unrun)
    order = {node_id: place for place, node_id in enumerate((*found.collected.selected, *found.collected.deselected))}
    windows.sort(key=lambda window: _place(window, order))
    return report_document(
        windows,
        labels=_labels(windows) | settings(found.config).labels,
        created=datetime.now(UTC),
        not_run=[{"node_id": node_id, "reason": reason} for node_id, reason in unrun.items()],
    )


def _labels(windows: Iterable[Document]) -> dict[str, str]:
    """The labels of gate files and markers that no window contradicts: they are those of the whole report."""
    found: dict[str, set[str]] = defaultdict(set)
    for window in windows:
        for key, value in window["labels"].items():
            found[key].add(value)
    return {key: next(iter(values)) for key, values in found.items() if len(values) == 1}


def write_reports(config: pytest.Config, document: Document) -> list[str]:
    """Write every report that was asked for; what could not be written is returned as messages.

    There is no file then, nor one of an earlier run that could be taken for this one's.
    """
    problems = []
    for path in settings(config).reports:
        module, _, function = REPORT_WRITERS[path.suffix].partition(":")
        try:
            getattr(import_module(module), function)(path, document)
        except OSError as error:
            problems.append(f"ERROR: --llmroof-report={path}: {error.strerror or error}")
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return problems


def print_summary(terminal: pytest.TerminalReporter, document: Document) -> None:
    """The section of the terminal summary: a line for each gate that was judged, one for all that were not run."""
    width = terminal.config.get_terminal_writer().fullwidth
    lines = summary_lines(_folded(document), width, terminal.config.get_verbosity())
    if not lines:
        return
    terminal.section("llmroof")
    for line in lines:
        word = line.split("  ", 1)[0]
        terminal.write_line(line, **_COLOURS.get(word, {}))
    if terminal.config.get_verbosity() >= 0:
        for reason in uncompared(terminal.config):
            terminal.write_line(f"No baseline: {reason}, so that nothing was compared with it.", yellow=True)


def uncompared(config: pytest.Config) -> list[str]:
    """Why folders that were given as a baseline are none: gates without a baseline do not say it."""
    from pytest_llmroof.windows import baselines

    return [reason for place in baselines(config).places if (reason := place.lacking())]


def _folded(document: Document) -> Document:
    """The document with gates that did not run in one list, however many were deselected."""
    windows, unrun = [], list(document["not_run"])
    for window in document["windows"]:
        unrun += [row for row in window["gates"] if row["verdict"] == "not run"]
        windows.append({**window, "gates": [row for row in window["gates"] if row["verdict"] != "not run"]})
    return {**document, "windows": [window for window in windows if window["gates"]], "not_run": unrun}


def _merged(found: Aggregator) -> list[Document]:
    """One document per window: what tests judged in it is put together, and what did not run says `not run`."""
    ran: dict[str, set[int]] = defaultdict(set)
    for rows in found.gates.values():
        for key, index in rows:
            ran[key].add(index)
    windows: dict[str, Document] = {}
    # Every window was sent with a gate of it. The order is that of the judgements that count.
    for key in ran:
        window = found.windows[key]
        document = window.document if isinstance(window, Assessed) else window
        if key == document["id"]:
            every = enumerate(document["gates"])
            gates = [row if index in ran[key] else _without_result(row) for index, row in every]
        else:
            gates = [row for index, row in enumerate(document["gates"]) if index in ran[key]]
        if document["id"] in windows:
            windows[document["id"]]["gates"] += gates
        else:
            windows[document["id"]] = {**document, "gates": gates}
    return list(windows.values())


def _without_result(row: Document) -> Document:
    return {**row, **dict.fromkeys(_FOUND), "advice": [], "verdict": "not run", "approximate": False}


def _not_run(found: Aggregator, judged: set[str]) -> dict[str, str]:
    """Node id -> why, of every gate (or test with gates) that was collected and not judged."""
    tests = {node_id for node_id, _when in found.gates}
    reasons = {
        node_id: found.stopped.get(node_id, "the run stopped before it")
        for node_id in found.collected.selected
        if node_id not in tests and node_id not in judged
    }
    deselected = {node_id: "deselected" for node_id in found.collected.deselected if node_id not in judged | tests}
    return {**deselected, **reasons}


def _unmeasured_windows(config: pytest.Config, unrun: dict[str, str]) -> list[Document]:
    """Documents of windows of which no gate ran, read again from where they were written; takes their gates out."""
    documents = []
    for file in dict.fromkeys(node_id.split("::", 1)[0] for node_id in unrun):
        for spec in _specs(config, file):
            reasons = [unrun.pop(f"{spec.id}::{gate.name}", None) for gate in spec.gates]
            if any(reasons):
                documents.append(_unmeasured(spec, [reason or "not collected" for reason in reasons]))
    return documents


def _specs(config: pytest.Config, file: str) -> Iterable[WindowSpec]:
    """The windows of a gate file or of the command line. None where it cannot be read any more."""
    path = config.rootpath / file
    try:
        if file == COMMAND_LINE:
            return [command_line_spec(config)]
        if path.suffix in (".yaml", ".yml"):
            specs = [completed(config, spec) for spec in load_gate_file(path, config.rootpath)]
            return [with_default_gates(spec) if spec.default_severity else spec for spec in specs]
    except (LlmroofError, OSError):
        # The run itself has told of a file that is wrong; its gates stay in the list of what did not run.
        return []
    return []


def _unmeasured(spec: WindowSpec, reasons: list[str]) -> Document:
    verdicts = tuple(
        Verdict(gate, "not run", None, because=reason) for gate, reason in zip(spec.gates, reasons, strict=True)
    )
    return window_document(Assessment(spec, Deployment(), None, {}, verdicts, failure="no gate ran"))


def _place(window: Document, order: Mapping[str, int]) -> tuple[int, str]:
    """Windows stand in the order in which their gates were collected."""
    places: list[Any] = [order[row["node_id"]] for row in window["gates"] if row["node_id"] in order]
    places += [order[window["id"]]] if window["id"] in order else []
    return min(places, default=len(order)), window["id"]
