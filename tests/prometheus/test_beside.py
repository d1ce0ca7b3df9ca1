"""Dynamo's frontend and workers beside the engine in one Prometheus: they fill in, and nothing counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import runs
from engine_pages import Page, dynamo, dynamo_worker, sglang
from fleets import Sample, prometheus, victoriametrics
from vllm_pages import Load, page

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.errors import SourceError
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.fleetsource import prometheus_window
from pytest_llmroof.telemetry.window import Window

END = 1748757600.0
SECONDS = 60.0
INTERVAL = 5.0
STEPS = int(SECONDS / INTERVAL)
#: As the frontend's model is written, in another case; 50 requests each on two workers.
LOAD = Load(seconds=SECONDS, itl=0.02, batch=10, output=101, model="M", requests=50)


def scraped(written: Page, labels: str, *, first: int = 0, restart: int | None = None) -> Iterator[Sample]:
    """A page's series, scraped every 5 s from the ``first`` time on; a ``restart`` begins anew."""
    for step in range(first, STEPS + 1):
        at = END - SECONDS + step * INTERVAL
        done = (step - restart if restart is not None and step >= restart else step) / STEPS
        for line in written(done, at).splitlines():
            if line and not line.startswith("#"):
                head, _, value = line.rpartition(" ")
                series = head.replace("{", f"{{{labels},", 1) if "{" in head else f"{head}{{{labels}}}"
                yield series, at, float(value)


def worker(done: float, at: float | None) -> str:
    """A worker passes its engine's metrics through."""
    return dynamo_worker(page(LOAD, done, at))


def samples() -> Iterator[Sample]:
    def frontend(done: float, at: float | None) -> str:
        return dynamo(done, at, model="m")

    for namespace in ("whole", "restart", "late", "workers"):
        for index in range(2):
            yield from scraped(worker, f'namespace="{namespace}",pod="worker-{index}"')
    yield from scraped(frontend, 'namespace="whole",pod="frontend-0"')
    yield from scraped(frontend, 'namespace="restart",pod="frontend-0"', restart=7)
    yield from scraped(frontend, 'namespace="late",pod="frontend-0"', first=5)
    yield from scraped(frontend, 'namespace="alone",pod="frontend-0"')
    yield from scraped(worker, 'namespace="engines",pod="worker-0"')
    yield from scraped(sglang, 'namespace="engines",pod="sgl-0"')


