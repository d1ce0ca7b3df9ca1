"""vLLM's own counters against its formula: real scrapes agree, another model or split is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_llmroof.analysis.estimated import EstimatorCheck, estimator_checks
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import model_from_config
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Window

#: What the captures serve (tests/data/vllm-cpu/README.md).
TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "head_dim": 32,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1352, "dtype": "bfloat16",
}  # fmt: skip


def captured(data: Path, first: str, last: str, folder: str = "mfu") -> Window:
    pages = [(data / "vllm-cpu" / folder / f"{page}.prom", f"{page}.prom") for page in (first, last)]
    return read_window(pages, served_model_name=None, duration_seconds=None)


def deployment(changes: dict[str, Any] | None = None, **facts: Any) -> Deployment:
    return replace(Deployment(model=model_from_config({**TINY, **(changes or {})}, "tiny")), **facts)


def decode_facts(data: Path, on: Deployment) -> WindowFacts:
    return gather(captured(data, "after-prefill", "after-decode"), on)


def checks(facts: WindowFacts) -> dict[str, EstimatorCheck]:
    return {check.of: check for check in estimator_checks(facts)}


def test_the_captures_agree_within_half_a_percent(data: Path) -> None:
    prefill = gather(captured(data, "before-prefill", "after-prefill"), deployment())
    found = checks(prefill)
    assert found["FLOPs"].ratio.value == pytest.approx(1, abs=0.005)
    # how prompts were cut is not known: they agree, and confirm nothing
    assert found["FLOPs"].agrees
    assert not found["FLOPs"].confirms
    assert "bytes read" not in found  # bytes of prompts are those between operations
    decode = checks(decode_facts(data, deployment()))
    assert decode["FLOPs"].ratio.value == pytest.approx(1, abs=0.005)
    assert decode["bytes read"].ratio.value == pytest.approx(1, abs=0.02)
    assert decode["FLOPs"].confirms
    assert decode["bytes read"].confirms


def test_what_agrees_is_no_note(data: Path) -> None:
    assert decode_facts(data, deployment()).notes == ()


def test_another_split_is_said_with_the_one_that_fits(data: Path) -> None:
    flops, read = decode_facts(data, deployment(tensor_parallel=2)).notes
    assert flops == (
        "vllm:estimated_flops_per_gpu_total is 199 % of what vLLM's estimator gives for tiny at TP 2, weights bf16, "
        "kv_cache bf16: model or tensor_parallel may not be what the server runs (tensor_parallel 1 would fit)"
    )
    assert "vllm:estimated_read_bytes_per_gpu_total is 196 %" in read
    assert "quantisation" in read


def test_another_model_is_said(data: Path) -> None:
    note = decode_facts(data, deployment({"num_hidden_layers": 6})).notes[0]
    # a layer has 2 x 256^2 + 2 x 128 x 256 + 3 x 256 x 704 = 737 280 matrix elements, the head 346 112: 4 layers of 6
    # and one head are 3 295 232 / 4 769 792 = 69.1 %; of scores, and of prompts (a ninth, without head) it is 4 of 6
    assert "_flops_per_gpu_total is 68 %" in note
    assert "would fit" not in note


def test_another_quantisation_is_said_of_bytes_alone(data: Path) -> None:
    (note,) = decode_facts(data, deployment(weights="fp8")).notes
    assert "read_bytes" in note
    assert "model, tensor_parallel or quantisation" in note


def test_known_miscounts_are_noted_and_not_judged(data: Path) -> None:
    notes = decode_facts(data, deployment(pipeline_parallel=2)).notes
    assert notes
    assert all("not judged, it is known to miscount pipeline parallelism" in note for note in notes)
    block = {
        "quant_method": "compressed-tensors",
        "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]}},
    }
    quantised = decode_facts(data, deployment({"quantization_config": block}, weights="fp8"))
    assert set(checks(quantised)) == {"FLOPs"}


def test_nothing_is_compared_where_the_estimator_is_off(data: Path) -> None:
    off = gather(captured(data, "after-prefill", "after-decode", "plain"), deployment())
    assert estimator_checks(off) == ()
    assert estimator_checks(decode_facts(data, Deployment())) == ()


def test_agreement_confirms_what_was_assumed(data: Path) -> None:
    cpu = Accelerator("mine", "mine", {"bf16": 1e12, "fp8": 2e12}, 50e9, None)
    assumed = {"tensor_parallel": "assumed", "weights": "assumed"}

    def others(folder: str) -> set[str]:
        on = deployment(accelerator=cpu, provenance=assumed)
        found = measure(gather(captured(data, "after-prefill", "after-decode", folder), on))["decode.mfu"]
        assert isinstance(found, Measurement)
        return {each.assumption for each in found.alternatives}

    # Products in bf16 take as long whatever the weights are kept in: of their precision MFU is no other.
    assert others("plain") == {"tensor_parallel = 2 (assumed 1)"}
    assert others("mfu") == set()


@pytest.mark.parametrize(("weights", "narrower"), [("bf16", {"weights = fp8 (assumed bf16)"}), ("fp8", set())])
def test_assumed_weights_of_eight_bits_are_not_halved(data: Path, weights: str, narrower: set[str]) -> None:
    cpu = Accelerator("mine", "mine", {"bf16": 1e12, "fp8": 2e12}, 50e9, None)
    on = deployment(accelerator=cpu, weights=weights, provenance={"weights": "assumed"})
    found = measure(gather(captured(data, "after-prefill", "after-decode", "plain"), on))["decode.mbu"]
    assert isinstance(found, Measurement), found
    assert {each.assumption for each in found.alternatives} == narrower
