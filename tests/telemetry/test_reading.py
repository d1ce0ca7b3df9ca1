"""Windows from pages written by hand: order, restarts, engines, models, clocks."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.difference import difference
from pytest_llmroof.telemetry.engines import known_engines
from pytest_llmroof.telemetry.exposition import parse_page
from pytest_llmroof.telemetry.page_engines import snapshots
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.snapshot import Snapshot
from pytest_llmroof.telemetry.window import Histogram, Window

T0 = 1_795_975_800.0

VALUES = st.sampled_from(["0", "1", "7.5", "-3", "1e308", "NaN", "+Inf", "-Inf", "1795975800"])


class Pages:
    """Writes pages into a folder, in the order of the calls, and reads them back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []

    def add(self, name: str, text: str, at: float | None = None, *, start: float | None = None, head: str = "") -> Path:
        lines = [] if at is None else [f"# scraped_at {at}"]
        lines += [head] if head else []
        lines += [] if start is None else [f"process_start_time_seconds {start}"]
        path = self.folder / name
        path.write_text("\n".join([*lines, text.strip(), ""]), encoding="utf-8")
        self.files.append(path)
        return path

    def read(self, *, model: str | None = None, duration: float | None = None) -> Window:
        paths = [(path, path.name) for path in self.files]
        return read_window(paths, served_model_name=model, duration_seconds=duration)

    def read_folder(self, *, model: str | None = None, duration: float | None = None) -> Window:
        return read_window([(self.folder, "rec")], served_model_name=model, duration_seconds=duration)

    def refused(self, **options: Any) -> SourceError:
        with pytest.raises(SourceError) as caught:
            self.read(**options)
        return caught.value


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


def snapshot_of(text: str) -> Snapshot:
    (found,) = snapshots(parse_page(text, "x"), known_engines()["vllm"])
    return found


def test_a_fall_is_never_a_negative_increase() -> None:
    reasons = 'vllm:request_success_total{{finished_reason="stop"}} {}\nvllm:num_preemptions_total {}\n'
    moved = difference(snapshot_of(reasons.format(9, 5)), snapshot_of(reasons.format(4, 3)), known_engines()["vllm"])
    assert moved.counters == moved.finished == {}
    assert moved.unusable["preemptions"] == "vllm:num_preemptions_total went from 5 down to 3: it is not used"
    assert moved.unusable["requests_finished"] == "vllm:request_success_total went down: it is not used"


def test_gauges_of_the_whole_server_stand_at_one_of_its_engines() -> None:
    text = "".join(f'vllm:generation_tokens_total{{engine="{rank}"}} 1\n' for rank in "01")
    text += "vllm:num_requests_running 6\nvllm:num_requests_waiting 2\n"
    text += 'vllm:num_requests_waiting{engine="1"} 3\nvllm:gpu_prefix_cache_hit_rate -1\n'
    one, two = snapshots(parse_page(text, "x"), known_engines()["vllm"])
    # Of those that an engine has itself the whole server's would count twice.
    assert (dict(one.gauges), dict(two.gauges)) == ({"running": 6}, {"waiting": 3})
    assert one.disabled == two.disabled == {"prefix_hit_rate"}


def tokens(count: float, engine: str = "0", model: str = "m") -> str:
    return f'vllm:generation_tokens_total{{engine="{engine}",model_name="{model}"}} {count}'


def ttft(buckets: Mapping[str, float], total: float) -> str:
    name = "vllm:time_to_first_token_seconds"
    lines = [f'{name}_bucket{{le="{le}"}} {count}' for le, count in buckets.items()]
    return "\n".join([*lines, f"{name}_sum {total}", f"{name}_count {buckets['+Inf']}"])


