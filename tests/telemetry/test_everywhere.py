"""What one server of several does not export: no figure of the rest stands for the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import engine_pages
import pytest
import vllm_pages
from made_windows import deployment

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Window

Page = Callable[[float, float | None], str]
FAST, SLOW = "http://10.0.0.1:8000/metrics", "http://10.0.0.2:8000/metrics"


def vllm(load: vllm_pages.Load, lost: str = "") -> Page:
    def page(done: float, at: float | None) -> str:
        lines = vllm_pages.page(load, done, at).splitlines(keepends=True)
        return "".join(line for line in lines if not lost or lost not in line)

    return page


def two(folder: Path, fast: Page, slow: Page) -> Window:
    """A window of two servers, each scraped before and after."""
    paths: list[tuple[Path, str]] = []
    for name, url, page in (("fast", FAST, fast), ("slow", SLOW, slow)):
        for path in engine_pages.write(folder, page, name=name):
            path.write_text(f"# endpoint {url}\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
            paths.append((path, path.name))
    return read_window(paths, served_model_name=None, duration_seconds=None)


def of(window: Window) -> Measurements:
    return measure(gather(window, deployment(model=None, gpu=None)))


#: 100 requests that wait for 70 ms before their first token (10 + 60), and 100 that wait for 4 s more.
QUICK = vllm_pages.Load(requests=100, queue=0.0)
LATE = replace(QUICK, queue=4.0)


def test_of_both_the_mean_is_between_them(tmp_path: Path) -> None:
    # (100 x 0.07 + 100 x 4.07) / 200 = 2.07 s.
    found = of(two(tmp_path, vllm(QUICK), vllm(LATE)))["ttft.mean"]
    assert isinstance(found, Measurement)
    assert found.value == pytest.approx(2.07)


@pytest.mark.parametrize(("lost", "metric", "name"), [
    ("time_to_first_token_seconds", "ttft.mean", "vllm:time_to_first_token_seconds"),
    ("time_to_first_token_seconds", "ttft.p50", "vllm:time_to_first_token_seconds"),
    ("request_queue_time_seconds", "queue.mean", "vllm:request_queue_time_seconds"),
    ("e2e_request_latency_seconds", "e2e.p99", "vllm:e2e_request_latency_seconds"),
    ("generation_tokens_total", "output.tokens_per_second", "vllm:generation_tokens_total"),
    ("num_preemptions", "preemptions", "vllm:num_preemptions_total"),
    ("num_requests_waiting", "waiting.last", "vllm:num_requests_waiting"),
    ("kv_cache_usage", "kv_cache.usage.last", "vllm:kv_cache_usage_perc"),
])  # fmt: skip
def test_the_quick_server_does_not_speak_for_the_one_that_lacks_it(
    tmp_path: Path, lost: str, metric: str, name: str
) -> None:
    found = of(two(tmp_path, vllm(QUICK), vllm(LATE, lost)))[metric]
    assert isinstance(found, NoData)
    assert f"10.0.0.2:8000, engine 0 has no {name}, which 10.0.0.1:8000, engine 0 has" in found.reason
    window = two(tmp_path, vllm(QUICK), vllm(LATE, lost))
    alone = of(window.only(window.engines[0]))[metric]
    assert isinstance(alone, Measurement)  # a gate per replica still has those that tell it


def test_who_was_not_asked_lacks_nothing(tmp_path: Path) -> None:
    # The other server counted nothing at all: 100 requests of 0.07 s.
    idle = vllm_pages.Load(requests=100)
    found = of(two(tmp_path, vllm(QUICK), lambda _, at: vllm(idle, "time_to_first_token_seconds")(0.0, at)))
    mean = found["ttft.mean"]
    assert isinstance(mean, Measurement)
    assert mean.value == pytest.approx(0.07)


def test_series_that_appear_with_their_first_event_are_0_before(tmp_path: Path) -> None:
    def quiet(done: float, at: float | None) -> str:
        return "".join(line for line in engine_pages.sglang(done, at).splitlines(True) if "time_to_first" not in line)

    one = of(two(tmp_path, engine_pages.sglang, quiet))["ttft.mean"]
    assert isinstance(one, Measurement)
