"""A fleet of which one replica does not export a series: no figure of the others stands for the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleets import Replica, prometheus
from made_windows import deployment
from vllm_pages import Load

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.telemetry.fleetsource import prometheus_window

START, SECONDS = 1_748_754_000.0, 3600.0


def replica(name: str, queue: float, rename: dict[str, str] | None = None) -> Replica:
    load = Load(seconds=SECONDS, queue=queue)
    labels = {"namespace": "prod", "pod": name, "instance": f"{name}:8000"}
    return Replica(load, labels, START, (START, START + SECONDS), rename=rename or {})


@pytest.mark.parametrize("lost", [False, True])
def test_the_quick_replica_does_not_speak_for_the_other(tmp_path: Path, lost: bool) -> None:
    # Before their first token requests wait for 10 + 60 ms, and for 4 s more at the other replica, which may be of a
    # release that calls it otherwise. Equal numbers of requests: (0.07 + 4.07) / 2 = 2.07 s.
    rename = {"vllm:time_to_first_token_seconds": "vllm:time_to_first_thing_seconds"} if lost else {}
    fleet = [replica("quick", 0.0), replica("late", 4.0, rename)]
    with prometheus(tmp_path, (sample for each in fleet for sample in each.series())) as url:
        source = {"prometheus": url, "selector": 'namespace="prod"', "duration": 1800.0, "end": str(START + 3000.0)}
        window = prometheus_window(source, duration_seconds=None)
    found = measure(gather(window, deployment(model=None, gpu=None)))["ttft.mean"]
    if not lost:
        assert isinstance(found, Measurement)
        assert found.value == pytest.approx(2.07)
        return
    assert isinstance(found, NoData)
    assert "late has no vllm:time_to_first_token_seconds, which quick has" in found.reason
    quick = next(engine for engine in window.engines if engine.identity == "quick")
    alone = measure(gather(window.only(quick), deployment(model=None, gpu=None)))["ttft.mean"]
    assert isinstance(alone, Measurement)
    assert alone.value == pytest.approx(0.07)