class TestCases:
    """Inputs of our own for mistakes that others made in public."""

    def test_cached_prompt_tokens_are_not_computed(self, pages: Pages) -> None:
        """737,000 asked - 414,931 found in the cache = 322,069 computed."""
        labels = '{engine="0",model_name="m"}'
        for name, asked, hits in (("a", 0, 0), ("b", 737_000, 414_931)):
            pages.add(f"{name}.prom", f"""
vllm:prompt_tokens_total{labels} {asked}
vllm:prefix_cache_queries_total{labels} {asked}
vllm:prefix_cache_hits_total{labels} {hits}""")  # fmt: skip
        window = pages.read(duration=10)
        assert window.counter("prompt_tokens_computed") == 322_069
        assert window.source_name("prompt_tokens_computed") == "vllm:prompt_tokens_total - vllm:prefix_cache_hits_total"

    def test_engines_are_summed_and_their_cache_usage_is_not(self, pages: Pages) -> None:
        """(4,000 - 1,000) + (9,000 - 4,000) = 8,000 tokens in 10 s."""
        for name, first, second in (("a", 1000, 4000), ("b", 4000, 9000)):
            pages.add(f"{name}.prom", f"""
{tokens(first, "0")}
{tokens(second, "1")}
vllm:num_requests_running{{engine="0",model_name="m"}} 12
vllm:num_requests_running{{engine="1",model_name="m"}} 20
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.30
vllm:kv_cache_usage_perc{{engine="1",model_name="m"}} 0.90""")  # fmt: skip
        window = pages.read(duration=10)
        assert window.duration_seconds == 10
        assert window.counter("generation_tokens") == 8000
        assert [engine.identity for engine in window.engines] == ["engine 0", "engine 1"]
        assert [engine.gauges["running"].values for engine in window.engines] == [(12, 12), (20, 20)]
        assert [engine.gauges["kv_usage"].values for engine in window.engines] == [(0.3, 0.3), (0.9, 0.9)]
        assert window.engines[0].gauges["running"].times == (0.0, 10.0)

    def test_an_engine_that_is_not_known_says_so(self, pages: Pages) -> None:
        pages.add("a.prom", 'other:gen_throughput{model_name="m"} 386.2')
        error = pages.refused()
        assert error.reason == (
            "a.prom: metrics of no serving engine that is known here (it holds other:gen_throughput, ...)"
        )
        assert error.remedy is not None
        assert "--llmroof-list=engines" in str(error.remedy)

    def test_a_page_of_which_rules_left_nothing_that_is_read(self, pages: Pages) -> None:
        """A gauge that names llama.cpp, and tells nothing of it."""
        pages.add("a.prom", "# TYPE llamacpp:prompt_tokens_seconds gauge\nllamacpp:prompt_tokens_seconds 21.5")
        pages.add("b.prom", "# TYPE llamacpp:prompt_tokens_seconds gauge\nllamacpp:prompt_tokens_seconds 23")
        error = pages.refused()
        assert error.reason == "a.prom, b.prom: what is left of llama.cpp's page tells nothing of an engine"

    def test_a_restart_between_two_scrapes_is_refused(self, pages: Pages) -> None:
        """987,654 -> 5,000 is neither -982,654 nor 982,654 tokens."""
        pages.add("t0.prom", tokens(987_654), start=1_700_000_000)
        pages.add("t1.prom", tokens(5000), start=1_700_000_090)
        error = pages.refused(duration=100)
        assert error.reason == (
            "the server restarted between t0.prom and t1.prom (its process started at 1700000000 before, at 1700000090 "
            "after): no difference can be taken"
        )
        assert error.remedy is not None

    def test_observations_beyond_the_last_bucket_stay_there(self, pages: Pages) -> None:
        pages.add("a.prom", ttft({"1.0": 10, "10.0": 80, "60.0": 90, "+Inf": 100}, 3000))
        window = pages.read()
        histogram = window.histogram("ttft")
        assert histogram == Histogram((1.0, 10.0, 60.0, math.inf), (10.0, 70.0, 10.0, 10.0), 3000.0)
        assert histogram.mean == 30

    def test_an_empty_histogram_is_empty(self, pages: Pages) -> None:
        pages.add("a.prom", ttft({"1.0": 0, "+Inf": 0}, 0))
        histogram = pages.read().histogram("ttft")
        assert histogram is not None
        assert (histogram.count, histogram.mean) == (0, None)

    @pytest.mark.parametrize(
        "text",
        [
            "# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total{engine=\"0\"} 1234.0\n"
            "vllm:prompt_tokens_created{engine=\"0\"} 1.7e+09\n# EOF",
            "# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{engine=\"0\"} 1234.0\n"
            "# TYPE vllm:prompt_tokens_created gauge\nvllm:prompt_tokens_created{engine=\"0\"} 1.7000000000e+09",
        ],
        ids=["openmetrics", "text"],
    )  # fmt: skip
    def test_created_is_a_time_not_a_count(self, pages: Pages, text: str) -> None:
        pages.add("a.prom", text)
        assert pages.read().engines[0].counters == {"prompt_tokens": 1234.0}

    @pytest.mark.parametrize(
        ("text", "tpot"),
        [
            ("vllm:gpu_cache_usage_perc 0.42\nvllm:time_per_output_token_seconds_sum 12.5\n"
             "vllm:time_per_output_token_seconds_count 500", None),
            ("vllm:kv_cache_usage_perc 0.42\nvllm:inter_token_latency_seconds_sum 12.5\n"
             "vllm:inter_token_latency_seconds_count 500\nvllm:request_time_per_output_token_seconds_sum 0.5\n"
             "vllm:request_time_per_output_token_seconds_count 20", 0.025),
        ],
        ids=["old names", "new names"],
    )  # fmt: skip
    def test_renamed_metrics_are_one_quantity(self, pages: Pages, text: str, tpot: float | None) -> None:
        pages.add("a.prom", text)
        window = pages.read()
        itl, per_request = window.histogram("itl"), window.histogram("tpot")
        assert window.engines[0].gauges["kv_usage"].values == (0.42,)
        assert itl is not None
        assert itl.mean == 0.025
        assert (per_request and per_request.mean) == tpot

    def test_estimates_are_per_engine(self, pages: Pages) -> None:
        for name, first, second in (("t0", "0", "0"), ("t1", "3.0e15", "2.0e15")):
            pages.add(f"{name}.prom", f"""
vllm:estimated_flops_per_gpu_total{{engine="0",model_name="m"}} {first}
vllm:estimated_flops_per_gpu_total{{engine="1",model_name="m"}} {second}""")  # fmt: skip
        assert [engine.counters["estimated_flops"] for engine in pages.read().engines] == [3.0e15, 2.0e15]

    def test_the_cases_beside_the_checkout(self, shared_data: Path) -> None:
        def window(case: str, *names: str) -> Window:
            folder = shared_data / "cases" / case
            return read_window([(folder / name, name) for name in names], duration_seconds=10)

        hits = window("22-prefix-cache-hits-are-not-prefill", "metrics_t0.prom", "metrics_t1.prom")
        assert hits.counter("prompt_tokens_computed") == pytest.approx(32206.9 * 10)
        parallel = window("25-dp-engines-must-be-summed", "metrics_t0.prom", "metrics_t1.prom")
        assert parallel.counter("generation_tokens") == 800 * 10
        with pytest.raises(SourceError, match="restarted"):
            window("29-counter-reset", "metrics_t0.prom", "metrics_t1.prom")
        for name in ("metrics.openmetrics", "metrics.prom"):
            assert window("35-total-suffix-and-created", name).counter("prompt_tokens") == 1234


