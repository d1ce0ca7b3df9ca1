"""The table of limits in docs/security.md, made from the constants that the readers go by."""

from __future__ import annotations

from pytest_llmroof.baseline import places
from pytest_llmroof.gates import document, inline, sources
from pytest_llmroof.probe import asking
from pytest_llmroof.profiles import chrome, elements, nsys_database
from pytest_llmroof.report import json_report
from pytest_llmroof.resolve import modelfile
from pytest_llmroof.roofline.models import ggufheader, reading
from pytest_llmroof.telemetry import bodies, fleetsource, promapi
from pytest_llmroof.telemetry.endpoint import Endpoint


def limits_table() -> str:
    """What is read at most, of each kind of input."""
    deadline = f"{Endpoint('', '', '').timeout_seconds:g} s"
    rows = {
        "gate file, YAML file of a GPU": f"{_size(document.MOST_BYTES)}, {document.MOST_NODES:,} values with aliases "
        f"followed, {document.DEEPEST} levels",
        "YAML in an option": f"{inline.LONGEST // 1024} KiB, {document.DEEPEST} levels, no alias, no tag",
        "path": f"{sources._LONGEST_PATH} bytes, {sources._LONGEST_NAME} in a name",
        "page of metrics, plain or unpacked": _size(bodies.MAXIMUM_BYTES),
        "JSON and tables of telemetry, plain or unpacked": _size(bodies.MAXIMUM_JSON_BYTES),
        "scrape": f"{_size(bodies.MAXIMUM_BYTES)} and {deadline} (`timeout`), with all its redirects",
        "answer of Prometheus": f"{_size(promapi.MAXIMUM_BYTES)} and {fleetsource.TIMEOUT_SECONDS:g} s (`timeout`)",
        "answer to a request of the probe": f"{_size(asking._MAXIMUM_BYTES)} beside its stream",
        "trace": f"streamed: {_size(chrome._LONGEST_HEADER)} before and behind the events, "
        f"{_size(elements.LONGEST)} an event",
        "SQLite export": f"read by rows: {_size(nsys_database._LONGEST_VALUE)} a value",
        "`config.json` and its side file": f"{_size(modelfile.MOST_BYTES)}; {reading._MOST_PARTS:,} layers or experts",
        "GGUF file": f"its header only; arrays longer than {ggufheader._LONG_ARRAY:,} are passed over",
        "earlier report": f"{_size(json_report.LARGEST_BYTES)}; {places.MOST_FILES:,} in a folder",
    }
    lines = ["| input | at most |", "|---|---|", *(f"| {what} | {most} |" for what, most in rows.items())]
    return "\n".join(lines) + "\n"


def _size(count: int) -> str:
    return f"{count >> 30} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"
