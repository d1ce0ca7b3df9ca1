"""The report as JUnit XML: a suite per window, a test case per gate, for the CI systems that read it.

What each of them reads differs: the text of a failure therefore tells everything, its first line and the ``message``
the finding. junit-xml builds the elements; what it would lose (properties of a case, characters that XML has no place
for) is put right before and after.
"""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import junit_xml

from pytest_llmroof.report.document import shown_word
from pytest_llmroof.report.files import write_whole
from pytest_llmroof.report.headline import LONGEST, headline, one_line, shorten
from pytest_llmroof.report.names import gate_names, window_names
from pytest_llmroof.report.text import Told, text_of
from pytest_llmroof.report.wire import Document, visible

NAME: Final = "pytest-llmroof"
#: GitLab reads files of less than 30 MB: from here on, further failures of a window tell their first line only.
MOST_TEXT_BYTES: Final = 16_000_000
_COUNTS: Final = ("tests", "failures", "errors", "skipped")


def write(path: Path, document: Document) -> None:
    """Write the XML. Raises OSError."""
    write_whole(path, rendered(document))


def rendered(document: Document) -> str:
    """The text of the XML file."""
    root = ET.Element("testsuites", {"name": NAME})
    root.extend(_suites(document))
    for count in _COUNTS:
        root.set(count, str(sum(int(suite.get(count, 0)) for suite in root)))
    root.set("time", "0")
    ET.indent(root)
    file = io.BytesIO()
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    return file.getvalue().decode("utf-8") + "\n"


def _suites(document: Document) -> Iterator[ET.Element]:
    budget = _Budget(MOST_TEXT_BYTES)
    windows = document["windows"]
    for window, name in zip(windows, window_names(windows), strict=True):
        gates = list(zip(window["gates"], gate_names(window["gates"]), strict=True))
        cases = [_case(window, gate, name.case, case, budget) for gate, case in gates]
        properties = _properties(_suite_facts(document, window))
        suite = _suite(name.case, cases, window["started"] or document["created"], properties)
        for element, (gate, _) in zip(suite.iter("testcase"), gates, strict=True):
            _finish_case(element, gate)
        yield suite
    if document["not_run"]:
        yield _unrun_suite(document["not_run"], document["created"])


def _suite(name: str, cases: list[Any], timestamp: str, properties: Mapping[str, str]) -> ET.Element:
    made = junit_xml.TestSuite(name, cases, timestamp=_safe(timestamp).removesuffix("Z"), properties=dict(properties))
    suite: ET.Element = made.build_xml_doc()
    for element in suite.iter("testcase"):
        element.set("time", "0")  # a case without a time is no number for those who add them up
    return suite


def _case(window: Document, gate: Document, classname: str, name: str, budget: _Budget) -> Any:
    """One gate. A failure has one element, with everything in its text."""
    # Lines count from 1; junit-xml would write the 0 of an unknown one.
    case = junit_xml.TestCase(name, classname, file=_safe(gate["file"] or ""), line=gate["line"] or None)
    word = shown_word(gate)
    message = _safe(headline(window, gate))
    if word == "pass":
        if gate["approximate"]:
            case.stdout = "\n".join([message, f"approximate: {one_line(_safe(gate['reason'] or ''))}"])
    elif word == "warned":
        text = budget.text(window, gate)
        case.add_skipped_info(shorten(f"WARNED: {message}", LONGEST), f"WARNED, this does not fail the run.\n{text}")
    elif word == "not run":
        case.add_skipped_info(message, message)
    else:
        case.add_failure_info(message, budget.text(window, gate), f"llmroof.{gate['verdict'].replace(' ', '_')}")
    return case


def _finish_case(element: ET.Element, gate: Document) -> None:
    """What junit-xml has no way to say: the properties of a case, and why one was skipped."""
    for skipped in element.iter("skipped"):
        skipped.set("type", f"llmroof.{'warned' if shown_word(gate) == 'warned' else 'not_run'}")
    properties = ET.Element("properties")
    for name, value in _properties(_gate_facts(gate)).items():
        ET.SubElement(properties, "property", {"name": name, "value": value})
    element.insert(0, properties)


def _unrun_suite(unrun: Sequence[Mapping[str, Any]], created: str) -> ET.Element:
    """Tests with gates that did not run at all."""
    cases = []
    for test in unrun:
        path, _, name = one_line(_safe(test["node_id"])).rpartition("::")
        classname = f"not run.{path.replace('/', '.').replace('::', '.')}"
        case = junit_xml.TestCase(name, classname, file=path.partition("::")[0] or None)
        message = f"NOT RUN: {one_line(_safe(test['reason']))}"
        case.add_skipped_info(shorten(message, LONGEST), message)
        cases.append(case)
    suite = _suite("not run", cases, created, {})
    for skipped in suite.iter("skipped"):
        skipped.set("type", "llmroof.not_run")
    return suite


class _Budget:
    """How much text failures may still take, and which windows have told everything."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.told = Told()

    def text(self, window: Document, gate: Document) -> str:
        """Everything about a failure; once the budget is spent, only for the first breach of each window."""
        text = _safe(text_of(self.told, window, gate, of=(id(window), id(gate)), whole=self.left > 0))
        self.left -= len(text.encode())
        return text


def _suite_facts(document: Document, window: Document) -> Iterator[tuple[str, object]]:
    yield "llmroof.window", window["id"]
    yield "llmroof.version", document["version"]
    yield "llmroof.phase", window["phase"]
    for part in ("gpu", "model"):
        yield f"llmroof.{part}", window[part]["name"] if window[part] else None
    if window["gpu"]:
        yield "llmroof.gpus", window["gpu"]["count"]
    for key, value in {**document["labels"], **window["labels"]}.items():
        yield f"llmroof.label.{key}", value


def _gate_facts(gate: Document) -> Iterator[tuple[str, object]]:
    yield "llmroof.verdict", gate["verdict"]
    for key in ("expression", "id", "severity", "value", "low", "high", "unit", "limit", "margin", "scenario", "why"):
        yield f"llmroof.{key}", gate[key]
    yield "llmroof.approximate", "true" if gate["approximate"] else None


def _properties(facts: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Names and values as text; what is not known has no property."""
    return {one_line(_safe(name)): _safe(str(value)) for name, value in facts if value is not None}


def _safe(text: str) -> str:
    """Without characters that XML has no place for: they are written out, where libraries would drop them or fail."""
    return visible(text)