class TestOrder:
    def test_by_the_pages_clock_whatever_the_order_given(self, pages: Pages) -> None:
        pages.add("late.prom", tokens(300), T0 + 60)
        pages.add("early.prom", tokens(100), T0)
        pages.add("middle.prom", tokens(150), T0 + 30)
        window = pages.read()
        assert window.counter("generation_tokens") == 200
        assert (window.started, window.duration_seconds, window.samples) == (T0, 60, 3)
        assert window.progress is not None
        assert window.progress.values == (0, 50, 200)

    def test_a_files_modification_time_is_no_clock(self, pages: Pages) -> None:
        first, last = pages.add("1.prom", tokens(100)), pages.add("2.prom", tokens(300))
        os.utime(first, (T0 + 60, T0 + 60))
        os.utime(last, (T0, T0))
        window = pages.read()
        assert window.counter("generation_tokens") == 200
        assert window.duration_seconds is None

    def test_without_a_clock_one_process_counts_upwards(self, pages: Pages) -> None:
        pages.add("after.prom", tokens(300), start=T0 - 90)
        pages.add("before.prom", tokens(100), start=T0 - 90)
        assert pages.read().counter("generation_tokens") == 200

    def test_without_clock_and_process_the_given_order_holds(self, pages: Pages) -> None:
        pages.add("after.prom", tokens(300))
        pages.add("before.prom", tokens(100))
        error = pages.refused()
        assert error.reason == (
            "the server restarted between after.prom and before.prom (vllm:generation_tokens_total went from 300 down "
            "to 100): no difference can be taken"
        )
        assert error.remedy is not None
        assert "must be given in their order" in str(error.remedy)
        # A folder has no order of its own: there names say it.
        assert pages.read_folder().counter("generation_tokens") == 200

    def test_timestamps_of_the_samples_are_a_clock(self, pages: Pages) -> None:
        pages.add("b.prom", f"{tokens(300)} 1700000060000")
        pages.add("a.prom", f"{tokens(100)} 1700000000000")
        assert pages.read().duration_seconds == 60


