"""Peaks, bandwidths and devices that people took for others.

A prompt load of P parameters and r tokens/s needs 2 P r FLOP/s; a load of one sequence reads its weights once a step.
The catalogue's H100 SXM has 989.4 TFLOP/s dense, in which published sums write 989.
"""

from __future__ import annotations

import pytest
from judging import Judge

PARAMETERS = 8e9
TOKENS = 2048


def prompts(flops_per_second: float) -> dict[str, object]:
    """One prompt after the other for 50 s, so many that the model's products need this rate."""
    rate = flops_per_second / (2 * PARAMETERS)
    return {
        "output": 1, "context": TOKENS, "prefill": TOKENS / rate, "queue": 0.0, "front_end": 0.001,
        "seconds": 50.0, "running": 1,
    }  # fmt: skip


def steps(per_second: float) -> dict[str, object]:
    """One sequence, decoding so many steps a second."""
    return {"itl": 1 / per_second, "batch": 1, "context": 100, "output": 100, "running": 1}


def of(gpu: str, tensor_parallel: int = 1, **deployment: str) -> str:
    """The head of a gate file."""
    given = {"tensor_parallel": tensor_parallel, "weights": "bf16", **deployment}
    listed = ", ".join(f"{key}: {value}" for key, value in given.items())
    return f"gpu: {gpu}\nmodel: {{parameters: {PARAMETERS:g}}}\ndeployment: {{{listed}}}"


def weighing(size: float, gpu: str, tensor_parallel: int = 1, kv: int = 1) -> str:
    """The same of a model whose weights have so many bytes, and its cache so many for a token."""
    model = f"{{parameters: {size / 2:.0f}, weight_bytes: {size:.0f}, kv_bytes_per_token: {kv}}}"
    return f"gpu: {gpu}\nmodel: {model}\ndeployment: {{tensor_parallel: {tensor_parallel}}}"


def test_more_than_the_peak_is_refused_with_what_it_implies(judge: Judge) -> None:
    # A total of 989 TFLOP in 0.25 s taken for a rate: 989e12 / 0.25 / 989.4e12 = 400 % of the peak.
    found = judge("prefill.mfu >= 45%", head=of("NVIDIA H100 80GB HBM3"), load=prompts(989e12 / 0.25))
    assert (found.rc, found.verdicts) == (1, ["impossible"])
    assert "400 % of the dense bf16 peak of 1 x NVIDIA H100 SXM5 80GB" in found.text
    assert "tensor_parallel (1, given)" in found.text


def test_exactly_the_peak_is_reported(judge: Judge) -> None:
    found = judge("prefill.mfu >= 45%", head=of("h100"), load=prompts(989.4e12))
    assert found.value("prefill.mfu") == pytest.approx(1, rel=1e-3)
    assert found.verdicts == ["pass"]


@pytest.mark.parametrize(("name", "peak"), [
    ("NVIDIA H100 80GB HBM3", 989.4), ("NVIDIA H100 PCIe", 756.9), ("NVIDIA H100 NVL", 835.8),
])  # fmt: skip
def test_boards_of_one_name_have_peaks_of_their_own(judge: Judge, name: str, peak: float) -> None:
    # 400 TFLOP/s: 40.4 % of an SXM board, 52.8 % of a PCIe one, 47.9 % of an NVL.
    found = judge("prefill.mfu >= 45%", head=of(name), load=prompts(400e12))
    assert found.value("prefill.mfu") == pytest.approx(400 / peak, rel=2e-3)
    assert found.verdicts == ["pass" if 400 / peak >= 0.45 else "fail"]


def test_a_name_that_several_boards_print_is_refused(judge: Judge) -> None:
    found = judge("prefill.mfu >= 45%", head=of("NVIDIA H100"), load=prompts(400e12))
    assert (found.rc, found.window) == (2, {})
    assert "gpu: accelerator 'NVIDIA H100' is not unique" in found.text


def test_a_peak_with_sparsity_is_nobody_s(judge: Judge) -> None:
    # The headline of the datasheet is 1979 TFLOP/s of 2:4 sparse matrices. 450 TFLOP/s are 45.5 % of what dense ones
    # reach, and 22.7 % of that.
    found = judge("prefill.mfu >= 45%", head=of("h100"), load=prompts(450e12))
    assert found.value("prefill.mfu") == pytest.approx(450 / 989.4, rel=2e-3)
    assert "989 TFLOP/s dense" in found.text


