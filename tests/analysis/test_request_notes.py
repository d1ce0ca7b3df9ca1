"""Failed requests and few requests are said with every verdict of their window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmark_files import detailed, window_of, write
from engine_pages import dynamo
from engine_pages import write as write_pages
from made_windows import deployment, engine, window
from vllm_pages import Load, page

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.data import load
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Window

FEW = int(load("measuring.yaml")["thresholds"]["few_requests"])


def notes(of: Window) -> tuple[str, ...]:
    return gather(of, deployment("llama-3.1-8b")).notes


def served(requests: float, errors: float = 0.0, aborted: float = 0.0, present: float = 0.0) -> Window:
    """A server that finished so many requests well, and some not."""
    seen = engine(
        itl=0.02, outputs=50 * requests, requests=requests, prompt=10.0, output=51.0, present=(present, present),
        counters={
            "requests_finished": requests + errors + aborted, "requests_errored": errors, "requests_aborted": aborted,
        },
    )  # fmt: skip
    return window(seen)


def test_errors_of_a_server_are_said() -> None:
    # 288 + 6 = 294
    assert notes(served(288, errors=6)) == ("6 of 294 requests failed (vllm)",)
    assert notes(served(288)) == ()


def test_aborted_requests_are_said_apart() -> None:
    # 90 + 4 + 6 = 100
    assert notes(served(90, errors=4, aborted=6)) == (
        "4 of 100 requests failed (vllm)",
        "6 of 100 requests were aborted (vllm)",
    )


def test_failures_of_a_client_are_said(tmp_path: Path) -> None:
    run = detailed([(0.1, [0.02] * 10)] * 392, failed=8)
    assert notes(window_of(write(tmp_path / "run.json", run))) == ("8 of 400 requests failed (vllm bench serve)",)


def test_those_of_a_frontend_are_its_own(tmp_path: Path) -> None:
    loaded = Load(itl=0.02, batch=10, output=101, model="m", requests=100)
    paths = [
        *write_pages(tmp_path, dynamo, name="front-"),
        *write_pages(tmp_path, lambda done, at: page(loaded, done, at), name="worker-"),
    ]
    said = notes(read_window([(path, path.name) for path in paths]))
    assert [note for note in said if "failed" in note] == ["4 of 100 requests failed (Dynamo frontend)"]


@pytest.mark.parametrize(
    ("requests", "said"), [(1, "1 request"), (3, "3 requests"), (FEW - 1, f"{FEW - 1} requests")]
)
def test_few_requests_are_said(requests: int, said: str) -> None:
    assert notes(served(requests)) == (
        f"only {said}: latencies and rates of fewer than {FEW} say little of the next ones",
    )


def test_enough_requests_are_not_few_and_neither_are_those_that_all_run_on() -> None:
    assert notes(served(FEW)) == ()
    # Two ended of the thirty that run: so many were measured.
    assert notes(served(2, present=30.0)) == ()


def test_a_client_counts_its_own_and_a_probe_meant_them_to_be_few(tmp_path: Path) -> None:
    few = window_of(write(tmp_path / "run.json", detailed([(0.1, [0.02] * 10)] * 3)))
    assert [note for note in notes(few) if "only" in note] == [
        f"only 3 requests: latencies and rates of fewer than {FEW} say little of the next ones"
    ]
    assert isinstance(few.client, Client)
    meant = replace(few, client=replace(few.client, batch=1.0))
    assert not [note for note in notes(meant) if "only" in note]
