"""The published schema of the report: what it holds, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reports
from jsonschema import Draft202012Validator

from pytest_llmroof.report.document import SCHEMA, SUMMARY
from pytest_llmroof.report.schema import problem_of, report_schema
from pytest_llmroof.units import UNITS


def test_it_is_a_schema_of_this_version() -> None:
    schema = report_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"] == {"const": SCHEMA}
    assert schema["$id"] == "urn:pytest-llmroof:report:1"
    assert schema["properties"]["summary"]["required"] == list(SUMMARY)
    assert schema["$defs"]["measurement"]["properties"]["unit"]["enum"] == list(UNITS)


def few() -> dict[str, Any]:
    """Of very many gates as many as there are kinds, and some: each is held against the schema alone."""
    return reports.many(200)


@pytest.mark.parametrize("document", [reports.ordinary, reports.hostile, few])
def test_reports_follow_it(document: Callable[[], dict[str, Any]]) -> None:
    assert problem_of(document()) is None


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from places(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def changed(document: dict[str, Any], path: tuple[str | int, ...], change: Callable[[Any, Any], None]) -> Any:
    copied = copy.deepcopy(document)
    parent: Any = copied
    for part in path[:-1]:
        parent = parent[part]
    change(parent, path[-1])
    return copied


#: Where any key may stand: names of people, of metrics, of what was written.
OPEN = {"labels", "measurements", "provenance", "asked", "peaks", "achievable", "diagnoses", "changes"}


#: Keys that reports of earlier versions have not.
LATER = {"because", "advice"}


def test_every_key_that_a_report_holds_is_described_and_none_may_be_missing() -> None:
    document = reports.ordinary()
    unknown = {
        path for path in places(document)
        if not (OPEN - {path[-1]}) & set(path) and path[-1] not in OPEN | LATER
        and problem_of(changed(document, path, lambda parent, key: parent.pop(key))) is None
    }  # fmt: skip
    assert unknown == set()


def test_keys_that_were_added_later_may_be_missing_and_are_described() -> None:
    document = reports.ordinary()
    added = [path for path in places(document) if path[-1] in LATER]
    assert {path[-1] for path in added} == LATER
    for path in added:
        assert problem_of(changed(document, path, lambda parent, key: parent.pop(key))) is None
        assert problem_of(changed(document, path, lambda parent, key: parent.__setitem__(key, 1))) is not None


def test_further_keys_are_let_through_anywhere() -> None:
    document = reports.ordinary()
    for path in [(), ("windows", 0), ("windows", 0, "gates", 0), ("windows", 0, "deployment")]:
        assert problem_of(changed(document, (*path, "new"), lambda parent, key: parent.update({key: {"a": 1}}))) is None


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("windows", 0, "gates", 1, "margin"), "-1", "windows[0].gates[1].margin is not a number or null"),
        (("windows", 0, "gates", 0, "verdict"), "green", "windows[0].gates[0].verdict is none of"),
        (("windows", 0, "facts", "decode", "batch"), 3, "windows[0].facts.decode.batch is not a mapping"),
        (("windows", 0, "measurements", "decode.mbu"), None, "windows[0].measurements['decode.mbu'] is not a mapping"),
        (("windows", 0, "diagnosis", "candidates"), "C", "windows[0].diagnosis.candidates is not a list"),
        (("windows", 0, "labels"), {"a": 1}, "windows[0].labels.a is not a text"),
        (("summary", "not run"), -1, "summary['not run'] is not as it was written"),
        (("not_run",), [{}], "not_run[0] lacks 'node_id'"),
        (("windows", 0, "gpu", "count"), True, "windows[0].gpu.count is not a whole number"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(path: tuple[str | int, ...], value: Any, problem: str) -> None:
    broken = changed(reports.ordinary(), path, lambda parent, key: parent.__setitem__(key, value))
    said = problem_of(broken)
    assert said is not None
    assert said.startswith(problem)


def test_anything_else_is_no_report() -> None:
    assert problem_of([]) == "is not a mapping"
    assert problem_of({"schema": "llmroof.report/2"}) is not None
