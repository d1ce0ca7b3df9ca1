"""A real Prometheus and a real VictoriaMetrics, which hold what they would have scraped from fleets of known loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fleets import Replica, Sample, fleet, prometheus, victoriametrics
from vllm_pages import Load

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry import fleetgpus
from pytest_llmroof.telemetry import prometheus as reader
from pytest_llmroof.telemetry.fleetsource import prometheus_window
from pytest_llmroof.telemetry.window import Window

#: 2025-06-01T06:00:00Z: a window of ten minutes ends here, scraped every 30 s.
END = 1748757600.0
SECONDS = 600.0
INTERVAL = 30.0
LOAD = Load(seconds=SECONDS, itl=0.02, batch=10, context=1000, output=200, model="org/model-8b", running=10, queue=0.5)

Fleet = Callable[..., list[Replica]]
Server = Callable[..., AbstractContextManager[str]]


def replicas(namespace: str, count: int = 1, **changes: Any) -> list[Replica]:
    found = fleet(LOAD, count, END, interval=INTERVAL)
    return [
        replace(each, labels={**each.labels, "namespace": namespace}, **changes)
        for each in found
    ]


def relabelled(replica: Replica, **labels: str | None) -> Replica:
    merged = {**replica.labels, **labels}
    return replace(replica, labels={name: value for name, value in merged.items() if value is not None})


def everything() -> Iterator[Sample]:
    for replica in all_replicas():
        yield from replica.series()
    # A balanced address: two processes answer by turns, and each has its own counters.
    one, other = replicas("balanced")[0], replace(replicas("balanced")[0], start=END - 5 * SECONDS)
    for process, parity in ((one, 0), (other, 1)):
        times = list(process.scrapes())[parity::2]
        yield from (sample for sample in process.series() if sample[1] in times)
    for number, at in enumerate(one.scrapes()):
        gpu = 'namespace="gpus",Hostname="node-1",gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"'
        yield f"DCGM_FI_DEV_GPU_UTIL{{{gpu}}}", at, 98.0
        yield f"DCGM_FI_PROF_DRAM_ACTIVE{{{gpu}}}", at, 0.7 + 0.001 * (number % 2)
        yield f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{gpu}}}", at, 1e9 + 600_000.0 * (at - END)
        yield 'amd_gpu_gfx_activity{namespace="amd",gpu_id="0",hostname="n"}', at, 97.0
        yield 'up{namespace="bystanders",job="node"}', at, 1.0


def all_replicas() -> Iterator[Replica]:
    yield from replicas("steady", 3)
    yield from replicas("gpus")
    first, second = replicas("restart", 2)
    yield first
    yield replace(second, restarted=END - 200)
    first, second = replicas("unseen-restart", 2, own=False)
    yield first
    yield replace(second, restarted=END - 200)
    first, second, third = replicas("moving", 3)
    yield first
    yield replace(second, scraped=(END - 240, END))
    yield replace(third, scraped=(END - SECONDS, END - 360))
    double = replicas("double")[0]
    yield double
    yield replace(relabelled(double, job="podmonitor"), offset=7.0)
    twice = replicas("ha")[0]
    yield relabelled(twice, prometheus_replica="a")
    yield replace(relabelled(twice, prometheus_replica="b"), offset=3.0, own=False)
    # Two servers that only their jobs tell apart are two all the same.
    for job, load in (("eu", LOAD), ("us", replace(LOAD, batch=20, started=LOAD.started))):
        yield replace(
            relabelled(replicas("jobs", own=False)[0], job=job, pod=None, instance=None), load=load,
            start=END - 2 * SECONDS if job == "us" else END - SECONDS,
        )  # fmt: skip
    one, other = replicas("models", 2)
    yield one
    yield replace(other, load=replace(LOAD, model="org/model-70b"))
    ranks = replicas("ranks")[0]
    yield ranks
    yield replace(ranks, load=replace(LOAD, engine="1", batch=20))
    # The target's own labels `engine` and `model_name` win over the metric's.
    yield relabelled(
        replace(replicas("exported")[0], rename={'engine="0"': 'exported_engine="0"',
                                                 'model_name="org': 'exported_model_name="org'}),
        engine="blue", model_name="blue",
    )  # fmt: skip
    for index in range(2):
        yield relabelled(
            replace(replicas("ray", own=False)[0], rename={"vllm:": "ray_vllm_"}, load=replace(LOAD, batch=10 + index)),
            ReplicaId=f"r{index}",
        )
    yield from replicas("rare", 2, interval=300.0)


@pytest.fixture(scope="module", params=[prometheus, victoriametrics], ids=["prometheus", "victoriametrics"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    start: Server = request.param
    with start(tmp_path_factory.mktemp("server"), everything()) as address:
        yield address


def read(url: str, namespace: str, seconds: float = SECONDS, *, served: str | None = None, **options: object) -> Window:
    source = {"prometheus": url, "selector": f'namespace="{namespace}"', "duration": seconds, "end": str(END)}
    return prometheus_window({**source, **options}, duration_seconds=None, served_model_name=served)


def generated(replica: Replica, first: float, last: float) -> float:
    """Tokens that a replica's load generated between two scrapes: rounded as its pages are."""
    def total(at: float) -> int:
        done = (at - replica.start) / replica.load.seconds
        return round(replica.load.intervals * done) + round(replica.load.finished * done)

    return total(last) - total(first)