class TestDuration:
    def test_scrape_durations_are_the_clocks_error(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(1), T0, head="# scrape_seconds 0.25")
        pages.add("b.prom", tokens(2), T0 + 10, head="# scrape_seconds 0.5")
        assert pages.read().clock_error_seconds == 0.75

    @pytest.mark.parametrize(("given", "note"), [(60.0, False), (62.0, False), (64.0, True)])
    def test_the_clock_wins_over_a_given_duration(self, pages: Pages, given: float, note: bool) -> None:
        pages.add("a.prom", tokens(1), T0)
        pages.add("b.prom", tokens(2), T0 + 60)
        window = pages.read(duration=given)
        assert window.duration_seconds == 60
        assert bool(window.notes) == note

    def test_a_duration_that_contradicts_the_clock_is_refused(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(1), T0)
        pages.add("b.prom", tokens(2), T0 + 60)
        assert pages.refused(duration=30.0).reason == (
            "the scrapes lie 60.0 s apart by their own clock, but a duration of 30 s is given"
        )

    def test_the_same_clock_twice_is_refused(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(1), T0)
        pages.add("b.prom", tokens(2), T0)
        assert pages.refused().reason == "a.prom and b.prom carry the same clock: no time passed between them"

    def test_scrapes_without_a_clock_are_spread_over_the_given_duration(self, pages: Pages) -> None:
        for index in range(5):
            text = f'{tokens(index)}\nvllm:num_requests_running{{engine="0",model_name="m"}} 1'
            pages.add(f"{index}.prom", text)
        window = pages.read(duration=60)
        assert window.engines[0].gauges["running"].times == (0.0, 15.0, 30.0, 45.0, 60.0)
        assert window.notes == ("the scrapes carry no clock: taken as evenly spaced over the given 60 s",)
        assert window.progress is None

    def test_some_clocks_are_none(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(1), T0)
        pages.add("b.prom", tokens(2))
        window = pages.read()
        assert window.duration_seconds is None
        assert window.notes == ("some scrapes carry no clock: the others' is not used",)

    def test_since_start_the_uptime_bounds_a_given_duration(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(1), T0, start=T0 - 600)
        assert pages.read().duration_seconds == 600
        assert pages.read(duration=60).duration_seconds == 60
        assert pages.refused(duration=900).reason == (
            "the server was up for 600.0 s when it was scraped, but a duration of 900 s is given"
        )

    def test_since_start_the_oldest_series_tell_the_start(self, pages: Pages) -> None:
        """Where the process does not say when it started, its counters do (`_created`)."""
        text = f'{tokens(1)}\nvllm:generation_tokens_created{{engine="0",model_name="m"}} {T0 - 100}'
        pages.add("a.prom", text, T0)
        assert pages.read().duration_seconds == 100


