"""Texts of whole windows, from the examples' recordings: each is true, says a thing once, and adds up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pytest_llmroof.analysis.sources import lacks, with_remedy
from pytest_llmroof.assess import assess
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.report.document import window_document
from pytest_llmroof.report.text import failing_text
from pytest_llmroof.roofline.deployment import Deployment

EXAMPLES = Path(__file__).parents[2] / "examples"
H100 = {"gpu": "h100", "model": "llama-3.1-8b", "deployment": {"tensor_parallel": 1, "weights": "bf16"}}


def judged(recording: str, *gates: object, strict: bool = False, **keys: Any) -> dict[str, Any]:
    """The document of a window of one recording of the examples."""
    folder = str(EXAMPLES / "recordings" / recording)
    window = {"telemetry": folder, "gates": list(gates), **H100, **keys}
    given = {key: value for key, value in window.items() if value is not None}
    return window_document(assess(window_spec(given, id="w", name="w", base=EXAMPLES), strict=strict))


def text_of(recording: str, gate: object, strict: bool = False, **keys: Any) -> str:
    """The failing text of its only gate, on one line."""
    window = judged(recording, gate, strict=strict, **keys)
    return " ".join(failing_text(window, window["gates"][0]).split())


def test_figures_of_single_gpus_are_not_promised() -> None:
    text = text_of("decode-8b", {"gate": "decode.mbu >= 75%", "per": "gpu"})
    assert "`per: gpu` needs figures of each GPU, and decode.mbu is the engine's" in text
    assert "per: replica" in text
    assert "add " not in text


def test_what_is_not_named_is_explained_once() -> None:
    (gate,) = judged("decode-8b", "decode.mbu >= 75%", gpu=None)["gates"]
    reason = gate["reason"]
    assert reason.startswith("no accelerator is named, and the telemetry names no device; write `gpu:` or --llmroof-")
    assert (reason.count("`gpu:`"), reason.count("--llmroof-list")) == (1, 1)


def test_a_reason_that_knows_what_to_give_is_not_followed_by_another_one() -> None:
    missing = {"model": "the served name 'x' is no catalogue name: give `model:`, or its config.json"}
    outcome = lacks("decode.mbu", Deployment(missing=missing), "model")
    assert outcome is not None
    assert (outcome.reason, outcome.remedy) == (missing["model"], None)
    assert with_remedy("model", missing["model"]) == missing["model"]
    assert str(with_remedy("gpu", "no accelerator is named")).count("--llmroof-gpu=") == 1


def test_what_nobody_confirmed_is_settled_by_writing_it() -> None:
    window = judged("decode-8b", "decode.mbu >= 75%", strict=True, deployment=None)
    (gate,) = window["gates"]
    assert gate["verdict"] == "inconclusive"
    assert gate["settle"] == "write what holds under `deployment:` (tensor_parallel, weights)"
    text = failing_text(window, gate)
    assert "nobody confirmed what the verdict hangs on" in text
    assert "outputs of one length" not in text  # that would narrow the interval, which the limit lies outside of


def test_what_would_settle_a_limit_inside_the_interval_is_said_once() -> None:
    window = judged("decode-8b", "decode.mbu >= 79.3%", strict=True)
    (gate,) = window["gates"]
    assert gate["verdict"] == "inconclusive"
    text = " ".join(failing_text(window, gate).split())
    assert text.count("record with outputs of one fixed length, or keep per-request data: vllm bench serve ...") == 1
    assert text.count("per-request data") == text.count("of one fixed length") == 1


def test_a_window_that_cannot_be_read_says_so_once() -> None:
    text = text_of("nowhere", "itl.mean <= 8ms")
    assert "nowhere does not exist" in text
    assert text.count("does not exist") == (1 if "no data" not in text else 2)  # a long reason is cut in the first line
    assert " window " not in text


def test_what_helps_goes_by_the_metric() -> None:
    utilisation = text_of("decode-8b", "decode.mbu >= 90%")
    assert "only fewer bytes or larger batches help" in utilisation
    for metric in ("itl.mean <= 5ms", "tpot.mean <= 5ms", "decode.step_time <= 5ms"):
        text = text_of("decode-8b", metric)
        assert "memory is busy nearly all the time: only fewer bytes per step help" in text, metric
        assert "larger batches" not in text


def test_thousands_are_grouped_throughout() -> None:
    text = text_of("decode-8b", "decode.mbu >= 90%")
    assert re.search(r"-> 2470 tok/s toward 15 \d{3} \.\. 18 \d{3} tok/s at batch 409;", text)
    assert re.findall(r"\b\d{5,}\b", text) == []


def test_the_arithmetic_of_a_prompt_adds_up() -> None:
    text = text_of("long-prompts-8b", "ttft.mean <= 500ms")
    found = re.search(r"arithmetic is (\d+) % .*? \((.+?) s\): floor (\d+) ms, kernel ceiling (\d+) ms", text)
    assert found is not None, text
    share, whole, floor, ceiling = map(float, found.groups())
    assert round(100 * (floor + ceiling) / (whole * 1000)) == share


def test_a_cause_stands_in_brackets() -> None:
    text = text_of("saturated-8b", "ttft.mean <= 2s")
    assert "scenario E: admission saturation (the KV cache is full)" in text
    assert not re.search(r"scenario [^;:]*: [^;:]*:", text.split(" in words ")[0])


def test_stages_that_are_not_alike_are_said_where_their_floor_is() -> None:
    # 16.0 sequences at 1k: 17.2 GB over three stages, of which the last one (10 layers and the head) reads most.
    text = text_of("decode-8b", "decode.mbu >= 75%", deployment={"pipeline_parallel": 3, "weights": "bf16"})
    assert "17.20 GB per step -> floor of the busiest GPU 1.82 ms" in text
    assert "per step -> floor 5.1" in text_of("decode-8b", "decode.mbu >= 99%")
    refused = text_of("decode-8b", "decode.mbu >= 75%", deployment={"tensor_parallel": 3, "weights": "bf16"})
    assert "vLLM does not start with tensor_parallel 3 for llama-3.1-8b: its 32 attention heads are no" in refused
