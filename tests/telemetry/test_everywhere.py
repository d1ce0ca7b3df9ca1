"""What one server of several does not export: no figure of the rest stands for the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
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


def without(page: Page, lost: str) -> Page:
    return lambda done, at: "".join(line for line in page(done, at).splitlines(keepends=True) if lost not in line)


def test_what_requests_must_have_fed_is_lost_though_series_appear_with_their_first_event(tmp_path: Path) -> None:
    found = of(two(tmp_path, engine_pages.sglang, without(engine_pages.sglang, "time_to_first_token")))["ttft.mean"]
    assert isinstance(found, NoData)
    lacks = "10.0.0.2:8000 has no sglang:time_to_first_token_seconds, which 10.0.0.1:8000 has"
    assert lacks in found.reason


def test_what_need_not_have_been_counted_is_0(tmp_path: Path) -> None:
    # Each server preempts 4 requests, and the other one's series is not there: 4 + 0.
    found = of(two(tmp_path, engine_pages.sglang, without(engine_pages.sglang, "num_retracted")))["preemptions"]
    assert isinstance(found, Measurement)
    assert found.value == pytest.approx(4)


def test_hits_without_the_computed_tokens_beside_them_are_no_rate_of_hits(tmp_path: Path) -> None:
    # 64 requests of 1000 tokens on each, of which the quick one's hit 250 and the other's 750: half of all.
    some: Page = partial(engine_pages.sglang, hits=250)
    most: Page = partial(engine_pages.sglang, hits=750)
    both = of(two(tmp_path / "both", some, most))["prefix_cache.hit_rate"]
    assert isinstance(both, Measurement)
    assert both.value == pytest.approx(0.5)
    # Without the other one's computed tokens, its 48,000 hits are none of the quick one's 64,000 lookups: of both,
    # 64,000 cached tokens of 128,000 prompt tokens are told, too.
    lost = of(two(tmp_path / "lost", some, without(most, "prefill_compute")))["prefix_cache.hit_rate"]
    assert isinstance(lost, Measurement)
    assert lost.value == pytest.approx(0.5)
    assert lost.samples == 128_000


def ranks(folder: Path, lost: str = "") -> Window:
    """One page of two data-parallel engines, of which the second has lost series."""

    def page(done: float, at: float | None) -> str:
        second = vllm(replace(LATE, engine="1"), lost)(done, None)
        return vllm(QUICK)(done, at) + "".join(line for line in second.splitlines(True) if not line.startswith("#"))

    paths = engine_pages.write(folder, page)
    return read_window([(path, path.name) for path in paths])


@pytest.mark.parametrize(("lost", "metric", "both"), [
    ("time_to_first_token_seconds", "ttft.mean", 2.07),  # as of two servers
    ("request_queue_time_seconds", "queue.mean", 2.0),  # (100 x 0 + 100 x 4) / 200
    ("num_requests_running", "running.last", 24.0),  # 12 each
])  # fmt: skip
def test_an_engine_of_a_page_does_not_speak_for_its_sibling(
    tmp_path: Path, lost: str, metric: str, both: float
) -> None:
    whole = of(ranks(tmp_path / "whole"))[metric]
    assert isinstance(whole, Measurement)
    assert whole.value == pytest.approx(both)
    found = of(ranks(tmp_path / "partly", lost))[metric]
    assert isinstance(found, NoData)
    assert f"engine 1 has no vllm:{lost}, which engine 0 has" in found.reason


def test_a_series_that_lost_its_engine_s_label_is_not_the_whole_server_s(tmp_path: Path) -> None:
    def page(done: float, at: float | None) -> str:
        second = vllm(replace(LATE, engine="1"))(done, None).splitlines(True)
        bare = [line.replace('engine="1",', "") if "time_to_first" in line else line for line in second]
        return vllm(QUICK)(done, at) + "".join(line for line in bare if not line.startswith("#"))

    found = of(read_window([(path, path.name) for path in engine_pages.write(tmp_path, page)]))["ttft.mean"]
    assert isinstance(found, NoData)


def test_what_a_server_tells_of_all_its_engines_is_lacking_in_none(tmp_path: Path) -> None:
    # 5 and 3 preemptions that the page sums without the engines' label.
    def page(done: float, at: float | None) -> str:
        engines = [without(vllm(replace(QUICK, engine=rank)), "num_preemptions") for rank in "01"]
        parts = [engines[0](done, at), engines[1](done, None)]
        lines = [line for part in parts for line in part.splitlines(True) if not line.startswith("# TYPE")]
        return "".join([*lines, f'vllm:num_preemptions_total{{model_name="{QUICK.model}"}} {8 * done}\n'])

    found = of(read_window([(path, path.name) for path in engine_pages.write(tmp_path, page)]))["preemptions"]
    assert isinstance(found, Measurement)
    assert found.value == pytest.approx(8)