class TestRestarts:
    def test_the_longer_part_is_used_and_said(self, pages: Pages) -> None:
        for second, count in ((0, 100), (10, 200), (20, 7), (30, 17), (40, 27), (50, 47)):
            pages.add(f"{second:02}.prom", tokens(count), T0 + second)
        window = pages.read()
        assert window.counter("generation_tokens") == 47 - 7
        assert (window.started, window.duration_seconds, window.samples) == (T0 + 20, 30, 4)
        (note,) = window.notes
        assert note.startswith("the server restarted once inside the window, before ")
        assert note.endswith(
            "(vllm:generation_tokens_total went from 200 down to 7): "
            "only the longest part without one is used, 30.0 of 50.0 s"
        )

    def test_without_a_clock_the_part_with_more_scrapes(self, pages: Pages) -> None:
        for index, count in enumerate((100, 200, 7, 17, 27)):
            pages.add(f"{index}.prom", tokens(count))
        window = pages.read(duration=60)
        assert window.counter("generation_tokens") == 20
        assert window.duration_seconds is None  # 60 s were given for all five

    def test_without_a_clock_several_servers_cannot_be_cut(self, pages: Pages) -> None:
        for index, count in enumerate((100, 200, 7, 17)):
            for name in ("one", "two"):
                pages.add(f"{name}.{index:06}.prom", tokens(count))
        with pytest.raises(SourceError, match="the server restarted between"):
            pages.read_folder()

    def test_fewer_observations_or_requests_are_a_restart(self, pages: Pages) -> None:
        pages.add("a.prom", ttft({"+Inf": 9}, 5), T0)
        pages.add("b.prom", ttft({"+Inf": 4}, 7), T0 + 9)
        assert "vllm:time_to_first_token_seconds_count went from 9 down to 4" in pages.refused().reason
        for name, count in (("a", 5), ("b", 3)):
            path = pages.folder / f"{name}.prom"
            path.write_text(f'vllm:request_success_total{{finished_reason="stop"}} {count}\n', encoding="utf-8")
        assert "vllm:request_success_total went down" in pages.refused().reason

    def test_an_engine_that_was_gone_and_counts_anew(self, pages: Pages) -> None:
        pages.add("a.prom", f"{tokens(10)}\n{tokens(100, '1')}", T0)
        pages.add("b.prom", tokens(20), T0 + 10)
        pages.add("c.prom", f"{tokens(30)}\n{tokens(5, '1')}", T0 + 20)
        pages.add("d.prom", f"{tokens(40)}\n{tokens(15, '1')}", T0 + 31)
        window = pages.read()
        # From c to d: 40 - 30 and 15 - 5, over 11 of 31 s.
        assert [engine.counters["generation_tokens"] for engine in window.engines] == [10, 10]
        assert "vllm:generation_tokens_total went from 100 down to 5" in window.notes[0]
        assert window.duration_seconds == 11

    def test_a_process_is_known_though_a_page_between_does_not_tell_it(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(100), T0, start=T0 - 60)
        pages.add("b.prom", tokens(200), T0 + 10)
        pages.add("c.prom", tokens(300), T0 + 30, start=T0 + 15)
        window = pages.read()
        assert window.counter("generation_tokens") == 100  # from a to b
        assert "its process started at" in window.notes[0]

    def test_a_new_process_that_did_more_is_a_restart_too(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(100), T0, start=T0 - 60)
        pages.add("b.prom", tokens(900), T0 + 60, start=T0 + 5)
        assert "its process started at" in pages.refused().reason

    def test_new_series_of_old_ones_are_a_restart(self, pages: Pages) -> None:
        """Several API servers expose no process metrics, one engine may still say when its counters were made."""
        for name, at, created, count in (("a", 0, 100, 5), ("b", 60, 30, 9)):
            text = f'{tokens(count)}\nvllm:generation_tokens_created{{engine="0",model_name="m"}} {T0 - created}'
            pages.add(f"{name}.prom", text, T0 + at)
        assert "vllm:generation_tokens_created changed" in pages.refused().reason

    def test_a_restart_of_one_server_cuts_all(self, pages: Pages) -> None:
        for second, first, second_server in ((0, 100, 10), (10, 200, 20), (20, 5, 30), (30, 15, 40), (40, 25, 50)):
            for name, count in (("one", first), ("two", second_server)):
                pages.add(f"{name}.{second:06}.prom", tokens(count), T0 + second)
        window = pages.read_folder()
        assert window.duration_seconds == 20
        assert [engine.counters["generation_tokens"] for engine in window.engines] == [20, 20]

    def test_an_address_that_two_servers_answer_is_refused(self, pages: Pages) -> None:
        for second, start, count in ((0, 100, 5), (10, 900, 7), (20, 100, 9)):
            pages.add(f"{second:02}.prom", tokens(count), T0 + second, start=T0 - start)
        error = pages.refused()
        assert error.reason.startswith("00.prom and 10.prom come from two servers")
        assert error.remedy is not None
        assert "scrape pods, or ask Prometheus" in str(error.remedy)

    def test_a_start_before_the_earlier_scrape_is_no_restart(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(5), T0, start=T0 - 1000)
        pages.add("b.prom", tokens(9), T0 + 60, start=T0 - 500)
        assert "come from two servers" in pages.refused().reason