def test_increases_are_differences_of_samples(url: str) -> None:
    window = read(url, "steady")
    assert window.kind == "vllm"
    assert [engine.identity for engine in window.engines] == ["llm-0", "llm-1", "llm-2"]
    for engine, replica in zip(window.engines, replicas("steady", 3), strict=True):
        assert engine.seen is not None
        first, last = engine.seen
        assert {first, last} <= set(replica.scrapes())
        assert last - first >= SECONDS - 2 * INTERVAL
        # Exactly what the counters moved between these scrapes: nothing is extrapolated.
        assert engine.counters["generation_tokens"] == generated(replica, first, last)
        itl = engine.histograms["itl"]
        assert math.isclose(itl.total / itl.count, 0.02)
        assert set(engine.gauges["running"].values) == {10.0}
        assert engine.progress is not None
        assert engine.progress.times[0] == first
    assert window.clock_error_seconds <= INTERVAL
    assert not window.notes
    assert window.samples >= SECONDS / INTERVAL
    assert window.started is not None
    assert END - SECONDS <= window.started <= END - SECONDS + INTERVAL
    assert window.replicas_at_once == 3


def test_a_restart_cuts_that_replica_only(url: str) -> None:
    window = read(url, "restart")
    still, restarted = window.engines
    assert still.seen is not None
    assert restarted.seen is not None
    assert still.seen[1] == END
    # It restarted 200 s before the end: the 400 s before that are the longer part.
    assert END - 200 - INTERVAL <= restarted.seen[1] < END - 200
    assert restarted.counters["generation_tokens"] == generated(replicas("restart", 2)[1], *restarted.seen)
    (note,) = window.notes
    assert note.startswith("llm-1 restarted once, before 05:56 UTC (its process started at ")


def test_a_restart_is_known_from_counters_alone(url: str) -> None:
    window = read(url, "unseen-restart")
    restarted = window.engines[1]
    assert restarted.seen is not None
    assert restarted.seen[1] < END - 200
    assert "went down" in window.notes[0]


def test_replicas_that_came_and_left(url: str) -> None:
    window = read(url, "moving")
    whole, came, left = window.engines
    assert came.seen is not None
    assert left.seen is not None
    assert came.seen[0] >= END - 240
    assert left.seen[1] <= END - 360
    (note,) = window.notes
    assert note == (
        "1 of 3 replicas for the whole window: one replica left at 05:53 UTC (llm-2), "
        "one replica came at 05:56 UTC (llm-1)"
    )
    # Who is not there runs nothing, for the whole; for itself it is only known while it was there.
    running = [engine.gauges["running"] for engine in window.engines]
    assert running[0].times == running[1].times == running[2].times
    assert [sum(values) for values in zip(*(series.values for series in running), strict=True)][::9] == [20, 10, 20]
    assert set(window.only(left).engines[0].gauges["running"].values) == {10.0}
    # One after the other: two at a time.
    assert window.replicas_at_once == 2
    alone = window.only(left)
    assert alone.duration_seconds == left.seen[1] - left.seen[0]
    assert whole.counters["generation_tokens"] > 2 * left.counters["generation_tokens"]


