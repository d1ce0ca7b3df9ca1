"""The section of the terminal summary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import assessments as made
import pytest

from pytest_llmroof.report.document import report_document, window_document
from pytest_llmroof.report.terminal import scope_text, summary_lines
from pytest_llmroof.roofline.models import model_from_config, named_model

#: The second board of that short name, as a catalogue would list it.
SHARED_NAME = replace(made.H100, also=("h100-sxm5-64gb",))


def report(**changes: Any) -> dict[str, Any]:
    itl = made.gate("itl.mean", "<=", 0.05, "50ms", "seconds")
    ttft = made.gate("ttft.p99", "<=", 2.0, "2s", "seconds", id="REL-9")
    window = window_document(
        made.assessment(
            made.verdict(itl, made.itl(), "pass"),
            made.verdict(made.gate(limit=0.41, written="41%"), made.mbu(), "pass", approximate=True),
            made.verdict(ttft, made.no_data("ttft.p99", "no series ttft"), "no data"),
            made.verdict(made.gate(limit=0.42, written="42%", severity="warn"), made.mbu(), "fail"),
            made.verdict(made.gate(limit=0.5, written="50%"), made.mbu()),
            made.flagship_verdict(),
            **changes,
        )
    )
    missed = [{"node_id": "llmroof.yaml::prefill::prefill.mfu >= 45%", "reason": "deselected"}]
    return report_document([window], labels={}, created="", not_run=missed)


def test_tests_that_did_not_run_are_not_counted_as_gates() -> None:
    missed = [{"node_id": name, "reason": "deselected"} for name in ("a.yaml::w::x", "test_a.py::a", "test_a.py::b")]
    *_, line = summary_lines(report_document([], labels={}, created="", not_run=missed), 160)
    assert line == "NOT RUN  1 gate, 2 tests: a.yaml::w::x, test_a.py::a, test_a.py::b"


def test_one_line_a_gate_worst_margin_first() -> None:
    assert summary_lines(report(), 160) == [
        "4 x NVIDIA H100 SXM5 80GB, bf16 989 TFLOP/s dense, 3.35 TB/s; Llama 3.1 70B bf16, TP 4",
        "FAIL          decode: decode.mbu >= 75 % [REL-7] (default)  41.3 % (33.7 points short), "
        "scenario C: communication and interconnect stalls",
        "FAIL          decode: decode.mbu >= 50 %                    41.3 % (8.7 points short), "
        "scenario C: communication and interconnect stalls",
        "NOT MEASURED  decode: ttft.p99 <= 2 s [REL-9]               no series ttft",
        "WARNED        decode: decode.mbu >= 42 %                    41.3 % (0.7 points short), "
        "scenario C: communication and interconnect stalls",
        "PASS          decode: decode.mbu >= 41 %                    41.3 % (0.3 points to spare), approximate",
        "PASS          decode: itl.mean <= 50 ms                     26.2 ms (47.6 % to spare)",
        "NOT RUN       1 gate: llmroof.yaml::prefill::prefill.mfu >= 45%",
    ]


@pytest.mark.parametrize("width", [20, 60, 80, 132])
def test_lines_fit_the_width_and_keep_the_finding(width: int) -> None:
    lines = summary_lines(report(), width)
    assert max(map(len, lines)) <= max(width, 40)
    if width >= 60:
        assert [line.split("  ")[0] for line in lines if line.startswith("FAIL")] == ["FAIL", "FAIL"]
        assert sum("41.3 %" in line for line in lines) == 4


def test_a_cut_line_keeps_its_id() -> None:
    lines = summary_lines(report(), 60)
    (line,) = [line for line in lines if "41.3 %" in line and ">= 75 %" in line]
    assert line.startswith("FAIL          decode: decode.mbu >= 75 %… [REL-7] ")
    long = made.flagship_verdict(gate=made.gate(id="REL-" + "7" * 300))
    document = report_document([window_document(made.assessment(long))], labels={}, created="")
    assert max(map(len, summary_lines(document, 80))) <= 80


def test_quiet_says_failures_only() -> None:
    assert {line.split("  ")[0] for line in summary_lines(report(), 160, -1)} == {"FAIL", "NOT MEASURED"}


def test_no_gates_no_section() -> None:
    assert summary_lines(report_document([], labels={}, created=""), 80) == []


def test_windows_are_named_where_there_are_several() -> None:
    two = [window_document(made.assessment(spec=made.spec(id=f"a.yaml::{name}", name=name))) for name in ("one", "two")]
    scope, *lines = summary_lines(report_document(two, labels={}, created=""), 160)
    assert scope.startswith("4 x NVIDIA H100")  # one line of scope for both
    for name, line in zip(("one", "two"), lines, strict=True):
        assert f"{name}: decode.mbu >= 75 %" in line


@pytest.mark.parametrize(("name", "shown"), [("decode", "decode: decode.mbu >= 75 %"), ("cli", "decode.mbu >= 75 %")])
def test_a_single_window_is_named_unless_it_is_that_of_the_command_line(name: str, shown: str) -> None:
    window = window_document(made.assessment(spec=made.spec(id=f"a.yaml::{name}", name=name)))
    _scope, line = summary_lines(report_document([window], labels={}, created=""), 160)
    assert line.split("  ")[1].startswith(shown)


def test_verbose_says_in_a_phrase_why_a_verdict_is_approximate() -> None:
    reason = "the worst of 2 replicas: b; the limit 41 % lies inside the interval of the measurement, 40 .. 42 %; more"
    passed = made.verdict(made.gate(limit=0.41, written="41%"), made.mbu(), "pass", approximate=True, because=reason)
    document = report_document([window_document(made.assessment(passed))], labels={}, created="")
    said = "      approximate: the limit 41 % lies inside the interval of the measurement, 40 .. 42 %"
    assert summary_lines(document, 160, 1)[-1] == said
    assert said not in summary_lines(document, 160)
    assert max(map(len, summary_lines(document, 60, 1))) <= 60


def test_what_is_said_of_a_window_that_passes_stands_behind_its_gates() -> None:
    passed = made.verdict(made.gate(limit=0.40, written="40%"), made.mbu(), "pass")
    window = window_document(made.assessment(passed))
    window["notes"] = ["6 of 294 requests failed (vLLM)"]
    lines = summary_lines(report_document([window], labels={}, created=""), 100)
    assert lines[-1] == f"note  {window['name']}: 6 of 294 requests failed (vLLM)"
    assert not any("294" in line for line in summary_lines(report_document([window], labels={}, created=""), 100, -1))


def test_of_a_window_that_fails_its_own_text_says_it() -> None:
    window = window_document(made.assessment())
    window["notes"] = ["6 of 294 requests failed (vLLM)"]
    assert not any("294" in line for line in summary_lines(report_document([window], labels={}, created=""), 100))


def test_the_scope_line_says_what_is_assumed_and_which_boards_share_the_name() -> None:
    assumed = replace(made.TP4, accelerator=SHARED_NAME, provenance={"tensor_parallel": "given", "weights": "assumed"})
    window = window_document(made.assessment(deployment=assumed))
    assert scope_text(window) == (
        "4 x NVIDIA H100 SXM5 80GB, bf16 989 TFLOP/s dense, 3.35 TB/s; Llama 3.1 70B bf16, TP 4; "
        "assumed: weights' precision; other boards of that short name: h100-sxm5-64gb"
    )


def test_verbose_says_what_of_a_model_is_not_counted() -> None:
    model = replace(named_model("llama-3.1-70b"), left_out=("the vision tower", "the audio tower"))
    seeing = replace(made.TP4, model=model)
    window = window_document(made.assessment(deployment=seeing))
    assert "Llama 3.1 70B bf16, TP 4, without the vision tower and the audio tower" in scope_text(window, 1)
    assert "without" not in scope_text(window)
    assert window["model"]["left_out"] == ["the vision tower", "the audio tower"]


def test_sizes_that_a_config_leaves_to_its_class_are_assumed() -> None:
    keys = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 32, "vocab_size": 100}
    partial = replace(made.TP4, model=model_from_config(keys, "ours"), provenance={"weights": "assumed"})
    window = window_document(made.assessment(deployment=partial))
    said = "assumed: weights' precision, hidden_size (its class's default), intermediate_size (its class's default)"
    assert said in scope_text(window)
    assert window["model"]["class_defaults"] == ["hidden_size", "intermediate_size"]


def test_a_window_without_hardware_and_model_has_no_scope_line() -> None:
    bare = made.assessment(deployment=replace(made.TP4, accelerator=None, model=None))
    assert scope_text(window_document(bare)) == ""
