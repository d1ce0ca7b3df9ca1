"""TensorRT-LLM's /metrics: each iteration's record is handed out once. Nothing is lost, and nothing counts twice."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from draining import BATCH, SECONDS, Iterations, iteration
from exporters import Exporter
from loopback import always, respond

from pytest_llmroof.__main__ import main
from pytest_llmroof.telemetry.reading import read_window

HEAD = "model: llama-3.1-8b\ndeployment: {tensor_parallel: 1, weights: bf16}\n"
GATES = "gates: [decode.step_time <= 11ms, decode.step_time <= 9ms, running.last <= 8]"


@pytest.fixture
def iterations(server: Exporter) -> Iterations:
    server.answer = iterations = Iterations()
    return iterations


def window(telemetry: str, *more: str, gates: str = GATES, duration: str | None = "0.6s") -> str:
    live = [f"duration: {duration}", "interval: 0.1s"] if duration else []
    lines = ["phase: decode", f"telemetry: {telemetry}", *live, *more, gates]
    return "\n".join(["decode:", *(f"  {line}" for line in lines)])


def ends(folder: Path) -> float:
    """How long the first and the last scrape of a recording took: the server answered somewhen in them."""
    pages = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.prom"))]
    return sum(float(re.findall(r"# scrape_seconds (\S+)", page)[0]) for page in (pages[0], pages[-1]))


def test_every_iteration_counts_once(project: Any, server: Exporter, iterations: Iterations) -> None:
    project.gates(window(server.url), HEAD)
    live = project.run("--llmroof-record=kept")
    assert live.verdicts == ["pass", "fail", "pass"]
    # The first answer holds what came before the window.
    counted = sum(map(len, iterations.handed[1:]))
    kept = read_window([(project.path / "kept/llmroof/decode", "kept")])
    assert kept.counter("steps") == counted
    assert kept.counter("decode_tokens") == BATCH * counted
    # By the clock of the scrapes, not by the sum of the steps.
    assert kept.started is not None
    assert kept.duration_seconds == live.window["duration_seconds"] >= 0.6
    error = SECONDS + ends(project.path / "kept/llmroof/decode")
    assert kept.duration_seconds == pytest.approx(counted * SECONDS, abs=error)
    step_time = live.window["measurements"]["decode.step_time"]
    assert step_time["value"] == pytest.approx(SECONDS)
    assert len(list((project.path / "kept/llmroof/decode").glob("*.prom"))) == len(iterations.handed)

    project.gates(window("kept/llmroof/decode", duration=None), HEAD)
    replayed = project.run()
    assert replayed.window["measurements"] == live.window["measurements"]
    assert replayed.verdicts == live.verdicts


def test_the_recorder_keeps_every_answer(
    project: Any, server: Exporter, iterations: Iterations, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = project.path / "load"
    sleep = [sys.executable, "-c", "import time; time.sleep(0.5)"]
    assert main(["record", f"--out={folder}", "--interval=0.1s", server.url, "--", *sleep]) == 0
    counted = sum(map(len, iterations.handed[1:]))
    assert read_window([(folder, "load")]).counter("steps") == counted
    project.gates(window("load", duration=None), HEAD)
    assert project.run().verdicts == ["pass", "fail", "pass"]


def test_an_idle_engine_answers_with_empty_lists(project: Any, server: Exporter, iterations: Iterations) -> None:
    iterations.idle = True
    project.gates(window(server.url), HEAD)
    run = project.run()
    assert run.verdicts == ["no data"] * 3
    assert "an empty list: the engine did no step, or keeps no records of them" in run.one_line


def test_idle_times_are_part_of_the_window(
    project: Any, server: Exporter, iterations: Iterations, lasting: Any
) -> None:
    def answer(handler: Any) -> None:
        iterations.idle = 3 <= len(iterations.handed) < 6
        iterations(handler)

    server.answer = answer
    lasting(lambda: len(iterations.handed) >= 6)
    gates = "gates: [decode.step_time <= 11ms, 'output.tokens_per_second <= 700tok/s']"
    project.gates(window(server.url, gates=gates), HEAD)
    run = project.run("--llmroof-record=kept")
    kept = read_window([(project.path / "kept/llmroof/decode", "kept")])
    # While it is idle, for three intervals of 0.1 s, it does not count on: one of them may have begun late.
    assert kept.duration_seconds is not None
    most = kept.duration_seconds / SECONDS
    assert kept.counter("steps") == sum(map(len, iterations.handed[1:])) < most - 20
    assert run.verdicts == ["pass", "pass"]


@pytest.mark.parametrize(("every", "verdict"), [(30, "pass"), (3, "no data")])
def test_records_that_somebody_else_was_handed(
    project: Any, server: Exporter, iterations: Iterations, every: int, verdict: str
) -> None:
    """One record in 30 that is missing is said; one in three is no data."""

    def answer(handler: Any) -> None:
        records = [record for record in iterations.drain() if record["iter"] % every]
        respond(handler, json.dumps(records).encode(), content_type="application/json")

    server.answer = answer
    project.gates(window(server.url, gates="gates: [decode.step_time <= 11ms]"), HEAD)
    run = project.run()
    assert run.verdicts == [verdict]
    said = run.one_line if verdict == "no data" else " ".join(run.window["notes"])
    assert "iterations are missing from the answers" in said


def test_a_restart_is_seen_by_the_engine_s_own_count(
    project: Any, server: Exporter, iterations: Iterations, lasting: Any
) -> None:
    def answer(handler: Any) -> None:
        if len(iterations.handed) == 3:
            iterations.restart()
        iterations(handler)

    server.answer = answer
    lasting(lambda: len(iterations.handed) >= 8)
    project.gates(window(server.url, duration="1s"), HEAD)
    run = project.run()
    assert run.verdicts == ["pass", "fail", "pass"]
    assert "the server restarted once inside the window" in run.one_line
    (kept, whole) = re.findall(r"is used, ([\d.]+) of ([\d.]+) s", " ".join(run.window["notes"]))[0]
    assert run.window["duration_seconds"] == pytest.approx(float(kept), abs=0.051)
    assert float(kept) < float(whole)


def test_it_waits_for_requests(project: Any, server: Exporter, iterations: Iterations) -> None:
    """Every 25th iteration of 10 ms ends one: four a second. The window's own length sees one."""
    project.gates(window(server.url, "min_requests: 4", "max_wait: 20s", duration="0.3s"), HEAD)
    run = project.run("--llmroof-record=kept")
    assert run.verdicts == ["pass", "fail", "pass"]
    kept = read_window([(project.path / "kept/llmroof/decode", "kept")])
    assert (kept.counter("requests_finished") or 0) >= 4
    assert kept.counter("steps") == sum(map(len, iterations.handed[1:]))


