"""Metrics and scenarios of other plugins: what their functions see of a window, and what becomes of what they give."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hand_facts import decoding, llama_70b, series

from pytest_llmroof import extend
from pytest_llmroof.analysis.added import added_outcome, packaged_metric
from pytest_llmroof.analysis.added_scenarios import (
    AddedRemedy,
    AddedScenario,
    added_scenarios,
    set_scenarios,
    with_added,
)
from pytest_llmroof.analysis.attribution import Attribution, Share
from pytest_llmroof.analysis.diagnosis import Diagnosis, Evidence, Remedy
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.analysis.metrics import Metric, set_added
from pytest_llmroof.analysis.views import view_of
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.client import Client, Request
from pytest_llmroof.telemetry.hardware import Gpu, Hardware
from pytest_llmroof.telemetry.window import Engine, Histogram

FACTS = decoding(llama_70b(), 0.0262)
MBU = Measurement("decode.mbu", Bounded(0.41, 0.40, 0.42), "fraction", "after.prom", "bytes over time", samples=12)
Function = Callable[[extend.WindowView], object]


def given(function: Function, facts: WindowFacts = FACTS, **outcomes: Outcome) -> Outcome:
    known = {"decode.mbu": MBU, **{name.replace("__", "."): one for name, one in outcomes.items()}}
    metric = Metric(
        "lab.it", "count", "what the lab counts", "none", plugin="lab.py", measure=function,  # type: ignore[arg-type]  # wrong on purpose
    )  # fmt: skip
    return added_outcome(facts, metric, known.__getitem__)


def test_a_value_is_a_measurement_with_the_window_as_its_source() -> None:
    outcome = given(lambda window: extend.Value(3))
    assert outcome == Measurement("lab.it", Bounded(3.0, 3.0, 3.0), "count", "after.prom", "what the lab counts")
    told = given(lambda window: extend.Value(3, 2, math.inf, source="lab", method="by hand", samples=7))
    assert told == Measurement("lab.it", Bounded(3.0, 2.0, math.inf), "count", "lab", "by hand", samples=7)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (extend.Value("3"), "value, low and high are numbers"),  # type: ignore[arg-type]  # wrong on purpose
        (extend.Value(True), "value, low and high are numbers"),
        (extend.Value(3, low="2"), "value, low and high are numbers"),  # type: ignore[arg-type]  # wrong on purpose
        (extend.Value(math.nan), "gave nan in [nan, nan]: a finite value inside its interval is expected"),
        (extend.Value(math.inf), "gave inf in [inf, inf]: a finite value"),
        (extend.Value(3, low=-math.inf), "gave 3 in [-inf, 3]: a finite value"),
        (extend.Value(3, high=math.nan), "gave 3 in [3, nan]: a finite value"),
        (extend.Value(3, low=4), "gave 3 in [4, 3]: a finite value"),
        (extend.Value(3, high=2), "gave 3 in [3, 2]: a finite value"),
        (extend.Value(3, samples=1.5), "gave samples 1.5: a whole number is expected"),  # type: ignore[arg-type]  # wrong on purpose
        (extend.Value(3, samples=True), "gave samples True: a whole number is expected"),
        (3, "gave int, and not a Value or NoData of pytest_llmroof.extend"),
    ],
)
def test_what_is_no_figure_is_no_data_and_names_the_plugin(value: object, problem: str) -> None:
    outcome = given(lambda window: value)
    assert isinstance(outcome, NoData)
    assert outcome.reason.startswith("its function in lab.py gave ")
    assert problem in outcome.reason
    assert outcome.remedy == "mend lab.py"


def test_an_error_is_no_data() -> None:
    outcome = given(lambda window: 1 / 0)
    assert outcome == NoData(
        "lab.it", "its function in lab.py raised ZeroDivisionError: division by zero", "mend lab.py"
    )


def test_no_data_keeps_its_words() -> None:
    closed = given(lambda window: extend.NoData("the lab is closed", "come back"))
    assert closed == NoData("lab.it", "the lab is closed", "come back")
    assert given(lambda window: extend.NoData("")) == NoData("lab.it", "lab.py cannot measure it here", None)


def test_the_packages_own_metrics_can_be_built_on() -> None:
    doubled = given(lambda window: extend.Value(2 * window.measured("decode.mbu").value))  # type: ignore[union-attr]  # it was measured
    assert isinstance(doubled, Measurement)
    assert doubled.value == pytest.approx(0.82)
    whole = packaged_metric("decode.mbu", lambda name: MBU)
    assert whole == extend.Value(0.41, 0.40, 0.42, "after.prom", "bytes over time", 12)
    missing = NoData("decode.mbu", "no clock", "scrape twice")
    assert packaged_metric("decode.mbu", lambda name: missing) == extend.NoData("no clock", "scrape twice")
    never = Impossible("decode.mbu", "208 % of the bandwidth", "weights (bf16)", 2.08)
    assert packaged_metric("decode.mbu", lambda name: never) == extend.NoData(
        "decode.mbu is impossible: 208 % of the bandwidth", "check weights (bf16)"
    )
    with pytest.raises(KeyError, match=r"did you mean 'decode\.mbu'"):
        packaged_metric("decode.mbuu", lambda name: MBU)


def test_a_window_measures_what_plugins_add_and_they_build_on_none_of_each_other() -> None:
    def twice(window: extend.WindowView) -> extend.Value:
        step = window.measured("decode.step_time")
        assert isinstance(step, extend.Value)
        return extend.Value(2 * step.value)

    def on_another(window: extend.WindowView) -> extend.Value | extend.NoData:
        return window.measured("lab.twice")

    added = {
        name: Metric(name, "seconds", "what the lab times", "none", plugin="lab.py", measure=function)
        for name, function in (("lab.twice", twice), ("lab.again", on_another))
    }
    set_added(added)
    outcomes = measure(FACTS)
    # Twice the window's 26.2 ms.
    assert outcomes["lab.twice"] == Measurement(
        "lab.twice", Bounded.exactly(0.0524), "seconds", "after.prom", "what the lab times"
    )
    again = outcomes["lab.again"]
    assert isinstance(again, NoData)
    assert "lab.twice is a metric of lab.py, and none of the package's own" in again.reason


def test_what_a_function_sees_of_a_window() -> None:
    """Two replicas: counters add up, histograms with the same buckets too; others are seen at their replica only."""
    first = Engine(
        "engine 0", "m", {"steps": 10.0}, {"itl": Histogram((0.1, math.inf), (3.0, 1.0), 0.5)},
        {"running": series(1.0, 2.0)}, {"stop": 2.0},
    )  # fmt: skip
    second = Engine(
        "engine 1", "m", {"steps": 5.0, "preemptions": 1.0},
        {"itl": Histogram((0.1, math.inf), (1.0, 1.0), 0.4), "ttft": Histogram((0.5, math.inf), (1.0, 0.0), 0.2)},
    )  # fmt: skip
    other = replace(second, identity="engine 2", counters={}, histograms={"ttft": Histogram((math.inf,), (1.0,), 0.3)})
    client = Client(
        "guidellm", "GuideLLM", "run.json", duration_seconds=9.0, completed=1.0, failed=0.0, input_tokens=100.0,
        output_tokens=3.0, concurrency=4.0,
        requests=(Request(ttft=0.5, e2e=1.0, tpot=0.25, itls=(0.2, 0.3), input_tokens=100.0, output_tokens=3.0),),
    )  # fmt: skip
    gpu = Gpu(
        "gpu 0", "NVIDIA H100 80GB HBM3", series={"power_watts": series(300.0)}, counters={"energy_joules": 18_000.0}
    )
    window = replace(FACTS.window, engines=(first, second, other), client=client, hardware=Hardware((gpu,)))
    seen = view_of(replace(FACTS, window=window), lambda name: extend.Value(1.0))
    assert seen.counters == {"steps": 15.0, "preemptions": 1.0}
    assert seen.histograms == {"itl": extend.HistogramView((0.1, math.inf), (4.0, 2.0), 0.9)}
    assert [one.identity for one in seen.engines] == ["engine 0", "engine 1", "engine 2"]
    assert seen.engines[0].gauges == {"running": extend.SeriesView((0.0, 1.0), (1.0, 2.0))}
    assert seen.engines[0].finished == {"stop": 2.0}
    assert seen.engines[1].histograms["ttft"].counts == (1.0, 0.0)
    assert seen.client is not None
    assert (seen.client.tool, seen.client.concurrency, seen.client.requests[0].itls) == ("guidellm", 4.0, (0.2, 0.3))
    assert seen.gpus[0].counters == {"energy_joules": 18_000.0}
    assert seen.gpus[0].series["power_watts"].values == (300.0,)
    assert (seen.deployment.model, seen.deployment.parameters) == ("llama-3.1-70b", 70_553_706_496)
    assert (seen.deployment.tensor_parallel, seen.deployment.gpus, seen.deployment.memory_bytes) == (4, 4, 80e9)
    assert seen.measured("decode.mbu") == extend.Value(1.0)
    with pytest.raises(TypeError):
        seen.counters["steps"] = 3.0  # type: ignore[index]  # wrong on purpose


def test_a_window_of_which_little_is_known() -> None:
    bare = replace(FACTS, deployment=replace(FACTS.deployment, model=None, accelerator=None))
    seen = view_of(bare, lambda name: extend.Value(1.0))
    assert (seen.client, seen.gpus) == (None, ())
    assert (seen.deployment.model, seen.deployment.parameters, seen.deployment.accelerator) == (None, None, None)
    assert seen.deployment.memory_bytes is None


# Scenarios -----------------------------------------------------------------------------------------------------------

OWN = Diagnosis(
    scenario="C", candidates=("C",), title="communication and interconnect stalls", regime=None, confidence="medium",
    of="decode", evidence=(Evidence("C", True, "34 % exposed", "a profile"),),
    remedies=(Remedy("Keep it inside", "the domain", ""),),
)  # fmt: skip
#: 34 % of a step in two shares of one cause, which are seen as one.
SPLIT = Attribution(
    "decode step", 0.0262,
    (Share("exposed communication: transport", 0.0052, 0.2, True, "p"),
     Share("exposed communication: transport", 0.0037, 0.14, True, "p")),
)  # fmt: skip


#: A word that a plugin may write where one of three is asked for.
CERTAIN: Any = "certain"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    set_added({})
    set_scenarios((), ())


def known(condition: object, *remedies: extend.Remedy, letter: str | None = None) -> None:
    scenario = extend.Scenario("the wrong socket", "far away", condition, remedies if letter is None else ())  # type: ignore[arg-type]  # wrong on purpose
    added = tuple(AddedRemedy(letter, one, "lab.py") for one in remedies) if letter is not None else ()
    set_scenarios((AddedScenario("LAB", scenario, "lab.py"),), added)


def diagnosed(
    diagnosis: Diagnosis = OWN, split: Attribution | None = SPLIT, outcomes: Mapping[str, Outcome] | None = None
) -> Diagnosis:
    return with_added(diagnosis, FACTS, outcomes or {"decode.mbu": MBU}, lambda: split)


def test_without_plugins_nothing_is_asked() -> None:
    def never() -> Attribution:
        raise AssertionError("nobody needs it")

    assert with_added(OWN, FACTS, {}, never) is OWN


def test_a_condition_that_holds_names_the_scenario_and_keeps_the_packages_as_a_candidate() -> None:
    def condition(window: extend.WindowView, diagnosis: extend.DiagnosisView) -> extend.Found:
        share = diagnosis.shares["exposed communication: transport"]
        mbu = window.measured("decode.mbu")
        assert isinstance(mbu, extend.Value)
        return extend.Found(f"{diagnosis.scenario}: {share:.2f} at {mbu.value}", "numastat", "high")

    known(condition, extend.Remedy("Pin", "numactl", "half"), extend.Remedy("Never", "n", applies=lambda w, d: False))
    assert [one.key for one in added_scenarios()] == ["LAB"]
    found = diagnosed()
    assert (found.scenario, found.candidates, found.title) == ("LAB", ("LAB", "C"), "the wrong socket")
    assert (found.confidence, found.words) == ("high", "far away")
    # 0.2 + 0.14 of the step.
    assert found.evidence == (Evidence("LAB", True, "C: 0.34 at 0.41", "numastat"), *OWN.evidence)
    assert found.remedies == (Remedy("Pin", "numactl", "half"),)
    assert found.missing == ()


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        (lambda window, diagnosis: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda window, diagnosis: True, "gave bool, not Found or None"),
        (lambda window, diagnosis: extend.Found("s", "t", CERTAIN), "gave Found, not Found or None"),
    ],
)
def test_a_condition_that_fails_leaves_the_diagnosis_and_is_said(condition: object, problem: str) -> None:
    known(condition)
    found = diagnosed()
    assert replace(found, missing=()) == OWN
    assert found.missing == (f"the condition of LAB in lab.py {problem}",)


def test_a_condition_that_does_not_hold_changes_nothing() -> None:
    known(lambda window, diagnosis: None)
    assert diagnosed() == OWN


def test_remedies_are_added_to_the_letters_of_the_diagnosis_once() -> None:
    pin = extend.Remedy("Pin", "numactl", applies=lambda window, diagnosis: window.deployment.gpus == 4)
    known(lambda window, diagnosis: None, pin, pin, letter="C")
    assert [one.title for one in diagnosed().remedies] == ["Keep it inside", "Pin"]
    assert [one.title for one in diagnosed(replace(OWN, scenario="C or D")).remedies] == ["Keep it inside", "Pin"]
    for other in ("D", None):
        assert diagnosed(replace(OWN, scenario=other)).remedies == OWN.remedies


def test_whether_a_remedy_applies_is_a_yes_or_it_is_not_offered() -> None:
    failing = extend.Remedy("Pin", "numactl", applies=lambda window, diagnosis: 1 / 0)  # type: ignore[arg-type,return-value]  # wrong on purpose
    odd = extend.Remedy("Odd", "odd", applies=lambda window, diagnosis: 1)  # type: ignore[arg-type,return-value]  # wrong on purpose
    known(lambda window, diagnosis: None, failing, odd, letter="C")
    found = diagnosed()
    assert found.remedies == OWN.remedies
    assert found.missing == ("`applies` of 'Pin' in lab.py raised ZeroDivisionError: division by zero",)


@pytest.mark.parametrize(
    ("of", "split", "seen"),
    [
        ("decode", SPLIT, 1),
        ("decode", replace(SPLIT, of="prefill"), 0),  # of another time than the diagnosis
        ("prefill", replace(SPLIT, of="prefill"), 1),
        ("ttft", replace(SPLIT, of="ttft"), 1),
        ("whole", SPLIT, 1),  # a window takes what there is
        ("decode", None, 0),
    ],
)
def test_shares_are_those_of_the_time_that_is_diagnosed(of: str, split: Attribution | None, seen: int) -> None:
    views: list[extend.DiagnosisView] = []

    def condition(window: extend.WindowView, diagnosis: extend.DiagnosisView) -> None:
        views.append(diagnosis)

    known(condition)
    diagnosed(replace(OWN, of=of), split)
    assert (views[0].of, len(views[0].shares)) == (of, seen)
