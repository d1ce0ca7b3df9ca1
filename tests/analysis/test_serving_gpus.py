"""Which GPUs hold which engine, by the labels of pods and hosts, and when they were certainly under load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_counters import gpu, gpus, watched
from hand_facts import decoding, llama_8b
from made_windows import deployment, engine, moving, window

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.hardware_load import beyond_samples, span, stretches
from pytest_llmroof.analysis.hardware_serving import by_engine, devices_at_work, serving
from pytest_llmroof.analysis.hardwaremetrics import each_gpu, each_replica
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.window import Engine, Series, Window

TIMES = tuple(float(second) for second in range(61))


def at(number: int, **place: str) -> Engine:
    made = engine(identity=f"engine {number}", itl=0.03, outputs=9000, steps=900, present=(10, 10))
    return replace(made, place=place)


def names(found: dict[str, list[object]]) -> dict[str, list[str]]:
    return {engine: [one.identity for one in ours] for engine, ours in found.items()}  # type: ignore[attr-defined]


def joined(engines: list[Engine], *seen: object) -> dict[str, list[str]]:
    return names(by_engine(seen, window(*engines)))  # type: ignore[arg-type]


def test_pods_tell_before_hosts_do() -> None:
    podded = [gpu(index, changes={"pod": f"llm-{index // 2}"}) for index in range(4)]
    engines = [at(0, pod="llm-0", node="host-1"), at(1, pod="llm-1", node="host-1")]
    assert joined(engines, *podded) == {
        "engine 0": ["gpu 0 of host-1", "gpu 1 of host-1"], "engine 1": ["gpu 2 of host-1", "gpu 3 of host-1"],
    }  # fmt: skip
    # The exporter's word for the pod it scraped counts, too, and a pod that no counter tells of is passed over.
    renamed = [at(0, pod="sidecar", exported_pod="llm-1")]
    assert joined(renamed, *podded) == {"engine 0": ["gpu 2 of host-1", "gpu 3 of host-1"]}


def test_hosts_tell_where_no_pod_does_whatever_their_port() -> None:
    apart = [gpu(0, host="10.0.0.1:9400"), gpu(0, host="10.0.0.2:9400")]
    engines = [at(0, instance="10.0.0.1:8000"), at(1, instance="10.0.0.2:8000")]
    assert joined(engines, *apart) == {"engine 0": ["gpu 0 of 10.0.0.1:9400"], "engine 1": ["gpu 0 of 10.0.0.2:9400"]}
    # A name with a colon that no number follows is a whole name.
    assert joined([at(0, instance="rack:a")], gpu(0, host="rack:a"), gpu(0, host="rack:b")) == {
        "engine 0": ["gpu 0 of rack:a"]
    }
    assert joined([at(0, instance="elsewhere")], *apart) == {}


def test_ranks_of_one_pod_are_one() -> None:
    """Two data-parallel ranks behind one door: whose the GPUs are is told once."""
    podded = [gpu(index, changes={"pod": "llm-0"}) for index in range(2)]
    assert joined([at(0, pod="llm-0"), at(1, pod="llm-0")], *podded) == {
        "engine 0": ["gpu 0 of host-1", "gpu 1 of host-1"]
    }


def test_of_several_kinds_the_devices_at_work_are_named() -> None:
    both = (gpu(0, gr_engine=0.9), gpu(1, device="NVIDIA L4", gr_engine=0.0))
    named = window(at(0), device_names=("NVIDIA H100 80GB HBM3", "NVIDIA L4"))
    assert devices_at_work(watched(named, *both)) == ("NVIDIA H100 80GB HBM3",)
    resting = [replace(one, series={}) for one in both]
    assert devices_at_work(watched(named, *resting)) == ("NVIDIA H100 80GB HBM3", "NVIDIA L4")
    assert devices_at_work(named) == ("NVIDIA H100 80GB HBM3", "NVIDIA L4")
    alone = window(at(0), device_names=("NVIDIA L4", "NVIDIA L4"))
    assert devices_at_work(watched(alone, *both)) == ("NVIDIA L4",)


def test_where_nobody_said_how_many_serve_those_at_work_do() -> None:
    def found(*active: float) -> tuple[int, str | None]:
        seen = [gpu(index, gr_engine=share) for index, share in enumerate(active)]
        made = deployment("llama-3.1-8b")
        assumed = replace(made, provenance={**made.provenance, "tensor_parallel": "assumed"})
        ours = serving(gather(watched(window(at(0)), *seen), assumed))
        return len(ours.gpus), ours.note

    assert found(0.9, 0.8, 0.0, 0.0) == (2, "of 4 GPUs the 2 at work are taken: gpu 0 of host-1, gpu 1 of host-1")
    assert found(0.9, 0.8) == (2, None)
    assert found(0.0, 0.0) == (2, None)  # none at work: no choice is made
    several = found(*[0.9] * 6, 0.0)
    assert several == (
        6,
        "of 7 GPUs the 6 at work are taken: gpu 0 of host-1, gpu 1 of host-1, gpu 2 of host-1, gpu 3 of host-1 and "
        "2 more",
    )


def test_each_replica_and_each_gpu_where_there_is_one_or_none() -> None:
    watched_one = gather(watched(window(at(0)), gpu(0, dram=0.5)), deployment("llama-3.1-8b"))
    only = each_replica(watched_one, "hardware.mbu")
    assert isinstance(only, list)
    assert [name for name, _ in only] == ["the only replica"]
    bare = each_replica(gather(window(at(0)), deployment("llama-3.1-8b")), "hardware.mbu")
    assert isinstance(bare, NoData)
    assert "exporter" in bare.reason
    crowd = gather(watched(window(at(0)), *gpus(4, dram=0.5, gr_engine=0.9)), deployment("llama-3.1-8b"))
    for each in (each_replica, each_gpu):
        unknown = each(crowd, "hardware.mbu")
        assert isinstance(unknown, NoData)
        assert "4 GPUs are at work, the deployment has 1" in unknown.reason


def test_an_idle_engine_has_no_activity_of_its_load() -> None:
    idle = window(engine(counters={"generation_tokens": 0.0}))
    outcome = measure(gather(watched(idle, gpu(0, dram=0.0)), deployment("llama-3.1-8b")))["hardware.mbu"]
    assert isinstance(outcome, NoData)
    assert outcome.reason.startswith("the engine was idle")


# Under load --------------------------------------------------------------------------------------------------------


def alone(**changes: Any) -> Window:
    client = Client("guidellm", "GuideLLM", "run.json", **changes)
    return replace(window(seconds=60.0), engines=(), client=client)


@pytest.mark.parametrize(
    ("made", "seconds"),
    [
        (alone(started=5.0, duration_seconds=20.0), ((5.0, 25.0),)),
        (alone(duration_seconds=20.0), ((0.0, 20.0),)),  # from the window's own beginning
        (alone(started=5.0), ((5.0, 65.0),)),  # as long as the window
        (replace(alone(), client=None), None),
        (replace(alone(), started=None), None),
    ],
)
def test_a_benchmark_alone_was_under_load_for_its_own_time(
    made: Window, seconds: tuple[tuple[float, float], ...] | None
) -> None:
    assert stretches(made) == seconds


def test_a_window_without_a_clock_has_no_span() -> None:
    assert span(window(at(0))) == (0.0, 60.0)
    assert span(window(at(0), seconds=None)) is None
    bare = replace(decoding(llama_8b(), 0.01), window=window(at(0), seconds=None))
    assert beyond_samples(bare, (0.0, 1.0)) == 0.0


def test_every_replica_must_tell_that_it_had_requests() -> None:
    """Engine 0 has requests from 10 to 50 s, engine 1 from 20 to 60 s: both from 20 to 50 s."""
    def gauged(number: int, first: int, last: int) -> Engine:
        running = Series(TIMES, tuple(float(first <= time <= last) for time in TIMES))
        return replace(at(number), gauges={"running": running, "waiting": Series(TIMES, (0.0,) * 61)})

    made = window(gauged(0, 10, 50), gauged(1, 20, 60), progress=moving(TIMES, 0.0, 60.0), samples=61)
    assert stretches(made, of_every_replica=True) == ((20.0, 50.0),)
    # One without gauges: no gauge tells of every replica, and the counters that all moved do.
    silent = replace(made, engines=(made.engines[0], replace(made.engines[1], gauges={})))
    assert stretches(silent, of_every_replica=True) == ((1.0, 59.0),)


def test_the_only_replica_is_measured() -> None:
    outcome = measure(gather(watched(window(at(0)), gpu(0, dram=0.5)), deployment("llama-3.1-8b")))["hardware.mbu"]
    assert isinstance(outcome, Measurement)
    assert outcome.value == pytest.approx(0.5)
