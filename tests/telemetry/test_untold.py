"""What no series counts: it never happened, or this release does not count it. Figures on it are approximate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from engine_pages import Page, dynamo, lmdeploy, sglang, tgi, trtllm, write

from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.assess import assess
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.verdict import Verdict

BOTH = ("before.prom", "after.prom")


def verdicts(folder: Path, gates: list[str]) -> Sequence[Verdict]:
    keys = {"telemetry": list(BOTH), "gates": gates, "gpu": "h100", "model": "llama-3.1-8b"}
    return assess(window_spec(keys, id="w", name="w", base=folder)).verdicts


def words(folder: Path, gates: list[str]) -> list[tuple[str, bool]]:
    return [(one.word, one.approximate) for one in verdicts(folder, gates)]


def cut(folder: Path, *names: str) -> None:
    for page in BOTH:
        lines = (folder / page).read_text().splitlines(keepends=True)
        (folder / page).write_text("".join(line for line in lines if not line.startswith(names)))


def test_errors_that_no_series_counts_may_be_any(tmp_path: Path) -> None:
    # 3 of 103 requests failed. Without their count there were at least none, and nobody knows how many.
    write(tmp_path, trtllm)
    gates = ["errors.rate <= 1%", "errors.rate <= 5%"]
    assert words(tmp_path, gates) == [("fail", False), ("pass", False)]
    cut(tmp_path, "trtllm_request_error")
    found = verdicts(tmp_path, gates)
    assert [(one.word, one.approximate) for one in found] == [("pass", True), ("pass", True)]
    assert "no series counts errors here" in str(found[0].reason)


def test_errors_that_have_a_reason_of_their_own_are_counted(tmp_path: Path) -> None:
    # 100 requests, of which none ended in an error and none were cancelled, until 40 more are.
    write(tmp_path, trtllm)
    cut(tmp_path, "trtllm_request_error", "trtllm_e2e")
    after = tmp_path / "after.prom"
    line = 'trtllm_request_success_total{engine_type="pytorch",finished_reason="cancelled",model_name="m"} 40\n'
    after.write_text(after.read_text() + line)
    # 40 / 140 = 29 % at the least.
    assert words(tmp_path, ["errors.rate <= 28%", "errors.rate <= 30%"]) == [("fail", False), ("pass", True)]


@pytest.mark.parametrize(("page", "name", "tokens"), [
    # Each computes some of what was asked in 60 s or in the time of its own steps: with the cached ones the rate would
    # be a fifth (or a tenth) higher, and nobody knows.
    (trtllm, "trtllm_prompt_cached_tokens", 100 * 500 / 60),
    (lmdeploy, "lmdeploy:cached_tokens", 50 * 300 / 60),
    (dynamo, "dynamo_frontend_cached_tokens", 100 * 700 / 60),
])  # fmt: skip
def test_prompts_of_which_nothing_tells_the_cached_ones(tmp_path: Path, page: Page, name: str, tokens: float) -> None:
    write(tmp_path, page)
    gates = [f"input.tokens_per_second >= {tokens * 0.99}", f"prefill.tokens_per_second >= {tokens * 0.5}"]
    whole = words(tmp_path, gates)
    assert whole[0] == ("pass", False)
    cut(tmp_path, name)
    assert words(tmp_path, gates)[0] == ("pass", False)
    assert words(tmp_path, gates)[1] != ("pass", False)


def test_tgi_counts_no_cached_tokens(tmp_path: Path) -> None:
    # 80 prompts of 400 tokens in 8 s of its own prefill steps: 4000 tokens a second, were none of them cached. Two that
    # wait at the end may have been computed, too: 4100 at the most.
    write(tmp_path, tgi)
    found = verdicts(tmp_path, ["prefill.tokens_per_second >= 3900", "prefill.tokens_per_second >= 4200"])
    assert ("pass", False) not in [(one.word, one.approximate) for one in found]
    assert found[1].word == "fail"
    assert isinstance(found[0].outcome, Measurement)
    bounded = found[0].outcome.bounded
    # One of each of the 80 at the least: 10 a second.
    assert [bounded.low, bounded.high] == pytest.approx([10, 4100])


def test_a_histogram_of_cached_tokens_tells_that_there_were_none(tmp_path: Path) -> None:
    # 100 prompts of 500 tokens: 833 a second if they filled the 60 s, a lower bound that no cached token makes smaller.
    write(tmp_path, trtllm)
    cut(tmp_path, "trtllm_prompt_cached_tokens")
    for page, count in zip(BOTH, (0, 100), strict=True):
        series = f'trtllm_prompt_cached_tokens_per_request_sum{{model_name="m",engine_type="pytorch"}} {count * 0}\n'
        (tmp_path / page).write_text((tmp_path / page).read_text() + series)
    assert words(tmp_path, ["prefill.tokens_per_second >= 800"]) == [("pass", False)]


def test_a_batch_that_no_steps_tell_lies_between_bounds(tmp_path: Path) -> None:
    # 2000 steps of 16 sequences in 20 ms: 640 s of latencies. They decoded for 40 of the 50 s that the engine was at
    # work; over all of these it is 12.8 sequences, and while prompts were computed nothing may have decoded: then up to
    # all 64 requests, at once.
    write(tmp_path, sglang)
    (told,) = verdicts(tmp_path, ["decode.batch >= 15.9"])
    assert (told.word, told.approximate) == ("pass", False)
    cut(tmp_path, "sglang:cuda_graph_passes")
    (found,) = verdicts(tmp_path, ["decode.batch >= 15.9"])
    assert isinstance(found.outcome, Measurement)
    bounded = found.outcome.bounded
    assert [bounded.value, bounded.low, bounded.high] == pytest.approx([12.8, 12.8, 64], rel=0.01)
    assert (found.word, found.approximate) == ("fail", True)


def test_a_batch_of_decodes_alone_is_their_latencies_over_the_busy_time(tmp_path: Path) -> None:
    # Where the requests say how long their prompts took, nothing else can have kept them from decoding: 64 of 10 ms are
    # 0.64 s of the 50: 640 / (50 - 0.64) = 12.97 at the most.
    write(tmp_path, sglang)
    cut(tmp_path, "sglang:cuda_graph_passes")
    for page, count in zip(BOTH, (0, 64), strict=True):
        name, labels = "sglang:per_stage_req_latency_seconds", 'model_name="m",stage="prefill_forward"'
        lines = [f"{name}_sum{{{labels}}} {count * 0.01}", f"{name}_count{{{labels}}} {count}",
                 f'{name}_bucket{{{labels},le="+Inf"}} {count}']  # fmt: skip
        (tmp_path / page).write_text((tmp_path / page).read_text() + "\n".join(lines) + "\n")
    (found,) = verdicts(tmp_path, ["decode.batch >= 12.9"])
    assert isinstance(found.outcome, Measurement)
    assert found.outcome.bounded.high == pytest.approx(640 / (50 - 0.64), rel=0.001)