@pytest.mark.parametrize("gpu", ["RTX 5095", "NVIDIA Quantum 9000", "MI999X"])
def test_an_unknown_device_has_no_peak(judge: Judge, gpu: str) -> None:
    found = judge("prefill.mfu >= 45%", head=of(gpu), load=prompts(400e12))
    assert (found.rc, found.window) == (2, {})
    assert f"unknown accelerator '{gpu}'" in found.text


DEVICE = """\
# scraped_at {at}
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1",modelName="{name}",Hostname="host"}} {busy}
"""


def device(name: str) -> dict[str, str]:
    """A page of GPU counters every 5 s of the load; one GPU, of this name."""
    start = 1_795_975_800
    return {
        f"gpu{at:02}.prom": DEVICE.format(at=start + at, name=name, busy=99 - at % 2) for at in range(1, 50, 5)
    }  # fmt: skip


def test_the_device_that_ran_counts_and_not_another_of_the_host(judge: Judge) -> None:
    # 156 of an A100's 312 TFLOP/s; of the H100 NVL in the same host it would be 18.7 %.
    head = of("unused").partition("\n")[2]
    ran = judge("prefill.mfu >= 40%", head=head, files=device("NVIDIA A100-SXM4-80GB"), load=prompts(156e12))
    assert ran.window["gpu"]["name"] == "a100-sxm4-80gb"
    assert ran.value("prefill.mfu") == pytest.approx(0.5, rel=2e-3)
    other = of("h100-nvl")
    said = judge("prefill.mfu >= 40%", head=other, files=device("NVIDIA A100-SXM4-80GB"), load=prompts(156e12))
    assert said.verdicts == ["impossible"]
    assert "the telemetry's device is NVIDIA A100-SXM4-80GB (a100-sxm4-80gb), the gpu given h100-nvl-94gb" in said.text


@pytest.mark.parametrize(("gpu", "bandwidth"), [
    ("NVIDIA A100-SXM4-80GB", 2039e9), ("NVIDIA A100 80GB PCIe", 1935e9),
])  # fmt: skip
def test_boards_of_other_memory_have_other_bandwidths(judge: Judge, gpu: str, bandwidth: float) -> None:
    # 13.214687 GB x 120 steps/s = 1585.8 GB/s: 77.8 % and 82.0 %.
    found = judge("decode.mbu >= 75%", head=weighing(13_214_687_232, gpu), load=steps(120))
    assert found.value("decode.mbu") == pytest.approx(13_214_687_232 * 120 / bandwidth, rel=1e-3)
    assert (found.verdicts, found.approximate) == (["pass"], [False])


def test_slightly_more_than_a_board_reads_is_in_doubt(judge: Judge) -> None:
    # Of the 40 GB board with 1555 GB/s it is 101.98 %: too much, and no more too much than a clock may err by.
    head, load = weighing(13_214_687_232, "NVIDIA A100-SXM4-40GB"), steps(120)
    found = judge("decode.mbu >= 75%", head=head, load=load)
    assert found.value("decode.mbu") == pytest.approx(1.0198, rel=1e-3)
    assert (found.verdicts, found.approximate) == (["pass"], [True])
    assert "102 % of a peak is more than any hardware reaches" in found.window["gates"][0]["reason"]
    assert judge("decode.mbu >= 75%", head=head, options=("--llmroof-strict",), load=load).verdicts == ["inconclusive"]


def test_all_gpus_have_a_peak(judge: Judge) -> None:
    # 150 TFLOP/s on 16 x 312: 3.0 %; of one GPU it would be 48 % and pass.
    found = judge("prefill.mfu >= 45%", head=of("a100", 16), load=prompts(150e12))
    assert found.value("prefill.mfu") == pytest.approx(1.5e14 / (16 * 312e12), rel=5e-3)
    assert found.verdicts == ["fail"]


