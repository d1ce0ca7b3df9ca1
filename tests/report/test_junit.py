"""The JUnit file, as the systems read it that show it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import assessments as made
import junit_readers as readers
import pytest
import reports
from junit_readers import Seen
from junitparser import Error, Failure, JUnitXml, Skipped

from pytest_llmroof.report import junit
from pytest_llmroof.report.document import report_document, window_document
from pytest_llmroof.report.text import failing_text

READERS = [readers.gitlab, readers.jenkins, readers.azure, readers.mikepenz, readers.dorny, readers.enricomi]
HEADLINE = (
    "found 41.3 %, expected decode.mbu >= 75 % (33.7 points short); "
    "scenario C: communication and interconnect stalls   [REL-7]"
)


def by_name(seen: list[Seen]) -> dict[str, Seen]:
    return {one.name: one for one in seen}


def cases(xml: str) -> list[ET.Element]:
    return list(ET.fromstring(xml.encode()).iter("testcase"))


@pytest.mark.parametrize("read", READERS)
def test_every_reader_sees_every_gate_once_and_how_it_came_out(read: Callable[[str], list[Seen]]) -> None:
    seen = read(junit.rendered(reports.ordinary()))
    assert {(one.group, one.name): one.state for one in seen} == {
        ("llmroof.yaml.decode", "itl.mean"): "passed",
        ("llmroof.yaml.decode", "decode.mbu >="): "passed",
        ("llmroof.yaml.decode", "REL-9 ttft.p99"): "failed",
        ("llmroof.yaml.decode", "decode.mbu >= (warn)"): "skipped",
        ("llmroof.yaml.decode", "REL-2 decode.mbu"): "failed",
        ("llmroof.yaml.decode", "REL-3 prefill.mfu"): "skipped",
        ("llmroof.yaml.decode", "REL-7 decode.mbu"): "failed",
        ("not run.tests.test_gates.py.TestChat", "test_load"): "skipped",
    }
    assert len(seen) == 8


def test_what_each_shows_of_a_failure() -> None:
    document = reports.ordinary()
    xml = junit.rendered(document)
    window = document["windows"][0]
    whole = failing_text(window, window["gates"][-1])
    flagship = {read.__name__: by_name(read(xml))["REL-7 decode.mbu"] for read in READERS}
    assert flagship["gitlab"].text == flagship["jenkins"].text == flagship["dorny"].text == whole
    assert whole.startswith(HEADLINE + "\n  in words ")
    for reader in ("jenkins", "azure", "mikepenz", "dorny", "enricomi"):
        assert flagship[reader].message == HEADLINE
    assert (flagship["mikepenz"].file, flagship["mikepenz"].line) == ("llmroof.yaml", 8)
    assert flagship["gitlab"].file == "llmroof.yaml"
    assert flagship["enricomi"] == Seen(
        "llmroof.yaml.decode", "REL-7 decode.mbu", "failed", HEADLINE, whole, "llmroof.yaml", 8
    )
    assert "REMEDIATION" in flagship["gitlab"].text


def test_junitparser_reads_the_same() -> None:
    parsed = JUnitXml.fromstring(junit.rendered(reports.ordinary()).encode())
    assert (parsed.tests, parsed.failures, parsed.errors, parsed.skipped) == (8, 3, 0, 3)
    results = {case.name: case.result for suite in parsed for case in suite}
    kinds = {name: [(type(one), one.type) for one in result] for name, result in results.items() if result}
    assert kinds == {
        "REL-9 ttft.p99": [(Failure, "llmroof.no_data")],
        "decode.mbu >= (warn)": [(Skipped, "llmroof.warned")],
        "REL-2 decode.mbu": [(Failure, "llmroof.impossible")],
        "REL-3 prefill.mfu": [(Skipped, "llmroof.not_run")],
        "REL-7 decode.mbu": [(Failure, "llmroof.fail")],
        "test_load": [(Skipped, "llmroof.not_run")],
    }
    assert not any(isinstance(one, Error) for result in results.values() for one in result)
    suite = next(iter(parsed))
    properties = {one.name: one.value for one in suite.properties()}  # type: ignore[no-untyped-call]  # has no types
    assert properties["llmroof.gpu"] == "h100-sxm5-80gb"
    assert properties["llmroof.label.engine"] == "vllm-0.33.1"


def test_the_facts_of_a_case_are_its_properties() -> None:
    flagship = next(case for case in cases(junit.rendered(reports.ordinary())) if case.get("line") == "8")
    assert flagship[0].tag == "properties"
    facts = {one.attrib["name"]: one.attrib["value"] for one in flagship[0]}
    assert facts["llmroof.verdict"] == "fail"
    assert float(facts["llmroof.limit"]) == 0.75


def test_what_a_skipped_case_says() -> None:
    warned = by_name(readers.jenkins(junit.rendered(reports.ordinary())))["decode.mbu >= (warn)"].message
    assert warned.startswith("WARNED: found 41.3 %, expected decode.mbu >= 42 % (0.7 points short)")
    seen = by_name(readers.gitlab(junit.rendered(reports.ordinary())))
    assert seen["decode.mbu >= (warn)"].text.startswith("WARNED, this does not fail the run.\nfound 41.3 %")
    assert "headroom for a failover" in seen["decode.mbu >= (warn)"].text
    assert seen["REL-3 prefill.mfu"].text == "NOT RUN: deselected; expected prefill.mfu >= 45 %   [REL-3]"
    assert seen["test_load"].text == "NOT RUN: the worker that ran it crashed"


def test_a_pass_that_is_approximate_says_so() -> None:
    case = next(one for one in cases(junit.rendered(reports.ordinary())) if one.get("name") == "decode.mbu >=")
    assert case.findtext("system-out") == (
        "found 41.3 %, expected decode.mbu >= 41 % (0.3 points to spare, approximate)\n"
        "approximate: the limit 41 % lies inside the interval of the measurement, 40.9 .. 41.8 %"
    )


def test_a_changed_limit_keeps_the_name() -> None:
    def names(limit: float, written: str) -> list[tuple[str, ...]]:
        flagship = made.verdict(made.gate(limit=limit, written=written, id="REL-7"), made.mbu())
        document = report_document([window_document(made.assessment(flagship))], labels={}, created="")
        return [(case.attrib["classname"], case.attrib["name"]) for case in cases(junit.rendered(document))]

    assert names(0.75, "75%") == names(0.70, "70%") == [("llmroof.yaml.decode", "REL-7 decode.mbu")]


def test_names_are_unique_whatever_is_asked_twice() -> None:
    asked = [made.gate(limit=limit, written=f"{limit:.0%}") for limit in (0.5, 0.6, 0.7)]
    asked += [made.gate("decode.mbu", "<=", 0.9, "90%"), made.gate(limit=0.4, written="40%", severity="warn")]
    asked += [made.gate(per="gpu"), made.gate(id="decode.mbu", metric="x"), made.gate("decode.mbu >= #2")]
    window = window_document(made.assessment(*(made.verdict(gate, made.mbu()) for gate in asked)))
    other = {**window, "gpu": {**window["gpu"], "name": "b200"}}
    dotted = [{**window, "id": identity} for identity in ("a/b.llmroof.yaml::w", "a.b.llmroof.yaml::w")]
    document = report_document([window, other, other, *dotted], labels={}, created="2026-11-29T12:00:00Z")
    keys = [(case.attrib["classname"], case.attrib["name"]) for case in cases(junit.rendered(document))]
    assert len(set(keys)) == len(keys) == 40
    assert list(dict.fromkeys(classname for classname, _ in keys)) == [
        "llmroof.yaml.decode (h100-sxm5-80gb)", "llmroof.yaml.decode (b200)", "llmroof.yaml.decode (b200) #2",
        "a.b.llmroof.yaml.w", "a.b.llmroof.yaml.w #2",
    ]  # fmt: skip
    assert [name for _, name in keys[:8]] == [
        "decode.mbu >=", "decode.mbu >= #3", "decode.mbu >= #4", "decode.mbu <=", "decode.mbu >= (warn)",
        "decode.mbu per gpu", "decode.mbu x", "decode.mbu >= #2",
    ]  # fmt: skip


def test_the_window_of_the_command_line() -> None:
    window = window_document(made.assessment(spec=made.spec(id="llmroof", name="cli")))
    (case,) = cases(junit.rendered(report_document([window], labels={}, created="")))
    assert (case.attrib["classname"], case.get("file"), case.get("line")) == ("llmroof", None, None)


@pytest.mark.parametrize("read", READERS)
def test_hostile_texts_are_readable_and_stay_texts(read: Callable[[str], list[Seen]]) -> None:
    xml = junit.rendered(reports.hostile())
    assert len(read(xml)) == 2 * len(reports.HOSTILE)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]", xml)
    assert xml.encode("utf-8").decode("utf-8") == xml
    messages = [one.message for one in read(xml) if one.message]
    assert all(len(message) <= 200 and "\n" not in message for message in messages)
    shown = " ".join(part for one in read(xml) for part in (one.name, one.message, one.text))
    for text in ("<script>alert(1)</script>", "\\x1b[31mred", "\\ud800", "\\u202eot tfel", "]]>"):
        assert text in shown


def test_ten_thousand_gates_fit_and_are_all_there(tmp_path: Path) -> None:
    document = reports.many()
    path = tmp_path / "gl.xml"
    junit.write(path, document)
    xml = path.read_text(encoding="utf-8")
    seen = readers.gitlab(xml)
    assert len(seen) == 10_000
    assert sum(failures for _, failures, _ in readers.counts(xml)) == 2_000
    # Once there is much text, further gates of a window are short, and each still stands alone.
    assert all(len(one.text.splitlines()) >= 1 for one in seen if one.state == "failed")


def test_when_there_is_too_much_text_each_window_tells_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "MOST_TEXT_BYTES", 1)
    seen = [one for one in readers.gitlab(junit.rendered(reports.many(40, 2))) if one.state == "failed"]
    assert ["DIAGNOSIS" in one.text for one in seen if "NOT MEASURED" not in one.text] == [True, False] * 2
    assert all(one.text.startswith(("found ", "NOT MEASURED")) for one in seen)


@pytest.mark.parametrize("document", [reports.ordinary, reports.hostile])
def test_counts_are_those_of_the_cases(document: Callable[[], dict[str, Any]]) -> None:
    assert list(readers.counts(junit.rendered(document())))


def test_lines_and_files_that_are_not_known_are_left_out() -> None:
    gate = replace(made.flagship_verdict().gate, position=None)
    window = window_document(made.assessment(made.verdict(gate, made.mbu())))
    (case,) = cases(junit.rendered(report_document([window], labels={}, created="")))
    assert "file" not in case.attrib
    assert "line" not in case.attrib
