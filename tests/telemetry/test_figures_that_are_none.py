"""Figures of other kinds than a reader expects, as damaged inputs found them: read as missing, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmroof.telemetry.reading import read_window

DATA = Path(__file__).parents[1] / "data" / "benchmarks"


@pytest.mark.parametrize("key", ["n_ubatch", "n_batch"])
def test_a_batch_of_less_than_a_token_holds_one(tmp_path: Path, key: str) -> None:
    run = json.loads((DATA / "llama-bench-11434.jsonl").read_text().splitlines()[0])
    path = tmp_path / "bench.jsonl"
    path.write_text(json.dumps({**run, key: 0.5}))
    window = read_window([(path, path.name)])
    # 512 tokens in steps of one, in every repetition.
    assert window.counter("prefill_steps") == 512 * len(run["samples_ns"])


def test_a_sum_of_more_digits_than_a_number_has(tmp_path: Path) -> None:
    export = json.loads((DATA / "aiperf-0.13.0-server_metrics_export.json").read_text())
    changed = 0
    for metric in export["metrics"].values():
        for series in metric.get("series", ()):
            held: dict[str, Any] = series.get("stats") or series
            if "sum" in held and "buckets" in json.dumps(series):
                held["sum"] = 10**400
                changed += 1
    assert changed
    path = tmp_path / "server_metrics_export.json"
    path.write_text(json.dumps(export))
    window = read_window([(path, path.name)])
    assert not any(engine.histograms for engine in window.engines)
    assert any("has no sum" in problem for engine in window.engines for problem in engine.unusable.values())


@pytest.mark.parametrize("number", [{"a": 1}, [], None, "x"])
def test_a_step_s_number_that_is_none(tmp_path: Path, number: object) -> None:
    records = [{"iter": number, "iterLatencyMS": 20.0, "numActiveRequests": 4,
                "inflightBatchingStats": {"numContextRequests": 0, "numGenRequests": 4}} for _ in range(3)]  # fmt: skip
    path = tmp_path / "stats.json"
    path.write_text(json.dumps(records))
    # Three alike are one step three times over, or three that nothing tells apart.
    assert read_window([(path, path.name)]).counter("steps") in (1, 3)
