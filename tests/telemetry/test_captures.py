"""Scrapes of a real vLLM (tests/data/vllm-cpu), read to the figures that its load implies."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Window

WINDOWS = [
    ("plain", "before", "after-prefill"),
    ("plain", "after-prefill", "after-decode"),
    ("mfu", "before-prefill", "after-prefill"),
    ("mfu", "after-prefill", "after-decode"),
    ("spec", "before", "after"),
    ("spec", "after", "after-greedy"),
]


def read(data: Path, folder: str, *pages: str, duration: float | None = None) -> Window:
    paths = [(data / "vllm-cpu" / folder / f"{page}.prom", f"{page}.prom") for page in pages]
    return read_window(paths, served_model_name=None, duration_seconds=duration)


def counter(window: Window, name: str) -> float:
    value = window.counter(name)
    assert value is not None, name
    return value


@pytest.mark.parametrize(("folder", "first", "last"), WINDOWS)
def test_tokens_in_steps_are_computed_prompt_and_generated(data: Path, folder: str, first: str, last: str) -> None:
    """Cache hits are in the prompts, never in the steps; under speculative decoding too."""
    window = read(data, folder, first, last)
    prompts, hits = counter(window, "prompt_tokens"), counter(window, "prefix_hits")
    generated, computed = counter(window, "generation_tokens"), counter(window, "prompt_tokens_computed")
    assert counter(window, "step_tokens") == prompts - hits + generated
    assert computed == prompts - hits
    lengths = window.histogram("computed_length")
    assert lengths is not None
    assert lengths.total == computed


def test_the_prefill_window(data: Path) -> None:
    """40 requests of about 1,024 tokens; 40,975 - 1,152 + 320 = 40,143 tokens in steps."""
    window = read(data, "mfu", "before-prefill", "after-prefill")
    assert counter(window, "prompt_tokens") == 40_975
    assert counter(window, "prefix_hits") == 1_152
    assert counter(window, "generation_tokens") == 40 * 8
    assert counter(window, "step_tokens") == 40_143
    assert counter(window, "requests_finished") == 40


def test_the_decode_window(data: Path) -> None:
    """48 requests of 256 tokens, 8 at a time: 48 x 255 intervals in 2,066 steps, so a batch of 5.92."""
    window = read(data, "mfu", "after-prefill", "after-decode")
    itl = window.histogram("itl")
    assert itl is not None
    assert counter(window, "generation_tokens") == 48 * 256 == 12_288
    assert itl.count == 48 * 255 == 12_240
    assert counter(window, "steps") == 2_066
    assert itl.count / counter(window, "steps") == pytest.approx(5.92, abs=0.005)
    # The clock: 1795975866.278 - 1795975835.264 = 31.01 s; sum(ITL) over it would say a batch of 1.88.
    assert window.duration_seconds == pytest.approx(31.0147, abs=1e-3)
    assert itl.total / 31.0147 == pytest.approx(1.88, abs=0.005)
    assert window.started == pytest.approx(1795975835.2637)
    assert window.engines[0].finished["length"] == 48
    assert window.engines[0].facts["block_size"] == "128"
    assert window.notes == ()
    assert window.conventions >= {"itl_per_step"}


def test_the_estimator_is_on_or_absent(data: Path) -> None:
    on = read(data, "mfu", "after-prefill", "after-decode")
    assert counter(on, "estimated_flops") == 501_808_840_704 - 403_782_451_200  # as the two pages have it
    off = read(data, "plain", "after-prefill", "after-decode")
    assert off.counter("estimated_flops") is None
    assert off.counter("estimated_read_bytes") is None
    assert off.source_name("estimated_flops") is None


def test_intervals_count_steps_under_speculative_decoding(data: Path) -> None:
    """Four answers of 300 tokens have 4 x 299 = 1,196 gaps between tokens, in 308 outputs."""
    window = read(data, "spec", "after", "after-greedy")
    itl = window.histogram("itl")
    assert itl is not None
    assert counter(window, "generation_tokens") == 1_200
    assert counter(window, "generation_tokens") - counter(window, "requests_finished") == 1_196
    assert itl.count == 308
    assert counter(window, "draft_steps") == 300
    assert counter(window, "draft_tokens") == counter(window, "accepted_tokens") == 892
    # 300 outputs of one token and what was accepted, 8 without a draft, the 4 first tokens of each answer.
    assert 308 + 892 == 1_200


def test_drafts_that_never_came_are_zero(data: Path) -> None:
    window = read(data, "spec", "before", "after")
    assert counter(window, "draft_steps") == 0
    assert counter(window, "generation_tokens") > 0


def test_the_folder_is_ordered_without_a_clock_by_what_the_process_had_done(data: Path) -> None:
    """By name `after-decode` comes first."""
    folder = data / "vllm-cpu" / "plain"
    window = read_window([(folder, "plain")], served_model_name=None, duration_seconds=None)
    assert window.samples == 3
    assert window.duration_seconds is None
    assert window.progress is None
    assert counter(window, "generation_tokens") == 8 + 40 * 8 + 24 * 256  # a first try, prefill, decode
    assert window.engines[0].gauges["running"].times == (0.0, 1.0, 2.0)


def test_the_folder_with_clocks_has_progress(data: Path) -> None:
    window = read_window([(data / "vllm-cpu" / "mfu", "mfu")], served_model_name=None, duration_seconds=None)
    assert window.progress is not None
    assert window.progress.times == pytest.approx((1795975809.1553, 1795975835.2637, 1795975866.2784))
    # Prompt and generated tokens, steps, intervals: 40,975 + 320 + 57 + 280; then 1,542 + 12,288 + 2,066 + 12,240.
    assert window.progress.values == (0.0, 41_632.0, 41_632.0 + 28_136.0)
    assert window.unread == ()


def test_one_scrape_covers_the_time_since_the_server_started(data: Path) -> None:
    window = read(data, "mfu", "after-decode")
    assert window.since_start
    assert window.samples == 1
    assert window.started == 1795975735.19  # process_start_time_seconds
    assert window.duration_seconds == pytest.approx(1795975866.2784 - 1795975735.19, abs=1e-3)
    assert counter(window, "generation_tokens") == 12_608
    assert window.progress is None
    assert len(window.engines[0].gauges["running"].times) == 1


def test_one_scrape_without_a_clock_has_no_duration(data: Path) -> None:
    assert read(data, "plain", "after-decode").duration_seconds is None
    assert read(data, "plain", "after-decode", duration=10.0).duration_seconds == 10.0


def test_the_whole_captures_beside_the_checkout_read_the_same(shared_data: Path, data: Path) -> None:
    """What was cut out of the test data changes nothing."""
    captures = shared_data / "captures" / "vllm"
    for folder, first, last in WINDOWS:
        ours = read(data, folder, first, last).engines[0]
        paths = [(captures / folder / f"{page}.prom", page) for page in (first, last)]
        theirs = read_window(paths, served_model_name=None, duration_seconds=None).engines[0]
        assert ours.counters == theirs.counters
        assert ours.histograms == theirs.histograms
