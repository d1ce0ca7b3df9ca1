"""What CI systems make of a JUnit file, each by what its own source reads (and by nothing else)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

from junitparser import JUnitXml, Skipped


@dataclass(frozen=True)
class Seen:
    """A test case as one reader shows it. ``state`` is passed, failed or skipped."""

    group: str
    name: str
    state: str
    message: str = ""
    text: str = ""
    file: str = ""
    line: int = 0


def gitlab(xml: str) -> list[Seen]:
    """Class name, name, file, and the text of what failed or was skipped; of one name twice only the first counts."""
    assert len(xml.encode()) < 30_000_000
    seen: dict[tuple[str, str], Seen] = {}
    for case in ET.fromstring(xml.encode()).iter("testcase"):
        state, element = "passed", None
        for tag, word in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
            if (found := case.find(tag)) is not None:
                state, element = word, found
                break
        text = (element.text or "") if element is not None else ""
        key = case.attrib["classname"], case.attrib["name"]
        seen.setdefault(key, Seen(*key, state, text=text, file=case.get("file", "")))
    return list(seen.values())


def jenkins(xml: str) -> list[Seen]:
    """The message as error details, the text as stack trace; the class name's last dot parts package and class."""
    found = []
    for case in ET.fromstring(xml.encode()).iter("testcase"):
        failure, skipped = case.find("failure"), case.find("skipped")
        if failure is not None:
            state, message, text = "failed", failure.attrib["message"], failure.text or ""
        elif skipped is not None:
            state, message, text = "skipped", skipped.attrib["message"], ""
        else:
            state, message, text = "passed", "", ""
        float(case.attrib["time"])
        found.append(Seen(case.attrib["classname"], case.attrib["name"], state, message, text))
    return found


def azure(xml: str) -> list[Seen]:
    """Message and stack trace of failures, the message of what was skipped; a suite's time stamp must be a date."""
    root = ET.fromstring(xml.encode())
    for suite in root.iter("testsuite"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    return jenkins(xml)


def mikepenz(xml: str) -> list[Seen]:
    """File and line of the case, the message of its first failure only."""
    found = []
    for case in ET.fromstring(xml.encode()).iter("testcase"):
        failures = case.findall("failure")
        assert len(failures) <= 1
        state = "failed" if failures else "skipped" if case.find("skipped") is not None else "passed"
        message = failures[0].get("message", "") if failures else ""
        place = (case.get("file", ""), int(case.get("line", 0)))
        found.append(Seen(case.attrib["classname"], case.attrib["name"], state, message, "", *place))
    return found


def dorny(xml: str) -> list[Seen]:
    """The class name as group, and the text of the first failure: its first line is what the list shows."""
    found = []
    for case in ET.fromstring(xml.encode()).iter("testcase"):
        failure = case.find("failure")
        state = "failed" if failure is not None else "skipped" if case.find("skipped") is not None else "passed"
        text = (failure.text or "") if failure is not None else ""
        assert float(case.attrib["time"]) >= 0  # it is added up
        found.append(Seen(case.attrib["classname"], case.attrib["name"], state, text.split("\n")[0], text))
    return found


def counts(xml: str) -> Iterator[tuple[int, int, int]]:
    """Tests, failures and skipped ones of each suite, as its attributes say, checked against its cases."""
    for suite in ET.fromstring(xml.encode()).iter("testsuite"):
        said = tuple(int(suite.attrib[name]) for name in ("tests", "failures", "skipped"))
        real = tuple(len(suite.findall(path)) for path in ("testcase", "testcase/failure", "testcase/skipped"))
        assert said == real
        yield said[0], said[1], said[2]


def enricomi(xml: str) -> list[Seen]:
    """As publish-unit-test-result reads it, through junitparser: place, message and text of the most severe result."""
    found = []
    for suite in JUnitXml.fromstring(xml.encode()):
        for case in suite:
            worst = min(case.result, key=lambda result: _SEVERITY.index(type(result).__name__), default=None)
            state = "passed" if worst is None else "skipped" if isinstance(worst, Skipped) else "failed"
            attributes = case._elem.attrib
            place = (attributes.get("file", ""), int(attributes.get("line", 0)))
            message, text = (worst.message or "", worst.text or "") if worst is not None else ("", "")
            found.append(Seen(case.classname, case.name, state, message, text, *place))
    return found


_SEVERITY = ("Error", "Failure", "Skipped")
