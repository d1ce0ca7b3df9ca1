"""First lines, the forms of a text without a measurement, its length, and how figures are printed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import assessments as made
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recompute import recompute

from pytest_llmroof.analysis.attribution import Attribution, Cause, Share
from pytest_llmroof.analysis.diagnosis import Diagnosis, Evidence, Remedy
from pytest_llmroof.analysis.facts import Busy
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.gates.gate import Limit
from pytest_llmroof.report.document import window_document
from pytest_llmroof.report.figures import (
    apart,
    distance,
    percentages,
    precise,
    share_in_words,
    short_count,
    yielding,
)  # fmt: skip
from pytest_llmroof.report.limits import baseline_text, supported_limit
from pytest_llmroof.report.text import failing_text, headline
from pytest_llmroof.units import Unit, grouped


def first_line(verdict: Any, **changes: Any) -> str:
    document = window_document(made.assessment(verdict, **changes))
    return headline(document, document["gates"][0])


def whole_text(verdict: Any, **changes: Any) -> str:
    document = window_document(made.assessment(verdict, **changes))
    return failing_text(document, document["gates"][0])


LATE = made.measured("itl.mean", 0.0143, 0.0143, 0.0143, "seconds")


def test_a_latency_is_over_its_limit_by_a_share_of_it() -> None:
    line = first_line(made.verdict(made.gate("itl.mean", "<=", 0.012, "12ms", "seconds"), LATE))
    assert line.startswith("found 14.3 ms, expected itl.mean <= 12 ms (19.2 % over); scenario C: ")  # 14.3/12 = 1.192


def test_a_limit_relative_to_something_shows_what_it_came_to() -> None:
    gate = replace(made.gate(written="85% of achievable"), limit=Limit("of achievable", 0.85))
    line = first_line(made.verdict(gate, made.mbu(), limit=0.72675))
    assert line.startswith("found 41.3 %, expected decode.mbu >= 85% of achievable = 72.7 % (31.4 points short)")


@pytest.mark.parametrize(("word", "start"), [("no data", "NOT MEASURED"), ("not judged", "NOT JUDGED")])
def test_forms_without_a_measurement(word: Any, start: str) -> None:
    line = first_line(made.verdict(made.gate(id="REL-7"), made.no_data(), word))
    assert line == f"{start}: connection refused at http://host:8000/metrics; expected decode.mbu >= 75 %   [REL-7]"


def test_impossible_says_so_and_names_what_to_check() -> None:
    text = whole_text(made.verdict(made.gate(), made.impossible(), "impossible"))
    lines = text.splitlines()
    assert lines[0] == (
        "NOT MEASURED (impossible): a step took 5.20 ms, and its floor is 10.8 ms: 208 % of the bandwidth;"
        " expected decode.mbu >= 75 %"
    )
    assert "  check          weights (bf16)" in lines
    assert "DIAGNOSIS" not in text


def test_no_data_names_the_command_that_gives_it() -> None:
    text = whole_text(made.verdict(made.gate(), made.no_data(), "no data"))
    command = "python -m pytest_llmroof record --out=recordings/decode URL -- COMMAND"
    assert f"  to measure it  {command}" in text.splitlines()
    assert "this could not be measured, so it cannot pass" in text
    assert "roofline" not in text


def test_the_remedy_is_said_once() -> None:
    missing = made.no_data()
    assert missing.remedy is not None
    text = whole_text(made.verdict(made.gate(), missing, "no data", advice=(missing.remedy,)))
    assert " ".join(text.split()).count("record --out=") == 1


def test_an_approximate_verdict_says_what_would_settle_it() -> None:
    settle = "record 4 times as many requests"
    gate = made.gate(limit=0.415, written="41.5%")
    reason = "the limit lies inside 40.9 .. 41.8 %"
    close = made.verdict(gate, replace(made.mbu(), settle=settle), approximate=True, because=reason, advice=(settle,))
    lines = whole_text(close).splitlines()
    assert lines[0].startswith("found 41.3 %, expected decode.mbu >= 41.5 % (0.2 points short, approximate); scenario")
    assert "  approximate    the limit lies inside 40.9 .. 41.8 %; record 4 times as many requests" in lines


def crowded() -> Diagnosis:
    return replace(
        made.SCENARIO_C,
        evidence=tuple(Evidence("C", index % 2 == 0, f"statement {index} " * 20, "x.json") for index in range(30)),
        remedies=tuple(Remedy(f"remedy {index} " * 12, "detail " * 60, "effect") for index in range(12)),
        missing=tuple(f"missing {index} " * 9 for index in range(9)),
    )


def test_at_most_forty_lines_and_the_first_remedy_is_among_them() -> None:
    noisy = made.facts(seen=made.window(notes=("a note " * 30,) * 9, unread=("file " * 30,) * 9))
    text = whole_text(made.flagship_verdict(), diagnoses={"decode": crowded()}, facts=noisy)
    lines = text.splitlines()
    assert len(lines) <= 40
    assert lines[-1].endswith("more lines: the JSON report holds them)")
    assert any(line.startswith("REMEDIATION    1. remedy 0") for line in lines)
    assert max(map(len, lines)) <= 200


@given(st.text(max_size=400), st.text(min_size=1, max_size=60), st.sampled_from(["fail", "no data", "impossible"]))
def test_a_first_line_is_one_line_of_at_most_200_characters(words: str, gate_id: str, word: Any) -> None:
    metric = "goodput(" + ", ".join(["ttft<=2s"] * 40) + ")"
    outcome = made.measured(metric, 0.413, 0.4, 0.42, "fraction") if word == "fail" else made.no_data(metric, words)
    gate = made.gate(metric, limit=0.75, id=gate_id.replace("\n", " ").replace("\t", " "))
    titled = Diagnosis("C", ("C",), words, None, "low", "window")
    line = first_line(made.verdict(gate, outcome, word), diagnoses={"window": titled})
    assert len(line) <= 200
    assert len(line.splitlines()) == 1


def test_what_nothing_tells_apart_is_one_figure_everywhere() -> None:
    # 14.6 % are 15 %: said in words, in evidence, and among the shares, which add up to 100 by rounding others.
    parts: dict[Cause, float] = {"memory floor: weights": 0.634, "kernel ceiling": 0.154,
                                 "exposed communication: transport": 0.066, "not attributed": 0.146}  # fmt: skip
    shares = tuple(Share(cause, share * 0.0262, share, False, "an estimate") for cause, share in parts.items())
    either = Diagnosis("C or D", ("C", "D", "F"), "one or the other", None, "low", "decode")
    split = Attribution("decode step", 0.0262, shares)
    text = " ".join(whole_text(made.flagship_verdict(), diagnoses={"decode": either}, attribution=split).split())
    assert "15 % of each step is lost, and these sources do not tell to what" in text
    assert "63 % memory floor, 7 % exposed communication (estimated), 15 % not attributed, 15 %" in text


@pytest.mark.parametrize(("of", "time"), [("prefill", "the time in prefill"), ("ttft", "the time to first token")])
def test_a_share_in_words_says_what_it_is_one_of(of: Any, time: str) -> None:
    rest = Share("not attributed", 0.20, 0.4, False, "the rest")
    shares = (Share("compute floor", 0.30, 0.6, True, "roofline"), rest)
    either = Diagnosis("D or F", ("D", "F"), "host launch bubbles or slow kernels", None, "low", "ttft")
    late = made.verdict(made.gate("ttft.mean", "<=", 0.4, "400ms", "seconds"),
                        made.measured("ttft.mean", 0.5, 0.5, 0.5, "seconds"))  # fmt: skip
    text = whole_text(late, diagnoses={"ttft": either}, attribution=Attribution(of, 0.5, shares))
    assert f"40 % of {time} is lost, and these sources do not tell to what" in " ".join(text.split())
    # What was attributed is decode steps: they do not explain a first token.
    steps = whole_text(late, diagnoses={"ttft": either}, attribution=Attribution("decode step", 0.5, shares))
    assert "is lost" not in steps


def test_pauses_behind_other_prompts_are_said_to_be_that() -> None:
    waits = Diagnosis("B", ("B",), "compute-bound prefill", "compute", "medium", "decode")
    p99 = made.measured("itl.p99", 0.0614, 0.06, 0.07, "seconds")
    late = made.verdict(made.gate("itl.p99", "<=", 0.05, "50ms", "seconds"), p99)
    text = whole_text(late, diagnoses={"decode": waits})
    assert "outputs wait for other requests' prompts in the same steps" in " ".join(text.split())
    assert "arithmetic units" not in text


def test_assumed_facts_are_marked() -> None:
    assumed = replace(made.TP4, provenance={"tensor_parallel": "assumed", "weights": "assumed"})
    text = whole_text(made.flagship_verdict(), deployment=assumed)
    assert "Llama 3.1 70B bf16 (assumed), TP 4 (assumed) on 4 x H100 SXM" in text


def test_a_window_that_was_partly_idle_says_so() -> None:
    half = made.facts(generated_tokens=14_200.0, busy=Busy(Bounded.exactly(30.0), "progress"))
    text = whole_text(made.flagship_verdict(), facts=half)
    assert "decode, 60.0 s of which 30.0 s busy: 14 200 output tokens" in text
    assert recompute(text).wrong == []


def test_a_gate_on_mfu_says_how_flops_are_counted() -> None:
    mfu = made.measured("decode.mfu", 0.0166, 0.016, 0.017, "fraction")
    text = whole_text(made.verdict(made.gate("decode.mfu", ">=", 0.05, "5%"), mfu))
    line = next(line for line in text.splitlines() if line.startswith("  convention"))
    # 2 x 69.50e9 x 12.4 = 1.7236e12 of 1.7714e12 with attention: 0.97
    assert "two FLOPs per active parameter and token, against the dense bf16 peak" in line
    assert line.endswith("; two per parameter is 0.97 of the exact count")


def test_latency_in_words() -> None:
    p99 = made.measured("tpot.p99", 0.0614, 0.06, 0.07, "seconds")
    text = whole_text(made.verdict(made.gate("tpot.p99", "<=", 0.05, "50ms", "seconds"), p99))
    words = "99 of 100 requests wait at most 61.4 ms for each further token; at most 50 ms was asked"
    assert f"  in words       {words}" in text


def test_an_honest_or_says_that_nothing_tells() -> None:
    title = "communication or launch gaps"
    either = Diagnosis("C or D", ("C", "D"), title, None, "low", "decode", missing=("a profile",))
    shares = made.shares(observed=False)
    text = whole_text(made.flagship_verdict(), diagnoses={"decode": either}, attribution=shares)
    assert "scenario C or D: communication or launch gaps" in text.splitlines()[0]
    assert "38 % of each step is lost, and these sources do not tell to what" in " ".join(text.split())  # 34 + 4
    assert "34 % exposed communication (estimated), 4 % idle (estimated)" in text
    assert "  missing        a profile" in text


@pytest.mark.parametrize(
    ("value", "limit", "unit", "shown", "away"),
    [
        (0.413, 0.75, "fraction", "41.3 %", "33.7 points"),
        (0.74996, 0.75, "fraction", "74.996 %", "0.004 points"),  # never "75.0 %, expected >= 75 %"
        (0.9989, 0.9995, "fraction", "99.9 %", "0.05 points"),
        (0.7512, 0.7612, "fraction", "75.1 %", "1.02 points"),
        (1.0, 1.01, "fraction", "100 %", "1 point"),
        (0.0143, 0.012, "seconds", "14.3 ms", "19.2 %"),
        (3.0, 0.0, "count", "3", "3"),
        (1900.0, 2000.0, "tokens/s", "1900 tok/s", "5 %"),
    ],
)
def test_distances_follow_from_what_is_printed(value: float, limit: float, unit: Unit, shown: str, away: str) -> None:
    assert (apart(value, limit, unit), distance(value, limit, unit)) == (shown, away)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.75, "fraction", "75 %"),
        (0.9999, "fraction", "99.99 %"),
        (0.05, "seconds", "50 ms"),
        (12_345.0, "tokens/s", "12 345 tok/s"),
    ],
)
def test_limits_keep_every_digit(value: float, unit: Unit, text: str) -> None:
    assert precise(value, unit) == text


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=9))
def test_percentages_add_up_and_stay_near(parts: list[float]) -> None:
    shares = [part / sum(parts) for part in parts]
    whole = percentages(shares)
    assert sum(whole) == 100
    assert all(abs(percent - share * 100) < 1 for percent, share in zip(whole, shares, strict=True))


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=9))
def test_shares_that_other_lines_say_are_rounded_alone_while_the_rest_can_yield(parts: list[float]) -> None:
    shares = [part / sum(parts) for part in parts]
    yields = list(range(len(parts) // 2, len(parts)))  # the half and more: enough for every gap
    whole = percentages(shares, yields)
    assert sum(whole) == 100
    for index, (percent, share) in enumerate(zip(whole, shares, strict=True)):
        assert abs(percent - share * 100) <= 1.5
        if index not in yields:
            assert f"{percent} %" == f"{share * 100:.0f} %"


@pytest.mark.parametrize(
    ("shares", "whole"),
    [
        # 8.45 and 12.45 are said alone as 8 and 12: the floor has the point that is missing, not they.
        ({"memory floor": 0.7910, "idle": 0.0845, "exposed communication": 0.1245}, [80, 8, 12]),
        ({"idle": 0.0845, "exposed communication": 0.1245, "not attributed": 0.7910}, [8, 12, 80]),
        # 79.2 % is what decode MBU says: of shares that may yield, the one whose own rounding was the worst.
        ({"memory floor": 0.7920, "interleaved prefill": 0.0048, "not attributed": 0.0749, "kernel ceiling": 0.1283},
         [79, 1, 7, 13]),
        # 0 + 34 + 34 + 33 is a point too much. Nothing yields below zero, so the one that was rounded up most does.
        ({"kernel ceiling": 0.002, "idle": 0.3355, "exposed communication": 0.3365, "queue": 0.326}, [0, 33, 34, 33]),
    ],
)  # fmt: skip
def test_shares_that_evidence_does_not_say_yield_first(shares: dict[str, float], whole: list[int]) -> None:
    assert percentages(list(shares.values()), yielding(list(shares))) == whole


@given(st.floats(1e-6, 1e6), st.sampled_from([">=", "<="]), st.sampled_from(["fraction", "seconds"]))
def test_a_supported_limit_never_passes_the_measurement(bound: float, operator: str, unit: Unit) -> None:
    rising = operator == ">="
    limit = supported_limit(bound * (0.95 if rising else 1.05), bound, operator, unit)
    assert limit <= bound if rising else limit >= bound
    assert abs(limit / bound - 1) <= 0.11


def test_counts_and_shares_in_words() -> None:
    assert [grouped(number) for number in (0, 999.6, 9999, 28_400)] == ["0", "1000", "9999", "28 400"]
    counts = [short_count(number) for number in (560, 999.6, 1470, 4096, 131_072)]
    assert counts == ["560", "1k", "1.5k", "4.1k", "131k"]
    assert [share_in_words(share) for share in (0.34, 0.49, 0.42)] == ["a third", "half", "42 %"]


def test_a_limit_without_a_unit_is_printed_as_short_as_any_other() -> None:
    assert [precise(value, "count") for value in (5.63, 7.0, 0.125)] == ["5.63", "7", "0.125"]
    assert precise(2.5, "seconds") == "2.5 s"


@pytest.mark.parametrize(("spread", "said"), [(6.3e-16, "0 %"), (0.0121, "1.2 %"), (0.000021, "0.0021 %")])
def test_the_last_bits_of_a_sum_are_no_spread(spread: float, said: str) -> None:
    baseline = {"value": 0.0062, "windows": 2, "spread": spread, "reports": ["a.json", "b.json"]}
    text = baseline_text({"unit": "seconds", "baseline": baseline})
    assert text == f"2 reports, median 6.20 ms, spread {said}"
