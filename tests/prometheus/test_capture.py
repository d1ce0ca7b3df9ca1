"""A real Prometheus that scraped a real vLLM, its storage as it was: where it lies beside the checkout."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleets import storage_of

from pytest_llmroof.telemetry.fleetsource import prometheus_window
from pytest_llmroof.telemetry.window import Window


@pytest.fixture(scope="module")
def url(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("capture")
    with tarfile.open(shared_data / "captures" / "prometheus" / "tsdb-data.tgz") as packed:
        packed.extractall(folder, filter="data")
    (storage,) = (path.parent for path in folder.rglob("wal"))
    with storage_of(folder, storage) as address:
        yield address


def read(url: str, selector: str, duration: float, end: float) -> Window:
    source = {"prometheus": url, "selector": selector, "duration": duration, "end": str(end)}
    return prometheus_window(source, duration_seconds=None)


def test_increases_are_the_counters_own(url: str) -> None:
    """The counter moved by 501,808,840,704; increase() says 507,355,620,568, which is 1.1 % more."""
    window = read(url, 'job="vllm"', 57, 1795975866.278)
    assert window.counter("estimated_flops") == 501_808_840_704
    # Steps' tokens are what was computed: 42 517 of prompts, less 1 152 found in the cache, and 12 608 generated.
    assert window.counter("step_tokens") == 42_517 - 1_152 + 12_608 == 53_973
    assert window.duration_seconds == pytest.approx(56, abs=0.1)
    assert window.clock_error_seconds < 1
    assert window.model_names == ("tiny-llama",)


def test_other_exporters_beside_it(url: str) -> None:
    window = read(url, "", 57, 1795975866.278)
    assert len(window.engines) == 1
    assert window.device_names == ("NVIDIA H100 80GB HBM3",)
    assert window.counter("estimated_flops") == 501_808_840_704


def test_restarts_that_happened(url: str) -> None:
    window = read(url, 'job="vllm"', 2000, 1795978050)
    pause, note = window.notes
    assert pause == "127.0.0.1:8101 was not scraped for 1087 s from 18:20 UTC"
    assert note.startswith("127.0.0.1:8101 restarted 3 times, before 18:38 UTC (its process started at 1795975735")
    assert window.duration_seconds == pytest.approx(379, abs=1)
    # From the window's first scrape to the last one before the restart: 88 requests, then 92.
    assert window.counter("requests_finished") == 92 - 88
    assert window.clock_error_seconds < 1
