"""Result files of load generators as small as they can be, with figures that are easy to recompute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from made_windows import deployment

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Window


def vllm_result(**changes: Any) -> dict[str, Any]:
    """What vllm bench serve writes without details; ``None`` leaves a key out."""
    run = {
        "date": "20260301-120000", "backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B", "num_prompts": 500,
        "request_rate": "inf", "max_concurrency": 16, "duration": 50.0, "completed": 500, "failed": 0,
        "total_input_tokens": 64000, "total_output_tokens": 100000, "request_throughput": 10.0,
        "request_goodput": None, "output_throughput": 2000.0, "total_token_throughput": 3280.0,
        "mean_ttft_ms": 120.0, "median_ttft_ms": 100.0, "std_ttft_ms": 30.0, "p99_ttft_ms": 400.0,
        "mean_tpot_ms": 8.0, "median_tpot_ms": 7.9, "p99_tpot_ms": 9.5,
        "mean_itl_ms": 8.1, "median_itl_ms": 7.8, "p99_itl_ms": 20.0,
    }  # fmt: skip
    run.update(changes)
    return {key: value for key, value in run.items() if value is not None or key == "request_goodput"}


def detailed(requests: list[tuple[float, list[float]]], failed: int = 0, **changes: Any) -> dict[str, Any]:
    """The same with details: of each request its TTFT and the times between its tokens; then so many failed ones."""
    nothing: list[Any] = [None] * failed
    outputs = [len(itls) + 1 for _, itls in requests] + [0] * failed
    return vllm_result(
        num_prompts=len(requests) + failed,
        completed=len(requests),
        failed=failed,
        duration=10.0,
        total_input_tokens=100 * len(requests),
        total_output_tokens=sum(outputs),
        input_lens=[100] * (len(requests) + failed),
        output_lens=outputs,
        ttfts=[ttft for ttft, _ in requests] + [0.0 for _ in nothing],
        itls=[itls for _, itls in requests] + [[] for _ in nothing],
        errors=["" for _ in requests] + ["Service Unavailable" for _ in nothing],
        **changes,
    )


def write(path: Path, *values: Any) -> Path:
    """A file of these values, one a line."""
    path.write_text("\n".join(json.dumps(value) for value in values) + "\n", encoding="utf-8")
    return path


def window_of(*paths: Path) -> Window:
    """The window of files and folders, named as they are called."""
    return read_window([(path, path.name) for path in paths])


def measured(*paths: Path, of: Deployment | None = None) -> Measurements:
    """The measurements of files and folders."""
    return measure(gather(window_of(*paths), of or deployment("llama-3.1-8b"), None))


def found(measurements: Measurements, metric: str) -> Measurement:
    """A metric that is measured."""
    outcome = measurements[metric]
    assert isinstance(outcome, Measurement), outcome
    return outcome


def missing(measurements: Measurements, metric: str) -> NoData:
    """A metric of which there is no data."""
    outcome = measurements[metric]
    assert isinstance(outcome, NoData), outcome
    return outcome
