"""Inputs that contradict each other are refused with what would fit; nothing healthy is called impossible."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from made_windows import GOLDEN_GPU, deployment, engine, figures, window

from pytest_llmroof.analysis.contradiction import said
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement, Outcome
from pytest_llmroof.data import load
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import model_from_config, named_model
from pytest_llmroof.telemetry.window import Histogram, Window


def impossible(outcome: Outcome) -> Impossible:
    assert isinstance(outcome, Impossible), outcome
    return outcome


def decode_window(itl: float, steps: float = 1000.0, batch: float = 1.0, **changes: Any) -> Window:
    made = engine(
        itl=itl, outputs=batch * steps, steps=steps, prompt=100, output=1001, requests=batch, present=(batch, batch)
    )  # fmt: skip
    return window(replace(made, **changes), seconds=itl * steps)


def of(made: Window, on: Deployment) -> Measurements:
    return measure(gather(made, on))


def test_more_flops_than_the_peak_are_refused_with_the_figure_that_they_imply() -> None:
    # 989e12 FLOP in 0.25 s on a peak of 989e12 FLOP/s are 400 %: 7.0 prompts of 1 000 tokens of 70.6e9 parameters.
    tokens = 989e12 / (2 * 70e9)
    made = window(engine(prompt=tokens, requests=1, present=(0, 0)), seconds=0.25)
    outcome = impossible(of(made, deployment(figures(parameters=70e9), GOLDEN_GPU))["prefill.mfu"])
    assert outcome.implied == pytest.approx(4.0)
    assert "400 %" in outcome.reason
    assert "model" in outcome.check
    assert "duration" in outcome.check


def test_boost_clocks_are_healthy() -> None:
    # 108 % of the datasheet's peak: clocks above the datasheet's do that. 115 % nothing does.
    def share(wanted: float) -> Outcome:
        tokens = wanted * 989e12 * 10 / (2 * 70e9)
        made = window(engine(prompt=tokens / 100, requests=100, present=(1, 0)), seconds=10.0)
        return of(made, deployment(figures(parameters=70e9), GOLDEN_GPU))["prefill.mfu"]

    assert isinstance(share(1.08), Measurement)
    assert isinstance(share(1.15), Impossible)


def test_a_step_faster_than_its_bytes_names_the_precision_first() -> None:
    # 8.03e9 parameters, 16 bit assumed: 16.06 GB in 7.7 ms on an A100 (2 039 GB/s): 102 %. With 4.92 GB it is 31 %.
    assumed = deployment(figures(parameters=8.03e9), "a100", provenance={"weights": "assumed", "gpu": "given"})
    outcome = impossible(of(decode_window(0.0077, 5000), replace(assumed))["decode.mbu"])
    assert outcome.implied == pytest.approx(16.06e9 / (2039e9 * 0.0077), rel=2e-3)
    assert "102 % of the bandwidth" in outcome.reason
    assert outcome.check.startswith("the weights' precision first")
    assert "weight_bytes" in outcome.check
    # Then the others; what would fit beside fp8 is the next product with 1.02 times the bandwidth of an A100.
    assert "then tensor_parallel (1, given), then model (" in outcome.check
    assert "then gpu (a100-sxm4-80gb, given); an h" in outcome.check
    settled = deployment(figures(parameters=8.03e9, weight_bytes=4.92e9), "a100")
    assert isinstance(of(decode_window(0.0077, 5000), settled)["decode.mbu"], Measurement)


def test_a_given_precision_leaves_parallelism_and_gpu() -> None:
    outcome = impossible(of(decode_window(0.0060), deployment(figures(parameters=16e9), "a100"))["decode.mbu"])
    # fp8 is 16 GB in 6 ms, 2.67 TB/s: still more than 2.04; int4 is not, and that belongs to the weights.
    assert "tensor_parallel (1, given), then weights (bf16, given; int4 would fit), then model (" in outcome.check
    assert "gpu (a100-sxm4-80gb, given); a b200-sxm would fit" in outcome.check
    # 32 GB in 6 ms are 5.33 TB/s: the smallest NVIDIA product of the catalogue with as much would fit.
    assert "would fit" in outcome.check


def test_a_wrong_gpu_is_named_where_no_precision_would_fit() -> None:
    # 16.06 GB in 3 ms are 5.35 TB/s, 620 % of an L40S's 864 GB/s: int4 (4.0 GB, 1.34 TB/s) does not fit either.
    assumed = deployment(figures(parameters=8.03e9), "l40s", provenance={"weights": "assumed"})
    check = impossible(of(decode_window(0.003), assumed)["decode.mbu"]).check
    assert check.startswith("tensor_parallel (1, given), then model (")
    assert "then gpu (l40s, given), then weights (bf16, assumed)" in check
    assert "precision first" not in check


@pytest.mark.parametrize(("itl", "refused"), [(16.06e9 / 3.35e12 / 1.015, False), (16.06e9 / 3.35e12 / 1.03, True)])
def test_two_per_cent_are_left_for_what_is_not_exact(itl: float, refused: bool) -> None:
    outcome = of(decode_window(itl), deployment(figures(parameters=8.03e9), GOLDEN_GPU))["decode.mbu"]
    assert isinstance(outcome, Impossible) is refused


@pytest.mark.parametrize(("margin", "refused"), [(1.015, False), (1.03, True)])
def test_two_per_cent_are_left_above_the_boosted_peak_as_well(margin: float, refused: bool) -> None:
    # 1 024 sequences of a model without a cache: 2 x 8.03e9 x 1 024 FLOP at 1.1 times 989 TFLOP/s are 15.1 ms.
    made = decode_window(2 * 8.03e9 * 1024 / (1.1 * 989e12) / margin, batch=1024.0)
    outcome = of(made, deployment(figures(parameters=8.03e9), GOLDEN_GPU))["decode.mfu"]
    assert isinstance(outcome, Impossible) is refused
    if refused:
        assert "cannot compute 16.4 TFLOP on 1 x 989 TFLOP/s, boost clocks included" in impossible(outcome).reason


def test_the_clocks_error_is_left_as_well() -> None:
    made = decode_window(16.06e9 / 3.35e12 / 1.03)
    assert made.duration_seconds is not None
    blurred = replace(made, clock_error_seconds=0.05 * made.duration_seconds)
    outcome = of(blurred, deployment(figures(parameters=8.03e9), GOLDEN_GPU))["decode.mbu"]
    assert isinstance(outcome, Measurement)


def test_skewed_experts_are_healthy() -> None:
    # Mixtral, 64 sequences: even routing reads all 8 experts of a layer, skewed routing as few as 2. A step that was
    # faster than all experts can be read is healthy, one faster than two of them is not.
    on = deployment("mixtral-8x7b", "h100", tensor_parallel=2)
    model = named_model("mixtral-8x7b")
    every = model.weight_bytes("bf16") / (2 * 3.35e12)
    healthy = of(decode_window(0.6 * every, batch=64.0), on)["decode.mbu"]
    assert isinstance(healthy, Measurement)
    assert healthy.judged_by == "bounds"
    assert healthy.value == healthy.bounded.low < 0.7 < healthy.bounded.high
    assert isinstance(of(decode_window(0.2 * every, batch=64.0), on)["decode.mbu"], Impossible)


def test_prompts_in_flight_are_healthy() -> None:
    # Prompts count at their first output: of 1.5 peaks' worth of tokens a third may have been computed before.
    tokens = 1.5 * 989e12 * 10 / (2 * 70e9)
    on = deployment(figures(parameters=70e9), GOLDEN_GPU)
    busy = window(engine(prompt=tokens / 9, requests=9, present=(3, 0)), seconds=10.0)
    assert isinstance(of(busy, on)["prefill.mfu"], Measurement)
    idle = window(engine(prompt=tokens / 9, requests=9, present=(0, 0)), seconds=10.0)
    assert isinstance(of(idle, on)["prefill.mfu"], Impossible)


def test_a_shared_pass_over_the_weights_is_healthy() -> None:
    # 32 decodes and 512 prompt tokens in every step of 20 ms: floors of 13.6 and 17.8 ms share that step.
    held = Histogram((64.0, 256.0, 1024.0, math.inf), (0.0, 0.0, 1000.0, 0.0), 544_000.0)
    made = engine(
        itl=0.020, outputs=32_000, steps=1000, prompt=512, output=7168, requests=1000, present=(32, 32),
        histograms={"step_tokens": held},
    )  # fmt: skip
    m = of(window(made, seconds=20.0), deployment("llama-3.1-70b", "h100", tensor_parallel=4))
    assert m.contradictions == ()
    assert isinstance(m["decode.mbu"], Measurement)


def test_weights_that_do_not_fit_name_what_would() -> None:
    outcome = impossible(of(decode_window(0.05), deployment("llama-3.1-70b", "h100"))["decode.mbu"])
    assert "weights 141 GB do not fit" in outcome.reason
    assert "80 GB" in outcome.reason
    assert "tensor_parallel: 2 (70.6 GB on each)" in outcome.check
    assert "weights: fp8" in outcome.check
    golden = impossible(of(decode_window(0.05), deployment(figures(parameters=70e9), "h100"))["decode.mbu"])
    assert "weights 140 GB do not fit" in golden.reason
    assert isinstance(of(decode_window(0.05), deployment("llama-3.1-70b", "h100", 4))["decode.mbu"], Measurement)


def test_a_split_that_the_engine_refuses_is_said_and_not_measured() -> None:
    # Llama 3.1 8B has 32 heads: a vLLM server does not start with 3 ranks.
    three = replace(deployment(named_model("llama-3.1-8b")), tensor_parallel=3)
    outcome = impossible(of(decode_window(0.02), three)["decode.mbu"])
    assert outcome.reason == (
        "vllm does not start with tensor_parallel 3 for llama-3.1-8b: its 32 attention heads are no multiple of 3"
    )
    assert outcome.check.startswith("tensor_parallel (3, given)")


@pytest.mark.parametrize(
    ("served", "hint"),
    [("org/Llama-3.1-8B-Instruct-FP8", "FP8"), ("x/Llama-AWQ", "AWQ"), ("x/Llama-3.1-8B-quantized.w4a16", "W4A16")],
)
def test_a_served_name_that_names_a_quantisation(served: str, hint: str) -> None:
    made = decode_window(0.02, model_name=served)
    assumed = deployment("llama-3.1-8b", provenance={"weights": "assumed"})
    outcome = impossible(of(made, assumed)["decode.mbu"])
    assert f"the served name says {hint}, weights bf16 (assumed)" in outcome.reason
    assert outcome.check.startswith("the weights' precision first")
    given = of(made, deployment("llama-3.1-8b"))["decode.mbu"]
    assert isinstance(given, Measurement)
    quantised = of(made, replace(assumed, weights="fp8"))["decode.mbu"]
    assert isinstance(quantised, Measurement)


@pytest.mark.parametrize(
    ("served", "given", "told"),
    [
        # 8 030 261 248 parameters against 7 241 732 096, 9.8 % fewer, of as many layers and as much cache.
        ("meta-llama/Llama-3.1-8B-Instruct", "mistral-7b", "(8.03e9 parameters), the model given mistral-7b (7.2"),
        ("meta-llama/Llama-3.1-8B-Instruct", "qwen2.5-7b", "32 layers, 131 kB of cache a token), the model given qwen"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", None),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.3-70b", None),  # counts alike
        ("our-own-name", "mistral-7b", None),
    ],
)
def test_a_served_name_of_another_model_than_given(served: str, given: str, told: str | None) -> None:
    outcome = of(decode_window(0.08, model_name=served), deployment(given, "h100", 4))["decode.mbu"]
    if told is None:
        assert isinstance(outcome, Measurement)
        return
    assert f"the served model is {served} (" in impossible(outcome).reason
    assert told in impossible(outcome).reason
    assert "`model:` (llama-3.1-8b is what the telemetry shows)" in impossible(outcome).check


def test_a_config_is_compared_with_the_served_model_and_its_vocabulary_may_be_longer() -> None:
    def judged(name: str, **changes: Any) -> Outcome:
        config = {**load("models.yaml")[name]["config"], **changes}
        made = decode_window(0.08, model_name="meta-llama/Llama-3.1-8B-Instruct")
        return of(made, deployment(model_from_config(config, "mine"), "h100"))["decode.mbu"]

    assert isinstance(judged("llama-3.1-8b"), Measurement)
    assert isinstance(judged("llama-3.1-8b", vocab_size=128_512), Measurement)
    assert isinstance(judged("mistral-7b"), Impossible)
    assert "16 layers" in impossible(judged("llama-3.1-8b", num_hidden_layers=16)).reason


def test_figures_by_hand_may_be_rounded() -> None:
    made = decode_window(0.08, model_name="meta-llama/Llama-3.1-8B-Instruct")
    assert isinstance(of(made, deployment(figures(parameters=8e9), "h100"))["decode.mbu"], Measurement)
    assert isinstance(of(made, deployment(figures(parameters=7e9), "h100"))["decode.mbu"], Impossible)


def test_another_number_of_replicas_than_given() -> None:
    on = deployment("llama-3.1-8b", data_parallel=4, provenance={"data_parallel": "given", "weights": "given"})
    m = of(decode_window(0.02), on)
    assert "data_parallel is 4, but replicas in the telemetry are 1 (engine 0)" in impossible(m["decode.mbu"]).reason
    assert isinstance(m["output.tokens_per_second.per_gpu"], Impossible)
    # A sum, or the fullest cache, of one replica of four is not that of the whole.
    for metric in ("output.tokens_per_second", "input.tokens_per_second", "requests_per_second", "running.max"):
        assert isinstance(m[metric], Impossible)


def test_another_device_than_given() -> None:
    seen = replace(decode_window(0.02), device_names=("NVIDIA H200",))
    outcome = impossible(of(seen, deployment("llama-3.1-8b", "h100"))["decode.mbu"])
    assert "NVIDIA H200" in outcome.reason
    assert "h200-sxm-141gb" in outcome.check
    same = replace(decode_window(0.02), device_names=("NVIDIA H100 80GB HBM3",))
    assert isinstance(of(same, deployment("llama-3.1-8b", "h100"))["decode.mbu"], Measurement)
    unknown = replace(decode_window(0.02), device_names=("A device of tomorrow",))
    assert isinstance(of(unknown, deployment("llama-3.1-8b", "h100"))["decode.mbu"], Measurement)


def test_what_was_assumed_is_to_be_checked_first() -> None:
    on = deployment("llama-3.1-8b", provenance={"tensor_parallel": "assumed", "weights": "assumed", "model": "given"})
    assert said(on, "model", "tensor_parallel", "gpu", "weights", weights="fp8 would fit") == (
        "tensor_parallel (1, assumed), then weights (bf16, assumed; fp8 would fit), then model (llama-3.1-8b, given), "
        "then gpu (h100-sxm5-80gb, given)"
    )


def test_contradictions_leave_what_does_not_rest_on_them() -> None:
    m = of(decode_window(0.05), deployment("llama-3.1-70b", "h100"))
    assert isinstance(m["itl.mean"], Measurement)
    assert isinstance(m["decode.batch"], Measurement)
    assert "decode.mbu" not in list(m)
