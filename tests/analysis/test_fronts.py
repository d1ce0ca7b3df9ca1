"""A frontend before the engines: how requests ended and waited is its to tell, as their clients saw it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from engine_pages import Page, dynamo, sglang, write
from made_windows import deployment
from vllm_pages import Load, page

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Window

#: An engine that finished 100 requests, all of them well.
LOAD = Load(itl=0.02, batch=10, output=101, model="m", requests=100)


def engine(done: float, at: float | None) -> str:
    return page(LOAD, done, at)


def read(*paths: Path) -> Window:
    return read_window([(path, path.name) for path in paths])


def measured(window: Window) -> Measurements:
    return measure(gather(window, deployment("llama-3.1-8b")))


def apart(folder: Path, behind: Page = engine) -> Window:
    """The frontend's page beside the engine's."""
    return read(*write(folder, dynamo, name="front-"), *write(folder, behind, name="worker-"))


def on_one_page(folder: Path) -> Window:
    """Both in one page, as a federation writes it."""
    return read(*write(folder, lambda done, at: engine(done, at) + dynamo(done, None)))


def found(measurements: Measurements, metric: str) -> Measurement:
    outcome = measurements[metric]
    assert isinstance(outcome, Measurement), outcome
    return outcome


@pytest.mark.parametrize("pages", [apart, on_one_page])
def test_the_frontends_count_is_judged_and_the_engines_shown(
    tmp_path: Path, pages: Callable[[Path], Window]
) -> None:  # fmt: skip
    measurements = measured(pages(tmp_path))
    errors = found(measurements, "errors.rate")
    # 4 errors + 96 successes at the frontend; 100 requests that finished well at the engine.
    assert errors.value == pytest.approx(4 / 100)
    assert errors.samples == 100
    assert errors.source == "dynamo_frontend_requests_total"
    assert errors.other is not None
    assert (errors.other.value, errors.other.source) == (0, "vllm:request_success_total")
    ttft = found(measurements, "ttft.mean")
    assert ttft.value == pytest.approx(0.7)
    assert ttft.other is not None
    # Front end 0.01 s + queue 0.01 s + prefill 0.06 s at the engine.
    assert ttft.other.value == pytest.approx(0.08)
    e2e = found(measurements, "e2e.mean")
    assert e2e.value == pytest.approx(4.0)
    assert e2e.other is not None


def test_the_engines_own_account_of_requests_stays_whole(tmp_path: Path) -> None:
    """Its decoded tokens are those that it generated less a first one for each request: 30 000 + 100 - 100."""
    window = apart(tmp_path)
    assert window.counter("requests_finished") == 100
    assert window.counter("requests_errored") in (None, 0)
    assert found(measured(window), "requests_per_second").other is None


def test_errors_of_an_engine_that_counts_none_are_out_of_the_frontends_requests(tmp_path: Path) -> None:
    """SGLang: 64 requests finished (2000 steps of 16 sequences over 500 tokens each). Frontend: 4 of 100."""
    errors = found(measured(apart(tmp_path, sglang)), "errors.rate")
    assert errors.value == pytest.approx(0.04)
    assert errors.samples == 100


def test_a_frontend_without_a_count_of_requests_leaves_that_to_the_engine(tmp_path: Path) -> None:
    def uncounted(done: float, at: float | None) -> str:
        lines = dynamo(done, at).splitlines()
        return "\n".join(line for line in lines if "dynamo_frontend_requests_total" not in line) + "\n"

    window = read(*write(tmp_path, uncounted, name="front-"), *write(tmp_path, engine, name="worker-"))
    errors = found(measured(window), "errors.rate")
    assert (errors.value, errors.source, errors.other) == (0, "vllm:request_success_total", None)


def test_a_damaged_count_of_the_frontend_is_not_replaced_by_the_engines(tmp_path: Path) -> None:
    """What the engine counts well says nothing of requests that never reached it: the series of errors was lost."""

    def damaged(done: float, at: float | None) -> str:
        lines = dynamo(max(done, 0.1), at).splitlines()
        return "\n".join(line for line in lines if not done or 'status="error"' not in line) + "\n"

    window = read(*write(tmp_path, damaged, name="front-"), *write(tmp_path, engine, name="worker-"))
    outcome = measured(window)["errors.rate"]
    assert isinstance(outcome, NoData), outcome
    assert "dynamo_frontend_requests_total" in outcome.reason


def test_of_a_frontend_that_is_left_out_nobody_knows_the_errors(tmp_path: Path) -> None:
    """It is in one scrape only: the engine's 0 of 100 is not all that clients saw."""
    front, _ = write(tmp_path, dynamo, name="front-")
    window = read(front, *write(tmp_path, engine, name="worker-"))
    measurements = measured(window)
    outcome = measurements["errors.rate"]
    assert isinstance(outcome, NoData), outcome
    assert outcome.reason.startswith("Dynamo frontend is in one scrape only: its figures are left out; errors that it")
    assert found(measurements, "ttft.mean").source == "vllm:time_to_first_token_seconds"


def test_a_frontend_of_another_model_is_none_of_this_engine(tmp_path: Path) -> None:
    other = write(tmp_path, lambda done, at: dynamo(done, at, model="another"), name="front-")
    errors = found(measured(read(*other, *write(tmp_path, engine, name="worker-"))), "errors.rate")
    assert (errors.value, errors.other) == (0, None)


def test_of_one_replica_its_own_engine_tells_the_errors(tmp_path: Path) -> None:
    other = Load(itl=0.02, batch=10, output=101, model="m", requests=100, engine="1")
    two = write(tmp_path / "b", lambda done, at: page(other, done, at))
    window = read(*write(tmp_path, dynamo, name="front-"), *write(tmp_path / "a", engine), *two)
    assert window.front is not None
    alone = window.only(window.engines[0])
    errors = found(measured(alone), "errors.rate")
    assert (errors.value, errors.source) == (0, "vllm:request_success_total")
