"""The doubtful reader itself: what it makes of printed numbers and of texts of other scenarios."""

from __future__ import annotations

import pytest
from recompute import Printed, failing_texts, printed, recompute, rows_of


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("41.3 %", 0.4125, 0.4135),
        ("28 400", 28_399.5, 28_400.5),
        ("1.5k", 1450.0, 1550.0),
        ("26.2 ms", 0.02615, 0.02625),
        ("145.0 GB", 144.95e9, 145.05e9),
        ("5.24 TFLOP", 5.235e12, 5.245e12),
        ("12.2 FLOP/B", 12.15, 12.25),
    ],
)
def test_a_printed_number_is_an_interval(text: str, low: float, high: float) -> None:
    number = printed(text)
    assert [number.low, number.high] == pytest.approx([low, high])


def test_intervals_multiply_and_divide() -> None:
    assert Printed(2, 3) * Printed(4, 5) == Printed(8, 15)
    assert Printed(2, 3) / Printed(4, 5) == Printed(0.4, 0.75)
    assert Printed(1, 2).meets(Printed(2, 3))
    assert not Printed(1, 2).meets(Printed(2.1, 3))


EITHER = """\
found 41.3 %, expected decode.mbu >= 75 % (33.7 points short); scenario C or D: communication stalls or launch bubbles
  deployment     Llama 3.1 70B bf16, TP 4 on 4 x H100 SXM (h100-sxm5-80gb, dense bf16 peak)
  window         decode, 60.0 s: 28 443 output tokens, batch 12.4, context 1.5k, ITL mean 26.2 ms
                 (../recordings/decode-70b-tp4)
  step time      41 % memory floor, 52 % not attributed, 7 % kernel ceiling
DIAGNOSIS      Scenario C or D: communication stalls or launch bubbles   (confidence: low)
REMEDIATION    1. Fused all-reduce   -> at most: step 26.2 ms toward 12.6 ms, if it is communication
               2. Capture decode steps in CUDA graphs   -> at most: step 26.2 ms toward 12.6 ms, if it is the host
"""


def test_an_or_needs_no_largest_share_and_its_remedies_take_a_share_away() -> None:
    result = recompute(EITHER)
    assert result.wrong == []
    assert "largest share" not in result.checked
    assert result.checked.count("remedy's target") == 2
    assert recompute(EITHER.replace("toward 12.6 ms", "toward 15.2 ms")).wrong[0].startswith("remedy's target")


def test_continued_rows_are_joined() -> None:
    assert rows_of(EITHER)["window"].endswith("ITL mean 26.2 ms (../recordings/decode-70b-tp4)")


def test_two_texts_in_one_page_are_told_apart() -> None:
    page = f"$ pytest\n\n{EITHER}\n____ next ____\n{EITHER}\n1 failed\n"
    assert [len(recompute(text).checked) for text in failing_texts(page)] == [len(recompute(EITHER).checked)] * 2


def test_a_latency_in_its_own_unit() -> None:
    line = "found 1.03 s, expected ttft.mean <= 500 ms (106 % over); scenario B: compute-bound prefill   [DOC-1]\n"
    text = line + "  limit          This window supports: ttft.mean <= 1.08 s"
    assert recompute(text).wrong == []
    assert recompute(text.replace("106 %", "160 %")).wrong[0].startswith("distance")
    assert recompute(text.replace("1.08 s", "0.98 s")).wrong[0].startswith("supported limit")