class TestSeriesThatComeAndGo:
    def test_declared_without_series_is_zero(self, pages: Pages) -> None:
        """V0 made a series at its first observation: before, only the TYPE line was there."""
        gauge = 'vllm:num_requests_running{model_name="m"} 0'
        pages.add("a.prom", f"# TYPE vllm:generation_tokens_total counter\n{gauge}", T0)
        pages.add("b.prom", f'vllm:generation_tokens_total{{model_name="m"}} 70\n{gauge}', T0 + 10)
        assert pages.read().counter("generation_tokens") == 70

    def test_undeclared_has_no_known_increase(self, pages: Pages) -> None:
        gauge = 'vllm:num_requests_running{model_name="m"} 0'
        pages.add("a.prom", gauge, T0)
        pages.add("b.prom", f'vllm:generation_tokens_total{{model_name="m"}} 70\n{gauge}', T0 + 10)
        window = pages.read()
        assert window.counter("generation_tokens") is None
        assert window.notes == ("vllm:generation_tokens_total is not in the first scrape: its increase is not known",)

    def test_a_server_that_still_loaded_began_at_zero(self, pages: Pages) -> None:
        pages.add("a.prom", "python_info 1", T0, start=T0 - 5)
        pages.add("b.prom", tokens(70), T0 + 60, start=T0 - 5)
        window = pages.read()
        assert window.counter("generation_tokens") == 70
        assert window.duration_seconds == 60

    def test_an_engine_that_came_and_one_that_left(self, pages: Pages) -> None:
        pages.add("a.prom", f"{tokens(10)}\n{tokens(5, '1')}", T0)
        pages.add("b.prom", f"{tokens(20)}\n{tokens(9, '1')}\n{tokens(100, '2')}", T0 + 10)
        pages.add("c.prom", f"{tokens(30)}\n{tokens(130, '2')}", T0 + 20)
        window = pages.read()
        assert [engine.counters["generation_tokens"] for engine in window.engines] == [20, 4, 30]
        assert window.notes == (
            "engine 1 left during the window: counted until b.prom",
            "engine 2 came during the window: counted from b.prom",
        )

    def test_other_buckets_share_their_common_bounds(self, pages: Pages) -> None:
        """(0,1] 2 -> 5, (1,10] 8 -> 15: the bound at 5 is only in one of them."""
        pages.add("a.prom", ttft({"1": 2, "5": 4, "10": 10, "+Inf": 10}, 20), T0)
        pages.add("b.prom", ttft({"1": 5, "10": 20, "+Inf": 21}, 90), T0 + 10)
        window = pages.read()
        assert window.histogram("ttft") == Histogram((1.0, 10.0, math.inf), (3.0, 7.0, 1.0), 70.0)
        assert len(window.notes) == 1

    def test_a_name_that_is_fed_later_counts_from_zero(self, pages: Pages) -> None:
        """Both names are there, the new one stays empty; before the load both did."""
        new, old = "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"
        pages.add("a.prom", f"{new}_sum 0\n{new}_count 0\n{old}_sum 0\n{old}_count 0", T0)
        pages.add("b.prom", f"{new}_sum 0\n{new}_count 0\n{old}_sum 3\n{old}_count 6", T0 + 9)
        itl = pages.read().histogram("itl")
        assert itl is not None
        assert (itl.count, itl.mean) == (6, 0.5)

    def test_another_name_with_a_past_has_no_known_increase(self, pages: Pages) -> None:
        new, old = "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"
        pages.add("a.prom", f"{new}_sum 1\n{new}_count 2\nvllm:gpu_prefix_cache_hits_total 5", T0)
        pages.add("b.prom", f"{old}_sum 3\n{old}_count 6\nvllm:prefix_cache_hits_total 9", T0 + 9)
        window = pages.read()
        assert window.histogram("itl") is None
        assert window.counter("prefix_hits") is None
        assert len(window.notes) == 2

    def test_a_histogram_that_shrank_in_a_bucket_is_left_out(self, pages: Pages) -> None:
        pages.add("a.prom", ttft({"1": 2, "5": 4, "+Inf": 10}, 20), T0)
        pages.add("b.prom", ttft({"1": 8, "5": 9, "+Inf": 12}, 30), T0 + 9)
        window = pages.read()
        assert window.histogram("ttft") is None
        assert window.notes == ("vllm:time_to_first_token_seconds decreased in a bucket or in its sum: it is not used",)

    def test_more_cached_than_asked_is_no_count_of_computed_tokens(self, pages: Pages) -> None:
        """Hits are counted when a request is admitted, its prompt at its first output."""
        for name, asked, hits in (("a", 0, 0), ("b", 100, 120)):
            text = f"vllm:prompt_tokens_total {asked}\nvllm:prefix_cache_hits_total {hits}"
            pages.add(f"{name}.prom", text, T0 + hits)
        window = pages.read()
        assert window.counter("prompt_tokens") == 100
        assert window.counter("prompt_tokens_computed") is None

    def test_requests_that_the_first_scrape_does_not_count(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(1), T0)
        finished = 'vllm:request_success_total{engine="0",model_name="m",finished_reason="stop"} 9'
        pages.add("b.prom", f"{tokens(2)}\n{finished}", T0 + 9)
        window = pages.read()
        assert window.counter("requests_finished") is None
        assert window.notes == ("vllm:request_success_total is not in the first scrape: its increase is not known",)

    def test_engines_that_share_no_two_scrapes_are_no_window(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(1, "0"), T0)
        pages.add("b.prom", tokens(2, "1"), T0 + 9)
        assert pages.refused().reason == "a.prom, b.prom: no engine is in two scrapes"

    def test_a_gap_is_said(self, pages: Pages) -> None:
        for second in (0, 1, 2, 3, 15, 16):
            pages.add(f"{second:02}.prom", tokens(second), T0 + second)
        assert pages.read().notes == ("no scrape for 12.0 s after 03.prom, where one every 1.0 s is usual",)

    def test_an_idle_server_is_a_window_without_increases(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(10), T0)
        pages.add("b.prom", tokens(10), T0 + 10)
        window = pages.read()
        assert window.counter("generation_tokens") == 0
        assert window.progress is not None
        assert window.progress.values == (0, 0)

    def test_prefix_caching_that_is_disabled_computes_every_token(self, pages: Pages) -> None:
        for name, count in (("a", 10), ("b", 50)):
            pages.add(f"{name}.prom", f"vllm:prompt_tokens_total {count}\nvllm:gpu_prefix_cache_hit_rate -1")
        assert pages.read().counter("prompt_tokens_computed") == 40

    def test_requests_are_counted_by_their_latency_where_nothing_else_does(self, pages: Pages) -> None:
        for name, count in (("a", 1), ("b", 9)):
            pages.add(f"{name}.prom", f"vllm:e2e_request_latency_seconds_sum {count}\n"
                      f"vllm:e2e_request_latency_seconds_count {count}")  # fmt: skip
        assert pages.read().counter("requests_finished") == 8

    def test_finished_requests_by_reason(self, pages: Pages) -> None:
        for name, stop, abort, error in (("a", 10, 1, 0), ("b", 30, 3, 2)):
            pages.add(f"{name}.prom", "".join(
                f'vllm:request_success_total{{finished_reason="{reason}",model_name="m"}} {count}\n'
                for reason, count in (("stop", stop), ("abort", abort), ("error", error))
            ))  # fmt: skip
        window = pages.read()
        assert window.engines[0].finished == {"stop": 20, "abort": 2, "error": 2}
        counted = [window.counter(f"requests_{kind}") for kind in ("finished", "aborted", "errored")]
        assert counted == [24, 2, 2]


