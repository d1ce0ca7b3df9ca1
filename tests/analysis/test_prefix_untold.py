"""Engines that do not count what their prefix cache held: a part of whole prompts was computed, nobody knows which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from engine_pages import Page, llamacpp, lmdeploy, sglang, tgi, trtllm, write
from made_windows import deployment
from vllm_pages import Load
from vllm_pages import page as vllm_page

from pytest_llmroof.analysis.attribute_ttft import attribute_ttft
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Window


def vllm(done: float, at: float | None) -> str:
    return vllm_page(Load(itl=0.01, model="meta-llama/Llama-3.1-8B-Instruct"), done, at)


def without(page: Page, *names: str) -> Page:
    """The page without the series whose names hold one of these."""

    def written(done: float, at: float | None) -> str:
        return "\n".join(line for line in page(done, at).splitlines() if not any(name in line for name in names)) + "\n"

    return written


def window(folder: Path, page: Page) -> Window:
    return read_window([(path, path.name) for path in write(folder, page)])


def measured(of: Window) -> Measurements:
    return measure(gather(of, deployment("llama-3.1-8b")))


def found(measurements: Measurements, metric: str) -> Measurement:
    outcome = measurements[metric]
    assert isinstance(outcome, Measurement), outcome
    return outcome


def words(measurements: Measurements, *expressions: str) -> list[str]:
    gates = [parse_gate(expression) for expression in expressions]
    return [judge(gate, measurements[gate.metric]).word for gate in gates]


def test_tgi_tells_whole_prompts_which_bound_what_was_computed_from_above(tmp_path: Path) -> None:
    """79 requests of 400 tokens besides the one under way (80 in all), their steps 0.1 s each.

    80 x 400 = 32 000 tokens in 8 s are 4 000 a second; at the least each request computed its last token: 10 a second.
    """
    measurements = measured(window(tmp_path, tgi))
    rate = found(measurements, "prefill.tokens_per_second")
    assert rate.value == rate.low == pytest.approx(10)
    assert rate.high >= 4000
    assert words(
        measurements, "prefill.tokens_per_second >= 3000tok/s", "prefill.tokens_per_second >= 5tok/s",
        "prefill.tokens_per_second >= 9000tok/s",
    ) == ["no data", "pass", "fail"]  # fmt: skip
    assert rate.undecided == "nothing counts which prompt tokens a prefix cache held, and so how many were computed"
    # 2 x 8.03e9 x 4 000 / 989.4e12 = 6.5 %, of the matrix products without the embedding 6.1 %.
    assert words(measurements, "prefill.mfu >= 5%", "prefill.mfu >= 10%", "window.mfu >= 0.5%") == [
        "no data", "fail", "no data",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "page",
    [
        without(trtllm, "cached_tokens", "cache_hit"),
        partial(sglang, live=False, hit_rate=0.77),
    ],
    ids=["trtllm", "sglang with a gauge of its last batch"],
)
def test_no_engine_passes_whole_prompts_as_computed(tmp_path: Path, page: Page) -> None:
    measurements = measured(window(tmp_path, page))
    whole = found(measurements, "window.mfu")
    assert whole.judged_by == "bounds"
    assert whole.low == whole.value < whole.high
    middle = (whole.low + whole.high) / 2 * 100
    assert words(measurements, f"window.mfu >= {middle:.6f}%") == ["no data"]
    assert found(measurements, "prefill.tokens_per_second").low < 10


@pytest.mark.parametrize(
    "page", [without(lmdeploy, "cached_tokens"), without(vllm, "prefix_cache", "by_source")], ids=["lmdeploy", "vllm"]
)
def test_where_a_cache_is_off_unless_switched_on_none_is_assumed_and_the_verdict_is_approximate(
    tmp_path: Path, page: Page
) -> None:
    whole = found(measured(window(tmp_path, page)), "window.mfu")
    assert whole.judged_by == "value"
    assert whole.low < whole.value < whole.high * (1 + 1e-9)
    verdict = judge(parse_gate(f"window.mfu >= {whole.value * 99.9:.6f}%"), whole)
    assert (verdict.word, verdict.approximate) == ("pass", True)
    assert "release that counts cached tokens" in str(whole.settle)


def test_a_server_that_says_its_cache_is_off_holds_nothing_in_it(tmp_path: Path) -> None:
    off = 'vllm:cache_config_info{enable_prefix_caching="False",engine="0"} 1.0\n'
    bare = without(vllm, "prefix_cache", "by_source")
    said = found(measured(window(tmp_path, lambda done, at: bare(done, at) + off)), "window.mfu")
    counted = found(measured(window(tmp_path / "counted", vllm)), "window.mfu")
    assert said.bounded == counted.bounded  # no hit was counted there


@pytest.mark.parametrize("page", [lmdeploy, trtllm, sglang])
def test_with_the_cached_tokens_what_was_computed_is_known(tmp_path: Path, page: Page) -> None:
    assert found(measured(window(tmp_path, page)), "window.mfu").judged_by == "value"


def probed(computed: float, tokens: float = 8080.0) -> Callable[[Window], Window]:
    """The window with a probe that was all of its load: 80 requests of 101 output tokens."""
    client = Client(
        "llmroof-probe", "llmroof_probe", "probe.json", completed=80.0, failed=0.0, input_tokens=32000.0,
        output_tokens=tokens, computed_tokens=computed, duration_seconds=50.0,
    )  # fmt: skip

    def beside(of: Window) -> Window:
        return replace(of, client=client)

    return beside


def test_a_probe_whose_prompts_no_cache_held_tells_what_was_computed(tmp_path: Path) -> None:
    """31 000 of 32 000 tokens in 8 s of steps with prompts: 3 875 a second."""
    rate = found(measured(probed(31000.0)(window(tmp_path, tgi))), "prefill.tokens_per_second")
    assert rate.low == pytest.approx(31000 / 8)
    assert words(measured(probed(31000.0)(window(tmp_path / "b", tgi))), "prefill.tokens_per_second >= 3500tok/s") == [
        "pass"
    ]


def test_a_probe_that_was_not_all_of_the_load_tells_nothing_of_it(tmp_path: Path) -> None:
    rate = found(measured(probed(31000.0, tokens=4000.0)(window(tmp_path, tgi))), "prefill.tokens_per_second")
    assert rate.low == pytest.approx(10)


def test_computed_prompts_alone_tell_no_hit_rate(tmp_path: Path) -> None:
    """llama.cpp counts what it computed: the figures are exact, and how much was cached nobody says."""
    facts = gather(window(tmp_path, llamacpp), deployment("llama-3.1-8b"))
    assert facts.computed_prompt_tokens
    assert facts.prefix_hit_rate is None
    assert found(measure(facts), "window.mfu").judged_by == "value"


@pytest.mark.parametrize(("page", "told"), [(trtllm, True), (without(trtllm, "cached_tokens", "cache_hit"), False)])
def test_a_prompt_that_a_cache_may_have_held_has_no_floor_in_the_time_to_first_token(
    tmp_path: Path, page: Page, told: bool
) -> None:
    measurements = measured(window(tmp_path, page))
    ttft = attribute_ttft(measurements.facts, measurements)
    assert ttft is not None
    assert (ttft.share("compute floor", "memory floor: weights") > 0) is told
