"""The release checklist, and that texts of others stay texts in it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import assessments as made
import pytest
import reports
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_llmroof.advice import Advice
from pytest_llmroof.analysis.diagnosis import Diagnosis, Remedy
from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.gates.baseline import Baseline
from pytest_llmroof.report import checklist
from pytest_llmroof.report.document import report_document, window_document
from pytest_llmroof.report.inert import code, code_block, inert
from pytest_llmroof.report.wire import visible


def of(*verdicts: Any, **changes: Any) -> str:
    window = window_document(made.assessment(*verdicts, **changes))
    return checklist.rendered(report_document([window], labels={}, created=""))


def section(text: str, heading: str) -> list[str]:
    part = text.partition(f"## {heading}\n")[2].partition("\n#")[0]
    return [line for line in part.splitlines() if line]


class Page(HTMLParser):
    """The tags of a page, its whole text, and its text outside of code."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = self.outside = ""
        self.depth = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        self.depth += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "code"

    def handle_comment(self, data: str) -> None:
        self.tags.append("comment")

    def handle_data(self, data: str) -> None:
        self.text += data
        self.outside += "" if self.depth else data


def page(markdown: str) -> Page:
    """As GitHub and GitLab read it: tables, struck text, raw HTML."""
    return Page(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))


def test_a_box_for_each_gate_ticked_where_it_held() -> None:
    assert section(checklist.rendered(reports.ordinary()), "decode (llmroof.yaml)") == [
        "- [x] ITL mean <= 50 ms (measured 26.2 ms)",
        "- [x] decode MBU >= 41 % (measured 41.3 %, approximate)",
        "- [ ] REL-9 TTFT p99 <= 2 s (not measured: no series ttft)",
        "- [ ] decode MBU >= 42 % (measured 41.3 %; a warning only)",
        "- [ ] REL-2 decode MBU >= 75 % (not measured, impossible: a step took 5.20 ms, and its floor is 10.8 ms: "
        "208 % of the bandwidth)",
        "- [ ] REL-7 decode MBU >= 75 % (measured 41.3 %)",
    ]


def test_what_is_not_ticked_has_plain_sentences() -> None:
    assert section(checklist.rendered(reports.ordinary()), "Not ticked") == [
        "- REL-9 TTFT p99 <= 2 s: No series ttft.",
        "- REL-2 decode MBU >= 75 %: A step took 5.20 ms, and its floor is 10.8 ms: 208 % of the bandwidth.",
        "- REL-7 decode MBU >= 75 %: Tokens come 2.4 times slower than this hardware's memory allows; a third of each "
        "step waits for other GPUs. To try first: Keep tensor parallelism inside the NVLink domain "
        "(step 26.2 ms toward 17.3 .. 19.0 ms).",
    ]


def test_where_nothing_tells_causes_apart_the_cause_is_found_first_and_a_remedy_is_a_guess() -> None:
    remedy = Remedy("Capture decode steps", "", "at most: step 26.2 ms toward 15.2 ms, if the cause is launches")
    missing = (Advice("idle gaps: add a profile", "torch -o '{\"a\": 1}'"), "more")
    either = Diagnosis("C or D", ("C", "D"), "one or the other", None, "low", "decode",
                       remedies=(remedy,), missing=missing)  # fmt: skip
    (line,) = section(of(made.flagship_verdict(), diagnoses={"decode": either}), "Not ticked")
    assert line.endswith(
        "To find the cause: idle gaps: add a profile. A guess until then: Capture decode steps (at most: step 26.2 ms "
        "toward 15.2 ms, if the cause is launches)."
    )


def test_what_was_not_measured_says_how_to_measure_it_once_and_without_commands() -> None:
    remedy = Advice("start it with drafts", "vllm serve ... --draft=x; sleep 5; curl http://HOST:8000/x")
    outcome = NoData("speculative.tokens_per_step", "vLLM exports no count of drafts", remedy)
    gate = made.gate("speculative.tokens_per_step", ">=", 2.0, "2", "count")
    text = of(made.verdict(gate, outcome, "no data", advice=(remedy,)))
    # A name keeps its letters, a remedy its words, and the list of boxes does not repeat it.
    assert section(text, "Not ticked") == [
        "- speculative tokens per step >= 2: vLLM exports no count of drafts; start it with drafts."
    ]
    assert "- [ ] speculative tokens per step >= 2 (not measured: vLLM exports no count of drafts)" in text


