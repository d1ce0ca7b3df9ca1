"""The failing text that the documentation shows, produced from its facts, every number recomputed."""

from __future__ import annotations

import json
from dataclasses import replace

import assessments as made
import pytest
from recompute import failing_texts, printed, recompute, rows_of

from pytest_llmroof.report.document import window_document
from pytest_llmroof.report.text import failing_text, headline

#: 70B bf16, TP 4 on H100 SXM, batch 12.4, context 1.47k, ITL 26.2 ms, 60 s, 28 400 tokens:
#: bytes = 139.006 GB + 12.4 x 1 471 x 327 680 B = 144.983 GB; floor = 144.983 GB / (4 x 3.35 TB/s) = 10.82 ms;
#: 10.82 / 26.2 = 41.3 %; 75 - 41.3 = 33.7; 26.2 / 10.82 = 2.42; 0.409 x 0.95 = 0.389; 26.2 x 0.66 = 17.3 ms;
#: shares 41.3 + 34 + 4 + 7 + 13.7 = 100.
TEXT = """\
found 41.3 %, expected decode.mbu >= 75 % (33.7 points short); scenario C: communication and interconnect stalls   [REL-7]
  in words       tokens come 2.4 times slower than this hardware's memory allows; a third of each step waits for other GPUs
  deployment     Llama 3.1 70B bf16, TP 4 on 4 x H100 SXM (h100-sxm5-80gb, dense bf16 peak)
  window         decode, 60.0 s: 28 400 output tokens, batch 12.4, context 1.5k, prefix hits 0 %, ITL mean 26.2 ms (after.prom)
  roofline       145.0 GB per step -> floor 10.8 ms; 12.2 FLOP/B, ridge 295: memory-bound side
  limit          75 % is the default, nobody set it. Known for 70B bf16, TP 4, H100: 47 to 58 %. This window supports: decode.mbu >= 39 %
  step time      41 % memory floor, 34 % exposed communication, 4 % idle, 21 % rest (7 kernel ceiling, 14 slow kernels)
DIAGNOSIS      Scenario C: communication and interconnect stalls   (confidence: high)
  for            all-reduce kernels exposed for 34 % of the step (decode.pt.trace.json.gz)
  against D      the GPU was idle 4 % of the step
REMEDIATION    1. Keep tensor parallelism inside the NVLink domain   -> step 26.2 ms toward 17.3 .. 19.0 ms
                  Over PCIe or between sockets every all-reduce waits for the slowest link."""  # noqa: E501 - verbatim


@pytest.fixture
def text() -> str:
    document = window_document(made.assessment())
    return failing_text(document, document["gates"][0])


def test_the_text_line_for_line(text: str) -> None:
    assert text == TEXT


def test_every_number_follows_from_the_others(text: str) -> None:
    result = recompute(text)
    assert result.wrong == []
    assert result.checked == [
        "length", "side", "distance", "floor", "ridge", "binding side", "value", "tokens", "shares", "rest",
        "floor's share", "largest share", "times", "share in words", "supported limit", "known range",
        "remedy's start", "remedy's range",
    ]  # fmt: skip


def test_the_remedy_takes_the_exposed_share_away(text: str) -> None:
    low = rows_of(text)["REMEDIATION"].partition("toward ")[2].partition(" ..")[0]
    step = printed("26.2 ms")
    assert printed(f"{low} ms").meets(type(step)(step.low * 0.655, step.high * 0.665))


@pytest.mark.parametrize(
    ("right", "wrong", "name"),
    [
        ("found 41.3 %", "found 43.1 %", "distance"),
        ("33.7 points", "33.9 points", "distance"),
        ("floor 10.8 ms", "floor 11.8 ms", "floor"),
        ("145.0 GB", "154.0 GB", "floor"),
        ("28 400", "38 400", "tokens"),
        ("batch 12.4", "batch 14.2", "tokens"),
        ("34 % exposed", "43 % exposed", "shares"),
        ("14 slow kernels", "15 slow kernels", "rest"),
        ("2.4 times", "2.9 times", "times"),
        ("a third of each", "half of each", "share in words"),
        ("ridge 295", "ridge 205", "ridge"),
        (">= 39 %", ">= 93 %", "supported limit"),
        ("-> step 26.2 ms", "-> step 22.6 ms", "remedy's start"),
        ("17.3 ..", "71.3 ..", "remedy's range"),
        ("4 % idle", "40 % idle", "largest share"),
    ],
)
def test_a_number_that_does_not_follow_is_found(text: str, right: str, wrong: str, name: str) -> None:
    assert right in text
    assert any(sentence.startswith(name) for sentence in recompute(text.replace(right, wrong)).wrong)


def test_it_is_found_in_a_page_of_documentation(text: str) -> None:
    page = "Some words.\n\n    " + text.replace("\n", "\n    ") + "\n\nMore words, found later.\n"
    (found,) = failing_texts(page)
    assert recompute(found).wrong == []
    assert len(recompute(found).checked) == 18


def test_further_gates_of_the_window_say_finding_and_limit_only() -> None:
    document = window_document(made.assessment())
    assert failing_text(document, document["gates"][0], first=False).splitlines() == [
        TEXT.splitlines()[0], TEXT.splitlines()[5]
    ]  # fmt: skip


def test_a_further_gate_that_was_not_measured_keeps_its_command() -> None:
    gate = made.gate("goodput(ttft<=2s, tpot<=50ms)", limit=0.95)
    reason = "goodput needs several figures of the same request, and histograms hold each apart; keep per-request data"
    made_of = made.verdict(gate, made.no_data(gate.metric), "no data")
    verdict = replace(made_of, because=f"{reason}: {'vllm ' * 20}serve")
    document = window_document(made.assessment(verdict))
    first, *rest = failing_text(document, document["gates"][0], first=False).splitlines()
    assert "serve" not in first
    assert len(first) <= 200
    assert rest[0].startswith("  no data        goodput needs several figures")
    assert any(line.endswith("serve") for line in rest)


def test_the_text_is_made_from_the_json_alone(text: str) -> None:
    again = json.loads(json.dumps(window_document(made.assessment()), allow_nan=False))
    assert failing_text(again, again["gates"][0]) == text
    assert headline(again, again["gates"][0]) == TEXT.splitlines()[0]


def test_a_limit_that_the_user_set_says_what_the_window_supports_and_nothing_else() -> None:
    own = replace(made.flagship_verdict(), gate=made.gate(id="REL-7"))
    document = window_document(made.assessment(own))
    lines = failing_text(document, document["gates"][0]).splitlines()
    assert [line for line in lines if line.startswith("  limit")] == [
        "  limit          This window supports: decode.mbu >= 39 %"
    ]
