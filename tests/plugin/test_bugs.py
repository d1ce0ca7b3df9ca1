"""A mistake of the plugin's own: a failure in one sentence, of the gates that it concerns and no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_llmroof.analysis.facts import Phase, WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.profiles.profile import Profile
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.window import Window

PASSES = "decode.mbu >= 30%"
SAID = "this is a bug in pytest-llmroof, please report it: KeyError: 'nowhere' (pytest_llmroof/assess/measuring.py:*"


def test_a_mistake_in_measuring_fails_the_gates_of_its_window(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(window: Window, deployment: Deployment, phase: Phase | None, profile: Profile | None) -> WindowFacts:
        if phase == "prefill":
            raise KeyError("nowhere")
        return gather(window, deployment, phase, profile)

    file = project.gates(PASSES)
    file.write_text(file.read_text() + "  bad:\n    phase: prefill\n    telemetry: [before.prom, after.prom]\n"
                    "    gates: [prefill.mfu >= 1%, ttft.p99 <= 2s]\n")  # fmt: skip
    monkeypatch.setattr("pytest_llmroof.assess.measuring.gather", wrong)
    result = project.run("-rf", "--llmroof-report=report.json")
    result.assert_outcomes(passed=1, failed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    report = json.loads((project.pytester.path / "report.json").read_text(encoding="utf-8"))
    told = [(gate["verdict"], gate["reason"]) for window in report["windows"] for gate in window["gates"]]
    assert told.count(("not run", "an error ended it before it was judged")) == 2  # no worker is there to crash
    result.stdout.fnmatch_lines([SAID] * 2)
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    assert len(result.outlines) < 40
    whole = project.run("--full-trace")
    whole.assert_outcomes(passed=1, failed=2)
    whole.stdout.no_fnmatch_line("*this is a bug*")


def test_a_mistake_in_collecting_is_an_error_of_the_file(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object) -> None:
        raise TypeError("first line\nsecond")

    project.gates(PASSES)
    monkeypatch.setattr("pytest_llmroof.items._all_completed", wrong)
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["this is a bug in pytest-llmroof, please report it: TypeError: first line (pytest_llmroof/items.py:*"]
    )


def test_a_mistake_in_somebody_s_hook_is_shown_as_pytest_does(project: Any) -> None:
    project.gates(PASSES)
    project.pytester.makeconftest("def pytest_llmroof_accelerators(config): return {}['theirs']\n")
    result = project.run()
    result.stdout.fnmatch_lines(["*KeyError: 'theirs'*"])
    result.stdout.no_fnmatch_line("*this is a bug in pytest-llmroof*")


PYTHON = """
import pytest

@pytest.mark.llmroof(telemetry=["before.prom", "after.prom"], phase="decode", gpu="h100", model="llama-3.1-70b")
@pytest.mark.llmroof_gate("decode.step_time <= 1s")
def test_marked():
    pass

@pytest.mark.llmroof(telemetry=["before.prom", "after.prom"], phase="decode")
def test_read(llmroof):
    assert llmroof["decode.step_time"].value < 1

def test_other():
    pass
"""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object) -> None:
        raise KeyError("nowhere")

    monkeypatch.setattr("pytest_llmroof.assess.measuring.gather", wrong)


@pytest.mark.usefixtures("broken")
def test_a_mistake_behind_python_tests_shows_no_way_through_the_package(project: Any) -> None:
    project.pytester.makepyfile(PYTHON)
    result = project.run("-rf")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines([SAID, SAID])
    assert len(result.outlines) < 30
    result.stdout.no_fnmatch_line("*def wrong*")
    whole = project.run("--full-trace")
    whole.assert_outcomes(passed=1, failed=2)
    whole.stdout.no_fnmatch_line("*this is a bug*")


def test_what_a_test_is_told_on_purpose_is_no_mistake(project: Any) -> None:
    project.pytester.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.llmroof(telemetry=["before.prom", "after.prom"], phase="decode")

        def test_not_measured(llmroof):
            llmroof["hfu"]

        def test_no_roof(llmroof):
            llmroof.roofline

        def test_breach(llmroof):
            llmroof.check("decode.step_time <= 1us")

        def test_own(llmroof):
            {}[llmroof["decode.step_time"].value]
        """
    )
    result = project.run()
    result.assert_outcomes(failed=4)
    result.stdout.no_fnmatch_line("*this is a bug*")


@pytest.mark.parametrize("place", ["pytest_llmroof.account._merged", "pytest_llmroof.account.summary_lines"])
def test_a_mistake_in_the_account_is_said_and_never_green(
    project: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def wrong(*_: object) -> None:
        raise KeyError("nowhere")

    project.gates(PASSES)
    report = project.path / "report.json"
    report.write_text("of an earlier run")
    monkeypatch.setattr(place, wrong)
    result = project.run("--llmroof-report=report.json")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    lines = "*the account of this run could not be made: this is a bug in pytest-llmroof*KeyError: 'nowhere'*"
    result.stdout.fnmatch_lines([lines])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert not report.exists() or report.read_text() != "of an earlier run"
