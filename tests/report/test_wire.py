"""What leaves the process: exact types, finite numbers, no control characters, no secrets, no foreign paths."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import assessments as made
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.gates.spec import TelemetrySource
from pytest_llmroof.report.document import report_document, window_document
from pytest_llmroof.report.text import failing_text
from pytest_llmroof.report.wire import to_wire, visible

EXACT = {str, int, float, bool, type(None), list, dict}


def every(value: Any) -> Iterator[Any]:
    yield value
    if type(value) is dict:
        for key, item in value.items():
            yield key
            yield from every(item)
    elif type(value) is list:
        for item in value:
            yield from every(item)


class Word(str):
    __slots__ = ()


class Level(enum.IntEnum):
    HIGH = 3


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.floats().map(numpy.float64) | st.integers(-1000, 1000).map(numpy.int32) | st.text().map(Word)
    | st.just(Level.HIGH) | st.frozensets(st.text()),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.text().map(Word), inner),
    max_leaves=20,
)  # fmt: skip


@given(values)
def test_only_exact_builtins_and_finite_numbers_leave(value: object) -> None:
    wire = to_wire(value)
    assert {type(part) for part in every(wire)} <= EXACT
    assert all(math.isfinite(part) for part in every(wire) if type(part) is float)
    json.dumps(wire, allow_nan=False, ensure_ascii=False).encode("utf-8")  # no lone surrogate is left


@given(st.text())
def test_what_is_made_visible_cannot_steer_a_terminal(text: str) -> None:
    safe = visible(text)
    assert all(character.isprintable() or character in "\n\t" or ord(character) > 0x9F for character in safe)
    assert visible(safe) == safe


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\x1b[31mb", "a\\x1b[31mb"), ("\u202etxt", "\\u202etxt"), ("line\n", "line\n"), ("café ≥ µs", "café ≥ µs")],
)
def test_control_characters_are_spelled(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_objects_have_no_place_in_a_report() -> None:
    with pytest.raises(TypeError, match="PosixPath has no place in a report"):
        to_wire({"path": Path("/x")})


def test_unbounded_is_null() -> None:
    quantile = made.measured("ttft.p99", 12.0, 10.0, math.inf, "seconds")
    document = window_document(made.assessment(outcomes={"ttft.p99": quantile}))
    assert document["measurements"]["ttft.p99"]["high"] is None
    assert document["measurements"]["ttft.p99"]["low"] == 10.0


def test_a_whole_document_is_made_of_builtins() -> None:
    report = report_document([window_document(made.assessment())], labels={"engine": "vllm"}, created="now", not_run=[])
    assert {type(part) for part in every(report)} <= EXACT
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_secrets_and_foreign_paths_reach_neither_document_nor_text() -> None:
    secret = "s3cr3t-t0ken"
    url = f"https://me:{secret}@host/metrics?key={secret}"
    headers = {"Authorization": f"Bearer {secret}"}
    source = TelemetrySource("url", "https://host/metrics", options={"url": url, "headers": headers})
    folder = TelemetrySource("path", "rec/night1", Path("/home/someone/rec/night1"))
    reason = f"401 at {url} with Bearer {secret}; /home/someone/rec/night1/a.prom:3: not a sample; \x1b[2J"
    missing = made.verdict(made.gate(), made.no_data(reason=reason), "no data")
    assessment = made.assessment(missing, spec=made.spec(telemetry=(source, folder)), failure=reason, facts=None)
    document = window_document(assessment)
    text = failing_text(document, document["gates"][0])
    for written in (json.dumps(document), text):
        assert secret not in written
        assert "/home/someone" not in written
        assert "\x1b" not in written
    assert "rec/night1/a.prom:3" in text
    assert "https://host/metrics with" in text


@pytest.mark.parametrize("tenant", ["second", "decode", "not run", "fraction"])
def test_a_secret_that_is_a_word_of_reports_leaves_their_words_whole(tenant: str) -> None:
    """A tenant may be called anything: fields, metrics, units and verdicts keep their names, and tell nothing of it."""
    options = {"url": "https://host/metrics", "headers": {"X-Scope-OrgID": tenant}}
    source = TelemetrySource("url", "https://host/metrics", options=options)
    plain = window_document(made.assessment())
    document = window_document(made.assessment(spec=made.spec(telemetry=(source,)), failure=f"{tenant} is refused"))
    assert document.keys() == plain.keys()
    for name, expected in plain["measurements"].items():
        measured = document["measurements"][name]
        assert measured.keys() == expected.keys()
        assert (measured["value"], measured["unit"]) == (expected["value"], expected["unit"])
    for field in ("metric", "unit", "verdict"):
        assert [gate[field] for gate in document["gates"]] == [gate[field] for gate in plain["gates"]]
    assert document["failure"] == "*** is refused"


def test_an_absolute_path_of_a_model_stays_on_its_machine() -> None:
    document = window_document(made.assessment(spec=replace(made.spec(), model="/models/llama")))
    assert document["asked"]["model"] is None
    assert "/models" not in json.dumps(document)