class TestModels:
    def test_several_need_a_name(self, pages: Pages) -> None:
        for name, count in (("a", 1), ("b", 5)):
            pages.add(f"{name}.prom", f"{tokens(count, model='org/one')}\n{tokens(10 * count, model='org/two')}")
        error = pages.refused()
        assert error.reason == "a.prom, b.prom holds several served models: 'org/one', 'org/two'"
        window = pages.read(model="org/two")
        assert window.model_names == ("org/two",)
        assert window.counter("generation_tokens") == 40

    def test_one_that_is_not_there(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(1, model="org/one"))
        assert pages.refused(model="org/onee").reason == (
            "a.prom holds no served model 'org/onee' (did you mean 'org/one'?), but 'org/one'"
        )

    def test_a_restart_of_another_models_server_does_not_matter(self, pages: Pages) -> None:
        for second, one, two in ((0, 10, 500), (10, 20, 1)):
            pages.add(f"one.{second:06}.prom", tokens(one, model="one"), T0 + second)
            pages.add(f"two.{second:06}.prom", tokens(two, model="two"), T0 + second)
        assert pages.read_folder(model="one").counter("generation_tokens") == 10


    def test_a_server_that_names_none_is_said(self, pages: Pages) -> None:
        for second, count in ((0, 10), (10, 20)):
            pages.add(f"one.{second:06}.prom", tokens(count), T0 + second)
            pages.add(f"two.{second:06}.prom", f"vllm:generation_tokens_total {count}", T0 + second)
        window = pages.read_folder()
        assert window.counter("generation_tokens") == 10
        assert window.notes == ("rec/two.000000.prom: its series name no served model: that server is left out",)