def test_gib_are_not_gb(judge: Judge) -> None:
    # 3.56 GiB (3,825,065,984 B read) x 132.05 / 1008 GB/s = 50.1 %; 3.56 "GB" would be 46.6 %.
    head = "gpu: rtx-4090\nmodel: {parameters: 7e9, weight_bytes: 3.56GiB, kv_bytes_per_token: 1}\n"
    head += "deployment: {tensor_parallel: 1}"
    found = judge("decode.mbu >= 48%", head=head, load=steps(132.05))
    assert found.value("decode.mbu") == pytest.approx(3.56 * 2**30 * 132.05 / 1008e9, rel=1e-3)
    assert found.value("decode.mbu") == pytest.approx(0.5011, rel=2e-3)  # of the bytes to the last one
    assert found.verdicts == ["pass"]


def test_a_batch_reads_the_weights_once(judge: Judge) -> None:
    # (139.006 GB + 32 x 560 x 327,680 B) x 43.8625 / (4 x 3.35e12) = 47.42 %; weights x tokens/s would be 1456 %.
    head = weighing(139_006_066_688, "h100", 4, kv=327_680)
    load = {"itl": 1 / 43.8625, "batch": 32, "context": 560, "output": 800, "running": 32}
    found = judge("decode.mbu <= 50%", "output.tokens_per_second >= 1400", head=head, load=load)
    assert found.value("decode.mbu") == pytest.approx(0.47423, rel=2e-3)
    assert found.verdicts == ["pass", "pass"]


def test_ranks_share_the_weights_and_the_bandwidths(judge: Judge) -> None:
    # 69.503e9 parameters in 16 bit on 4 ranks that split the head as well, as vLLM and SGLang do:
    # 34.75 GB x 37.45 / 2039e9 = 63.8 % of each GPU's bandwidth; 66.7 % where each rank kept the whole head.
    parameters = 68_452_360_192 + 1_050_673_152
    found = judge("decode.mbu >= 60%", head=weighing(2 * parameters, "a100-80gb", 4), load=steps(37.45))
    assert found.value("decode.mbu") == pytest.approx(2 * parameters / 4 * 37.45 / 2039e9, rel=1e-3)
    assert found.value("decode.mbu") == pytest.approx(0.6383, rel=1e-3)


@pytest.mark.parametrize(("size", "step", "verdict"), [(13.5e9, 12.0e-3, "pass"), (26.0e9, 10.5e-3, "impossible")])
def test_a_larger_model_is_not_faster_than_a_smaller_one(
    judge: Judge, size: float, step: float, verdict: str
) -> None:
    # 13.5 GB in 12 ms of 2039 GB/s: 55.2 %. 26 GB in 10.5 ms: 121.4 %, which cannot be.
    found = judge("decode.mbu >= 50%", head=weighing(size, "a100-80gb"), load=steps(1 / step))
    assert found.verdicts == [verdict]
    if verdict == "impossible":
        assert "121 % of the bandwidth" in found.text
    else:
        assert found.value("decode.mbu") == pytest.approx(0.5517, rel=1e-3)


def test_a_single_stream_that_one_gpu_cannot_have_asks_for_its_split(judge: Judge) -> None:
    # 32.8e9 parameters in 16 bit, 115 tokens/s, one H200 of 4.8 TB/s: 157 %.
    found = judge("decode.mbu >= 50%", head=weighing(65.6e9, "h200"), load=steps(115))
    assert found.verdicts == ["impossible"]
    assert "157 % of the bandwidth; check tensor_parallel (1, given)" in found.text


def test_executed_and_needed_flops_are_two_figures(judge: Judge) -> None:
    # 400 TFLOP/s of products that the tokens need, and tensor cores active for 53.93 % of the time: 533.6 TFLOP/s.
    # The clock is the one at which the peak holds, 1,830 MHz.
    labels = 'gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="host"'
    counted = {
        name: f"{text}DCGM_FI_DEV_SM_CLOCK{{{labels}}} 1830\n"
        f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{labels}}} {0.5393 + 1e-5 * (index % 2)}\n"
        for index, (name, text) in enumerate(device("NVIDIA H100 80GB HBM3").items())
    }
    found = judge("prefill.mfu >= 38%", "hfu >= 50%", head=of("h100"), files=counted, load=prompts(400e12))
    assert found.value("prefill.mfu") == pytest.approx(0.4043, rel=5e-3)
    assert found.value("hfu") == pytest.approx(0.5393, rel=5e-3)
    assert found.method("hfu") != found.method("prefill.mfu")