@pytest.mark.parametrize(("namespace", "by"), [("double", "job"), ("ha", "prometheus_replica")])
def test_a_server_that_is_scraped_twice_counts_once(url: str, namespace: str, by: str) -> None:
    window = read(url, namespace)
    assert len(window.engines) == 1
    assert "1 of 2 servers are there twice" in window.notes[0]
    assert by in window.notes[0]


def test_servers_that_only_their_jobs_tell_apart(url: str) -> None:
    window = read(url, "jobs")
    assert [engine.identity for engine in window.engines] == [
        "namespace jobs, job eu", "namespace jobs, job us",
    ]  # fmt: skip


def test_several_models_must_be_chosen_from(url: str) -> None:
    with pytest.raises(SourceError, match="holds several served models: 'org/model-8b', 'org/model-70b'"):
        read(url, "models")
    window = read(url, "models", served="org/model-70b")
    assert [engine.identity for engine in window.engines] == ["llm-1"]
    assert window.model_names == ("org/model-70b",)
    with pytest.raises(SourceError, match="holds no served model 'org/model-7b'"):
        read(url, "models", served="org/model-7b")


def test_engines_of_one_server(url: str) -> None:
    window = read(url, "ranks")
    assert [engine.identity for engine in window.engines] == ["llm-0, engine 0", "llm-0, engine 1"]
    one, other = (engine.histograms["itl"].count for engine in window.engines)
    assert math.isclose(other, 2 * one, rel_tol=0.001)


def test_labels_that_the_target_s_own_displaced(url: str) -> None:
    window = read(url, "exported")
    assert window.model_names == ("org/model-8b",)
    assert [engine.identity for engine in window.engines] == ["llm-0"]


def test_replicas_behind_one_agent_of_ray(url: str) -> None:
    window = read(url, "ray")
    assert [engine.identity for engine in window.engines] == ["llm-0, ReplicaId r0", "llm-0, ReplicaId r1"]
    assert window.engines[0].names["itl"] == "ray_vllm_inter_token_latency_seconds"


def test_a_balanced_address_is_refused(url: str) -> None:
    with pytest.raises(SourceError, match="llm-0 is several servers that answer by turns") as caught:
        read(url, "balanced")
    assert "pods" in str(caught.value.remedy)


def test_gpus_in_the_same_selector(url: str) -> None:
    window = read(url, "gpus")
    assert window.device_names == ("NVIDIA H100 80GB HBM3",)
    assert len(window.engines) == 1
    assert window.hardware is not None
    (gpu,) = window.hardware.gpus
    assert (gpu.identity, gpu.uuid, gpu.host) == ("gpu 0", "GPU-1", "node-1")
    # Every 30 s, the usual interval of the exporter: an average of 30 s that ended up to 30 s ago.
    assert window.hardware.averaging_seconds == 60
    assert window.hardware.clocked
    assert set(gpu.series["utilization"].values) == {0.98}
    assert set(gpu.series["dram"].values) == {0.7, 0.701}
    # 600 000 mJ a second are 600 W.
    times = gpu.series["dram"].times
    assert gpu.counters["energy_joules"] == pytest.approx(600 * (times[-1] - times[0]), rel=1e-6)


def test_gpus_of_a_source_of_their_own(url: str) -> None:
    assert read(url, "steady").hardware is None
    engines = {"prometheus": url, "selector": 'namespace="steady"', "duration": SECONDS, "end": str(END)}
    source = {"prometheus": url, "selector": 'namespace="amd"'}
    with_gpus = prometheus_window(engines, source, duration_seconds=None)
    assert len(with_gpus.engines) == 3
    assert with_gpus.hardware is not None
    assert with_gpus.hardware.kinds == ("amd",)
    assert set(with_gpus.hardware.gpus[0].series["utilization"].values) == {0.97}
    # In whatever order they stand.
    assert prometheus_window(source, engines, duration_seconds=None).hardware == with_gpus.hardware
    with pytest.raises(SourceError, match="matches 1 series, but none of a serving engine"):
        prometheus_window(engines, {**source, "selector": 'namespace="bystanders"'}, duration_seconds=None)


def test_many_gpus_are_read_at_fewer_times(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleetgpus, "SAMPLES", 30)  # 3 series of 21 samples are more: at 30 / 3 = 10 times
    window = read(url, "gpus")
    assert window.hardware is not None
    assert "read every 60 s" in window.hardware.notes[0]