class TestServers:
    def test_endpoints_side_by_side(self, pages: Pages) -> None:
        for second, first, second_server in ((0, 10, 100), (10, 20, 130)):
            for port, count in ((8000, first), (8001, second_server)):
                pages.add(f"{port}-{second}.prom", tokens(count), T0 + second,
                          head=f"# endpoint http://pod:{port}/metrics")  # fmt: skip
        window = pages.read()
        assert [(engine.identity, engine.counters["generation_tokens"]) for engine in window.engines] == [
            ("pod:8000, engine 0", 10),
            ("pod:8001, engine 0", 30),
        ]
        assert window.progress is not None
        assert window.progress.values == (0, 40)

    def test_a_server_with_one_scrape_is_left_out_and_said(self, pages: Pages) -> None:
        pages.add("one.000001.prom", tokens(1), T0)
        pages.add("one.000002.prom", tokens(5), T0 + 10)
        pages.add("two.000001.prom", tokens(1), T0)
        window = pages.read_folder()
        assert window.counter("generation_tokens") == 4
        assert window.notes == (
            "rec/two.000001.prom is its server's only scrape in the window: that server is left out",
        )

    def test_gpu_counters_beside_it_are_the_windows_hardware(self, pages: Pages) -> None:
        pages.add("a.prom", tokens(1), T0)
        pages.add("b.prom", tokens(5), T0 + 10)
        pages.add("dcgm.prom", 'DCGM_FI_DEV_SM_CLOCK{gpu="0",modelName="NVIDIA H100 80GB HBM3"} 1980', T0)
        window = pages.read()
        assert window.device_names == ("NVIDIA H100 80GB HBM3",)
        assert window.unread == ()
        assert [(source.kind, source.location) for source in window.sources] == [
            ("vllm", "a.prom"), ("vllm", "b.prom"), ("dcgm", "dcgm.prom")]  # fmt: skip
        assert window.hardware is not None
        assert window.hardware.gpus[0].series["sm_clock_hertz"].values == (1980e6,)  # MHz

    def test_gpu_counters_alone_are_a_window_without_an_engine(self, pages: Pages) -> None:
        pages.add("dcgm.prom", 'DCGM_FI_DEV_SM_CLOCK{gpu="0"} 1980')
        window = pages.read()
        assert (window.kind, window.engines, window.duration_seconds) == ("dcgm", (), None)

    def test_gpu_counters_of_no_named_gpu(self, pages: Pages) -> None:
        pages.add("dcgm.prom", "DCGM_FI_DEV_SM_CLOCK 1980")
        assert "none of a GPU that is named" in pages.refused().reason


NAMES = [
    'vllm:generation_tokens_total{engine="0"}',
    'vllm:generation_tokens_created{engine="0"}',
    'vllm:request_success_total{engine="0",finished_reason="stop"}',
    'vllm:inter_token_latency_seconds_bucket{engine="0",le="1.0"}',
    'vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf"}',
    'vllm:inter_token_latency_seconds_sum{engine="0"}',
    'vllm:inter_token_latency_seconds_count{engine="0"}',
    'vllm:num_requests_running{engine="0"}',
    'vllm:estimated_flops_per_gpu_total{engine="1"}',
    "process_start_time_seconds",
]
BODIES = st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1).map(
    lambda values: "".join(f"{name} {value}\n" for name, value in values.items())
)
HEADS = st.sampled_from(["", "# scraped_at 1795975800\n", "# scraped_at 1795975860\n", "# scraped_at 0\n"])


@given(st.lists(st.tuples(HEADS, BODIES), min_size=1, max_size=4), st.none() | st.sampled_from([1.0, 60.0]))
def test_whatever_pages_say_there_is_a_window_of_finite_numbers_or_a_reason(
    written: list[tuple[str, str]], duration: float | None
) -> None:
    with TemporaryDirectory() as folder:
        for index, (head, body) in enumerate(written):
            (Path(folder) / f"{index}.prom").write_text(head + body, encoding="utf-8")
        try:
            window = read_window([(Path(folder), "rec")], duration_seconds=duration)
        except SourceError as error:
            assert error.reason  # noqa: PT017 - either outcome is right
            return
    assert window.duration_seconds is None or window.duration_seconds > 0
    for engine in window.engines:
        assert all(map(math.isfinite, engine.counters.values()))
        for histogram in engine.histograms.values():
            assert all(count >= 0 for count in histogram.counts)
            assert math.isfinite(histogram.total)
        for series in engine.gauges.values():
            assert all(map(math.isfinite, series.values))
            assert list(series.times) == sorted(series.times)
