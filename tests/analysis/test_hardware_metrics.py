"""``hfu`` and ``hardware.*`` from counters made by hand: over which samples, of which GPUs, and how surely."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_counters import gpu, gpus, watched
from hypothesis import given
from hypothesis import strategies as st
from made_windows import deployment, engine, moving, window

from pytest_llmroof.advice import Advice
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.hardware_load import stretches
from pytest_llmroof.analysis.hardwaremetrics import each_gpu, each_replica
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.window import Series, Window

TP4 = deployment(tensor_parallel=4)


def loaded(**changes: Any) -> Window:
    """A minute with requests in the engine at both ends."""
    made = window(
        engine(itl=0.0262, outputs=28_400, steps=2290, prompt=1000, output=960, requests=100, present=(12, 12))
    )
    return replace(made, **changes)


def of(window_: Window, deployed: Deployment = TP4) -> Measurements:
    return measure(gather(window_, deployed))


def value(outcomes: Measurements, metric: str) -> Measurement:
    found = outcomes[metric]
    assert isinstance(found, Measurement), found
    return found


def nothing(outcomes: Measurements, metric: str) -> NoData:
    found = outcomes[metric]
    assert isinstance(found, NoData), found
    return found


def test_every_metric_is_the_mean_of_the_gpus() -> None:
    # Three GPUs at 0.40 and one at 0.60: 1.8 / 4 = 45 %.
    seen = [gpu(index, dram=0.60 if index == 3 else 0.40, gr_engine=0.98, sm_active=0.6, utilization=1.0, tensor=0.1,
                sm_clock_hertz=1.755e9) for index in range(4)]  # fmt: skip
    outcomes = of(watched(loaded(), *seen))
    assert value(outcomes, "hardware.mbu").value == pytest.approx(0.45)
    assert value(outcomes, "hardware.sm_active").value == pytest.approx(0.6)
    assert value(outcomes, "hardware.idle").value == pytest.approx(0.02)  # 1 - 0.98
    assert value(outcomes, "hardware.utilization").value == 1.0
    # 1 755 MHz of the 1 830 MHz at which an H100 SXM has 989.4 TFLOP/s: 95.9 %.
    assert value(outcomes, "hardware.clock").value == pytest.approx(1755 / 1830)
    # The proxy: 0.1 of the cycles, each 95.9 % as many as at the peak's clock.
    assert value(outcomes, "hfu").value == pytest.approx(0.1 * 1755 / 1830)
    found = value(outcomes, "hardware.mbu")
    assert (found.source, found.samples, found.unit) == ("DCGM_FI_PROF_DRAM_ACTIVE", 240, "fraction")
    assert "mean over 4 GPUs, equally weighted" in found.method
    assert "each looks back 1 s" in found.method
    assert found.bounded.exact  # samples of 1 s each second leave nothing out


def test_hfu_names_itself_a_proxy() -> None:
    found = value(of(watched(loaded(), *gpus(4, tensor=0.5, sm_clock_hertz=1.83e9))), "hfu")
    assert found.value == pytest.approx(0.5)
    assert found.method.startswith("proxy: cycles in which the tensor pipe was active x SM clock / 1.83 GHz")
    for word in ("zero for matrix-vector products (GEMV)", "up to 5 times MFU"):
        assert word in found.method
    assert found.source == "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, DCGM_FI_DEV_SM_CLOCK"


def test_hfu_needs_the_clock_and_its_peak() -> None:
    assert "clock" in nothing(of(watched(loaded(), *gpus(4, tensor=0.5))), "hfu").reason
    unknown = deployment(gpu="h20", tensor_parallel=4)
    seen = [replace(one, device_name=None) for one in gpus(4, tensor=0.5, sm_clock_hertz=1.83e9)]
    found = nothing(of(watched(loaded(), *seen), unknown), "hfu")
    assert "the clock at which the peaks of NVIDIA H20 96GB hold is not known" in found.reason
    assert found.remedy is not None
    assert "clock: ...MHz" in str(found.remedy)


def test_without_counters_the_exporter_is_named() -> None:
    found = nothing(of(loaded()), "hardware.mbu")
    assert "DCGM exporter" in found.reason
    assert found.remedy is not None
    assert "http://HOST:9400/metrics" in str(found.remedy)
    assert nothing(of(loaded(), replace(TP4, accelerator=None)), "hfu").reason.startswith("engine metrics count no")


def test_only_samples_inside_the_load_count() -> None:
    # Samples each 5 s of 120 s; the counters move from 30 to 90 s. Averages over 10 s lie in it at 45 to 85 s: the
    # first and last interval that moved (30 to 35, 85 to 90) may not have been full.
    times = tuple(range(0, 121, 5))
    made = engine(itl=0.0262, outputs=28_400, steps=2290, present=None, span=(0, 120))
    busy = window(made, seconds=120.0, progress=moving(times, 30, 90), samples=25)
    assert stretches(busy) == ((35, 85),)
    seen = gpus(4, times=times, dram=[0.5 if 45 <= time <= 85 else 0.0 for time in times])
    found = value(of(watched(busy, *seen, averaging=10.0)), "hardware.mbu")
    assert found.value == pytest.approx(0.5)
    assert found.samples == 4 * 9
    # All that could be averages of something else is left out: at 40 s one reached back to 30.
    assert "over 50.0 s of load" in found.method


def test_gauges_tell_where_the_load_had_holes() -> None:
    # Requests from 10 to 25 s and from 40 to 55 s. Averages over 10 s lie inside at 20, 25, 50 and 55 s.
    times = tuple(map(float, range(0, 61, 5)))
    running = Series(times, tuple(4.0 if 10 <= time <= 25 or 40 <= time <= 55 else 0.0 for time in times))
    idle = Series(times, (0.0,) * len(times))
    made = engine(itl=0.01, outputs=4000, steps=1000, gauges={"running": running, "waiting": idle})
    bursts = window(made, progress=Series(times, times), samples=13)
    assert stretches(bursts) == ((10, 25), (40, 55))
    seen = gpus(4, times=[20, 25, 30, 50, 55], dram=[0.4, 0.4, 0.1, 0.6, 0.6])
    found = value(of(watched(bursts, *seen, averaging=10.0)), "hardware.mbu")
    assert found.value == pytest.approx(0.5)  # (0.4 + 0.4 + 0.6 + 0.6) / 4
    assert found.samples == 16


def test_a_load_shorter_than_the_averages_is_known_between_bounds() -> None:
    # 120 s, of which 20 s busy; averages over 30 s. Over the window 10 %: under load 10 % at the least, and at most
    # 0.10 x 120 / 15 = 80 % (the movement is known to one interval at either end: 15 to 25 s... low end 10 s below).
    times = tuple(range(0, 121, 5))
    made = engine(itl=0.0262, outputs=9000, steps=700, present=None, span=(0, 120))
    burst = window(made, seconds=120.0, progress=moving(times, 50, 70), samples=25)
    facts = gather(watched(burst, *gpus(4, times=[30, 60, 90, 120], dram=0.1), averaging=30.0), TP4)
    assert facts.busy is not None
    assert (facts.busy.seconds.low, facts.busy.seconds.high) == (10, 20)
    found = value(measure(facts), "hardware.mbu")
    assert found.bounded.value == pytest.approx(0.1)
    assert found.high == 1.0  # 0.1 x 120 / 10 is more than all
    assert found.judged_by == "bounds"
    assert found.undecided is not None
    assert "looks back (30 s) on the load alone" in found.undecided
    idle = watched(burst, *gpus(4, times=[30, 60, 90, 120], gr_engine=0.05), averaging=30.0)
    resting = value(of(idle), "hardware.idle")
    # 95 % over the window; under load at least 1 - 0.05 x 120 / 10 = 40 %.
    assert [resting.value, resting.low, resting.high] == pytest.approx([0.95, 0.4, 0.95])
    slow = watched(burst, *gpus(4, times=[60, 120], sm_clock_hertz=1.2e9), averaging=30.0)
    clock = nothing(of(slow), "hardware.clock")
    assert "a resting GPU lowers its clock" in clock.reason


def burst_of(begun: float, ended: float) -> Window:
    """A minute, with a load between two moments that samples of each second tell."""
    times = tuple(range(61))
    made = engine(itl=0.0262, outputs=9000, steps=700, present=None, span=(0, 60))
    return window(made, seconds=60.0, progress=moving(times, begun, ended), samples=61)


def test_averages_that_leave_out_a_part_of_the_load_bound_little() -> None:
    # Averages over 15 s at 30 and 45 s see 15 to 45 s; the load was from 0 to 20 s, at 42 %: 5 of 15 s in the first.
    early = watched(burst_of(0, 20), *gpus(4, times=[30, 45], dram=[0.14, 0.0], gr_engine=[0.33, 0.0]), averaging=15.0)
    busy = value(of(early), "hardware.mbu")
    # Of 15 s of the load nobody saw anything: at most (0.07 x 30 + 15) / 18 = 95 %, not 0.07 x 60 / 18 = 23 %.
    assert busy.high == pytest.approx((0.07 * 30 + 15) / 18)
    assert busy.low == pytest.approx(0.07 * 30 / 45)
    # Idle by the same: 1 - (0.165 x 30 + 15) / 18 is below 0, and no more than 1 - 0.165 x 30 / 45.
    idle = value(of(early), "hardware.idle")
    assert (idle.low, idle.high) == pytest.approx((0.0, 1 - 0.165 * 30 / 45))
    # All of a load from 20 to 40 s was seen: at most 0.07 x 30 / 18.
    middle = watched(burst_of(20, 40), *gpus(4, times=[30, 45], dram=[0.07, 0.07]), averaging=15.0)
    assert value(of(middle), "hardware.mbu").high == pytest.approx(0.07 * 30 / 18)


def test_samples_of_the_end_of_the_load_do_not_speak_for_all_of_it() -> None:
    # Of 60 s of load the last 11 s were seen, at 42 %: of the others, 49 of 60 s, anything may be true.
    late = watched(loaded(), *gpus(4, times=range(50, 61), dram=0.42, sm_clock_hertz=1.83e9))
    found = value(of(late), "hardware.mbu")
    assert (found.value, found.low, found.high) == pytest.approx((0.42, 0.42 * 11 / 60, 0.42 * 11 / 60 + 49 / 60))
    assert value(of(late), "hardware.clock").low == pytest.approx(11 / 60)
    # A start and an end that take less than a tenth are let pass.
    most = watched(loaded(), *gpus(4, times=range(5, 60), dram=0.42))
    assert value(of(most), "hardware.mbu").bounded.exact


def test_a_window_shorter_than_the_averages_is_not_measured() -> None:
    found = nothing(of(watched(loaded(), *gpus(4, times=[0, 60], dram=0.5), averaging=90.0)), "hardware.mbu")
    assert found.reason == (
        "a sample of these counters is an average over 90 s, and none of them lies inside this window of 60.0 s with "
        "all of that"
    )
    assert found.remedy == Advice(
        "sample them each second, or measure a load several times as long", "dcgm-exporter -c 1000"
    )
    # Nobody knows over what it averages: what dcgm-exporter does is taken, 30 s.
    unknown = nothing(of(watched(loaded(), *gpus(4, times=[0, 20], dram=0.5), averaging=None)), "hardware.mbu")
    assert "30 s, as nothing says otherwise" in unknown.reason


def test_counters_on_another_clock_are_not_believed() -> None:
    found = nothing(of(watched(loaded(), *gpus(4, dram=0.5), clocked=False)), "hardware.mbu")
    assert "not on one clock" in found.reason
    timeless = of(watched(loaded(started=None, duration_seconds=None), *gpus(4, dram=0.5)))
    assert "not on one clock" in nothing(timeless, "hardware.mbu").reason


def test_what_lies_between_samples_widens_the_interval() -> None:
    # Four averages of 1 s at 1, 21, 41 and 60 s: 4 of 60 s were seen, at 50 %. All else may have been 0 or 1.
    few = value(of(watched(loaded(), *gpus(4, times=[1, 21, 41, 60], dram=0.5))), "hardware.mbu")
    assert few.low == pytest.approx(0.5 * 4 / 60)
    assert few.high == pytest.approx(0.5 * 4 / 60 + 56 / 60)
    # Twelve of 1 s each 5 s, alternately 40 and 60 %: mean 50 %, standard deviation 0.1 x sqrt(12 / 11) = 0.10445; from
    # 4 to 60 s 12 of 56 s were seen: error 2 x 0.10445 / sqrt(12) x sqrt(44 / 56) = 5.35 %.
    times = range(5, 61, 5)
    many = value(of(watched(loaded(), *gpus(4, times=tuple(times), dram=[0.4, 0.6] * 6))), "hardware.mbu")
    assert many.value == pytest.approx(0.5)
    assert many.high - many.value == pytest.approx(0.0535, abs=2e-4)
    assert str(many.settle) == "collect the counters more often and over a longer load: dcgm-exporter -c 1000"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(0.1, 30))
def test_a_mean_lies_within_its_bounds_and_within_all(values: list[float], looks_back: float) -> None:
    times = [30 + 30 * index / len(values) for index in range(len(values))]
    found = of(watched(loaded(), *gpus(4, times=times, dram=values), averaging=looks_back))["hardware.mbu"]
    assert isinstance(found, Measurement)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert min(values) - 1e-9 <= found.value <= max(values) + 1e-9


def test_idle_gpus_of_the_host_are_left_out_and_said() -> None:
    # Eight GPUs on the host, four at 50 % and four at rest: 50 %, not 25 %.
    seen = [gpu(index, dram=0.5 if index < 4 else 0.0, gr_engine=0.98 if index < 4 else 0.0) for index in range(8)]
    found = value(of(watched(loaded(), *seen)), "hardware.mbu")
    assert found.value == pytest.approx(0.5)
    assert "of 8 GPUs the 4 most at work are taken: gpu 0 of host-1, gpu 1 of host-1" in found.method


def test_more_at_work_than_deployed_leaves_open_which_serve() -> None:
    found = nothing(of(watched(loaded(), *gpus(8, dram=0.5, gr_engine=0.9))), "hardware.mbu")
    assert "8 GPUs are at work, the deployment has 4" in found.reason
    # A pod that an engine's identity names tells.
    ours = [gpu(index, dram=0.5 if index < 4 else 0.1, gr_engine=0.9, changes={"pod": "llm-0" if index < 4 else "x"})
            for index in range(8)]  # fmt: skip
    served = loaded()
    named = replace(served, engines=(replace(served.engines[0], identity="pod llm-0"),))
    assert value(of(watched(named, *ours)), "hardware.mbu").value == pytest.approx(0.5)


def test_gpus_of_another_kind_are_left_out() -> None:
    # A host with an A100 and an H100 NVL, of which the A100 was chosen: its 50 %, whatever the other does.
    mixed = [gpu(0, device="NVIDIA H100 NVL", dram=0.9, gr_engine=0.9),
             gpu(1, device="NVIDIA A100-SXM4-80GB", dram=0.5, gr_engine=0.9)]  # fmt: skip
    found = value(of(watched(loaded(), *mixed), deployment(model="llama-3.1-8b", gpu="a100")), "hardware.mbu")
    assert found.value == pytest.approx(0.5)


def test_gpus_that_no_counter_tells_of_may_have_done_anything() -> None:
    # Two of four GPUs at 60 %: the whole between (2 x 0.6) / 4 = 30 % and (2 x 0.6 + 2) / 4 = 80 %.
    found = value(of(watched(loaded(), *gpus(2, dram=0.6))), "hardware.mbu")
    assert [found.value, found.low, found.high] == pytest.approx([0.6, 0.3, 0.8])
    assert found.settle is not None
    assert "2 GPUs are missing" in str(found.settle)


@pytest.mark.parametrize(
    "fields", [{"gr_engine": 0.0, "dram": 0.0, "tensor": 0.0}, {"gr_engine": 0.97, "dram": 0.0}], ids=["all", "dram"]
)
def test_fields_that_read_zero_under_load_were_not_measured(fields: dict[str, Any]) -> None:
    # Utilization 99 % at 642 W cannot go with an activity of 0 (the exporter's profiling module did not work).
    seen = [gpu(index, utilization=0.99, power_watts=642.0, **fields) for index in range(4)]
    found = nothing(of(watched(loaded(), *seen)), "hardware.mbu")
    assert found.reason == (
        "DCGM_FI_PROF_DRAM_ACTIVE of gpu 0 of host-1 reads 0 while the GPU works: it was not measured"
    )
    assert found.remedy is not None
    assert "SYS_ADMIN" in str(found.remedy)


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("DCGM_FI_PROF_DRAM_ACTIVE says 4200 %, more than the whole", "record the exporter itself: its activities are"),
        ("DCGM_FI_PROF_DRAM_ACTIVE is -0.5, which it cannot be", "record the exporter itself: its activities are"),
        ("DCGM_FI_PROF_DRAM_ACTIVE: DCGM did not find it", "have DCGM measure the DCGM_FI_PROF_* fields"),
    ],
)
def test_what_was_measured_wrongly_asks_for_no_rights(why: str, remedy: str) -> None:
    seen = gpu(0, gr_engine=0.97, changes={"unusable": {"dram": why}})
    found = nothing(of(watched(loaded(), seen)), "hardware.mbu")
    assert found.reason == f"activity of the memory interface of gpu 0 of host-1 cannot be used: {why}"
    assert found.remedy is not None
    assert str(found.remedy).startswith(remedy)


def test_a_tensor_pipe_at_rest_is_real() -> None:
    # Matrix-vector products leave it out.
    seen = gpus(4, gr_engine=0.97, tensor=0.0, sm_clock_hertz=1.83e9)
    assert value(of(watched(loaded(), *seen)), "hfu").value == 0


def test_missing_fields_say_what_to_switch_on() -> None:
    seen = gpus(4, utilization=1.0)
    missing = {"dram": "DCGM_FI_PROF_DRAM_ACTIVE is not exported: add it to the exporter's CSV"}
    found = nothing(of(watched(loaded(), *seen, missing=missing)), "hardware.mbu")
    assert found.reason == "nothing in dcgm.prom tells the activity of the memory interface"
    assert found.remedy == missing["dram"]


def test_each_gpu_by_its_name() -> None:
    seen = [gpu(index, dram=0.5 - index / 10) for index in range(4)]
    found = each_gpu(gather(watched(loaded(), *seen), TP4), "hardware.mbu")
    assert isinstance(found, list)
    assert [name for name, _ in found] == [f"gpu {index} of host-1" for index in range(4)]
    assert [one.value for _, one in found if isinstance(one, Measurement)] == pytest.approx([0.5, 0.4, 0.3, 0.2])


def test_each_gpu_needs_counters_of_each() -> None:
    def reason(window_: Window, metric: str) -> str:
        found = each_gpu(gather(window_, TP4), metric)
        assert isinstance(found, NoData)
        return found.reason

    assert "a DCGM exporter's or nvidia-smi's would tell" in reason(loaded(), "hardware.mbu")
    assert "decode.mbu is the engine's" in reason(watched(loaded(), *gpus(4, dram=0.5)), "decode.mbu")
    assert "2 of the deployment's 4 GPUs" in reason(watched(loaded(), *gpus(2, dram=0.5)), "hardware.mbu")


def test_each_replica_by_its_host() -> None:
    two = window(*(engine(identity=f"engine {n}", itl=0.03, outputs=9000, steps=900, present=(10, 10)) for n in (0, 1)))
    seen = [*gpus(4, "host-1", dram=0.5), *gpus(4, "host-2", dram=0.3)]
    found = each_replica(gather(watched(two, *seen), TP4), "hardware.mbu")
    assert isinstance(found, list)
    assert [name for name, _ in found] == ["host-1", "host-2"]
    assert [one.value for _, one in found if isinstance(one, Measurement)] == pytest.approx([0.5, 0.3])
    mingled = each_replica(gather(watched(two, *gpus(8, dram=0.5)), TP4), "hardware.mbu")
    assert isinstance(mingled, NoData)
    assert "not each has a pod or host of its own" in mingled.reason


def test_counters_alone_are_measured_over_their_own_time() -> None:
    # No engine tells of load: the mean of all that was recorded.
    alone = window(seconds=10.0, started=0.0)
    found = value(of(watched(alone, *gpus(1, times=[1, 2, 3, 4], dram=[0.2, 0.4, 0.4, 0.2]))), "hardware.mbu")
    assert found.value == pytest.approx(0.3)
    assert found.judged_by == "value"
    assert "over the whole window of 4.0 s, idle time included" in found.method


@given(
    st.lists(st.floats(0.5, 10), min_size=2, max_size=20),
    st.data(),
)
def test_stretches_are_in_order_apart_and_full_of_load(gaps: list[float], data: st.DataObject) -> None:
    times = [0.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    counts = data.draw(st.lists(st.sampled_from([0.0, 3.0]), min_size=len(times), max_size=len(times)))
    gauges = {"running": Series(tuple(times), tuple(counts))}
    made = engine(itl=0.01, outputs=100, steps=10, span=(0, times[-1]), gauges=gauges)
    seen = window(made, seconds=times[-1], progress=Series(tuple(times), tuple(times)), samples=len(times))
    found = stretches(replace(seen, engines=(replace(made, gauges=gauges),)))
    assert found is not None
    edges = [edge for stretch in found for edge in stretch]
    assert edges == sorted(set(edges))
    assert all(edge in times for edge in edges)
    for begun, ended in found:  # at every sample of a stretch there were requests
        assert all(count for time, count in zip(times, counts, strict=True) if begun <= time <= ended)
