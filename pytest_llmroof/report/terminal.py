"""The llmroof section of a terminal summary: what was tested, then one line a gate, the worst first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from pytest_llmroof.report.document import shown_word
from pytest_llmroof.report.facts_text import given_weights
from pytest_llmroof.report.figures import quantity
from pytest_llmroof.report.headline import cause_of, judged, one_line, quantity_apart, shorten
from pytest_llmroof.report.limits import away, expected
from pytest_llmroof.report.rows import uncommanded
from pytest_llmroof.report.wire import Document
from pytest_llmroof.units import format_quantity

#: Verdicts for readers, in the order of the lines.
_WORDS: Final = {
    "fail": "FAIL",
    "impossible": "NOT MEASURED",
    "no data": "NOT MEASURED",
    "inconclusive": "NOT MEASURED",
    "warned": "WARNED",
    "not run": "NOT RUN",
    "pass": "PASS",
}
_RANK: Final = {"FAIL": 0, "NOT MEASURED": 1, "WARNED": 2, "NOT RUN": 3, "PASS": 4}
#: Assumptions that move a figure; the others (no draft model, 8 GPUs a node, ...) are in the JSON report.
_ASSUMED: Final = {
    "gpu": "GPU",
    "model": "model",
    "tensor_parallel": "tensor parallel",
    "weights": "weights' precision",
    "kv_cache": "KV cache precision",
    "compute": "compute precision",
}
_NARROWEST: Final = 40
#: What is left for the figure of a narrow line.
_FIGURE: Final = 8
#: The window of the command line: nobody chose its name.
_COMMAND_LINE: Final = "cli"


def verdict_word(gate: Document) -> str:
    """PASS, FAIL, NOT MEASURED, WARNED or NOT RUN."""
    return _WORDS[shown_word(gate)]


def summary_lines(document: Document, width: int = 80, verbosity: int = 0) -> list[str]:
    """The section's lines, each within ``width``; with ``-q`` (negative ``verbosity``) only what failed.

    ``document`` is the report document. Nothing at all where no gate was judged or missed.
    """
    rows = [(window, gate) for window in document["windows"] for gate in window["gates"]]
    rows.sort(key=lambda row: _order(row[1]))
    if verbosity < 0:
        rows = [row for row in rows if verdict_word(row[1]) in ("FAIL", "NOT MEASURED")]
    lines = [] if verbosity < 0 else scope_lines(document["windows"], width, verbosity)
    named = [window["name"] for window in document["windows"]] != [_COMMAND_LINE]
    shown = [verdict_word(gate) for _, gate in rows] + (["NOT RUN"] if document["not_run"] else [])
    words = max(map(len, shown), default=0)
    expectations = [_expectation(window, gate, named) for window, gate in rows]
    room = max(width, _NARROWEST) - words - len("  ") * 2 - _FIGURE
    column = min(max(map(len, expectations), default=0), max(width // 2, _NARROWEST), room)
    for (window, gate), expectation in zip(rows, expectations, strict=True):
        start = f"{verdict_word(gate):{words}}  {_shortened(expectation, gate, column):{column}}"
        lines.append(_fitted(f"{start}  {_finding(window, gate)}", width))
        if verbosity > 0 and gate["approximate"] and gate["reason"] and judged(gate):
            lines.append(_fitted(f"{'':{words}}  approximate: {_doubt(gate)}", width))
    if verbosity >= 0:
        lines.extend(_notes(document["windows"], width, words))
        lines.extend(_not_run_lines(document["not_run"], width, words))
    if verbosity > 0 and rows:
        # Here, so that ordinary runs need nothing of charts.
        from pytest_llmroof.report.text_roofline import roofline_lines

        lines.extend(roofline_lines(document["windows"], max(width, _NARROWEST)))
    return lines


def _notes(windows: Sequence[Document], width: int, words: int) -> Iterator[str]:
    """What is said of windows that passed; a failing one's own text says it."""
    for window in windows:
        shown = {verdict_word(gate) for gate in window["gates"]} - {"NOT RUN"}
        if shown and shown <= {"PASS", "WARNED"}:
            name = "" if window["name"] == _COMMAND_LINE else f"{window['name']}: "
            yield from (_fitted(f"{'note':{words}}  {name}{one_line(note)}", width) for note in window["notes"])


def _order(gate: Document) -> tuple[int, float]:
    return _RANK[verdict_word(gate)], gate["margin"] if gate["margin"] is not None else 0.0


def _expectation(window: Document, gate: Document, named: bool) -> str:
    """``decode: tpot.p99 <= 50 ms [REL-7]``; without the window's name where there is only that of the command line."""
    name = f"{window['name']}: " if named else ""
    mark = f" [{gate['id']}]" if gate["id"] else ""
    default = " (default)" if gate["default"] else ""
    return one_line(f"{name}{expected(gate)}{mark}{default}")


