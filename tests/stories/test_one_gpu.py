"""One A100 and llama.cpp: no histograms and no lengths, and still a figure with the bounds that it lies between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from engine_pages import llamacpp, write

GATES = """
gpu: {gpu}
model: {model}
windows:
  chat: {{phase: decode, telemetry: [before.prom, after.prom], gates: [{gates}]}}
"""
QUANTISED = "{parameters: 8.03e9, weight_bytes: 4.92GB, kv_bytes_per_token: 131072}"

Gate = Callable[..., Any]


@pytest.fixture(autouse=True)
def scrapes(pytester: pytest.Pytester) -> None:
    """5,000 steps of one sequence each in 38.5 s of generation; the longest sequence ever had 2,048 tokens."""
    write(pytester.path, partial(llamacpp, steps=5000, tokens=5000, seconds=38.5, longest=2048), seconds=40.0)


def gates(*gates: str, gpu: str = "a100-sxm4-80gb", model: str = QUANTISED) -> str:
    return GATES.format(gpu=gpu, model=model, gates=", ".join(gates))


def test_utilisation_between_weights_only_and_the_longest_sequence(gate: Gate) -> None:
    run = gate(gates("decode.mbu >= 28%", "ttft.p99 <= 1s"))
    assert run.rc == 1, run.text
    assert run.verdicts == ["pass", "no data"]
    measured = run.window["measurements"]
    assert measured["decode.step_time"]["value"] == pytest.approx(38.5 / 5000)  # 7.7 ms
    assert measured["decode.batch"]["value"] == 1.0
    mbu = measured["decode.mbu"]
    # 4.92 GB in 7.7 ms at 2.039 TB/s: 31.3 %; with 2,048 x 131,072 B = 0.268 GB of cache 33.0 %.
    assert mbu["low"] == pytest.approx(4.92e9 / (2.039e12 * 0.0077), rel=1e-4)
    # The few prompts took at most 0.02 % of the step.
    assert mbu["high"] == pytest.approx((4.92e9 + 2048 * 131_072) / (2.039e12 * 0.0077), rel=3e-4)
    assert (mbu["low"], mbu["high"]) == pytest.approx((0.313, 0.330), abs=0.0006)
    assert "context is not measurable from llama.cpp: between weights only and n_tokens_max" in mbu["method"]
    assert [source["kind"] for source in run.window["sources"]] == ["llama.cpp", "llama.cpp"]
    assert "llama.cpp exports no latency histogram; measure it with llmroof_probe" in run.one_line
    assert "decode.context" not in measured
    assert "context at most 2" in run.one_line


def test_between_the_bounds_there_is_no_verdict(gate: Gate) -> None:
    run = gate(gates("decode.mbu >= 32%", "decode.mbu >= 34%", "decode.mbu <= 34%"))
    assert run.verdicts[1:] == ["fail", "pass"]
    assert run.verdicts[0] not in ("pass", "fail")
    assert "n_tokens_max" in run.one_line


def test_a_short_name_says_which_board(gate: Gate) -> None:
    run = gate(gates("decode.mbu >= 28%", gpu="a100"))
    assert run.rc == 0, run.text
    assert run.value("decode.mbu") == pytest.approx(0.313, abs=0.0005)
    assert "a100-sxm4-40gb" in run.one_line


def test_weights_given_in_bytes_are_of_no_assumed_precision(gate: Gate) -> None:
    run = gate(gates("decode.mbu >= 98%"))
    assert "8.03B parameters in 4.92 GB, TP 1 (assumed) on 1 x A100 SXM" in run.one_line
    assert "8.03B parameters in 4.92 GB, TP 1; assumed: tensor parallel, KV cache precision" in run.one_line


def test_sixteen_bit_weights_cannot_be(gate: Gate) -> None:
    """8.03e9 x 2 B in 7.7 ms at 2.039 TB/s is 102 %: the precision is assumed, so it is what is asked about first."""
    run = gate(gates("decode.mbu >= 28%", model="{parameters: 8.03e9}"))
    assert run.rc == 1
    assert run.verdicts == ["impossible"]
    text = run.one_line
    assert "102 %" in text
    assert "weight_bytes" in text
    assert text.index("the weights' precision first") < text.index("weight_bytes")


def test_without_a_model_what_needs_none_is_judged(gate: Gate) -> None:
    """5,000 tokens in the window's 40 s."""
    run = gate(
        """
        gpu: a100-sxm4-80gb
        windows:
          chat:
            phase: decode
            telemetry: [before.prom, after.prom]
            gates: [decode.mbu >= 28%, output.tokens_per_second >= 100tok/s]
        """
    )
    assert run.verdicts == ["no data", "pass"]
    assert "model:" in run.one_line
    assert run.value("output.tokens_per_second") == pytest.approx(125.0)
