"""AIPerf's view of the server as the server's side of a window, against the arithmetic of a real run."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from benchmark_files import found, measured, missing, window_of, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm_pages import write_pages

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.aiperfserver import server_export

EXPORT = "benchmarks/aiperf-0.13.0-server_metrics_export.json"
URL = "http://127.0.0.1:8101/metrics"


@pytest.fixture
def export(data: Path) -> dict[str, Any]:
    """The real export, to be changed."""
    loaded: dict[str, Any] = json.loads((data / EXPORT).read_text(encoding="utf-8"))
    return loaded


def scrape(second: float, tokens: float, requests: int, running: float) -> dict[str, Any]:
    """A line of server_metrics_export.jsonl: each request has taken 0.05 s to its first token."""
    labels = {"engine": "0", "model_name": "tiny"}
    buckets = {"0.04": 0.0, "0.06": float(requests), "+Inf": float(requests)}
    return {
        "endpoint_url": "http://user:secret@127.0.0.1:8101/metrics?key=secret",
        "timestamp_ns": int((1.8e9 + second) * 1e9),
        "endpoint_latency_ns": 4_000_000,
        "metrics": {
            "vllm:generation_tokens": [{"labels": labels, "value": tokens}],
            "vllm:num_requests_running": [{"labels": labels, "value": running}],
            "vllm:time_to_first_token_seconds": [
                {"labels": labels, "buckets": buckets, "sum": 0.05 * requests, "count": float(requests)}
            ],
        },
    }


class TestStatistics:
    def test_increases_are_what_the_run_gained(self, data: Path) -> None:
        window = window_of(data / EXPORT)
        (engine,) = window.engines
        assert (window.kind, engine.model_name) == ("vllm", "tiny-llama")
        # 60 requests at 6.123489849771654 a second: 9.798 s, from the phase's own start.
        assert window.duration_seconds == pytest.approx(60 / 6.123489849771654)
        assert window.started == pytest.approx(1795977611.405921854)
        # 60 prompts of 128 tokens, none of them cached, and 32 output tokens each: of those 31 are decoded.
        assert engine.counters["prompt_tokens"] == 60 * 128
        assert engine.counters["prompt_tokens_computed"] == 60 * 128
        assert engine.counters["generation_tokens"] == 60 * 32
        assert engine.histograms["itl"].count == 60 * 31
        assert engine.finished["length"] == 60
        assert engine.counters["requests_finished"] == 60
        # 520 steps computed 60 x (128 + 32) tokens.
        assert (engine.counters["steps"], engine.counters["step_tokens"]) == (520, 9600)
        assert engine.facts["num_gpu_blocks"] == "4096"

    def test_histograms_keep_their_buckets(self, data: Path) -> None:
        (engine,) = window_of(data / EXPORT).engines
        ttft = engine.histograms["ttft"]
        assert ttft.total == pytest.approx(2.922361135482788)
        assert ttft.count == 60
        assert ttft.mean == pytest.approx(2.922361135482788 / 60)

    def test_gauges_have_a_largest_sample_and_nothing_else(self, data: Path) -> None:
        # The stated mean, 34 / 31 running requests, holds two seconds of idle time behind the load.
        measurements = measured(data / EXPORT)
        largest = found(measurements, "running.max")
        assert (largest.bounded.low, largest.value) == (4, 4)
        assert largest.bounded.high > 4
        assert largest.judged_by == "bounds"
        assert "not the samples" in missing(measurements, "running.mean").reason
        assert found(measurements, "kv_cache.usage.max").bounded.high == 1.0

    def test_client_and_server_stand_side_by_side(self, data: Path, tmp_path: Path) -> None:
        shutil.copytree(data / "benchmarks/aiperf-0.13.0", tmp_path / "run")
        shutil.copy(data / EXPORT, tmp_path / "run" / "server_metrics_export.json")
        ttft = found(measured(tmp_path / "run"), "ttft.mean")
        assert ttft.view == "client"
        assert ttft.other is not None
        assert ttft.other.value == pytest.approx(2.922361135482788 / 60)

    def test_the_servers_own_pages_win(self, data: Path, tmp_path: Path) -> None:
        write_pages(tmp_path)
        alone = window_of(tmp_path)
        shutil.copy(data / EXPORT, tmp_path / "server_metrics_export.json")
        window = window_of(tmp_path)
        assert window.engines == alone.engines
        assert any("own pages are read" in line and "server_metrics_export" in line for line in window.unread)

    def test_two_runs_are_none(self, data: Path, tmp_path: Path) -> None:
        for name in ("one.json", "two.json"):
            shutil.copy(data / EXPORT, tmp_path / name)
        with pytest.raises(SourceError, match="several runs"):
            window_of(tmp_path)

    def test_a_restart_is_refused(self, export: dict[str, Any], tmp_path: Path) -> None:
        export["metrics"]["process_start_time_seconds"]["series"][0]["stats"]["max"] += 60
        with pytest.raises(SourceError, match="restarted during the run"):
            window_of(write(tmp_path / "export.json", export))

    def test_lost_buckets_mean_a_restart(self, export: dict[str, Any], tmp_path: Path) -> None:
        export["metrics"]["vllm:time_to_first_token_seconds"]["series"][0]["buckets"] = None
        with pytest.raises(SourceError, match="time_to_first_token_seconds went down"):
            window_of(write(tmp_path / "export.json", export))

    def test_a_histogram_without_its_sum_has_no_mean(self, export: dict[str, Any], tmp_path: Path) -> None:
        del export["metrics"]["vllm:time_to_first_token_seconds"]["series"][0]["stats"]["sum"]
        (engine,) = window_of(write(tmp_path / "export.json", export)).engines
        assert "ttft" not in engine.histograms
        assert engine.unusable["ttft"] == "vllm:time_to_first_token_seconds has no sum"

    def test_a_histogram_that_is_not_there_is_none(self, export: dict[str, Any], tmp_path: Path) -> None:
        del export["metrics"]["vllm:time_to_first_token_seconds"]
        (engine,) = window_of(write(tmp_path / "export.json", export)).engines
        assert "ttft" not in engine.histograms
        assert engine.counters["generation_tokens"] == 60 * 32

    def test_a_series_that_appeared_during_the_run_is_not_used(self, export: dict[str, Any], tmp_path: Path) -> None:
        # Seen for half of the run: 1920 tokens at twice the rate. What it held at first is not in its increase.
        export["metrics"]["vllm:generation_tokens"]["series"][0]["stats"]["rate"] *= 2
        window = window_of(write(tmp_path / "export.json", export))
        assert "generation_tokens" not in window.engines[0].counters
        assert any("vllm:generation_tokens_total appeared during the run" in note for note in window.notes)

    def test_one_late_series_of_several_spoils_their_sum(self, export: dict[str, Any], tmp_path: Path) -> None:
        for one in export["metrics"]["vllm:request_success"]["series"]:
            if one["labels"]["finished_reason"] == "length":
                one["stats"]["rate"] *= 2
        (engine,) = window_of(write(tmp_path / "export.json", export)).engines
        assert engine.finished == {}
        # How many finished is what their latencies count; of failures nothing is known.
        assert engine.counters["requests_finished"] == 60
        assert "requests_errored" not in engine.counters

    def test_what_an_engine_shows_once_it_is_fed_may_have_begun_at_any_count(
        self, export: dict[str, Any], tmp_path: Path
    ) -> None:
        def counter(total: float, **labels: str) -> dict[str, Any]:
            series = {"endpoint_url": URL, "labels": {"model_name": "tiny", **labels}}
            return {"type": "counter", "series": [series | {"stats": {"total": total, "rate": total / 10}}]}

        # SGLang: cached tokens that gained nothing may have appeared during the run, with all that was cached.
        export["metrics"] = {
            "sglang:prompt_tokens": counter(1000), "sglang:generation_tokens": counter(500),
            "sglang:num_requests": counter(10), "sglang:cached_tokens": counter(0),
        }  # fmt: skip
        window = window_of(write(tmp_path / "export.json", export))
        (engine,) = window.engines
        assert (window.kind, engine.counters["generation_tokens"]) == ("sglang", 500)
        assert window.duration_seconds == pytest.approx(10)
        assert "prompt_tokens_cached" not in engine.counters
        assert "prompt_tokens_cached" in engine.unusable
        assert any("sglang:cached_tokens_total gained nothing, or appeared" in note for note in window.notes)

    def test_several_servers_are_several_engines(self, export: dict[str, Any], tmp_path: Path) -> None:
        other = "http://user:secret@127.0.0.1:8102/metrics"
        export["summary"]["endpoint_info"][other] = export["summary"]["endpoint_info"][URL]
        for metric in export["metrics"].values():
            metric["series"] += [one | {"endpoint_url": other} for one in metric["series"]]
        window = window_of(write(tmp_path / "export.json", export))
        assert len(window.engines) == 2
        assert window.counter("generation_tokens") == 2 * 60 * 32
        assert "secret" not in repr(window)

    @given(damage=st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=3))
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_anything_in_a_place_is_read_or_refused(self, export: dict[str, Any], damage: Any) -> None:
        for metric, key in (("vllm:generation_tokens", "total"), ("vllm:time_to_first_token_seconds", "count")):
            for place in ("stats", "labels", "buckets", key):
                changed = json.loads(json.dumps(export))
                series = changed["metrics"][metric]["series"][0]
                (series["stats"] if place == key else series)[place] = damage
                with contextlib.suppress(SourceError):
                    server_export(json.dumps(changed), "export.json")

    def test_nothing_moved(self, export: dict[str, Any], tmp_path: Path) -> None:
        for metric in export["metrics"].values():
            for one in metric["series"]:
                one["stats"] = {"total": 0.0, "rate": 0.0} if metric["type"] == "counter" else {"count": 0}
        with pytest.raises(SourceError, match="did not move"):
            window_of(write(tmp_path / "export.json", export))

    def test_the_table_is_named(self, tmp_path: Path) -> None:
        table = tmp_path / "server_metrics_export.csv"
        table.write_text("# AIPerf Server Metrics Export (CSV)\n#\nEndpoint,Type,Metric\n", encoding="utf-8")
        with pytest.raises(SourceError, match=r"server_metrics_export\.json"):
            window_of(table)

    def test_the_capture(self, shared_data: Path) -> None:
        folder = shared_data / "captures/bench_tools/aiperf/artifacts"
        window = window_of(folder)
        stated = json.loads((folder / "server_metrics_export.json").read_text(encoding="utf-8"))["metrics"]
        (engine,) = window.engines
        for quantity, name in engine.names.items():
            family = stated.get(name.removesuffix("_total"), stated.get(name))
            if family is None or len(family["series"]) > 1:
                continue
            stats = family["series"][0]["stats"]
            if quantity in engine.histograms and "count" in stats:
                assert engine.histograms[quantity].count == stats["count"]
                assert engine.histograms[quantity].total == pytest.approx(stats["sum"])
            elif quantity in engine.counters and "total" in stats:
                assert engine.counters[quantity] == stats["total"]
        assert window.client is not None
        assert window.client.completed == engine.counters["requests_finished"] == 60


class TestScrapes:
    def test_every_line_is_a_page(self, tmp_path: Path) -> None:
        lines = [scrape(0, 100, 10, 0), scrape(1, 400, 12, 3), scrape(2, 900, 20, 4), scrape(3, 900, 20, 0)]
        window = window_of(write(tmp_path / "server_metrics_export.jsonl", *lines))
        (engine,) = window.engines
        # 900 - 100 tokens and 20 - 10 requests in 3 s; no secret of the address is kept.
        assert window.duration_seconds == pytest.approx(3)
        assert window.samples == 4
        assert engine.counters["generation_tokens"] == 800
        assert engine.histograms["ttft"].mean == pytest.approx(0.05)
        assert list(engine.gauges["running"].values) == [0, 3, 4, 0]
        assert "secret" not in repr(window)

    def test_scrapes_are_better_than_their_statistics(self, data: Path, tmp_path: Path) -> None:
        write(tmp_path / "server_metrics_export.jsonl", scrape(0, 100, 10, 0), scrape(1, 400, 12, 3))
        shutil.copy(data / EXPORT, tmp_path / "server_metrics_export.json")
        window = window_of(tmp_path)
        assert window.engines[0].counters["generation_tokens"] == 300
        assert any("statistics of the scrapes" in line for line in window.unread)