@pytest.fixture(scope="module", params=[prometheus, victoriametrics], ids=["prometheus", "victoriametrics"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with request.param(tmp_path_factory.mktemp("dynamo"), samples()) as address:
        yield address


def source(url: str, namespace: str) -> dict[str, Any]:
    return {"prometheus": url, "selector": f'namespace="{namespace}"', "duration": SECONDS, "end": str(END)}


def read(url: str, namespace: str) -> Window:
    return prometheus_window(source(url, namespace), duration_seconds=None)


def mean(window: Window, histogram: str) -> float | None:
    found = window.histogram(histogram)
    return found.mean if found is not None else None


def test_the_frontend_s_latencies_and_the_engine_s_steps(url: str) -> None:
    window = read(url, "whole")
    assert window.kind == "vllm"
    assert [engine.identity for engine in window.engines] == ["worker-0", "worker-1"]
    assert mean(window, "ttft") == pytest.approx(0.7)  # as clients saw it
    assert mean(window, "e2e") == pytest.approx(4.0)
    assert mean(window, "itl") == pytest.approx(0.02)  # the engine's own, not the frontend's 0.033
    assert window.engines[0].names["ttft"] == "dynamo_frontend_time_to_first_token_seconds"
    # The engines' requests and tokens, not the frontend's as well: 55 s at least of 60 s, of 100 requests.
    finished, tokens = window.counter("requests_finished"), window.counter("generation_tokens")
    assert finished is not None
    assert 90 <= finished <= 100
    assert tokens == pytest.approx(2 * LOAD.generated * finished / 100, rel=0.05)
    ttft = window.histogram("ttft")
    assert ttft is not None
    assert 90 <= ttft.count <= 100
    # A worker's own cache figure stands behind its engine's.
    assert {value for engine in window.engines for value in engine.gauges["kv_usage"].values} == {0.4}


def test_how_requests_ended_is_the_frontend_s_to_tell(url: str) -> None:
    """4 errors of 100 requests, counted from the first scrape on; the engines know of none."""
    window = read(url, "whole")
    assert window.front is not None
    assert window.front.seen.finished.keys() == {"success", "error"}
    assert window.front.own[0].names["ttft"].startswith("vllm:")
    assert read(url, "workers").front is None
    errors = measure(gather(window, Deployment(accelerator=None, model=None)))["errors.rate"]
    assert isinstance(errors, Measurement)
    assert errors.source == "dynamo_frontend_requests_total"
    assert errors.other is not None
    assert errors.other.source == "vllm:request_success_total"


def test_of_one_replica_the_frontend_tells_nothing(url: str) -> None:
    window = read(url, "whole")
    alone = window.only(window.engines[0])
    (engine,) = alone.engines
    assert "ttft" not in engine.histograms
    assert engine.unusable["ttft"] == "Dynamo frontend tells it of all engines together, not of each"
    assert mean(alone, "itl") == pytest.approx(0.02)


@pytest.mark.parametrize(("namespace", "note"), [
    ("restart", "Dynamo frontend restarted inside the window (frontend-0): its figures are left out"),
    ("late", "Dynamo frontend was not there for all of the window: its figures are left out"),
])  # fmt: skip
def test_a_frontend_of_part_of_the_window_is_left_out_and_said(url: str, namespace: str, note: str) -> None:
    window = read(url, namespace)
    assert note in window.notes
    assert window.engines[0].names["ttft"].startswith("vllm:")
    assert window.front_lost == note
    assert isinstance(measure(gather(window, Deployment(accelerator=None, model=None)))["errors.rate"], NoData)


def test_workers_without_a_frontend(url: str) -> None:
    window = read(url, "workers")
    assert window.engines[0].names["ttft"].startswith("vllm:")
    assert not window.notes


def test_a_frontend_alone_is_read_as_what_it_is(url: str) -> None:
    window = read(url, "alone")
    assert window.kind == "dynamo"
    assert mean(window, "ttft") == pytest.approx(0.7)


def test_a_frontend_behind_another_server(url: str) -> None:
    window = prometheus_window(source(url, "workers"), source(url, "alone"), duration_seconds=None)
    assert len(window.engines) == 2
    assert mean(window, "ttft") == pytest.approx(0.7)


def test_two_engines_in_one_selector_are_refused(url: str) -> None:
    with pytest.raises(SourceError, match=r"matches metrics of (vLLM and SGLang|SGLang and vLLM)") as caught:
        read(url, "engines")
    assert "narrow `selector`" in str(caught.value.remedy)


def test_a_gate_on_each_replica_has_no_data(url: str, pytester: pytest.Pytester) -> None:
    gates = Gates(pytester, url)
    text = gates(
        "- {gate: ttft.mean <= 2s, per: replica}", "- ttft.mean <= 2s", "- {gate: itl.mean <= 30ms, per: replica}"
    )
    assert "NOT MEASURED w: ttft.mean <= 2 s per replica" in text
    assert "Dynamo frontend tells it of all engines together, not of each" in text
    assert "PASS w: ttft.mean <= 2 s" in text
    assert "PASS w: itl.mean <= 30 ms per replica" in text


class Gates:
    """Runs gates on the whole fleet."""

    def __init__(self, pytester: pytest.Pytester, url: str) -> None:
        self.pytester, self.url = pytester, url

    def __call__(self, *gates: str) -> str:
        listed = "\n".join(f"      {gate}" for gate in gates)
        telemetry = f'{{prometheus: "{self.url}", selector: \'namespace="whole"\', duration: 60s, end: "{END}"}}'
        self.pytester.makefile(
            ".yaml", llmroof=f"windows:\n  w:\n    phase: decode\n    telemetry: {telemetry}\n    gates:\n{listed}\n"
        )
        return " ".join(runs.run(self.pytester, "-rA").stdout.str().split())
