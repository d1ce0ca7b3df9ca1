"""Answers of a Prometheus-compatible server, handed to the reader without a network."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.seeds import Seed
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.errors import LlmroofError
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.resolve import resolve, with_telemetry
from pytest_llmroof.telemetry.clusters import window_of
from pytest_llmroof.telemetry.endpoint import Endpoint
from pytest_llmroof.telemetry.promapi import PrometheusApi
from pytest_llmroof.telemetry.prometheus import answer_of
from pytest_llmroof.telemetry.question import Question

#: One of so many windows is measured, which takes as long as ten are read.
_MEASURED = 16
_TIMES = (940.0, 955.0, 970.0, 985.0, 1000.0)
_PODS = ("a:8000",)


def _series(name: str, rate: float, **labels: str) -> list[dict[str, Any]]:
    return [
        {"metric": {"__name__": name, "instance": pod, "model_name": "m", "engine": "0", **labels},
         "values": [[at, repr((at - 900) * rate)] for at in _TIMES]}
        for pod in _PODS
    ]  # fmt: skip


@cache
def _whole() -> Mapping[str, Any]:
    """What each kind of question is answered with."""
    rates = {"generation_tokens_total": 100.0, "prompt_tokens_total": 400.0, "iteration_tokens_total_count": 10.0,
             "iteration_tokens_total_sum": 500.0, "inter_token_latency_seconds_sum": 2.5,
             "inter_token_latency_seconds_count": 99.0, "time_to_first_token_seconds_sum": 0.5,
             "time_to_first_token_seconds_count": 1.0}  # fmt: skip
    counters = [one for name, rate in rates.items() for one in _series(f"vllm:{name}", rate)]
    for name, most in (("inter_token_latency_seconds", 99.0), ("time_to_first_token_seconds", 1.0)):
        for bound, share in (("0.025", 0.4), ("0.05", 0.9), ("+Inf", 1.0)):
            counters += _series(f"vllm:{name}_bucket", most * share, le=bound)
    gauges = [{**one, "values": [[at, "8"] for at in _TIMES]} for one in _series("vllm:num_requests_running", 1.0)]
    counted = [{"metric": one["metric"], "value": [1000.0, "5"]} for one in (*counters, *gauges)]
    label = {"gpu": "0", "UUID": "GPU-0", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "n1"}
    gauged = (("PROF_SM_ACTIVE", "0.5"), ("PROF_DRAM_ACTIVE", "0.6"), ("DEV_SM_CLOCK", "1980"))
    gpus: list[dict[str, Any]] = [
        {"metric": {"__name__": f"DCGM_FI_{name}", **label}, "values": [[at, value] for at in _TIMES]}
        for name, value in gauged
    ]
    names = sorted({one["metric"]["__name__"] for one in (*counters, *gauges, *gpus)})
    return {
        "names": names,
        "counts": {"resultType": "vector", "result": counted},
        "samples": {"resultType": "matrix", "result": [*counters, *gauges]},
        "gpus": {"resultType": "matrix", "result": gpus},
    }


@cache
def _bodies() -> Mapping[str, bytes]:
    return {kind: json.dumps({"status": "success", "data": data}).encode() for kind, data in _whole().items()}


def answers() -> list[Seed]:
    """Each answer, and one that is an error."""
    made = [Seed(body, kind) for kind, body in _bodies().items()]
    error = {"status": "error", "errorType": "bad_data", "error": "parse error", "warnings": ["partial", 7]}
    return [*made, Seed(json.dumps(error).encode(), "samples")]


@dataclass
class _Scripted(PrometheusApi):
    """Answers with what is given, and else with what is whole."""

    given: Mapping[str, bytes] = field(default_factory=dict)

    def _answer(
        self, path: str, given: Mapping[str, str], method: str, deadline: float
    ) -> tuple[int, float | None, bytes]:
        query = given.get("query", "")
        kind = "names" if path.endswith("/values") else "counts" if query.startswith("count_over_time") else (
            "gpus" if "DCGM" in query else "samples")  # fmt: skip
        return 200, None, self.given.get(kind) or _bodies()[kind]


@cache
def _spec() -> WindowSpec:
    return window_spec({"gpu": "h100", "model": "llama-3.1-8b"}, id="w", name="w", base=Path())


def scripted(given: Mapping[str, bytes]) -> PrometheusApi:
    """A server that answers one kind of question as ``given``, and all others as one that is whole."""
    endpoint = Endpoint("http://prom:9090", "http://prom:9090", "prom", timeout_seconds=0.0)
    return _Scripted(endpoint, given=given)


def ask(folder: Path, seed: Seed, content: bytes) -> None:
    """Ask for a window, and measure what comes of it."""
    api = scripted({seed.name: content})
    try:
        window = window_of([answer_of(api, Question("", 940.0, 1000.0))], None)
        if zlib.crc32(content) % _MEASURED:
            return
        facts = gather(window, with_telemetry(resolve(_spec()), window, _spec()), None)
    except LlmroofError as error:
        if not str(error).strip():
            raise AssertionError("an error that says nothing") from None
        return
    for name, outcome in measure(facts).items():
        if isinstance(outcome, Measurement) and not abs(outcome.bounded.value) < float("inf"):
            raise AssertionError(f"{name} is {outcome.bounded.value!r}")
