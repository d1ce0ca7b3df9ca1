"""Devices that the counters tell of against those that were said: slices, other kinds, more than there should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_counters import gpu, gpus, watched
from made_windows import deployment, engine, figures, moving, window

from pytest_llmroof.analysis.devices import boost_clock
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.hardwaremetrics import each_gpu, each_replica
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement, Outcome
from pytest_llmroof.analysis.slices import mapping, share_of
from pytest_llmroof.data import load
from pytest_llmroof.roofline.catalogue import accelerator, accelerator_from_mapping, accelerators
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.hardware import Gpu, MigSlice
from pytest_llmroof.telemetry.window import Window

A100_40 = "NVIDIA A100-SXM4-40GB"


def decoded() -> Window:
    made = engine(itl=0.0262, outputs=28_400, steps=2290, prompt=1000, output=960, requests=100, present=(12, 12))
    return window(made)


def of(metric: str, deployed: Deployment, *seen: Gpu, window_: Window | None = None) -> Outcome:
    return measure(gather(watched(window_ or decoded(), *seen), deployed))[metric]


def assumed(**changes: Any) -> Deployment:
    """A deployment of which nobody said over how many GPUs a replica is spread."""
    made = deployment(model="llama-3.1-8b", **changes)
    return replace(made, provenance={**made.provenance, "tensor_parallel": "assumed"})


def piece(index: int = 0, profile: str = "1g.5gb", instance: str = "13", **values: Any) -> Gpu:
    changes = {"mig": MigSlice(profile, instance), "identity": f"gpu {index} slice {instance} of host-1"}
    return gpu(index, device=A100_40, changes=changes, **values)


def test_a_slice_is_refused_with_the_mapping_to_paste() -> None:
    found = of("decode.mbu", assumed(gpu="a100-40gb"), gpu(0, device=A100_40, gr_engine=0.99), piece(gr_engine=0.99))
    assert isinstance(found, Impossible)
    assert "slices of GPUs (MIG 1g.5gb: gpu 0 slice 13 of host-1)" in found.reason
    # 1/7 of 312 TFLOP/s is 44.57, and 1/8 of 1 555 GB/s 194.4 (5 of 40 GB are one eighth).
    assert (
        "`gpu: {name: a100-sxm4-40gb-1g-5gb, base: a100-sxm4-40gb, peaks: {bf16: 44.57TFLOP/s, fp16: 44.57TFLOP/s, "
        "int8: 89.14TFLOP/s}, memory_bandwidth: 194.4GB/s, memory: 5GB}`"
    ) in found.check
    for metric in ("hfu", "hardware.mbu", "output.tokens_per_second.per_gpu"):
        assert isinstance(of(metric, assumed(gpu="a100-40gb"), piece(gr_engine=0.99, dram=0.5)), Impossible)
    # Latencies rest on no GPU.
    assert isinstance(of("itl.mean", assumed(gpu="a100-40gb"), piece(gr_engine=0.99)), Measurement)


def test_the_mapping_can_be_pasted() -> None:
    text = mapping("3g.40gb", accelerator("h100"))
    import yaml

    said = yaml.safe_load(text[1 : text.index("`", 1)])["gpu"]
    own = accelerator_from_mapping(said)
    # 3/7 of 989.4 TFLOP/s, 4/8 of 3.35 TB/s, 40 GB.
    assert own.peaks["bf16"] == pytest.approx(989.4e12 * 3 / 7, rel=1e-3)
    assert own.memory_bandwidth_bytes_per_second == pytest.approx(3.35e12 / 2, rel=1e-3)
    assert own.memory_bytes == 40e9
    assert own.clock_hertz == 1.83e9


def test_a_slice_that_was_described_is_measured() -> None:
    own = accelerator_from_mapping(
        {"name": "a100-1g", "base": "a100-40gb", "peaks": {"bf16": "44.6TFLOP/s"}, "memory_bandwidth": "194GB/s",
         "memory": "5GB", "device_names": [A100_40]}
    )  # fmt: skip
    small = figures(parameters=1e9, weight_bytes="2GB", kv_bytes_per_token=16384, layers=16, hidden_size=2048)
    seen = (gpu(0, device=A100_40, dram=0.7), piece(gr_engine=0.99, dram=0.8))
    found = of("hardware.mbu", deployment(small, own), *seen)
    assert isinstance(found, Measurement)
    assert found.value == pytest.approx(0.8)  # the slice's, not the whole GPU's


def test_slices_beside_whole_gpus_are_left_out() -> None:
    seen = [gpu(0, gr_engine=0.9, dram=0.5), replace(piece(7, gr_engine=0.9, dram=0.9), device_name=None)]
    found = of("hardware.mbu", deployment(model="llama-3.1-8b"), *seen)
    assert isinstance(found, Measurement)
    assert found.value == pytest.approx(0.5)


def test_another_device_is_impossible() -> None:
    found = of("decode.mbu", deployment(model="llama-3.1-8b"), gpu(0, device="NVIDIA A100-SXM4-80GB", gr_engine=0.9))
    assert isinstance(found, Impossible)
    assert found.reason == (
        "the telemetry's device is NVIDIA A100-SXM4-80GB (a100-sxm4-80gb), the gpu given h100-sxm5-80gb"
    )
    # Shares need no peak, but these are of another machine than the one that is gated.
    for metric in ("hfu", "hardware.clock", "hardware.mbu", "hardware.idle"):
        other = gpu(0, device="NVIDIA A100-SXM4-80GB", gr_engine=0.9, tensor=0.5, dram=0.5, sm_clock_hertz=1.41e9)
        assert isinstance(of(metric, deployment(model="llama-3.1-8b"), other), Impossible)


def test_gpus_that_rested_while_the_steps_moved_their_bytes_are_others() -> None:
    # Llama 3.1 70B in 26.2 ms steps on 4 x H100: 40 % of what memory moves. Engines that ran 3 % of the time are of an
    # exporter on another host, and no host gaps.
    for metric in ("decode.mbu", "hardware.idle", "hfu"):
        found = of(metric, deployment(tensor_parallel=4), *gpus(4, gr_engine=0.03, dram=0.01, tensor=0.0))
        assert isinstance(found, Impossible), metric
        assert "engines were active 3 % of the time under load" in found.reason
        assert "keep memory busy for 40 % of it" in found.reason
        assert found.check.startswith("that the counters are of the GPUs that serve this engine")
    # Latencies stay, and so does a window in which engines ran for as long as the bytes need.
    assert isinstance(of("itl.mean", deployment(tensor_parallel=4), *gpus(4, gr_engine=0.03)), Measurement)
    assert isinstance(of("decode.mbu", deployment(tensor_parallel=4), *gpus(4, gr_engine=0.42)), Measurement)


def test_each_gpu_of_another_device_is_impossible_too() -> None:
    other = gpu(0, device="NVIDIA A100-SXM4-80GB", gr_engine=0.9, tensor=0.5, dram=0.5, sm_clock_hertz=1.41e9)
    facts = gather(watched(decoded(), other), deployment(model="llama-3.1-8b"))
    assert isinstance(each_gpu(facts, "hfu"), Impossible)
    assert isinstance(each_replica(facts, "hardware.clock"), Impossible)
    assert isinstance(each_gpu(facts, "hardware.mbu"), Impossible)


def test_a_host_with_another_kind_beside_is_sound() -> None:
    # The A100 was chosen and works; the H100 NVL of the same host is somebody else's.
    mixed = (gpu(0, device="NVIDIA H100 NVL", gr_engine=0.9), gpu(1, device="NVIDIA A100-SXM4-80GB", gr_engine=0.9))
    both = replace(decoded(), device_names=("NVIDIA H100 NVL", "NVIDIA A100-SXM4-80GB"))
    found = of("decode.mbu", deployment(model="llama-3.1-8b", gpu="a100"), *mixed, window_=both)
    assert isinstance(found, Measurement)
    # Were the A100 at rest while the other works, the wrong one was named.
    wrong = (mixed[0], replace(gpu(1, gr_engine=0.0), device_name="NVIDIA A100-SXM4-80GB"))
    assert isinstance(of("decode.mbu", deployment(model="llama-3.1-8b", gpu="a100"), *wrong, window_=both), Impossible)


def test_a_name_that_may_be_the_gpu_s_is_taken_before_one_that_cannot() -> None:
    # "NVIDIA H100" is printed by boards of several sizes; the T400 drives a display, and no counter tells work.
    beside = (gpu(0, device="NVIDIA H100", sm_clock_hertz=1.83e9), gpu(1, device="NVIDIA T400 4GB", sm_clock_hertz=1e9))
    assert isinstance(of("decode.mbu", deployment(model="llama-3.1-8b"), *beside), Measurement)
    alone = of("decode.mbu", deployment(model="llama-3.1-8b"), beside[1])
    assert isinstance(alone, Impossible)
    assert alone.reason == "the telemetry's device is NVIDIA T400 4GB, the gpu given h100-sxm5-80gb"
    assert isinstance(of("hardware.clock", deployment(model="llama-3.1-8b"), beside[1]), Impossible)


def test_more_gpus_at_work_than_assumed_is_impossible() -> None:
    found = of("decode.mbu", assumed(), *gpus(4, gr_engine=0.95, dram=0.5))
    assert isinstance(found, Impossible)
    assert found.reason == (
        "4 GPUs of host-1 were at work, the deployment has 1: tensor_parallel 1 (assumed), 1 replica"
    )
    assert "(tensor_parallel 4 would fit)" in found.check
    # Figures per GPU are wrong, too; the counters' own are of those at work.
    for model in (assumed(), replace(assumed(), model=None)):  # which they do not need
        assert isinstance(of("output.tokens_per_second.per_gpu", model, *gpus(4, gr_engine=0.95)), Impossible)
    assert isinstance(of("hardware.mbu", assumed(), *gpus(4, gr_engine=0.95, dram=0.5)), Measurement)


def test_as_many_at_work_as_assumed_confirm_the_split() -> None:
    # Nobody said TP 1; at TP 2 the MBU would be half. One of eight GPUs works: it is 1.
    seen = [gpu(index, gr_engine=0.95 if index == 0 else 0.0) for index in range(8)]
    found = of("decode.mbu", assumed(), *seen)
    assert isinstance(found, Measurement)
    assert found.alternatives == ()
    unwatched = measure(gather(decoded(), assumed()))["decode.mbu"]
    assert isinstance(unwatched, Measurement)
    assert [one.assumption for one in unwatched.alternatives] == ["tensor_parallel = 2 (assumed 1)"]
    # Of counters without anything that tells work nothing is confirmed; of GPUs that all rested, all is doubtful.
    mute = of("decode.mbu", assumed(), *(gpu(index, sm_clock_hertz=1.83e9) for index in range(8)))
    assert isinstance(mute, Measurement)
    assert mute.alternatives == unwatched.alternatives
    assert isinstance(of("decode.mbu", assumed(), *gpus(8, gr_engine=0.0)), Impossible)


def test_gpus_at_rest_contradict_nothing() -> None:
    seen = [gpu(index, gr_engine=0.95 if index == 0 else 0.0) for index in range(8)]
    assert isinstance(of("decode.mbu", assumed(), *seen), Measurement)


def test_what_was_given_is_believed_with_others_on_the_host() -> None:
    # TP 4 was given, and eight GPUs work: another deployment's may be beside it. Only the counters are of no use.
    found = of("decode.mbu", deployment(tensor_parallel=4), *gpus(8, gr_engine=0.95))
    assert isinstance(found, Measurement)


def test_the_clock_that_was_read_bounds_what_can_be_computed() -> None:
    def read(hertz: float) -> float:
        seen = watched(decoded(), gpu(0, gr_engine=0.9, sm_clock_hertz=hertz))
        return boost_clock(gather(seen, deployment(model="llama-3.1-8b")))

    assert read(1.98e9) == pytest.approx(1.98 / 1.83)  # 8.2 % above the clock of the peak
    assert read(1.5e9) == 1.0  # a mean below it does not make the peak smaller at every moment
    assert boost_clock(gather(decoded(), deployment(model="llama-3.1-8b"))) == 1.10


def test_counters_do_not_spoil_a_load_that_moved() -> None:
    times = tuple(range(0, 61, 5))
    seen = replace(decoded(), progress=moving(times, 0, 60), samples=13)
    found = of("decode.mbu", deployment(tensor_parallel=4), *gpus(4, gr_engine=0.9), window_=seen)
    assert isinstance(found, Measurement)


@pytest.mark.parametrize(
    ("gpu_name", "profile", "compute", "bandwidth", "memory"),
    [
        # NVIDIA's guide: A30 and RTX PRO 6000 are cut in quarters, the others in sevenths of SMs and eighths of memory.
        ("a30", "1g.6gb", 165e12 / 4, 933e9 / 4, 6e9),
        ("a30", "2g.12gb+me", 165e12 / 2, 933e9 / 2, 12e9),
        ("rtx-pro-6000-server", "1g.24gb", 467.9e12 / 4, 1792e9 / 4, 24e9),
        ("rtx-pro-6000-server", "2g.48gb+gfx", 467.9e12 / 2, 1792e9 / 2, 48e9),
        ("h200", "1g.18gb", 989.4e12 / 7, 4800e9 / 8, 18e9),
        ("h100-nvl", "3g.47gb", 835.5e12 * 3 / 7, 3938e9 / 2, 47e9),
        ("a100-80gb", "7g.80gb", 312e12, 2039e9, 80e9),
    ],
)
def test_shares_by_profile_and_device(
    gpu_name: str, profile: str, compute: float, bandwidth: float, memory: float
) -> None:
    import yaml

    text = mapping(profile, accelerator(gpu_name))
    own = accelerator_from_mapping(yaml.safe_load(text[1 : text.index("`", 1)])["gpu"])
    assert own.peaks["bf16"] == pytest.approx(compute, rel=2e-3)
    assert own.memory_bandwidth_bytes_per_second == pytest.approx(bandwidth, rel=1e-3)
    assert own.memory_bytes == memory


@pytest.mark.parametrize(
    ("gpu_name", "profile"),
    [
        ("a100-40gb", "1g.10gb"),  # a seventh with the memory of two: the guide's fraction is not its memory's
        ("h100", "1g.5gb"),  # a profile of another GPU
        ("a100-40gb", "1c.3g.20gb"),  # a compute instance, which shares its memory
        ("h20", "1g.12gb"),  # not documented
        ("mi300x", "CPX (8 partitions)"),
    ],
)
def test_what_is_not_documented_gets_no_made_up_figures(gpu_name: str, profile: str) -> None:
    known = accelerator(gpu_name)
    assert share_of(profile, known) is None
    text = mapping(profile, known)
    assert text.startswith(f"`gpu: {{name: ..., base: {known.name}, peaks: {{bf16: ...TFLOP/s}}")
    assert "not known here" in text
    assert mapping(None, None).startswith("`gpu: {name: ..., base: NAME,")


def test_every_profile_is_of_a_gpu_of_the_catalogue() -> None:
    from fractions import Fraction

    for group in load("mig.yaml"):
        for name in group["accelerators"]:
            memory = accelerators()[name].memory_bytes
            assert memory is not None
            for profile, shares in group["profiles"].items():
                gigabytes = float(profile.partition(".")[2].removesuffix("gb"))
                # Its memory is the share of the GPU's, but for what the driver keeps and rounding.
                assert gigabytes * 1e9 / memory == pytest.approx(float(Fraction(shares[1])), rel=0.05), (name, profile)
                assert 0 < Fraction(shares[0]) <= 1


def test_a_partition_of_an_amd_gpu_is_no_mig_slice() -> None:
    cut = replace(
        gpu(0, device="AMD Instinct MI300X", gr_engine=0.9),
        mig=MigSlice("CPX (8 partitions)", "3"), identity="gpu 0 slice 3 of host-1",
    )  # fmt: skip
    found = of("decode.mbu", assumed(gpu="mi300x"), cut)
    assert isinstance(found, Impossible)
    assert "slices of GPUs (compute partition CPX (8 partitions): gpu 0 slice 3 of host-1)" in found.reason
    assert "MIG" not in found.reason + found.check