def test_other_json_is_no_page(project: Any, server: Exporter) -> None:
    server.answer = always(b'{"detail": "Not Found"}', content_type="application/json")
    project.gates(window(server.url), HEAD)
    assert f"{server.url} is JSON, not metrics" in project.run().one_line


def test_by_hand_with_a_clock(tmp_path: Path) -> None:
    """`(date '+# scraped_at %s'; curl ...) > before.prom`: the first file is what came before."""
    for name, clock, numbers in (("before.prom", 1000, range(7)), ("after.prom", 1002, range(7, 157))):
        body = json.dumps([iteration(number) for number in numbers])
        (tmp_path / name).write_text(f"# scraped_at {clock}.5\n{body}\n", encoding="utf-8")
    window = read_window([(tmp_path / "before.prom", "before.prom"), (tmp_path / "after.prom", "after.prom")])
    assert (window.counter("steps"), window.duration_seconds, window.started) == (150, 2.0, 1000.5)


def test_a_damaged_answer_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "after.prom").write_text('# scraped_at 1000\n# endpoint http://h/metrics\n[{"iter": 1, "iterLatencyMS"',
                                         encoding="utf-8")  # fmt: skip
    with pytest.raises(Exception, match=r"after\.prom:3:\d+: this JSON was cut off"):
        read_window([(tmp_path / "after.prom", "after.prom")])


def test_both_endpoints_of_one_server(
    project: Any, server: Exporter, start_server: Callable[[], Exporter], iterations: Iterations
) -> None:
    """Requests from the page of /prometheus/metrics, steps from the records, in one window of time."""
    from engine_pages import trtllm

    start = 0.0

    def page(handler: Any) -> None:
        nonlocal start
        start += 1
        respond(handler, trtllm(start, None).encode())

    other = start_server()
    other.answer = page
    project.gates(window(f"[{other.url}, {server.url}]", gates="gates: [decode.step_time <= 11ms]"), HEAD)
    run = project.run("--llmroof-record=kept")
    kept = read_window([(project.path / "kept/llmroof/decode", "kept")])
    assert kept.kind == "trtllm"
    assert kept.counter("decode_steps") == sum(map(len, iterations.handed[1:]))
    assert run.verdicts == ["pass"]
