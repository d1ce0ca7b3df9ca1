"""Blocks and bodies of tests as windows of a Prometheus server that scrapes while they run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exporters import BATCH, ITL, Exporter
from fleets import storage_of

MODULE = """
import json, time, pytest

LLMROOF = pytest.mark.llmroof(
    gpu="h100", model="llama-3.1-70b", deployment={{"tensor_parallel": 4, "weights": "bf16"}}, phase="decode",
    telemetry={{"prometheus": "{url}", "selector": 'job="engines"', "duration": "10m"{more}}},
)

def drive(seconds):
    start = time.time()
    time.sleep(seconds)
    with open("times.json", "w") as file:
        json.dump([start, time.time()], file)

"""


@pytest.fixture
def prometheus(server: Exporter, tmp_path: Path) -> Iterator[str]:
    """A real Prometheus that scrapes the exporter twice a second."""
    folder = tmp_path / "prometheus"
    (folder / "data").mkdir(parents=True)
    target = f"{{targets: ['127.0.0.1:{server.port}']}}"
    (folder / "prometheus.yml").write_text(
        "scrape_configs:\n"
        f"  - {{job_name: engines, scrape_interval: 500ms, scrape_timeout: 500ms, static_configs: [{target}]}}\n"
    )
    with storage_of(folder, folder / "data") as url:
        server.wait_for(4)
        yield url


@pytest.fixture
def module(project: Any, prometheus: str) -> Callable[..., None]:
    def write(tests: str, more: str = "") -> None:
        (project.path / "test_it.py").write_text(MODULE.format(url=prometheus, more=more) + tests, encoding="utf-8")

    return write


def check_times(project: Any, window: dict[str, Any]) -> None:
    """The window lies in the block; the report has its start in whole seconds."""
    start, end = json.loads((project.path / "times.json").read_text())
    assert int(start) <= window["started_unix"]
    assert window["started_unix"] + window["duration_seconds"] <= end


def unix(window: dict[str, Any]) -> dict[str, Any]:
    from datetime import datetime

    return {**window, "started_unix": datetime.fromisoformat(window["started"]).timestamp()}


def test_a_body_is_a_window(project: Any, module: Callable[..., None]) -> None:
    module(
        "@LLMROOF\n@pytest.mark.llmroof_gate('decode.mbu >= 30%', 'output.tokens_per_second >= 300tok/s')\n"
        "def test_good(): drive(3)\n"
    )
    run = project.run()
    assert run.verdicts == ["pass", "pass"], run.text
    check_times(project, unix(run.window))
    # 12 sequences a step of 26.2 ms: 458 tokens a second; one more for each request.
    assert run.window["measurements"]["output.tokens_per_second"]["value"] == pytest.approx(BATCH / ITL, rel=0.2)
    (note,) = (note for note in run.window["notes"] if "within the block" in note)
    block = re.match(r"the window is what Prometheus scraped within the block of ([\d.]+) s", note)
    assert block is not None
    assert float(block[1]) >= 3
    assert "one scrape interval later" in note


def test_a_block_is_a_window_and_is_not_read_before_its_end(project: Any, module: Callable[..., None]) -> None:
    module(
        "@LLMROOF\ndef test_it(llmroof):\n"
        "    with llmroof.window() as window:\n"
        "        drive(3)\n"
        "        with pytest.raises(RuntimeError, match='still open'): window['decode.mbu']\n"
        "    window.check('decode.mbu >= 30%')\n"
    )
    run = project.run()
    assert run.verdicts == ["pass"], run.text
    check_times(project, unix(run.window))


def test_a_block_shorter_than_two_scrapes(project: Any, module: Callable[..., None]) -> None:
    module("@LLMROOF\n@pytest.mark.llmroof_gate('decode.mbu >= 30%')\ndef test_short(): drive(0)\n")
    run = project.run()
    assert run.verdicts == ["no data"]
    said = re.search(
        r"is too short where servers are scraped every ([\d.]+) s: a difference takes two scrapes; "
        r"drive the load for ([\d.]+) s or more", run.one_line,
    )  # fmt: skip
    assert said is not None, run.text
    # As Prometheus did it: on a busy machine some of its scrapes come late.
    assert float(said[1]) == pytest.approx(0.5, rel=0.3)
    assert float(said[2]) == pytest.approx(2 * float(said[1]), rel=0.01)


def test_a_body_that_failed_is_not_judged(project: Any, module: Callable[..., None]) -> None:
    module("@LLMROOF\n@pytest.mark.llmroof_gate('decode.mbu >= 30%')\ndef test_fails(): assert 0\n")
    run = project.run()
    assert run.verdicts == ["not judged"]


def test_a_source_that_names_its_end_is_asked_about_that(project: Any, module: Callable[..., None]) -> None:
    module(
        "@LLMROOF\n@pytest.mark.llmroof_gate('decode.mbu >= 30%')\ndef test_past(): pass\n", ', "end": "now-24h"'
    )
    run = project.run()
    assert run.verdicts == ["no data"]
    assert "matches no series" in run.one_line
