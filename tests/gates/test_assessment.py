"""What is known of a window, where some of it is worked out only when somebody asks."""

from __future__ import annotations

from assessments import SCENARIO_C, TP4, shares, spec

from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.gates.assessment import Assessment, Reasons


def test_reasons_are_worked_out_once_and_when_they_are_asked_for() -> None:
    asked: list[Attribution] = []

    def attribute() -> Attribution:
        asked.append(shares())
        return asked[-1]

    reasons = Reasons(attribute, {"decode": SCENARIO_C}, "decode")
    assert asked == []
    made = Assessment(spec(), TP4, None, {}, (), reasons=reasons)
    assert made.attribution is made.attribution
    assert len(asked) == 1
    assert made.diagnosis is SCENARIO_C
    assert made.diagnoses == {"decode": SCENARIO_C}


def test_a_window_that_was_not_measured_has_no_reasons() -> None:
    failed = Assessment(spec(), TP4, None, {}, (), failure="connection refused")
    assert (failed.attribution, failed.diagnosis, failed.diagnoses) == (None, None, {})
    # Families may have their diagnosis where the window has none of its own.
    apart = Assessment(spec(), TP4, None, {}, (), reasons=Reasons(lambda: None, {"ttft": SCENARIO_C}, None))
    assert (apart.diagnosis, apart.diagnoses["ttft"]) == (None, SCENARIO_C)
