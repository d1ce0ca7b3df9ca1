"""The context of decoding sequences in windows that cut requests: what finished tells nothing of what runs on."""

from __future__ import annotations

from typing import Any

import pytest
from made_windows import deployment, engine, figures, window

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.telemetry.window import Engine, Series


def eight_b(load: Engine, seconds: float = 5.0) -> Measurements:
    return measure(gather(window(load, seconds=seconds), deployment("llama-3.1-8b"), "decode"))


def inside(requests: float = 0.0, output: float = 0.0, **changes: Any) -> Engine:
    """Five seconds inside long requests: 32 sequences, 600 steps of 8.3 ms."""
    prompt = 64.0 if requests else 0.0
    return engine(
        itl=0.0083, outputs=19_200, steps=600, prompt=prompt, output=output, requests=requests, present=(32, 32),
        **changes,
    )  # fmt: skip


@pytest.mark.parametrize("load", [inside(), inside(requests=1, output=8)], ids=["none finishes", "a short one does"])
def test_requests_that_run_on_hide_their_context(load: Engine) -> None:
    found = eight_b(load)
    context = found["decode.context"]
    assert isinstance(context, NoData)
    assert "reach beyond the window" in context.reason
    for metric in ("decode.mbu", "window.mbu", "roofline.efficiency", "decode.floor"):
        one = found[metric]
        # 15.01 GB of weights in 8.3 ms are 54 %: with the cache, whose size is not known, more.
        assert isinstance(one, Measurement)
        assert one.judged_by == "bounds"
        assert one.bounded.high > 1.5 * one.value
    assert judge(parse_gate("decode.mbu >= 50%"), found["decode.mbu"]).word == "pass"
    assert judge(parse_gate("decode.mbu >= 75%"), found["decode.mbu"]).word == "no data"
    assert judge(parse_gate("decode.mbu <= 60%"), found["decode.mbu"]).word == "no data"
    assert judge(parse_gate("roofline.efficiency <= 60%"), found["roofline.efficiency"]).word == "no data"


def test_the_most_that_a_step_reads_is_what_memory_holds() -> None:
    # 80 GB over 8.3 ms of 3.35 TB/s; a model without a cache reads its 16 GB and no more.
    load = window(inside(), seconds=5.0)
    for model, most in (("llama-3.1-8b", 80e9), (figures(parameters=8e9), 16e9)):
        one = measure(gather(load, deployment(model), "decode"))["decode.mbu"]
        assert isinstance(one, Measurement)
        assert one.bounded.high == pytest.approx(most / (3.35e12 * 0.0083))


def test_intensity_without_a_context_is_at_most_that_of_the_weights() -> None:
    one = eight_b(inside())["decode.intensity"]
    assert isinstance(one, Measurement)
    # 32 x 2 x 7.505e9 FLOP over 15.01 GB: 32 FLOP/B; with a full cache far less.
    assert one.bounded.high == pytest.approx(32, rel=0.01)
    assert judge(parse_gate("decode.intensity >= 20"), one).word == "no data"
    assert judge(parse_gate("decode.intensity <= 33"), one).word == "pass"


def test_the_cache_tells_what_lengths_do_not() -> None:
    # Every sequence holds 1 000, then 1 600 tokens: 32 x 1 000 / (16 x 10 000) = 20 %, then 32 %.
    usage = {"kv_usage": Series((0.0, 60.0), (0.2, 0.32))}
    facts = {"num_gpu_blocks": "10000", "block_size": "16"}
    one = eight_b(inside(gauges=usage, facts=facts))["decode.context"]
    assert isinstance(one, Measurement)
    assert (one.bounded.low, one.value, one.bounded.high) == pytest.approx((992, 1292, 1592))  # less half a block


def test_a_window_that_begins_idle_and_is_cut_off() -> None:
    # 32 requests of 256 tokens began, each of which has got 600 of its tokens: contexts of 256 .. 856.
    load = engine(itl=0.0083, outputs=19_200, steps=600, prompt=256, requests=32, output=1, present=(0, 32))
    one = eight_b(load)["decode.context"]
    assert isinstance(one, Measurement)
    assert one.bounded.low == pytest.approx(256 + 601 / 2)


def test_the_end_of_long_requests() -> None:
    # 32 requests of 3 000 tokens end in the window, and got 600 of them in it: their mean context is not 1 500.
    load = engine(itl=0.0083, outputs=19_200, steps=600, prompt=256, requests=32, output=3_000, present=(32, 0))
    assert isinstance(eight_b(load)["decode.context"], NoData)


def test_a_steady_load_tells_its_context() -> None:
    # 20 requests of 1 000 tokens finished, 19 220 tokens were generated: within a quarter of each other.
    load = engine(itl=0.0083, outputs=19_200, steps=600, prompt=256, requests=20, output=1_000, present=(32, 32))
    one = eight_b(load)["decode.context"]
    assert isinstance(one, Measurement)
    assert one.bounded.low <= 256 + 500 <= one.bounded.high
