"""The warm-up of a window of files: scrapes and requests before one instant are cut, or nothing is measured."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from benchmark_files import detailed, found, missing, vllm_result, write
from made_windows import deployment

from pytest_llmroof.analysis.clientfacts import belongs
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.warmup import cut_client
from pytest_llmroof.telemetry.window import Window

T0 = 1_795_975_800.0


def cut(seconds: float, *paths: Path, duration: float | None = None) -> Window:
    return read_window([(path, path.name) for path in paths], warmup_seconds=seconds, duration_seconds=duration)


def refused(seconds: float, *paths: Path) -> SourceError:
    with pytest.raises(SourceError) as caught:
        cut(seconds, *paths)
    return caught.value


def of(window: Window) -> Measurements:
    return measure(gather(window, deployment("llama-3.1-8b"), None))


def scrapes(
    folder: Path, *counts: float, length: float = 10.0, clock: bool = True, start: float | None = None
) -> Path:
    """A folder of pages, one every 10 s, each with the tokens until then; requests are ``length`` tokens long."""
    folder.mkdir()
    for place, count in enumerate(counts):
        head = f"# scraped_at {T0 + place * 10}\n" if clock else ""
        head += f"process_start_time_seconds {start}\n" if start is not None else ""
        labels = '{engine="0",model_name="m"}'
        (folder / f"{place:06}.prom").write_text(
            f"{head}vllm:generation_tokens_total{labels} {count}\n"
            f'vllm:request_success_total{{engine="0",model_name="m",finished_reason="stop"}} {count / length}\n'
        )
    return folder


def aiperf(path: Path, *requests: tuple[float, float, int]) -> Path:
    """Requests by start (seconds after T0), latency and output tokens, on the clock of Unix."""
    return write(path, *(
        {
            "metadata": {"request_start_ns": int((T0 + start) * 1e9), "benchmark_phase": "profiling"},
            "metrics": {
                "time_to_first_token": {"value": 100, "unit": "ms"},
                "request_latency": {"value": latency * 1e3, "unit": "ms"},
                "output_sequence_length": {"value": tokens, "unit": "tokens"},
                "input_sequence_length": {"value": 100, "unit": "tokens"},
            },
            "error": None,
        }
        for start, latency, tokens in requests
    ))  # fmt: skip


def timed(requests: list[tuple[float, float, float]], failed: tuple[float, ...] = (), **changes: Any) -> dict[str, Any]:
    """A vLLM result of requests by start, TTFT and time from first token to last (10 equal steps)."""
    run = detailed([(ttft, [rest / 10] * 10) for _, ttft, rest in requests], len(failed), **changes)
    return {**run, "start_times": [start for start, _, _ in requests] + list(failed)}


def test_scrapes_before_the_instant_are_cut(tmp_path: Path) -> None:
    # 10 tokens/s for 20 s, then 100 tokens/s for 40 s.
    folder = scrapes(tmp_path / "rec", 0, 100, 200, 1200, 2200, 3200, 4200)
    whole, warm = cut(0.0, folder), cut(20.0, folder)
    assert (whole.duration_seconds, whole.counter("generation_tokens")) == (60.0, 4200.0)
    assert (warm.duration_seconds, warm.counter("generation_tokens")) == (40.0, 4000.0)
    assert (warm.started, warm.samples) == (T0 + 20, 5)
    assert "2 of 7 scrapes lie in the warm-up of 20 s: left out" in warm.notes
    # Between two scrapes the later one begins the window: 20.1 s leave 30 s.
    assert cut(20.1, folder).duration_seconds == 30.0


def test_a_given_duration_is_that_of_the_whole(tmp_path: Path) -> None:
    folder = scrapes(tmp_path / "rec", 0, 100, 200, 1200, 2200, 3200, 4200)
    assert cut(20.0, folder, duration=60.0).duration_seconds == 40.0
    with pytest.raises(SourceError, match="by their own clock"):
        cut(20.0, folder, duration=40.0)


def test_fewer_than_two_scrapes_left_are_no_data(tmp_path: Path) -> None:
    folder = scrapes(tmp_path / "rec", 0, 100, 200)
    assert cut(10.0, folder).duration_seconds == 10.0
    error = refused(10.1, folder)
    assert "after the warm-up of 10.1 s fewer than two of the 3 scrapes" in error.reason
    assert error.remedy is not None
    assert "shorter intervals" in str(error.remedy)
    refused(1000.0, folder)


def test_scrapes_without_a_clock_are_no_data(tmp_path: Path) -> None:
    error = refused(10.0, scrapes(tmp_path / "rec", 0, 100, 200, clock=False))
    assert "carry no clock" in error.reason
    assert error.remedy is not None
    assert "# scraped_at" in str(error.remedy)


def test_a_single_scrape_is_no_data(tmp_path: Path) -> None:
    folder = scrapes(tmp_path / "rec", 500, start=T0 - 100)
    assert "one scrape covers all time" in refused(10.0, folder / "000000.prom").reason


def test_a_replica_of_which_nothing_is_left_is_named(tmp_path: Path) -> None:
    one, other = scrapes(tmp_path / "one", 0, 100, 200, 300), scrapes(tmp_path / "other", 0, 500)
    window = cut(10.0, one, other)
    assert window.counter("generation_tokens") == 200.0
    assert any("fewer than two scrapes of this server are left" in note for note in window.notes)


def test_the_longest_part_without_a_restart_is_the_one_that_is_cut(tmp_path: Path) -> None:
    # It restarts after 20 s; the part from 30 s to 80 s is the longest, and begins cold: 10 s later 40 s are left.
    window = cut(10.0, scrapes(tmp_path / "rec", 1000, 2000, 3000, 10, 20, 1020, 2020, 3020, 4020))
    assert (window.started, window.duration_seconds) == (T0 + 40, 40.0)
    assert window.counter("generation_tokens") == 4000.0
    assert any("restarted once" in note for note in window.notes)


def test_a_cold_first_wave_is_out_of_the_percentiles(tmp_path: Path) -> None:
    # 10 requests at once, 48 s to their first token; then one a second from 60 s on, of 700, 701 ... 789 ms.
    # p99 of those 90: place 0.99 x 89 = 88.11, so 788 ms + 0.11 x 1 ms. p50: place 44.5, 744.5 ms.
    cold, warm = [(0.0, 48.0, 0.5)] * 10, [(60.0 + i, 0.7 + i / 1000, 0.5) for i in range(90)]
    path = write(tmp_path / "run.json", timed([*warm, *cold]))
    assert found(of(cut(0.0, path)), "ttft.p50").value == pytest.approx(0.7495)
    measurements = of(window := cut(0.5, path))
    assert found(measurements, "ttft.p99").value == pytest.approx(0.78811)
    assert found(measurements, "ttft.p50").value == pytest.approx(0.7445)
    assert found(measurements, "ttft.p99").samples == 90
    assert "10 of 100 requests started in the warm-up of 0.5 s: left out" in window.notes


def test_the_case_of_a_cold_first_wave(tmp_path: Path) -> None:
    case = Path(__file__).parents[3] / "shared/data/cases/46-cold-first-wave-in-p99"
    if not case.is_dir():
        return  # the same figures stand in the test above
    requests = [(one["start_s"], one["ttft_ms"] / 1e3, 0.5) for one in json.loads((case / "requests.json").read_text())]
    expected = json.loads((case / "expected.json").read_text())
    measurements = of(cut(0.5, write(tmp_path / "run.json", timed(requests))))
    assert found(measurements, "ttft.p99").value * 1e3 == pytest.approx(expected["p99_warm"])
    assert found(measurements, "ttft.p50").value * 1e3 == pytest.approx(expected["p50_warm"])


def test_rates_goodput_and_errors_are_of_what_is_left(tmp_path: Path) -> None:
    # 10 s; starts at 0, 1 (cut) and 2 ... 8 of 11 tokens each, 0.5 s long; two failures, at 1.5 s (cut) and at 5 s.
    # Left of 10 s are 8 s: 7 requests, 77 tokens; nothing was under way at 2 s.
    requests = [(float(start), 0.1 if start != 8 else 0.4, 0.4) for start in range(9)]
    measurements = of(cut(2.0, write(tmp_path / "run.json", timed(requests, failed=(1.5, 5.0)))))
    assert found(measurements, "requests_per_second").value == pytest.approx(7 / 8)
    rate = found(measurements, "output.tokens_per_second")
    assert [rate.value, rate.high] == pytest.approx([77 / 8, 77 / 8])
    assert found(measurements, "errors.rate").value == pytest.approx(1 / 8)
    # 6 of 8 meet it: the failed one does not, nor the one of 0.4 s.
    assert found(measurements, "goodput(ttft<=0.2s)").value == pytest.approx(6 / 8)


def test_what_was_under_way_bounds_the_rates_from_above(tmp_path: Path) -> None:
    # Of 10 s 8 are left: 2 requests, 22 tokens. The one of 1 s ends at 3.1 s: 11 tokens more at the most.
    run = timed([(0.0, 0.1, 1.0), (1.0, 0.1, 2.0), (3.0, 0.1, 2.0), (4.0, 0.1, 2.0)])
    rate = found(of(cut(2.0, write(tmp_path / "run.json", run))), "output.tokens_per_second")
    assert [rate.low, rate.high] == pytest.approx([22 / 8, 33 / 8])
    assert rate.judged_by == "bounds"
    requests = found(of(cut(2.0, tmp_path / "run.json")), "requests_per_second")
    assert [requests.low, requests.high] == pytest.approx([2 / 8, 3 / 8])


def test_failures_without_a_start_all_count(tmp_path: Path) -> None:
    run = timed([(float(start), 0.1, 0.4) for start in range(4)], failed=(0.0, 0.0))
    run["start_times"][-2:] = [None, None]
    window = cut(2.0, write(tmp_path / "run.json", run))
    assert found(of(window), "errors.rate").value == pytest.approx(2 / 4)
    assert any("whose start is not known all count" in note for note in window.notes)


@pytest.mark.parametrize("run", [vllm_result(), detailed([(0.1, [0.01])] * 4)])
def test_statistics_of_the_whole_run_are_no_data(tmp_path: Path, run: dict[str, Any]) -> None:
    error = refused(1.0, write(tmp_path / "run.json", run))
    assert "run.json does not tell when each request started: a warm-up of 1 s can't be cut" in error.reason
    assert error.remedy is not None
    assert "--save-detailed" in str(error.remedy)


def test_no_request_left_is_no_data(tmp_path: Path) -> None:
    path = write(tmp_path / "run.json", timed([(0.0, 0.1, 1.0), (1.0, 0.1, 1.0)]))
    assert "no completed request started after the warm-up of 2 s" in refused(2.0, path).reason


def test_statistics_beside_scrapes_are_left_out_and_listed(tmp_path: Path) -> None:
    folder = scrapes(tmp_path / "rec", 0, 100, 200, 300)
    window = cut(10.0, folder, write(tmp_path / "run.json", vllm_result()))
    assert window.client is None
    assert window.counter("generation_tokens") == 200.0
    assert any("does not tell when each request started" in line for line in window.unread)
    assert "several figures of the same request" in missing(of(window), "goodput(ttft<=1s)").reason


def test_server_and_client_are_cut_at_the_same_instant(tmp_path: Path) -> None:
    # The first request comes 15 s after the first scrape: a warm-up of 10 s ends 25 s after it, the next scrape is that
    # of 30 s. A request of 24 s is cut, those of 25 s and 40 s are not.
    folder = scrapes(tmp_path / "rec", 0, 0, 50, 150, 250, 250)
    client = aiperf(tmp_path / "records.jsonl", (15, 5, 100), (24, 4, 50), (25, 5, 100), (40, 5, 100))
    window = cut(10.0, folder, client)
    assert window.client is not None
    assert (window.started, window.duration_seconds, window.client.started) == (T0 + 30, 20.0, T0 + 25)
    assert (window.client.completed, window.client.output_tokens) == (2.0, 200.0)
    # Where the load began before the first scrape, the scrape counts.
    early = aiperf(tmp_path / "early.jsonl", (-5, 5, 100), (9, 4, 50), (10, 5, 100), (40, 5, 100))
    window = cut(10.0, folder, early)
    assert window.client is not None
    assert (window.started, window.client.started, window.client.completed) == (T0 + 10, T0 + 10, 2.0)


def test_requests_under_way_at_the_instant_are_no_other_load(tmp_path: Path) -> None:
    # After 10 s the server counts 100 + 100 tokens; half of the first belong to a request that began at 5 s.
    # Three requests finish in it: 200 / 3 tokens each.
    folder = scrapes(tmp_path / "rec", 0, 100, 200, 300, length=200 / 3)
    client = aiperf(tmp_path / "records.jsonl", (0, 4, 40), (5, 10, 110), (11, 8, 75), (20, 9, 75))
    window = cut(10.0, folder, client)
    assert window.client is not None
    assert window.client.cut is not None
    assert len(window.client.cut.under_way) == 1
    assert belongs(window) is True  # 200 lie between 150 and 150 + 110


def test_cached_prompts_are_taken_to_be_those_that_are_left(tmp_path: Path) -> None:
    # Of 400 prompt tokens 150 were cached: of the 200 that are left at least 50 were computed.
    path = write(tmp_path / "run.json", timed([(float(start), 0.1, 0.4) for start in range(4)]))
    client = cut(0.0, path).client
    assert client is not None
    left = cut_client(replace(client, computed_tokens=250.0), 2.0, None)
    assert (left.input_tokens, left.computed_tokens) == (200.0, 50.0)
    # All cached ones may be among the 200, and 200 of 200 computed is what nobody can claim.
    assert cut_client(replace(client, computed_tokens=150.0), 2.0, None).computed_tokens == 0.0


def test_a_restart_within_the_rest_ends_the_window_before_it(tmp_path: Path) -> None:
    # The longest part is from 0 s to 40 s; after the restart 30 s are there, as many as are left of it.
    window = cut(10.0, scrapes(tmp_path / "rec", 1000, 2000, 3000, 4000, 5000, 10, 20, 30, 40))
    assert (window.started, window.duration_seconds) == (T0 + 10, 30.0)
    assert window.counter("generation_tokens") == 3000.0


def test_counters_of_gpus_alone_are_cut(tmp_path: Path) -> None:
    for place in range(4):
        (tmp_path / f"{place}.prom").write_text(
            f"# scraped_at {T0 + 10 * place}\n"
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"}} {10 * place}\n'
        )
    paths = [tmp_path / f"{place}.prom" for place in range(4)]
    window = cut(20.0, *paths)
    assert (window.started, window.duration_seconds, window.samples) == (T0 + 20, 10.0, 2)
    assert "fewer than two of the 4 scrapes" in refused(21.0, *paths).reason


def table(folder: Path, *, timed: bool) -> Path:
    """nvidia-smi's rows of 0 to 50 s in UTC, 10 % busy in the first 20 s, then 90 %."""
    rows = []
    for second in range(51):
        at = f"{datetime.fromtimestamp(T0 + second, UTC):%Y/%m/%d %H:%M:%S.000}, " if timed else ""
        rows.append(f"{at}0, NVIDIA H100 80GB HBM3, {10 if second < 20 else 90} %")
    head = f"# scraped_at {T0}\ntimestamp, " if timed else ""
    path = folder / "smi.csv"
    path.write_text("\n".join([f"{head}index, name, utilization.gpu [%]", *rows]) + "\n")
    return path


def test_a_table_of_gpu_counters_beside_scrapes_has_the_windows_time(tmp_path: Path) -> None:
    folder = scrapes(tmp_path / "rec", 0, 100, 200, 300, 400, 500)
    window = cut(30.0, folder, table(tmp_path, timed=True))
    assert window.hardware is not None
    assert set(window.hardware.gpus[0].series["utilization"].values) == {0.9}
    # Rows of an unknown time would bring the warm-up back in: only the name of the GPU is taken of them.
    window = cut(30.0, folder, table(tmp_path, timed=False))
    assert window.hardware is None
    assert window.device_names == ("NVIDIA H100 80GB HBM3",)
    assert any("smi.csv: not on the window's clock" in note for note in window.notes)


def test_a_table_alone_cannot_be_cut(tmp_path: Path) -> None:
    assert "tables of GPU counters alone" in refused(10.0, table(tmp_path, timed=True)).reason


def test_a_table_beside_requests_of_another_clock_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "run.json", timed([(float(start), 0.1, 0.4) for start in range(4)]))
    window = cut(2.0, path, table(tmp_path, timed=True))
    assert window.hardware is None
    assert window.client is not None
    assert any("smi.csv: not on the window's clock" in note for note in window.notes)
