"""Whatever engine it is: through a Prometheus its pages say what they say themselves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from engine_pages import Page, llamacpp, lmdeploy, sglang, tgi, trtllm_configured
from fleets import Sample, prometheus, victoriametrics
from vllm_pages import Load, page

from pytest_llmroof.telemetry.fleetsource import prometheus_window
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Window

END = 1748757600.0
SECONDS = 60.0
INTERVAL = 5.0


def vllm(done: float, at: float | None) -> str:
    return page(Load(seconds=SECONDS), done, at)


ENGINES: dict[str, Page] = {
    "vllm": vllm, "sglang": partial(sglang, tp_ranks=2), "llamacpp": llamacpp, "lmdeploy": lmdeploy, "tgi": tgi,
    "trtllm": trtllm_configured,
}  # fmt: skip
#: Inside the window, at every scrape of which a share of the load is done.
TIMES = [END - SECONDS + INTERVAL * index for index in range(int(SECONDS / INTERVAL) + 1)]


def text(engine: str, at: float) -> str:
    return ENGINES[engine]((at - END + SECONDS) / SECONDS, at)


def samples() -> Iterator[Sample]:
    for engine in ENGINES:
        target = f'namespace="{engine}",pod="{engine}-0",instance="10.0.0.1:8000",job="llm"'
        for at in TIMES:
            for line in text(engine, at).splitlines():
                if line and not line.startswith("#"):
                    head, _, value = line.rpartition(" ")
                    series = head.replace("{", f"{{{target},", 1) if "{" in head else f"{head}{{{target}}}"
                    yield series, at, float(value)


@pytest.fixture(scope="module", params=[prometheus, victoriametrics], ids=["prometheus", "victoriametrics"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with request.param(tmp_path_factory.mktemp("engines"), samples()) as address:
        yield address


def from_files(engine: str, folder: Path, first: float, last: float) -> Window:
    paths = []
    for at in TIMES:
        if first <= at <= last:
            path = folder / f"page-{TIMES.index(at):03}.prom"
            path.write_text(text(engine, at), encoding="utf-8")
            paths.append((path, path.name))
    return read_window(paths)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_as_from_pages(url: str, tmp_path: Path, engine: str) -> None:
    source = {"prometheus": url, "selector": f'namespace="{engine}"', "duration": SECONDS, "end": str(END)}
    asked = prometheus_window(source, duration_seconds=None)
    (one,) = asked.engines
    assert one.identity == f"{engine}-0"
    assert one.seen is not None
    read = from_files(engine, tmp_path, *one.seen)
    (other,) = read.engines
    assert (asked.kind, asked.conventions, asked.title) == (read.kind, read.conventions, read.title)
    assert asked.duration_seconds == read.duration_seconds
    assert one.model_name == other.model_name
    assert one.counters == pytest.approx(other.counters)
    assert one.finished == pytest.approx(other.finished)
    assert one.names == other.names
    assert one.facts == other.facts
    assert bool(one.facts) == (engine in ("sglang", "trtllm"))
    assert one.histograms.keys() == other.histograms.keys()
    for quantity, histogram in one.histograms.items():
        assert histogram.bounds == other.histograms[quantity].bounds
        assert histogram.counts == pytest.approx(other.histograms[quantity].counts)
        assert histogram.total == pytest.approx(other.histograms[quantity].total)
    assert one.gauges == other.gauges
