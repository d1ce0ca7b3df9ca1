"""Gauges of a fleet: every sample of each replica counts, and what was not sampled is known of none."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from fleets import Replica, Sample, prometheus
from made_windows import deployment
from vllm_pages import Load

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement, Outcome
from pytest_llmroof.telemetry.fleetsource import prometheus_window
from pytest_llmroof.telemetry.window import Engine, Window

START, SECONDS, END = 1_748_754_000.0, 1200.0, 1_748_755_200.0
#: The last nine minutes are asked about, scraped every 15 s: the first scrape inside is 525 s before the end.
ASKED = 540.0


def replica(name: str, restarted: float | None = None) -> Replica:
    labels = {"namespace": "prod", "pod": name, "instance": f"{name}:8000"}
    return Replica(Load(seconds=SECONDS, running=10), labels, START, (START, END), 15.0, restarted=restarted)


def full(samples: Iterable[Sample], first: float, last: float) -> list[Sample]:
    """The samples, with a cache that is nearly full from one time to another."""
    return [
        (series, at, 0.99 if series.startswith("vllm:kv_cache_usage_perc") and first <= at <= last else value)
        for series, at, value in samples
    ]


def read(folder: Path, *samples: Iterable[Sample]) -> Window:
    with prometheus(folder, (each for some in samples for each in some)) as url:
        source = {"prometheus": url, "selector": 'namespace="prod"', "duration": ASKED, "end": str(END)}
        return prometheus_window(source, duration_seconds=None)


def fullest(window: Window) -> Outcome:
    return measure(gather(window, deployment(model=None, gpu=None)))["kv_cache.usage.max"]


def of(window: Window, name: str) -> Engine:
    return next(engine for engine in window.engines if engine.identity == name)


def test_a_sample_between_two_scrapes_of_another_replica(tmp_path: Path) -> None:
    # Full at one scrape of b only, 5 ms after that of a; by the next scrape of a there is another one, 5 ms before it.
    at = END - 300.0
    late = [(series, when + (0.005 if when == at else -0.005), value)
            for series, when, value in full(replica("b").series(), at, at)]  # fmt: skip
    window = read(tmp_path, replica("a").series(), late)
    for one in (window, window.only(of(window, "b"))):
        found = fullest(one)
        assert isinstance(found, Measurement)
        assert (found.value, found.undecided) == (0.99, None)
    assert not window.notes


def test_a_replica_that_was_not_scraped_for_half_of_the_window(tmp_path: Path) -> None:
    # Without the scrapes from 390 to 150 s before the end: 405 - 135 = 270 s of 525.
    kept = [sample for sample in replica("b").series() if not END - 390 <= sample[1] <= END - 150]
    window = read(tmp_path, replica("a").series(), kept)
    assert window.notes == ("b was not scraped for 270 s from 05:13 UTC",)
    for one in (window, window.only(of(window, "b"))):
        found = fullest(one)
        assert isinstance(found, Measurement)
        assert found.undecided is not None
        assert "a gap of 270 s in 525 s" in found.undecided
    alone = fullest(window.only(of(window, "a")))
    assert isinstance(alone, Measurement)
    assert alone.undecided is None


@pytest.mark.parametrize("others", [0, 1])
def test_a_cache_that_is_full_after_a_restart(tmp_path: Path, others: int) -> None:
    # Restarted 250 s before the end: the part before it is the longer one, the 17 scrapes after it are full.
    hot = full(replica("b", restarted=END - 250).series(), END - 250, END)
    window = read(tmp_path, hot, *[replica("a").series()] * others)
    assert of(window, "b").seen == (END - 525, END - 255)
    for one in (window, window.only(of(window, "b"))):
        found = fullest(one)
        assert isinstance(found, Measurement)
        assert found.value == 0.99
