"""What ``nsys stats`` prints: traces give the truth of their schedules, sums say what they cannot tell."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from timelines import ATTENTION, GEMM, MICROSECOND, NCCL_ALL_REDUCE, Schedule

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles import recognise, refuse_report
from pytest_llmroof.profiles.analyse import analyse
from pytest_llmroof.profiles.nsys_stats import StatsSummary, read_stats
from pytest_llmroof.profiles.timeline import KERNEL, MEMCPY, MEMSET, Timeline

US = MICROSECOND
PREAMBLE = "Generating SQLite file report.sqlite from report.nsys-rep\nProcessing [report.sqlite] with [x.py]... \n"


def written(tmp_path: Path, text: str, name: str = "report.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def traced(path: Path) -> Timeline:
    assert recognise(path) == "nsys stats csv"
    found = read_stats(path)
    assert not isinstance(found, StatsSummary)
    (timeline,) = found
    return timeline


def summed(path: Path) -> StatsSummary:
    assert recognise(path) == "nsys stats csv"
    found = read_stats(path)
    assert isinstance(found, StatsSummary)
    return found


@pytest.fixture
def schedule() -> Schedule:
    """8 x (GEMM 60 us, all-reduce 20 us, 20 us of nothing), each launched in that pause."""
    made = Schedule()
    for number in range(8):
        at = number * 100 * US
        made.launch(at - 9 * US, [(GEMM, at, at + 60 * US)])
        made.launch(at - 4 * US, [(NCCL_ALL_REDUCE, at + 60 * US, at + 80 * US)])
    return made


def gpu_trace(schedule: Schedule, unit: str = "ns", digits: int = 0, green: bool = True) -> str:
    head = [f"Start ({unit})", f"Duration ({unit})", "CorrId", "GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ",
            "Reg/Trd", "StcSMem (MB)", "DymSMem (MB)", "Bytes (MB)", "Throughput (MB/s)", "SrcMemKd", "DstMemKd",
            "Device", "Ctx", *(["GreenCtx"] if green else []), "Strm", "Name"]  # fmt: skip
    scale = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[unit]
    lines = [
        f"{one.start / scale:.{digits}f},{(one.end - one.start) / scale:.{digits}f},{one.launch},64,1,1,256,1,1,32,"
        f'0.000,0.049,,,,,NVIDIA H100 80GB HBM3 (0),1,{"," if green else ""}{one.stream},"{one.name}"'
        for one in schedule.work
    ]
    return PREAMBLE + "\n".join([",".join(head), *lines]) + "\n"


@pytest.mark.parametrize("green", [True, False])
@pytest.mark.parametrize(("unit", "digits"), [("ns", 0), ("us", 3), ("ms", 6), ("s", 9)])
def test_a_trace_of_the_gpu_tells_busy_and_idle_time_but_no_cause(
    tmp_path: Path, schedule: Schedule, unit: str, digits: int, green: bool
) -> None:
    timeline = traced(written(tmp_path, gpu_trace(schedule, unit, digits, green)))
    assert (timeline.device, timeline.device_name) == (0, "NVIDIA H100 80GB HBM3")
    found = analyse(timeline)
    assert found.whole.busy == pytest.approx(640 / 780)
    assert found.whole.exposed == pytest.approx(160 / 780)
    assert found.whole.unknown == pytest.approx(140 / 780)
    assert not found.whole.causes_known
    assert any("graph replays that were recorded whole" in said for said in found.distortions)
    assert not any("rounded" in said for said in found.distortions)


def test_copies_in_a_trace_are_no_kernels(tmp_path: Path) -> None:
    text = (
        "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,Bytes (MB),Device,Strm,Name\n"
        "0,100,1,,,,2.5,NVIDIA A100-SXM4-80GB (3),7,[CUDA memcpy Host-to-Device]\n"
        "200,100,2,,,,0.001,NVIDIA A100-SXM4-80GB (3),7,[CUDA memset]\n"
        '300,"1,700",3,10,2,1,,NVIDIA A100-SXM4-80GB (3),7,"gemm(int, int)"\n'
    )
    timeline = traced(written(tmp_path, text))
    assert timeline.work.kind.tolist() == [MEMCPY, MEMSET, KERNEL]
    assert timeline.work.size.tolist() == [2_500_000, 1000, 20]
    assert timeline.work.end.tolist() == [100, 300, 2000]
    assert timeline.device == 3


def test_devices_of_a_trace_are_timelines(tmp_path: Path) -> None:
    text = "Start (ns),Duration (ns),Device,Strm,Name\n" + "".join(
        f"{start},{900},GPU ({device}),7,gemm\n" for start in (0, 1000) for device in (1, 0)
    )
    found = read_stats(written(tmp_path, text))
    assert not isinstance(found, StatsSummary)
    assert [(one.device, one.rank, len(one.work)) for one in found] == [(0, 0, 2), (1, 1, 2)]


def kernel_trace(schedule: Schedule, api: str = "cudaLaunchKernel_v7000") -> str:
    lines = [
        "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
        "PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name"
    ]
    called = {call.launch: call for call in schedule.calls}
    for one in schedule.work:
        call = called[one.launch]
        waits = one.start - call.end
        queue = f"{call.end},{waits}" if waits > 0 else ","
        lines.append(
            f"{call.start},{call.end - call.start},{queue},{one.start},{one.end - one.start},{one.end - call.start},"
            f'144,145,0,{api},"  64    1    1"," 256    1    1","{one.name}"'
        )
    return "\n".join(lines) + "\n"


def test_kernels_with_their_calls_tell_the_host_from_the_queue(tmp_path: Path, schedule: Schedule) -> None:
    timeline = traced(written(tmp_path, kernel_trace(schedule)))
    assert {timeline.names[name] for name in timeline.launches.name.tolist()} == {"cudaLaunchKernel"}
    assert timeline.process == 144
    found = analyse(timeline)
    assert found.whole.host_bound == pytest.approx(140 / 780)
    assert found.whole.exposed == pytest.approx(160 / 780)
    assert any("copies are not in such a table" in said for said in found.distortions)
    assert any("graph replays" in said for said in found.distortions)


def test_nodes_of_a_graph_share_its_launch(tmp_path: Path) -> None:
    schedule = Schedule()
    for step in range(6):
        at = step * 1000 * US
        schedule.launch(at - 300 * US, [(ATTENTION, at + k * 10 * US, at + k * 10 * US + 9 * US) for k in range(100)])
    timeline = traced(written(tmp_path, kernel_trace(schedule, "cudaGraphLaunch_v10000")))
    found = analyse(timeline)
    assert len(timeline.launches) == 6
    assert found.steps_by == "graph replays"
    assert found.whole.host_bound == 0
    assert not any("graph replays that" in said for said in found.distortions)


def test_coarse_times_are_said(tmp_path: Path, schedule: Schedule) -> None:
    found = analyse(traced(written(tmp_path, gpu_trace(schedule, "ms", 3))))
    assert found.whole.busy == pytest.approx(640 / 780)
    assert any("times are rounded to 1 µs: write them with --timeunit nsec" in said for said in found.distortions)


KERNEL_SUM = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    f'60.0,"6,000,000",600,10000.0,10000.0,10000,10000,0.0,"{GEMM}"\n'
    f'30.0,3000000,100,30000.0,30000.0,30000,30000,0.0,"{NCCL_ALL_REDUCE}"\n'
    f'10.0,1000000,100,10000.0,10000.0,10000,10000,0.0,"{ATTENTION}"\n'
)


def test_a_sum_of_kernels_tells_their_classes_and_no_time(tmp_path: Path) -> None:
    found = summed(written(tmp_path, PREAMBLE + KERNEL_SUM))
    assert found.report == "cuda_gpu_kern_sum"
    assert found.classes == pytest.approx({"gemm": 0.6, "communication": 0.3, "attention": 0.1})
    assert found.seconds == pytest.approx(0.01)
    assert [row.count for row in found.rows] == [600, 100, 100]
    refusal = found.refusal()
    assert refusal.reason.startswith("report.csv (cuda_gpu_kern_sum) holds sums of kernels, not when they ran")
    assert refusal.remedy is not None
    assert "nsys export --type sqlite" in str(refusal.remedy)


def test_a_sum_is_the_same_in_every_spelling(tmp_path: Path) -> None:
    plain = summed(written(tmp_path, KERNEL_SUM))
    spellings = {
        "windows": KERNEL_SUM.replace("\n", "\r\n"),
        "tabs": "\n".join("\t".join(row) for row in csv.reader(KERNEL_SUM.splitlines())) + "\n",
        "seconds": "\n".join(
            line if number == 0 else line.replace('"6,000,000"', "0.006").replace("3000000", "0.003")
            .replace("1000000", "0.001")
            for number, line in enumerate(KERNEL_SUM.replace("(ns)", "(s)").split("\n"))
        ),
        "old": KERNEL_SUM.replace("Time (%)", "Time(%)").replace(",Name", ",GridXYZ,BlockXYZ,Name")
        .replace(",0.0,\"", ",0.0,64 1 1,256 1 1,\""),
        "with copies": KERNEL_SUM.replace("StdDev (ns),Name", "StdDev (ns),Category,Operation")
        .replace(",0.0,\"", ",0.0,CUDA_KERNEL,\"") + "0.0,9,1,9,9,9,9,0,MEMORY_OPER,[CUDA memcpy Host-to-Device]\n",
    }  # fmt: skip
    for name, text in spellings.items():
        found = summed(written(tmp_path, text))
        assert [(row.name, row.count) for row in found.rows] == [(row.name, row.count) for row in plain.rows], name
        assert [row.seconds for row in found.rows] == pytest.approx([row.seconds for row in plain.rows])
    packed = tmp_path / "report.csv.gz"
    packed.write_bytes(gzip.compress(KERNEL_SUM.encode()))
    assert summed(packed).rows == plain.rows


def test_a_real_sum_of_a_decode_stage(shared_data: Path) -> None:
    found = summed(shared_data / "profiles" / "nsys" / "dsocr_decode_summary_cuda_gpu_kern_sum.csv")
    assert found.classes["gemv"] == pytest.approx(0.496, abs=0.0005)
    assert found.classes.get("other", 0) < 0.02
    assert not found.distortions


def test_rows_that_are_missing_show_in_the_percentages(tmp_path: Path) -> None:
    found = summed(written(tmp_path, KERNEL_SUM.rsplit("10.0,1000000", 1)[0]))
    assert found.distortions == ("its rows add up to 90 % only: others are missing",)


def test_sums_of_calls_and_of_steps(tmp_path: Path) -> None:
    calls = summed(
        written(
            tmp_path,
            "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
            "80.0,8000000,10,1,1,1,1,1,cudaStreamSynchronize_v3020\n"
            "15.0,1500000,300,1,1,1,1,1,cudaLaunchKernel_v7000\n5.0,500000,20,1,1,1,1,1,cudaGraphLaunch_v10000\n",
        )
    )
    assert calls.report == "cuda_api_sum"
    assert calls.launches == 320
    assert "not what the GPU did" in calls.cannot
    steps = summed(
        written(
            tmp_path,
            "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range\n"
            "50.0,5000000,10,1,1,1,1,1,PushPop,:execute_context_0(0)_generation_32(32)\n"
            "50.0,5000000,10,1,1,1,1,1,PushPop,:request of a customer\n",
        )
    )
    assert steps.report == "nvtx_sum"
    assert [row.name for row in steps.rows] == ["execute_context_0(0)_generation_32(32)"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (KERNEL_SUM[:-40], r"report\.csv:4: .*: it is cut off"),
        (KERNEL_SUM.replace("3000000,100", "3000000"), r"report\.csv:3: 8 cells, where the head has 9: it is damaged"),
        (KERNEL_SUM.replace(",3000000,", ',3000000",'), r"report\.csv:3: a quote that nothing closes: it is damaged"),
        (KERNEL_SUM.replace(",3000000,", ",lots,"), r"report\.csv:3: 'lots' is no time"),
        (KERNEL_SUM.replace(",3000000,", ",,"), r"report\.csv:3: no total time"),
        (KERNEL_SUM.replace(",3000000,", ",nan,"), r"report\.csv:3: 'nan' is no time"),
        (KERNEL_SUM.replace(",3000000,", f",1{'0' * 30},"), r"report\.csv:3: .* is no time"),
        (KERNEL_SUM.replace("Total Time (ns)", "Total Time (fortnights)"), "is no time"),
        ("Start (ns),Duration (ns),Device,Strm,Name\n", "its table has no rows"),
        ("Start (ns),Duration (ns),Device,Strm,Name\n5,,GPU (0),7,gemm\n", r"report\.csv:2: a piece of GPU work"),
        ("Start (ns),Duration (ns),Device,Strm,Name\n5,-5,GPU (0),7,gemm\n", r"report\.csv:2: a piece of GPU work"),
        ("Time (%),Total Time (ns),Num Calls,Name\n100.0,5,1,poll\n", "tells nothing about kernels"),
        ("Time (%),Total Time (ns),Count,Operation\n100.0,5,1,[CUDA memset]\n", "tells nothing about kernels"),
        ("a,b\n1,2\n", "holds no table of nsys stats"),
        ("", "holds no table of nsys stats"),
    ],
)  # fmt: skip
def test_damaged_tables_are_refused_with_their_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        read_stats(written(tmp_path, text))


def test_of_several_tables_in_a_file_the_one_that_tells_most_is_read(tmp_path: Path, schedule: Schedule) -> None:
    path = written(tmp_path, KERNEL_SUM + "\n" + PREAMBLE + kernel_trace(schedule) + "\n" + gpu_trace(schedule))
    assert len(traced(path).launches) == 16
    assert summed(written(tmp_path, KERNEL_SUM + PREAMBLE)).seconds == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("rank 0.nsys-rep", "nsys export --type sqlite --output 'rank 0.sqlite' 'rank 0.nsys-rep'"),
        ("old.qdrep", "nsys export --type sqlite --output old.sqlite old.qdrep"),
        ("raw.qdstrm",
         "QdstrmImporter --input-file=raw.qdstrm && nsys export --type sqlite --output raw.sqlite raw.nsys-rep"),
        ("k.ncu-rep", "ncu --import k.ncu-rep --csv --page raw --print-units base > k.csv"),
    ],
)  # fmt: skip
def test_reports_that_only_the_tools_can_open_name_the_command_that_exports_them(
    tmp_path: Path, name: str, command: str
) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x00binary")
    assert recognise(path) in ("nsys report", "ncu report")
    assert refuse_report(path).remedy == Advice("export it", command)
