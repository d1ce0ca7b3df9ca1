"""What changed since a baseline, against arithmetic by hand, and the text of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import assessments as made
import pytest
from reportschema import valid

from pytest_llmroof.baseline.change import with_change
from pytest_llmroof.baseline.matching import Baselines
from pytest_llmroof.baseline.places import Place
from pytest_llmroof.report.change_text import change_rows
from pytest_llmroof.report.document import report_document, window_document


def baseline(tmp_path: Path, edit: Any = None, name: str = "y.json") -> Baselines:
    """A report whose window was 3.3 ms faster: 2.6 of them exposed communication; floor 0.4 ms lower."""
    window = json.loads(json.dumps(window_document(made.assessment())))
    decode = window["facts"]["decode"]
    decode["step_seconds"] = {"value": 0.0229, "low": 0.0229, "high": 0.0229}
    decode["batch"]["value"] = 9.0
    decode["floor"]["seconds"] -= 0.0004
    decode["floor"]["kv_seconds"] -= 0.0004
    window["attributed"]["seconds"] = 0.0229
    for share in window["attribution"]:
        share["seconds"] -= {"memory floor: KV": 0.0004, "exposed communication: transport": 0.0026}.get(
            share["cause"], 0.0
        )
        share["seconds"] -= 0.0003 if share["cause"] == "slow kernels" else 0.0
    if edit is not None:
        edit(window)
    document = report_document([window], labels={}, created="2026-11-28T03:00:00Z")
    path = tmp_path / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return Baselines([Place(path, name)])


def compared(here: dict[str, Any], baselines: Baselines) -> dict[str, Any]:
    """The window with what changed; a report of it follows the published schema, so that it can be read again."""
    window = with_change(here, made.TP4, baselines)
    valid(json.loads(json.dumps(report_document([window], labels={}, created="2026-11-29T03:00:00Z"))))
    return window


def changed(baselines: Baselines) -> dict[str, Any]:
    change = compared(window_document(made.assessment()), baselines)["change"]
    assert isinstance(change, dict)
    return change


def text(change: dict[str, Any]) -> str:
    return " ".join(" ".join(line.split()) for row in change_rows(change) for line in row.lines())


def test_the_sums_and_the_parts(tmp_path: Path) -> None:
    change = changed(baseline(tmp_path))
    assert change["of"] == "decode step"
    assert change["seconds"] == pytest.approx(0.0033)  # 26.2 - 22.9 ms
    assert change["traffic_seconds"] == pytest.approx(0.0004)
    assert change["engine_seconds"] == pytest.approx(0.0029)
    parts = {part["cause"]: part["seconds"] for part in change["parts"] if part["of"] == "engine"}
    assert parts["exposed communication: transport"] == pytest.approx(0.0026)
    assert sum(parts.values()) == pytest.approx(0.0029)
    facts = {fact["name"]: (fact["before"], fact["after"]) for fact in change["facts"]}
    assert facts["batch"] == (9.0, 12.4)
    said = text(change)
    assert said.startswith("CHANGE decode step 22.9 -> 26.2 ms (+3.3) against y.json of 2026-11-28 traffic +0.4 ms: ")
    assert "engine +2.9 ms, of it exposed communication: transport +2.6" in said


@pytest.mark.parametrize(
    ("engine", "parts", "said"),
    [
        (-22.5, {"not attributed": -22.6, "kernel ceiling": 0.1}, "not attributed -22.6, others +0.1"),
        (0.482, {"not attributed": 0.266, "clock": 0.216}, "not attributed +0.27, clock +0.22, rounding -0.01"),
        (-22.5, {"not attributed": -20.0, "slow kernels": -2.5}, "not attributed -20.0, slow kernels -2.5"),
        (-22.5, {"not attributed": -22.2, "slow kernels": -0.3}, "not attributed -22.2"),  # 0.3 is below 2 %
        (0.2, {"not attributed": -3.0, "slow kernels": 3.2}, "slow kernels +3.20, not attributed -3.00"),
        (0.2, {"not attributed": -3.0, "clock": 0.4, "slow kernels": 0.4, "front end": 0.4, "queue": 0.4,
               "kernel ceiling": 1.6}, "not attributed -3.00, kernel ceiling +1.60, clock +0.40, slow kernels +0.40, "
         "others +0.80"),
    ],
)  # fmt: skip
def test_parts_never_come_to_more_than_their_whole(engine: float, parts: dict[str, float], said: str) -> None:
    change = {
        "of": "decode step", "before_seconds": 0.0437, "after_seconds": 0.0437 + engine / 1000,
        "seconds": engine / 1000, "traffic_seconds": None, "queue_seconds": None, "engine_seconds": engine / 1000,
        "parts": [{"of": "engine", "cause": cause, "seconds": ms / 1000} for cause, ms in parts.items()],
        "facts": [], "differences": [], "missing": [],
        "baseline": {"report": "y.json", "created": "2026-11-28T03:00:00Z", "windows": 1},
    }  # fmt: skip
    assert text(change).partition("of it ")[2] == said


def test_another_deployment_ends_the_comparison_of_the_engines(tmp_path: Path) -> None:
    def tensor_parallel_two(window: dict[str, Any]) -> None:
        window["deployment"]["tensor_parallel"] = 2

    change = changed(baseline(tmp_path, tensor_parallel_two))
    assert change["engine_seconds"] is None
    assert change["differences"] == ["TP 2 there, 4 here"]
    # The earlier load put on this deployment: 3.4 sequences fewer of 1470 tokens and one, 327 680 B each, over four
    # times 3.35 TB/s: 3.4 * 1471 * 327680 / 13.4e12 = 0.1223 ms.
    assert change["traffic_seconds"] == pytest.approx(0.0001223, rel=0.01)
    assert not [part for part in change["parts"] if part["of"] == "engine"]
    assert "TP 2 there, 4 here: the engines are not compared" in text(change)


@pytest.mark.parametrize("missing", ["context", "floor"])
def test_what_a_report_lacks_is_said(tmp_path: Path, missing: str) -> None:
    def without(window: dict[str, Any]) -> None:
        window["facts"]["decode"][missing] = None

    change = changed(baseline(tmp_path, without))
    assert change["traffic_seconds"] is change["engine_seconds"] is None
    assert "are not known of" in change["missing"][0]
    assert missing != "context" or "context" not in {fact["name"] for fact in change["facts"]}


def test_a_baseline_that_named_no_hardware_is_told_to(tmp_path: Path) -> None:
    def unnamed(window: dict[str, Any]) -> None:
        window["gpu"] = None
        window["facts"]["decode"]["floor"] = None

    change = changed(baseline(tmp_path, unnamed))
    assert change["engine_seconds"] is None
    assert change["differences"] == []
    assert change["missing"] == ["the baseline's run named no gpu: make it again with --llmroof-gpu=NAME"]


def test_another_window_is_not_compared(tmp_path: Path) -> None:
    def renamed(window: dict[str, Any]) -> None:
        window["name"] = "other"

    found = with_change(window_document(made.assessment()), made.TP4, baseline(tmp_path, renamed))
    assert found["change"] is None
    assert found["changes"] == {}


def test_a_window_that_holds_says_nothing_and_reads_nothing(tmp_path: Path) -> None:
    document = window_document(made.assessment())
    passing = {**document, "gates": [{**gate, "verdict": "pass"} for gate in document["gates"]]}
    nowhere = Baselines([Place(tmp_path / "none.json", "none.json")])
    assert with_change(passing, made.TP4, nowhere)["change"] is None
    # A breach cannot be explained by a file that is gone meanwhile; the breach itself stands.
    assert with_change(document, made.TP4, nowhere)["change"] is None


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (0.0229, 0.0262, "22.9 -> 26.2 ms (+3.3)"),
        (0.009, 0.0143, "9.0 -> 14.3 ms (+5.3)"),
        (0.00912, 0.00931, "9.12 -> 9.31 ms (+0.19)"),
        (1.5, 2.25, "1.50 -> 2.25 s (+0.75)"),
        (0.0262, 0.0229, "26.2 -> 22.9 ms (-3.3)"),
        (0.5e-3, 0.9e-3, "500 -> 900 µs (+400)"),
    ],
)
def test_times_share_a_unit_and_add_up_as_printed(tmp_path: Path, before: float, after: float, shown: str) -> None:
    change = {
        **changed(baseline(tmp_path)), "before_seconds": before, "after_seconds": after, "seconds": after - before,
    }  # fmt: skip
    assert shown in text(change)


def test_ttft_splits_into_queue_floor_and_rest(tmp_path: Path) -> None:
    def faster(window: dict[str, Any]) -> None:
        facts, measured = window["facts"], window["measurements"]
        floor = {**facts["decode"]["floor"], "seconds": 0.04, "memory_bound": False, "weights_seconds": 0.01,
                 "kv_seconds": 0.0}  # fmt: skip
        facts["own_prompt"] = {"tokens": 1000.0, "cached": 0.0, "floor": floor}
        for metric, value in (("ttft.mean", 0.2), ("queue.mean", 0.05)):
            measured[metric] = {**measured["itl.mean"], "value": value, "low": value, "high": value}

    here = window_document(made.assessment())
    faster(here)
    here["facts"]["own_prompt"]["floor"] = {**here["facts"]["own_prompt"]["floor"], "seconds": 0.07}
    here["measurements"]["ttft.mean"] |= {"value": 0.5, "low": 0.5, "high": 0.5}
    here["measurements"]["queue.mean"] |= {"value": 0.25, "low": 0.25, "high": 0.25}
    here["gates"][0] = {**here["gates"][0], "family": "ttft"}
    change = compared(here, baseline(tmp_path, faster))["changes"]["ttft"]
    # 200 -> 500 ms: queue +200, the prompt's floor +30, and 70 left for the engine.
    assert change["queue_seconds"] == pytest.approx(0.2)
    assert change["traffic_seconds"] == pytest.approx(0.03)
    assert change["engine_seconds"] == pytest.approx(0.07)
    assert "CHANGE TTFT 200 -> 500 ms (+300)" in text(change)
    assert "queue +200 ms" in text(change)
    # The time to the first token was not attributed: nothing is known of the engine's part but its size.
    assert [part for part in change["parts"] if part["of"] == "engine"] == [
        {"of": "engine", "cause": "not attributed", "before_seconds": None, "after_seconds": None,
         "seconds": pytest.approx(0.07), "observed": False}
    ]  # fmt: skip


def test_what_two_attributions_leave_between_them_is_one_part(tmp_path: Path) -> None:
    def other_causes(window: dict[str, Any]) -> None:
        window["attribution"] = [share for share in window["attribution"] if "floor" in share["cause"]]
        window["attribution"].append(
            {"cause": "not attributed", "seconds": 0.001, "share": 0.04, "observed": False, "estimated": False}
        )

    change = changed(baseline(tmp_path, other_causes))
    engine = [part for part in change["parts"] if part["of"] == "engine"]
    assert [part["cause"] for part in engine].count("not attributed") == 1
    assert sum(part["seconds"] for part in engine) == pytest.approx(change["engine_seconds"])
    assert text(change).partition("of it ")[2].count("not attributed") <= 1
