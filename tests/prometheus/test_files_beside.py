"""Files beside a Prometheus server: what is of the window's time is joined, and anything else is refused with words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import runs
from benchmark_files import detailed, vllm_result
from fleets import fleet, prometheus
from vllm_pages import Load, write_pages

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.fleetfiles import with_files
from pytest_llmroof.telemetry.fleetsource import prometheus_window
from pytest_llmroof.telemetry.window import Window

END = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC).timestamp()
SECONDS = 300.0
LOAD = Load(seconds=SECONDS, itl=0.02, batch=10, output=101, model="m")
TABLE = "timestamp, index, uuid, name, utilization.gpu [%]"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    replicas = fleet(LOAD, 2, END, interval=5.0)
    with prometheus(tmp_path_factory.mktemp("files"), (one for each in replicas for one in each.series())) as address:
        yield address


@pytest.fixture(scope="module")
def window(url: str) -> Window:
    source = {"prometheus": url, "selector": 'namespace="prod"', "duration": SECONDS, "end": str(END)}
    return prometheus_window(source, duration_seconds=None)


def result(folder: Path, **changes: Any) -> list[tuple[Path, str]]:
    path = folder / "result.json"
    path.write_text(json.dumps(vllm_result(**changes)), encoding="utf-8")
    return [(path, path.name)]


def counted(window: Window) -> dict[str, int]:
    """A result of as many requests and tokens as both servers counted."""
    finished, tokens = window.counter("requests_finished"), window.counter("generation_tokens")
    assert finished is not None
    assert tokens is not None
    return {"completed": round(finished), "num_prompts": round(finished), "total_output_tokens": round(tokens)}


@pytest.mark.parametrize("date", [
    "20260301-115930",  # UTC: from 11:58:40 to 11:59:30
    "20260301-125930",  # the same in Berlin
    "20260301-172930",  # and in Delhi
    "20260301-120003",  # written three seconds after the window's end
])  # fmt: skip
def test_a_result_of_the_window_s_time(window: Window, tmp_path: Path, date: str) -> None:
    joined = with_files(window, result(tmp_path, date=date))
    assert joined.client is not None
    assert joined.client.completed == 500
    assert joined.engines == window.engines
    assert [source.kind for source in joined.sources] == ["prometheus", "vllm-serve"]


@pytest.mark.parametrize(("date", "gist"), [
    ("20260301-115520", "in no time zone, or in several, it lies inside"),  # began before the window, in any zone
    ("20260301-120730", "in no time zone"),
    ("20260221-115930", "in no time zone"),
    (None, "carries no clock, and its requests and tokens are not those that the servers counted"),
])  # fmt: skip
def test_a_result_of_another_time_is_refused(window: Window, tmp_path: Path, date: str | None, gist: str) -> None:
    with pytest.raises(SourceError, match=gist) as caught:
        with_files(window, result(tmp_path, date=date))
    # From the first scrape to the last.
    assert "the window is from 2026-03-01 11:55:02 to 2026-03-01 11:59:57 UTC" in caught.value.reason
    assert "set `end` and `duration`" in str(caught.value.remedy)


def test_without_a_clock_its_counts_tell(window: Window, tmp_path: Path) -> None:
    joined = with_files(window, result(tmp_path, date=None, duration=290.0, **counted(window)))
    assert joined.client is not None
    with pytest.raises(SourceError, match="carries no clock"):
        with_files(window, result(tmp_path, date=None, duration=900.0, **counted(window)))


def test_requests_with_a_clock_of_their_own(window: Window, tmp_path: Path) -> None:
    path = tmp_path / "probe.json"
    for started, fits in ((END - 200, True), (END - 400, False), (END - 3, False)):
        run = {
            "probe": {"phase": "decode", "concurrency": 1}, "duration_seconds": 50.0, "started": started,
            "completed": 1, "failed": 0, "input_tokens": 100, "output_tokens": 10,
            "results": [{"sent": 0.0, "ttft": 0.1, "e2e": 1.0, "input_tokens": 100, "output_tokens": 10}],
        }  # fmt: skip
        path.write_text(json.dumps(run), encoding="utf-8")
        if fits:
            assert with_files(window, [(path, "probe.json")]).client is not None
        else:
            with pytest.raises(SourceError, match=r"probe\.json ran from 2026-03-01 .* the window is from"):
                with_files(window, [(path, "probe.json")])


def test_a_recording_of_an_engine_would_count_twice(window: Window, tmp_path: Path) -> None:
    before, after = write_pages(tmp_path, LOAD)
    with pytest.raises(SourceError, match="holds metrics of vLLM, and so does the Prometheus server") as caught:
        with_files(window, [(before, "before.prom"), (after, "after.prom")])
    assert "name one of the two" in str(caught.value.remedy)


def table(folder: Path, end: float) -> list[tuple[Path, str]]:
    """What nvidia-smi prints every 5 s, begun at a known time."""
    times = [end - SECONDS + step * 5 for step in range(61)]
    told = [f"{datetime.fromtimestamp(at, UTC):%Y/%m/%d %H:%M:%S}.000" for at in times]
    rows = [f"{text}, 0, GPU-a, NVIDIA H100 80GB HBM3, 97 %" for text in told]
    path = folder / "gpus.csv"
    path.write_text("\n".join([f"# scraped_at {times[0]:.3f}", TABLE, *rows]) + "\n", encoding="utf-8")
    return [(path, path.name)]


def test_gpu_counters_of_the_window_s_time(window: Window, tmp_path: Path) -> None:
    joined = with_files(window, [*table(tmp_path, END), *result(tmp_path, date="20260301-115930")])
    assert joined.hardware is not None
    assert joined.hardware.clocked
    (gpu,) = joined.hardware.gpus
    assert set(gpu.series["utilization"].values) == {0.97}
    assert joined.device_names == ("NVIDIA H100 80GB HBM3",)
    assert joined.client is not None


def test_gpu_counters_of_another_time_are_refused(window: Window, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no row of gpus\.csv lies inside the window"):
        with_files(window, table(tmp_path, END - 86_400))


def test_files_that_are_not_used_are_said(window: Window, tmp_path: Path) -> None:
    for name, date in (("in.json", "20260301-115930"), ("earlier.json", "20260221-115930")):
        (tmp_path / name).write_text(json.dumps(vllm_result(date=date)), encoding="utf-8")
    bench = {"model_n_params": 1, "n_prompt": 512, "n_gen": 0, "avg_ns": 5}
    (tmp_path / "bench.json").write_text(json.dumps([bench]), encoding="utf-8")
    (tmp_path / "other.prom").write_text("python_info 1\n", encoding="utf-8")
    named = [(tmp_path / name, name) for name in ("in.json", "earlier.json", "bench.json", "other.prom")]
    joined = with_files(window, named)
    assert joined.client is not None
    assert joined.client.location == "in.json"
    said = " | ".join(joined.unread)
    assert "earlier.json ended at 2026-02-21 11:59:30" in said
    assert "bench.json: llama-bench runs no server" in said
    assert "other.prom: metrics of no engine that is known here (python_info, ...)" in said


def test_what_no_reader_knows_is_refused(window: Window, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"notes\.txt") as caught:
        with_files(window, [(path, "notes.txt")])
    assert "a load generator's result" in str(caught.value.remedy)


def test_in_a_gate_file(url: str, pytester: pytest.Pytester) -> None:
    """The client's p99 decides, exact to the request, and the servers' mean step beside it."""
    run = detailed([(0.1, [0.02] * 100)] * 99 + [(0.9, [0.02] * 100)], date="20260301-115930")
    (pytester.path / "result.json").write_text(json.dumps(run), encoding="utf-8")
    source = f"{{prometheus: \"{url}\", selector: 'namespace=\"prod\"', duration: 5m, end: \"2026-03-01T12:00:00Z\"}}"
    pytester.makefile(".yaml", llmroof=f"""
windows:
  fleet:
    phase: decode
    telemetry: [{source}, result.json]
    gates: [ttft.p50 <= 150ms, itl.mean <= 25ms, ttft.max <= 500ms]
""")  # fmt: skip
    outcome = runs.run(pytester)
    text = " ".join(outcome.stdout.str().split())
    outcome.assert_outcomes(passed=2, failed=1)
    assert "found 900 ms, expected ttft.max <= 500 ms" in text
    assert "vllm bench serve is not the load of this window, or not all of it" in text
