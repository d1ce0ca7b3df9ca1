"""Every way of having no measurement fails, each with its own clear text. Nothing that was not measured passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from vllm_pages import EIGHT_B

HEAD = """
gpu: h100
model: llama-3.1-8b
deployment: {tensor_parallel: 1, weights: bf16}
windows:
  decode:
    telemetry: [before.prom, after.prom]
"""


def decode(*gates: str, extra: str = "    phase: decode\n") -> str:
    listed = "".join(f"      - {gate}\n" for gate in gates)
    return f"{HEAD}{extra}    gates:\n{listed}"


@pytest.fixture
def eight_b(pages: Callable[..., None]) -> Callable[..., None]:
    def write(**changes: object) -> None:
        pages(**{**EIGHT_B, **changes})

    return write


def test_an_idle_server(gate: Callable[..., Any], eight_b: Callable[..., None]) -> None:
    eight_b(batch=0.0, requests=0, running=0, kv_usage=0.0)
    run = gate(decode("decode.mbu >= 10%", "ttft.p99 <= 2s", "output.tokens_per_second >= 1"))
    assert run.rc == 1
    assert run.verdicts == ["no data"] * 3
    assert "idle" in run.one_line or "no tokens" in run.one_line


@pytest.mark.parametrize(
    ("body", "gist"),
    [
        ("", "empty"),
        ("<!DOCTYPE html><html><body>404</body></html>", "HTML"),
        ('{"error": "unauthorized"}', "JSON"),
        ("vllm:prompt_tokens_total{model_name=\"x\"} twelve\n", "after.prom:1"),
    ],
)
def test_a_page_that_is_no_page(
    gate: Callable[..., Any], eight_b: Callable[..., None], pytester: pytest.Pytester, body: str, gist: str
) -> None:
    eight_b()
    (pytester.path / "after.prom").write_text(body)
    run = gate(decode("decode.mbu >= 10%"))
    assert run.rc == 1
    assert run.verdicts == ["no data"]
    assert gist in run.one_line
    assert "after.prom" in run.one_line


def test_a_missing_file(gate: Callable[..., Any]) -> None:
    run = gate(decode("decode.mbu >= 10%"))
    assert run.rc == 1
    assert run.verdicts == ["no data"]
    assert "before.prom" in run.one_line
    assert "curl -sf http:" in run.one_line  # the command that makes one


def test_a_metric_that_the_source_cannot_give(gate: Callable[..., Any], eight_b: Callable[..., None]) -> None:
    eight_b()
    run = gate(decode("hfu >= 40%", "timeline.idle <= 5%", "goodput(ttft<=2s) >= 99%"))
    assert run.rc == 1
    assert run.verdicts == ["no data"] * 3
    assert "DCGM" in run.one_line
    assert "profil" in run.one_line
    assert "per-request" in run.one_line


def test_a_percentile_beyond_the_last_bucket(gate: Callable[..., Any], eight_b: Callable[..., None]) -> None:
    eight_b(queue=100.0)  # the last bound is 80 s
    run = gate(decode("ttft.p99 <= 90s", "ttft.p99 <= 80s", "ttft.p99 <= 2s"))
    assert run.rc == 1
    # It lies above 80 s, so the second fails whatever it is; how far above, no bucket tells.
    assert run.verdicts == ["no data", "fail", "fail"]
    assert "beyond the last bucket: above 80 s" in run.one_line
    assert "found above 80 s, expected ttft.p99 <= 2 s" in run.one_line
    assert "found above 80 s, expected ttft.p99 <= 80 s (over, by how much is not known)" in run.one_line
    # Nobody saw 99 of 100 first tokens within 80 s: in words it must not read as if somebody had.
    assert "in words fewer than 99 of 100 requests have their first token within 80 s" in run.one_line


def test_a_gauge_between_two_scrapes_is_not_known(gate: Callable[..., Any], eight_b: Callable[..., None]) -> None:
    eight_b()
    run = gate(decode("kv_cache.usage.max <= 95%"))
    assert run.rc == 1
    assert run.verdicts == ["no data"]
    assert "2 samples" in run.one_line


def test_a_sample_above_the_limit_is_at_least_what_was_seen(
    gate: Callable[..., Any], eight_b: Callable[..., None]
) -> None:
    eight_b(running=32)
    run = gate(decode("running.max <= 31"))
    assert run.verdicts == ["fail"]
    assert "found at least 32, expected running.max <= 31 (3.23 % over)" in run.one_line


def test_a_recording_with_fewer_requests_than_asked_for(
    gate: Callable[..., Any], eight_b: Callable[..., None]
) -> None:
    eight_b()  # 60 s / 6.6 ms x 16 = 145 456 outputs after the first, 1023 of each request: 142 requests
    run = gate(decode("ttft.p50 <= 2s", extra="    min_requests: 142\n"))
    assert run.verdicts == ["pass"]
    run = gate(decode("ttft.p50 <= 2s", extra="    min_requests: 143\n"))
    assert run.verdicts == ["no data"]
    assert "only 142 of the 143 requests asked for (min_requests) finished" in run.one_line


def test_what_a_recording_cannot_do_again_is_said(gate: Callable[..., Any], eight_b: Callable[..., None]) -> None:
    eight_b()
    run = gate(decode("ttft.p50 <= 1ms", extra="    repeat: 3\n"))
    assert run.verdicts == ["fail"]
    assert "`repeat` changes nothing: this telemetry was recorded before" in run.one_line


def test_a_warm_up_that_leaves_no_two_scrapes(gate: Callable[..., Any], eight_b: Callable[..., None]) -> None:
    eight_b()
    run = gate(decode("ttft.p50 <= 2s", extra="    warmup: 10s\n"))
    assert run.verdicts == ["no data"]
    assert "after the warm-up of 10 s fewer than two of the 2 scrapes of a server are left" in run.one_line


def test_a_mixed_window_asked_for_prefill(gate: Callable[..., Any], eight_b: Callable[..., None]) -> None:
    # 10 prompts/s of 2,900 tokens: 44 % of the peak over the whole window, more while prompts were computed.
    eight_b(context=3000, output=200, batch=24, itl=0.012, prefill=0.5)
    run = gate(decode("prefill.mfu >= 45%", "prefill.mfu >= 40%", extra=""))
    assert run.rc == 1
    assert run.verdicts == ["no data", "pass"]
    assert "window of its own" in run.one_line


def test_a_written_phase_that_the_traffic_contradicts(gate: Callable[..., Any], eight_b: Callable[..., None]) -> None:
    eight_b()
    run = gate(decode("prefill.mfu >= 45%", extra="    phase: prefill\n"))
    assert run.rc == 1
    assert run.verdicts == ["no data"]
    assert "decode" in run.one_line


def test_tensor_parallel_left_out_for_a_model_that_does_not_fit(
    gate: Callable[..., Any], pages: Callable[..., None]
) -> None:
    pages()
    run = gate(
        """
        gpu: h100
        model: llama-3.1-70b
        windows:
          decode: {phase: decode, telemetry: [before.prom, after.prom], gates: [decode.mbu >= 30%]}
        """
    )
    assert run.rc == 1
    assert run.verdicts == ["impossible"]
    assert "weights 141 GB do not fit" in run.one_line
    assert "tensor_parallel" in run.one_line


def test_faster_than_memory_allows(gate: Callable[..., Any], eight_b: Callable[..., None]) -> None:
    eight_b(itl=0.004)  # the floor is 5.1 ms
    run = gate(decode("decode.mbu >= 75%"))
    assert run.rc == 1
    assert run.verdicts == ["impossible"]


@pytest.mark.parametrize(
    ("line", "gist"),
    [
        ("gpu: h10O", "h100"),
        ("model: llama-3.1-7b", "llama-3.1-8b"),
        ("modle: llama-3.1-8b", "model"),
        ("deployment: {tensor_paralel: 2}", "tensor_parallel"),
        ("deployment: {tensor_parallel: two}", "tensor_parallel"),
    ],
)
def test_a_wrong_name_is_a_collection_error_with_the_nearest(
    gate: Callable[..., Any], eight_b: Callable[..., None], line: str, gist: str
) -> None:
    eight_b()
    run = gate(f"{line}\nwindows:\n  decode: {{phase: decode, telemetry: [before.prom], gates: [ttft.p99 <= 2s]}}\n")
    assert run.rc == 2, run.text
    assert "llmroof.yaml:1:" in run.text
    assert gist in run.text
    assert "Traceback" not in run.text


@pytest.mark.parametrize(
    ("expression", "gist"),
    [
        ("decode.mbuu >= 75%", "decode.mbu"),
        ("mbu >= 75%", "decode.mbu"),
        ("decode.mbu >= 75ms", "share"),
        ("ttft.p99 <= 80GB", "duration"),
        ("ttft.p98 <= 2s", "p99"),
        ("decode.mbu => 75%", ">="),
    ],
)
def test_a_wrong_expression_is_a_collection_error(
    gate: Callable[..., Any], eight_b: Callable[..., None], expression: str, gist: str
) -> None:
    eight_b()
    run = gate(decode("ttft.p99 <= 2s", expression))
    assert run.rc == 2, run.text
    assert "llmroof.yaml:11:" in run.text
    assert gist in run.text


def test_every_error_at_once_and_other_files_still_run(
    gate: Callable[..., Any], eight_b: Callable[..., None], pytester: pytest.Pytester
) -> None:
    eight_b()
    (pytester.path / "good.llmroof.yaml").write_text(decode("itl.mean <= 10ms"))
    run = gate(decode("decode.mbuu >= 75%", "ttft.p98 <= 2s"), "--continue-on-collection-errors")
    assert "decode.mbuu" in run.text
    assert "p98" in run.text
    assert "1 passed" in run.text


def test_an_unknown_gpu_on_the_command_line_is_a_usage_error(
    gate: Callable[..., Any], eight_b: Callable[..., None]
) -> None:
    eight_b()
    run = gate(decode("decode.mbu >= 10%"), "--llmroof-gpu=h10")
    assert run.rc == 4
    assert "h100" in run.text


def test_no_baseline(gate: Callable[..., Any], eight_b: Callable[..., None]) -> None:
    eight_b()
    run = gate(decode("decode.mbu >= 0.97x baseline"))
    assert run.rc == 1
    assert run.verdicts == ["no data"]
    assert "no baseline" in run.one_line
    assert "--llmroof-report=" in run.one_line