def test_a_window_shorter_than_two_scrapes(url: str) -> None:
    # Scraped every 300 s: 200 s hold one scrape at the most, 500 s two, which are less than 2 x 300 s.
    for seconds in (200.0, 500.0):
        with pytest.raises(SourceError, match=f"a window of {seconds:g} s is too short") as caught:
            read(url, "rare", seconds)
        assert "every 300 s" in caught.value.reason
        assert caught.value.remedy == "widen `duration` to 600 s or more"
    window = read(url, "rare", 900.0)
    assert window.duration_seconds is not None
    assert window.duration_seconds >= 300


def test_nothing_there(url: str) -> None:
    with pytest.raises(SourceError, match=r'namespace="none"\} matches no series'):
        read(url, "none")
    with pytest.raises(SourceError, match="matches 1 series, but none of a serving engine"):
        read(url, "bystanders")
    with pytest.raises(SourceError, match="no s"):
        read(url, "steady", end=str(END - 86_400 * 60))


def test_too_many_samples_are_read_at_steps(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = read(url, "moving")
    monkeypatch.setattr(reader, "RAW_SAMPLES", 100)
    monkeypatch.setattr(reader, "GRID_SAMPLES", 3000)
    window = read(url, "moving")
    # Scrapes are 600 s / (number - 1) apart; VictoriaMetrics leaves out the one at the window's very start.
    assert math.isclose(window.clock_error_seconds, 2 * INTERVAL, rel_tol=0.06)
    assert "too many samples to read all: read every 142 s, so that times are known to 3" in window.notes[-1]
    # The same load per second, within what the times allow.
    for one, other in zip(window.engines, exact.engines, strict=True):
        assert one.seen is not None
        assert other.seen is not None
        seconds = one.seen[1] - one.seen[0], other.seen[1] - other.seen[0]
        tokens = one.counters["generation_tokens"], other.counters["generation_tokens"]
        assert tokens[0] <= tokens[1]
        rate = tokens[1] / seconds[1]
        assert abs(tokens[0] / seconds[0] - rate) <= rate * 2 * INTERVAL / seconds[0]


def test_a_coarse_grid_loses_no_exactness(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "GRID_SAMPLES", 1)
    window = read(url, "steady")
    for engine, replica in zip(window.engines, replicas("steady", 3), strict=True):
        assert engine.seen is not None
        assert engine.counters["generation_tokens"] == generated(replica, *engine.seen)
        assert engine.seen[1] - engine.seen[0] >= SECONDS - 2 * INTERVAL


def test_a_server_that_allows_little(tmp_path: Path) -> None:
    samples = [sample for replica in replicas("steady", 2) for sample in replica.series()]
    with prometheus(tmp_path, samples, "--query.max-samples=2000") as url:
        window = read(url, "steady")
        assert len(window.engines) == 2
        for engine, replica in zip(window.engines, replicas("steady", 2), strict=True):
            assert engine.seen is not None
            assert engine.counters["generation_tokens"] == generated(replica, *engine.seen)
    small = tmp_path / "small"
    small.mkdir()
    with (
        prometheus(small, samples, "--query.max-samples=100") as url,
        pytest.raises(SourceError, match="would have to read more than it allows"),
    ):
        read(url, "steady")


def test_a_password(tmp_path: Path) -> None:
    web = tmp_path / "web.yml"
    hashed = "$2b$10$zfByZ3a2p8ynNGIF1nWpnu0YtRZueSd8rCjetp/Gx7Q2S9yyjRDqG"  # of "secret"
    web.write_text(f'basic_auth_users: {{gate: "{hashed}"}}\n', encoding="utf-8")
    samples = [sample for replica in replicas("steady") for sample in replica.series()]
    with prometheus(tmp_path, samples, f"--web.config.file={web}", ready="/-/healthy", statuses=(200, 401)) as url:
        with pytest.raises(SourceError, match=r"asks for credentials \(401\)") as caught:
            read(url, "steady")
        assert "header" in str(caught.value.remedy)
        window = read(url.replace("http://", "http://gate:secret@"), "steady")
        assert window.sources[0].location == url
        assert "secret" not in repr(window)
