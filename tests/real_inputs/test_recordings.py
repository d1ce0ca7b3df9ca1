"""Profiles and counters of GPUs that people misread, or that broke their tools."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping

import pytest
from judging import Judge

GEMM = "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
HEAD = 'gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="host"'


def kernel(name: str, start: float, length: float, stream: int = 7) -> dict[str, object]:
    """A kernel of a PyTorch trace; microseconds."""
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": length,
        "args": {"device": 0, "stream": stream},
    }  # fmt: skip


def trace(*events: Mapping[str, object], **header: object) -> str:
    return json.dumps({"schemaVersion": 1, **header, "traceEvents": events})


def rank(index: int, of: int) -> dict[str, object]:
    return {"distributedInfo": {"rank": index, "world_size": of}}


def test_streams_that_overlap_are_busy_once(judge: Judge) -> None:
    # 1,000 us of GEMM, an all-reduce from 400 to 1,200 beside it, GEMM again from 1,300 to 2,000: 1,900 of 2,000 us are
    # busy, and the kernels add up to 2,500. The last 200 us of the all-reduce are exposed.
    events = [kernel(GEMM, 0, 1000), kernel(ALL_REDUCE, 400, 800, 20), kernel(GEMM, 1300, 700)]
    found = judge(
        "timeline.busy <= 95%", "timeline.idle >= 5%", "timeline.communication_exposed <= 10%",
        files={"decode.json": trace(*events, **rank(0, 2))},
    )  # fmt: skip
    assert found.verdicts == ["pass", "pass", "pass"], found.text
    assert found.value("timeline.busy") == pytest.approx(0.95)
    assert found.value("timeline.communication_exposed") == pytest.approx(0.10)


def test_gaps_of_one_stream_are_no_idle_time(judge: Judge) -> None:
    # Two streams in turns, each idle half of the time, the device never.
    events = [kernel(GEMM, 100 * i, 100, 7 + i % 2) for i in range(20)]
    found = judge("timeline.idle <= 1%", files={"decode.json": trace(*events, **rank(0, 1))})
    assert found.verdicts == ["pass"]
    assert found.value("timeline.busy") == pytest.approx(1)


def test_annotations_are_no_kernels(judge: Judge) -> None:
    # An annotation of the device around two kernels with a gap between them: 600 of 1,000 us.
    around = {**kernel("a layer", 0, 1000), "cat": "gpu_user_annotation"}
    events = [around, kernel(GEMM, 0, 300), kernel(GEMM, 700, 300)]
    found = judge("timeline.busy <= 60%", files={"decode.json": trace(*events, **rank(0, 1))})
    assert found.verdicts == ["pass"]
    assert found.value("timeline.busy") == pytest.approx(0.6)


def test_a_trace_without_gpu_activity_is_no_idle_gpu(judge: Judge) -> None:
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 50, "args": {}}
    found = judge("timeline.idle <= 5%", "timeline.busy >= 1%", files={"decode.json": trace(operator)})
    assert found.verdicts == ["no data", "no data"]
    assert "holds no GPU activity" in found.text
    assert found.window["diagnosis"]["scenario"] is None


def test_a_trace_that_was_cut_names_the_byte(judge: Judge) -> None:
    whole = trace(*(kernel(GEMM, 100 * i, 80) for i in range(6)), **rank(0, 1))
    cut = whole[: whole.rindex('"name"')]
    found = judge("timeline.idle <= 50%", files={"decode.json": cut})
    assert found.verdicts == ["no data"]
    assert "truncated at byte" in found.text
    assert "after 5 complete events" in found.text


@pytest.mark.parametrize("damage", ["bytes that are no text", "a control character", "numbers that are none", "packed"])
def test_a_trace_is_read_around_what_is_odd_in_it(judge: Judge, damage: str) -> None:
    # 10 ms of one kernel and 10 of another with 5 between them: 80 % busy. (25 us would be less than a step.)
    text = trace(kernel("k?", 0, 10_000), kernel(GEMM, 15_000, 10_000), **rank(0, 1))
    odd = {
        "bytes that are no text": text.encode().replace(b"k?", b"k\xff\xfe"),
        "a control character": text.encode().replace(b"k?", b"k\x01\t"),
        "numbers that are none": text.encode().replace(
            b'"stream": 7', b'"stream": 7, "occupancy %": NaN, "warps per SM": Infinity, "id": 123456789012345678901234'
        ),
        "packed": gzip.compress(text.encode()),
    }[damage]
    found = judge("timeline.busy >= 79%", files={"decode.json": odd})
    assert found.verdicts == ["pass"], found.text
    assert found.value("timeline.busy") == pytest.approx(0.8)


def test_ranks_are_aligned_by_the_zero_of_their_clocks(judge: Judge) -> None:
    # Both say that their all-reduce began at 1,000 us; the second's clock began 300 us later, so that the first waited
    # for it. Of steps of 1,600 and 1,300 us 500 and 200 are exposed: 23.3 % on average.
    def ranked(index: int, zero: int, start: float, length: float) -> str:
        work = [kernel(GEMM, 0, start), kernel(ALL_REDUCE, start, length, 20), kernel(GEMM, start + length, 100)]
        return trace(*work, **rank(index, 2), baseTimeNanoseconds=1_700_000_000_000_000_000 + zero)

    files = {"rank0.json": ranked(0, 0, 1000, 500), "rank1.json": ranked(1, 300_000, 1000, 200)}
    found = judge("timeline.communication_exposed <= 50%", files=files)
    assert found.verdicts == ["pass"]
    assert found.value("timeline.communication_exposed") == pytest.approx((500 / 1600 + 200 / 1300) / 2)
    assert "mean over 2 devices" in found.method("timeline.communication_exposed")


def test_traces_without_a_rank_are_not_compared(judge: Judge) -> None:
    files = {
        f"worker_{name}.pt.trace.json": trace(kernel(GEMM, 0, length), kernel(GEMM, 3000, 1000))
        for name, length in (("a", 1000), ("b", 2000))
    }
    found = judge("timeline.busy >= 10%", files=files)
    assert "Traceback" not in found.text
    assert found.verdicts == ["pass"]
    assert "late" not in found.text


LONG = '"ID","Process ID","Process Name","Host Name","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'


def counters(*rows: tuple[int, str, str, str, str]) -> str:
    """A table of Nsight Compute, one metric of one launch a line."""
    lines = (
        f'"{launch}","1","vllm","host","{name}","{metric}","{unit}","{value}"\n'
        for launch, name, metric, unit, value in rows
    )  # fmt: skip
    return LONG + "".join(lines)


def test_units_and_absent_cells_of_kernel_counters(judge: Judge) -> None:
    # 1.25 GB in 500 us: 2,500 GB/s, 74.6 % of 3,350; 1,250.5 MB in 1.5 ms: 833.7 GB/s, 24.9 %. Half of the bytes only:
    # what was written is not in there. Of the third kernel nothing was counted, which is not 0 bytes.
    read, took = "dram__bytes_read.sum", "gpu__time_duration.sum"
    table = counters(
        (0, "gemm", read, "Gbyte", "1.25"), (0, "gemm", took, "usecond", "500"),
        (1, "copy", read, "Mbyte", "1,250.5"), (1, "copy", took, "msecond", "1.5"),
        (2, "norm", read, "byte", "n/a"), (2, "norm", took, "nsecond", "900"),
    )  # fmt: skip
    found = judge(
        "kernels(gemm).mbu >= 74%", "kernels(copy).mbu >= 24%", "kernels(copy).mbu >= 25%", "kernels(norm).mbu >= 1%",
        "kernels(norm).mbu <= 1%", head="gpu: h100", files={"kernels.csv": table},
    )  # fmt: skip
    assert found.verdicts == ["pass", "pass", "no data", "no data", "no data"], found.text


def dcgm(values: Mapping[str, float], labels: str = HEAD) -> dict[str, str]:
    """Twelve pages of these fields, 5 s apart."""
    return {
        f"gpu{index:02}.prom": f"# scraped_at {1_795_975_800 + 5 * index}\n"
        + "".join(f"# TYPE {name} gauge\n{name}{{{labels}}} {value}\n" for name, value in values.items())
        + "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {1_550_000 * index}\n"
        for index in range(12)
    }  # fmt: skip


def test_utilisation_of_a_gpu_is_none_of_its_roofs(judge: Judge) -> None:
    # Some kernel was there 100 % of the time: so says the field, and nothing of tensor cores or memory.
    found = judge(
        "hardware.utilization >= 99%", "hardware.mbu >= 1%", "hfu >= 1%",
        head="gpu: h100", files=dcgm({"DCGM_FI_DEV_GPU_UTIL": 100.0, "DCGM_FI_DEV_MEM_COPY_UTIL": 43.0}),
    )  # fmt: skip
    assert found.verdicts == ["pass", "no data", "no data"]
    assert "DCGM_FI_PROF_" in found.text


@pytest.mark.parametrize(("blank", "verdict"), [(18446744073709551615.0, "no data"), (2147483632.0, "no data")])
def test_blanks_are_no_percentage(judge: Judge, blank: float, verdict: str) -> None:
    found = judge("hardware.utilization >= 50%", head="gpu: h100", files=dcgm({"DCGM_FI_DEV_GPU_UTIL": blank}))
    assert found.verdicts == [verdict]


def test_a_slice_is_not_held_against_the_whole_gpu(judge: Judge) -> None:
    labels = f'{HEAD},GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"'
    found = judge(
        "hardware.sm_active >= 10%", "hardware.mbu >= 10%", head="gpu: h100",
        files=dcgm({"DCGM_FI_PROF_SM_ACTIVE": 1.14, "DCGM_FI_PROF_DRAM_ACTIVE": 0.25}, labels),
    )  # fmt: skip
    assert not {"pass", "fail"} & set(found.verdicts), found.text


def test_profiled_fields_of_zero_beside_a_busy_gpu_are_not_measured(judge: Judge) -> None:
    # 99 % utilisation and 642 W do not go with engines that never ran.
    silent = {
        "DCGM_FI_DEV_GPU_UTIL": 99.0, "DCGM_FI_DEV_POWER_USAGE": 642.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.0,
        "DCGM_FI_PROF_DRAM_ACTIVE": 0.0, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.0,
    }  # fmt: skip
    found = judge("hardware.mbu <= 50%", "hfu <= 50%", "hardware.idle <= 50%", head="gpu: h100", files=dcgm(silent))
    assert found.verdicts == ["no data", "no data", "no data"]
    assert found.window["diagnosis"]["scenario"] is None