def test_a_report_that_does_not_keep_commands_apart_is_told_whole() -> None:
    remedy = Advice("start it with drafts", "vllm serve ... --draft=x")
    outcome = NoData("speculative.tokens_per_step", "vLLM exports no count of drafts", remedy)
    gate = made.gate("speculative.tokens_per_step", ">=", 2.0, "2", "count")
    window = window_document(made.assessment(made.verdict(gate, outcome, "no data", advice=(remedy,))))
    for key in ("because", "advice"):
        del window["gates"][0][key]
    del window["diagnosis"]["advice"]
    text = checklist.rendered(report_document([window], labels={}, created=""))
    assert section(text, "Not ticked") == [
        "- speculative tokens per step >= 2: vLLM exports no count of drafts; start it with drafts: "
        "vllm serve ... --draft=x."
    ]


def test_gates_of_one_name_are_told_apart_by_their_windows() -> None:
    one = window_document(made.assessment(made.flagship_verdict()))
    other = {**one, "name": "evening", "id": "llmroof.yaml::evening"}
    text = checklist.rendered(report_document([one, other], labels={}, created="2026-11-29T12:00:00Z"))
    names = [line.partition(": ")[0] for line in section(text, "Not ticked")]
    assert names == [
        "- REL-7 decode MBU >= 75 %, decode (llmroof.yaml)",
        "- REL-7 decode MBU >= 75 %, evening (llmroof.yaml)",
    ]
    # One of a kind needs no window.
    assert section(of(made.flagship_verdict()), "Not ticked")[0].startswith("- REL-7 decode MBU >= 75 %: ")


def test_deviations_and_what_did_not_run_stand_apart() -> None:
    text = checklist.rendered(reports.ordinary())
    approximate, warned, default = section(text, "Deviations")
    assert approximate.startswith("- decode MBU >= 41 %: approximate: the limit 41 % lies inside the interval")
    assert warned.startswith("- decode MBU >= 42 %: a warning, which blocks nothing: Tokens come 2.4 times slower")
    assert default == "- REL-7 decode MBU >= 75 %: the limit of 75 % is the default, nobody set it."
    assert section(text, "Not run") == [
        "- [ ] REL-3 prefill MFU >= 45 % (not run: deselected)",
        "- [ ] `tests/test_gates.py::TestChat::test_load` (not run: the worker that ran it crashed)",
    ]


def test_the_head_says_what_came_out_and_what_was_tested() -> None:
    assert checklist.rendered(reports.ordinary()).splitlines()[:8] == [
        "# Release checklist",
        "",
        "**Blocked: 1 of 8 gates failed, 2 were not measured, 2 did not run; 1 gave a warning**",
        "",
        "- engine vllm-0.33.1",
        "- 4 x NVIDIA H100 SXM5 80GB, bf16 989 TFLOP/s dense, 3.35 TB/s; Llama 3.1 70B bf16, TP 4",
        "- Made 2026-11-29 12:00 UTC by pytest-llmroof 0.1.0.",
        "",
    ]


def test_another_load_than_the_baselines_is_a_deviation() -> None:
    baseline = Baseline(
        value=0.41, low=0.40, high=0.42, windows=3, spread=0.01, ratio=Bounded.exactly(1.0), reports=("base/a.json",),
        conditions=("prefix hits 0 % here, 40 % there",),
    )  # fmt: skip
    text = of(made.verdict(made.gate(limit=0.40, written="40%"), made.mbu(), "pass", baseline=baseline))
    assert section(text, "Deviations") == ["- decode MBU >= 40 %: prefix hits 0 % here, 40 % there."]
    assert "## Not ticked" not in text


def test_what_is_said_of_a_window_is_a_deviation_whatever_its_gates_came_to() -> None:
    window = window_document(made.assessment(made.verdict(made.gate(limit=0.40, written="40%"), made.mbu(), "pass")))
    window["notes"] = ["6 of 294 requests failed (vLLM)"]
    text = checklist.rendered(report_document([window], labels={}, created=""))
    assert section(text, "Deviations")[-1].endswith(": 6 of 294 requests failed (vLLM).")
    assert "- [x] decode MBU >= 40 %" in text