def _shortened(expectation: str, gate: Document, column: int) -> str:
    """Cut to a column; the id stays, which people look for."""
    if len(expectation) <= column or not gate["id"]:
        return shorten(expectation, column)
    tail = f" [{shorten(one_line(gate['id']), column // 2)}]"
    return shorten(expectation, column - len(tail)) + tail


def _finding(window: Document, gate: Document) -> str:
    if judged(gate):
        return ", ".join(_found_parts(window, gate))
    word = "" if gate["verdict"] == "no data" else f"{gate['verdict']}: "
    return word + one_line(gate["reason"] or "")


def _found_parts(window: Document, gate: Document) -> Iterator[str]:
    yield f"{quantity_apart(gate)} ({away(gate)})"
    if gate["approximate"]:
        yield "approximate"
    if gate["verdict"] == "fail" and (cause := cause_of(window, gate)):
        yield cause
    if gate["baseline"]:
        yield from map(one_line, gate["baseline"]["conditions"])


def _doubt(gate: Document) -> str:
    """Why a verdict is approximate, in a phrase; which replica was the worst one is no doubt."""
    phrases = one_line(gate["reason"] or "").split("; ")
    return next((phrase for phrase in phrases if not phrase.startswith("the worst of ")), "")


def _not_run_lines(not_run: Sequence[Document], width: int, words: int) -> Iterator[str]:
    if not_run:
        names = ", ".join(one["node_id"] for one in not_run)
        # A gate has a row of its own; of a Python test that did not run only the test is known.
        gates = sum("verdict" in one or _of_gate(one["node_id"]) for one in not_run)
        counts = ((gates, "gate"), (len(not_run) - gates, "test"))
        count = ", ".join(f"{number} {what}{'s' * (number > 1)}" for number, what in counts if number)
        yield _fitted(f"{'NOT RUN':{words}}  {count}: {names}", width)


def _of_gate(node_id: str) -> bool:
    """Whether an item is a gate: of a gate file, or of the command line."""
    file = node_id.partition("::")[0]
    return file == "llmroof" or file.endswith((".yaml", ".yml"))


def _fitted(line: str, width: int) -> str:
    """Cut anywhere: figures stand at the start of what may be cut, and half a word tells more than none."""
    room = max(width, _NARROWEST)
    line = uncommanded(line)
    return line.rstrip() if len(line.rstrip()) <= room else f"{line[: room - 1].rstrip()}…"


def scope_lines(windows: Sequence[Document], width: int = 80, verbosity: int = 0) -> list[str]:
    """What was tested, once for each different hardware and model, wrapped; windows that name neither have no line."""
    texts = dict.fromkeys(text for window in windows if (text := scope_text(window, verbosity)))
    room = max(width, _NARROWEST)
    return [uncommanded(line) for text in texts for line in textwrap.wrap(text, room, subsequent_indent="  ")]


def scope_text(window: Document, verbosity: int = 0) -> str:
    """``4 x NVIDIA H100 SXM5 80GB, bf16 989 TFLOP/s dense, 3.35 TB/s; Llama 3.1 70B bf16, TP 4; assumed: model``.

    With ``-v`` also what of the model is not counted.
    """
    parts = list(_gpu_parts(window))
    model, deployment = window["model"], window["deployment"]
    if model is not None:
        parallel = "".join(
            f", {name} {deployment[key]}"
            for name, key in (("TP", "tensor_parallel"), ("PP", "pipeline_parallel"), ("DP", "data_parallel"))
            if key == "tensor_parallel" or deployment[key] != 1
        )
        without = f", without {' and '.join(model['left_out'])}" if verbosity > 0 and model["left_out"] else ""
        size = given_weights(window)
        parts.append(f"{model['title']} {f'in {size}' if size else deployment['weights']}{parallel}{without}")
    if not parts:
        return ""
    assumed = [
        name
        for key, name in _ASSUMED.items()
        if window["provenance"].get(key) == "assumed" and not (key == "weights" and given_weights(window))
    ]
    assumed += [f"{key} (its class's default)" for key in (model["class_defaults"] if model else ())]
    if assumed:
        parts.append(f"assumed: {', '.join(assumed)}")
    if window["gpu"] and window["gpu"]["also"]:
        parts.append(f"other boards of that short name: {', '.join(window['gpu']['also'])}")
    return "; ".join(parts)


def _gpu_parts(window: Document) -> Iterator[str]:
    gpu = window["gpu"]
    if gpu is None:
        return
    text = f"{gpu['count']} x {gpu['product']}"
    if gpu["peak_flops_per_second"] is not None:
        text += f", {gpu['precision']} {format_quantity(gpu['peak_flops_per_second'], 'FLOP/s')} dense"
    if gpu["memory_bandwidth_bytes_per_second"] is not None:
        text += f", {quantity(gpu['memory_bandwidth_bytes_per_second'], 'bytes/s')}"
    yield text
