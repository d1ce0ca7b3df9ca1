"""What a gate is held against: medians, noise, repeats, labels, and which windows count."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import assessments as made
import pytest

from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.baseline.limits import baseline_of, identity_of
from pytest_llmroof.baseline.matching import Baselines
from pytest_llmroof.baseline.places import Place
from pytest_llmroof.baseline.statistics import student_quantile
from pytest_llmroof.gates.baseline import Baseline, NoBaseline
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.repeats import Medians
from pytest_llmroof.report.document import report_document, window_document

PASSING = made.assessment()
GATE = parse_gate("decode.mbu >= 0.97x baseline")


def night(folder: Path, number: int, value: float, edit: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """A report of a window that reached so much, made on the ``number``-th."""
    window = json.loads(json.dumps(window_document(PASSING)))
    for gate in window["gates"]:
        gate["verdict"] = "pass"
    window["measurements"]["decode.mbu"].update(value=value, low=value, high=value)
    if edit is not None:
        edit(window)
    document = report_document([window], labels={}, created=f"2026-11-{number:02}T03:00:00Z")
    path = folder / f"{number}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def held(*places: Path, outcome: Measurement | None = None, gate: Any = GATE) -> Baseline | NoBaseline | None:
    assert PASSING.facts is not None
    identity = identity_of(PASSING.spec, PASSING.facts)
    measured = outcome or PASSING.outcomes["decode.mbu"]
    return baseline_of(gate, measured, identity, Baselines([Place(path, path.name) for path in places]))


def against(*places: Path, outcome: Measurement | None = None) -> Baseline:
    found = held(*places, outcome=outcome)
    assert isinstance(found, Baseline), found
    return found


def test_the_median_of_the_newest_ten_of_a_folder(tmp_path: Path) -> None:
    for number in range(1, 13):
        night(tmp_path, number, number / 100)
    # Nights 3 to 12: the median lies between 7 and 8 %.
    found = against(tmp_path)
    assert found.value == pytest.approx(0.075)
    assert (found.windows, found.low, found.high) == (10, 0.03, 0.12)
    assert found.reports[0].endswith("/12.json")
    # Files that are named count all.
    assert against(*(tmp_path / f"{number}.json" for number in range(1, 13))).windows == 12


def test_a_breached_window_counts_in_a_file_and_not_in_a_folder(tmp_path: Path) -> None:
    def breach(window: dict[str, Any]) -> None:
        window["gates"][0]["verdict"] = "fail"

    def warned(window: dict[str, Any]) -> None:
        window["gates"][0].update(verdict="fail", severity="warn")

    night(tmp_path, 1, 0.40)
    night(tmp_path, 2, 0.30, breach)
    night(tmp_path, 3, 0.42, warned)
    assert against(tmp_path).value == pytest.approx(0.41)
    assert against(tmp_path / "2.json").value == pytest.approx(0.30)
    for number in (1, 3):
        (tmp_path / f"{number}.json").unlink()
    found = held(tmp_path)
    assert isinstance(found, NoBaseline)
    assert "a gate failed by its value in " in found.reason


def test_a_metric_that_was_not_measured_there_is_named(tmp_path: Path) -> None:
    night(tmp_path, 1, 0.40, lambda window: window["measurements"].pop("decode.mbu"))
    found = held(tmp_path)
    assert isinstance(found, NoBaseline)
    assert "decode.mbu was not measured in" in found.reason


def seen(window: dict[str, Any], view: str | None, other: tuple[str, float] | None = None) -> None:
    told = None
    if other is not None:
        told = {"value": other[1], "low": other[1], "high": other[1], "view": other[0], "source": "", "method": ""}
    window["measurements"]["decode.mbu"].update(view=view, other=told)


def test_each_view_is_held_against_the_same_view(tmp_path: Path) -> None:
    path = night(tmp_path, 1, 0.40, lambda window: seen(window, "client", ("server", 0.36)))
    mbu = made.mbu()
    # A client's figure holds what a server's does not (the way to it, tokens in one piece): never one for the other.
    assert against(path, outcome=replace(mbu, view="client")).value == 0.40
    assert against(path, outcome=replace(mbu, view="server")).value == 0.36
    assert against(path, outcome=mbu).value == 0.40
    alone = night(tmp_path, 2, 0.41, lambda window: seen(window, "client"))
    missing = held(alone, outcome=replace(mbu, view="server"))
    assert isinstance(missing, NoBaseline)
    assert "decode.mbu as the server sees it was not measured in 2.json" in missing.reason
    # A report that does not tell is believed.
    assert against(night(tmp_path, 3, 0.42), outcome=replace(mbu, view="server")).value == 0.42


def test_what_is_only_known_to_lie_above_something_is_no_baseline(tmp_path: Path) -> None:
    path = night(tmp_path, 1, 0.40, lambda window: window["measurements"]["decode.mbu"].update(high=None))
    missing = held(path)
    assert isinstance(missing, NoBaseline)
    assert "or no more than a bound of it" in missing.reason
    # A percentile of few requests has a value, though nothing bounds it from above.
    path = night(tmp_path, 1, 0.40, lambda window: window["measurements"]["decode.mbu"].update(high=None, low=0.3))
    assert against(path).value == 0.40


def test_a_copy_of_a_report_is_no_second_night(tmp_path: Path) -> None:
    text = night(tmp_path, 1, 0.40).read_text(encoding="utf-8")
    (tmp_path / "latest.json").write_text(text, encoding="utf-8")
    night(tmp_path, 2, 0.44)
    found = against(tmp_path, tmp_path / "1.json")
    assert found.windows == 2
    assert found.value == pytest.approx(0.42)


def test_per_replica_is_held_against_the_worst_replica_there(tmp_path: Path) -> None:
    gate = parse_gate("decode.mbu >= 0.97x baseline", per="replica")
    path = night(tmp_path, 1, 0.40)
    missing = held(path, gate=gate)
    assert isinstance(missing, NoBaseline)
    assert "decode.mbu per replica was not measured in 1.json" in missing.reason
    # The first night's own gate had no baseline, and yet says what its worst replica reached.
    night(tmp_path, 1, 0.40, lambda window: window["gates"][0].update(per="replica", verdict="no data", found=0.35))
    found = held(path, gate=gate)
    assert isinstance(found, Baseline)
    assert found.value == 0.35


def test_three_repeats_against_three_reports_are_welch_s_two_groups(tmp_path: Path) -> None:
    for number, value in enumerate((0.40, 0.41, 0.42), 1):
        night(tmp_path, number, value)
    mbu = made.mbu()
    here = Medians([{"decode.mbu": replace(mbu, bounded=mbu.bounded.scaled(factor))} for factor in (1.0, 0.98, 1.02)])
    median = here["decode.mbu"]
    assert isinstance(median, Measurement)
    assert median.repeats == (mbu.value, mbu.value * 0.98, mbu.value * 1.02)
    found = against(tmp_path, outcome=median)
    assert found.ratio is not None
    # Logarithms: of (1, 0.98, 1.02) they deviate by 2.000 %, of (0.40, 0.41, 0.42) by 2.440 %.
    one, other = 0.02000 ** 2 / 3, 0.02440 ** 2 / 3
    freedom = (one + other) ** 2 / (one ** 2 / 2 + other ** 2 / 2)
    reach = student_quantile(freedom) * math.sqrt(one + other)
    assert math.log(found.ratio.high / found.ratio.value) == pytest.approx(reach, rel=2e-3)


def test_one_report_of_repeats_is_as_many_windows(tmp_path: Path) -> None:
    repeats = [0.40, 0.41, 0.42]
    path = night(tmp_path, 1, 0.41, lambda window: window["measurements"]["decode.mbu"].update(repeats=repeats))
    found = against(path)
    assert (found.value, found.windows, len(found.reports)) == (0.41, 3, 1)
    assert found.ratio is not None


def test_one_window_each_is_as_well_known_as_both_were_measured(tmp_path: Path) -> None:
    path = night(tmp_path, 1, 0.40, lambda window: window["measurements"]["decode.mbu"].update(low=0.39, high=0.42))
    mbu = made.mbu()  # 41.3 %, 40.9 .. 41.8 %
    found = against(path, outcome=mbu)
    assert found.ratio is not None
    assert found.ratio.low == pytest.approx(mbu.low / 0.42)
    assert found.ratio.high == pytest.approx(mbu.high / 0.39)
    assert found.spread is None
    # Nothing is known of the noise of two exact figures.
    assert against(night(tmp_path, 2, 0.40), outcome=mbu).ratio is None


def test_a_baseline_of_zeros_has_a_value_and_no_spread(tmp_path: Path) -> None:
    for number, value in enumerate((0.0, 0.0, 3.0), 1):
        night(tmp_path, number, value)
    found = against(tmp_path)
    assert (found.value, found.spread, found.ratio, found.high) == (0.0, None, None, 3.0)


def test_replicas_that_were_seen_are_a_condition_and_those_that_were_given_are_not(tmp_path: Path) -> None:
    def eight(window: dict[str, Any]) -> None:
        window["deployment"]["data_parallel"] = 8
        window["facts"]["replicas"] = 8

    path = night(tmp_path, 1, 0.40, eight)
    found = against(path)
    assert any("8 replicas there" in condition for condition in found.conditions)