def test_change_says_how_much_and_whose_it_is() -> None:
    document = reports.ordinary()
    change = {
        "of": "decode step", "baseline": {"report": "base/a.json", "window": "w", "created": "2026-11-28T03:00:00Z",
        "labels": {}, "windows": 1}, "before_seconds": 0.0229, "after_seconds": 0.0262, "seconds": 0.0033,
        "traffic_seconds": 0.0004, "queue_seconds": None, "engine_seconds": 0.0029, "floor_before_seconds": 0.0104,
        "floor_after_seconds": 0.0108, "parts": [], "facts": [], "differences": [], "missing": [],
    }  # fmt: skip
    document["windows"][0]["changes"] = {"decode": change}
    # 26.2 - 22.9 = 3.3; floors 10.8 - 10.4 = 0.4; 3.3 - 0.4 = 2.9
    assert (
        "\n\n**CHANGE** decode step 22.9 -> 26.2 ms (+3.3) against base/a.json of 2026-11-28\n\n"
        "- traffic +0.4 ms: floor 10.4 -> 10.8 ms\n"
        "- engine +2.9 ms\n\n"
    ) in checklist.rendered(document)


#: What the checklist itself is made of.
OWN = {"h1", "h2", "p", "strong", "ul", "li", "code"}
#: What GitHub or GitLab would make something of, outside of code.
MADE = re.compile(r"@\w|(?<!\w)[#!~%&$]\w|://|www\.|:\w+:|\bGH-\d|\b[0-9a-f]{40}\b")


def test_hostile_texts_make_nothing() -> None:
    shown = page(checklist.rendered(reports.hostile()))
    assert set(shown.tags) <= OWN
    assert not MADE.search(shown.outside)
    texts = ("<script>alert(1)</script>", "&lt;b&gt; &amp; &#60;", "\\u202eot tfel", "*bold* _it_ ~~no~~", "\\ud800")
    assert [text for text in texts if text not in shown.text] == []
    # Not one box more than there are gates and tests, and only what passed is ticked.
    lines = checklist.rendered(reports.hostile()).splitlines()
    assert sum(line.startswith("- [ ]") for line in lines) == 2 * len(reports.HOSTILE)
    assert not any(line.startswith("- [x]") for line in lines)


@pytest.mark.parametrize("text", reports.HOSTILE[:-1])
def test_what_is_shown_is_the_text(text: str) -> None:
    assert page("- " + inert(text)).text.strip() == " ".join(visible(text).split())


@given(st.text(max_size=200))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    shown = page(f"- x {inert(text)} x\n")
    assert set(shown.tags) <= {"ul", "li", "code"}
    assert " ".join(shown.text.split()) == " ".join(f"x {visible(text)} x".split())


@given(st.text(alphabet="`a \n", max_size=40))
def test_code_holds_whatever_fences_its_text_has(text: str) -> None:
    block = page(code_block(text))
    assert block.tags == ["pre", "code"]
    assert block.text.rstrip("\n") == text.rstrip("\n")
    if text.strip():
        assert page(code(text)).tags == ["p", "code"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("commit abc1234, engine vllm", "commit `abc1234`, engine vllm"),
        ("at http://127.0.0.1:9/metrics; is", "at `http://127.0.0.1:9/metrics`; is"),
        ("(see http://host/a.html).", "(see `http://host/a.html`)."),
        ("www.", "`www.`"),  # without its point it would begin no address: all of it stays
    ],
)
def test_a_mark_behind_an_address_is_no_part_of_it(text: str, shown: str) -> None:
    assert inert(text) == shown


def test_a_question_has_its_mark_and_no_stop() -> None:
    gone = made.no_data(reason="connection refused; is the server running?")
    asked = of(made.verdict(made.gate(), gone, "no data"))
    assert [line.partition(": ")[2] for line in section(asked, "Not ticked")] == [
        "Connection refused; is the server running?"
    ]


def test_ten_thousand_gates_are_ten_thousand_boxes() -> None:
    text = checklist.rendered(reports.many())
    assert text.count("\n- [x] ") == 8_000
    assert text.count("\n- [ ] ") == 2_000
    assert len(section(text, "Not ticked")) == 2_000


def test_a_run_without_gates_is_blocked() -> None:
    assert "**Blocked: no gate was judged**" in checklist.rendered(report_document([], labels={}, created=""))
