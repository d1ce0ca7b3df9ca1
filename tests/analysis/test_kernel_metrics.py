"""Gates on profiled kernels: utilisation against peaks, shares of time, what is no data, and kernels as points."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_tables import HOST, PROCESS, long, seconds, wide

from pytest_llmroof.analysis.kernelmetrics import kernel_outcome
from pytest_llmroof.analysis.kernelpoints import kernel_points, kernels_document, reading_of, rule_quotes
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.profiles.kernel_table import KernelTable, Launch, Operations
from pytest_llmroof.profiles.ncu import read_ncu
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerator, accelerator_from_mapping

A100 = accelerator("a100-pcie")  # 312 TFLOP/s bf16, 19.5 fp32, 1935 GB/s: ridge 161.2 FLOP/B
BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
FP16 = "sm__ops_path_tensor_src_fp16_dst_fp32.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"

GEMM = {"gpu__time_duration.sum": seconds(100), BF16: ("", "15600000000"), READ: ("byte", "60000000"),
        WRITTEN: ("byte", "17400000")}  # fmt: skip
GEMV = {
    "gpu__time_duration.sum": seconds(300),
    BF16: ("", "n/a"),
    READ: ("byte", "435000000"),
    WRITTEN: ("byte", "375000"),
}


def table(folder: Path, launches: Sequence[tuple[str, Mapping[str, tuple[str, str]]]], cc: str = "8.0") -> KernelTable:
    return read_ncu(wide(folder / "k.csv", launches, cc=cc))


def measured(outcome: Outcome) -> Measurement:
    assert isinstance(outcome, Measurement), outcome
    return outcome


def test_utilisation_of_the_kernels_that_match(tmp_path: Path) -> None:
    kernels = table(tmp_path, [("void cutlass::gemm<bf16>(int)", GEMM), ("gemvx", GEMV)])
    mfu = measured(kernel_outcome(kernels, A100, "kernels(gemm).mfu"))
    # 15.6 GFLOP / (312 TFLOP/s x 100 us) = 0.5
    assert mfu.value == pytest.approx(0.5)
    assert (mfu.low, mfu.high, mfu.judged_by) == (mfu.value, mfu.value, "value")
    assert mfu.samples == 1
    assert "312 TFLOP/s bf16" in mfu.method
    assert "--clock-control none" in mfu.method
    assert "profiled launches only" in mfu.method
    assert mfu.source == "Nsight Compute (k.csv): sm__ops_path_tensor_src_bf16_dst_fp32"
    # 77.4 MB / (1935 GB/s x 100 us) = 0.4
    assert measured(kernel_outcome(kernels, A100, "kernels(*gemm*).mbu")).value == pytest.approx(0.4)
    # 435.375 MB / (1935 GB/s x 300 us) = 0.75
    assert measured(kernel_outcome(kernels, A100, "kernels(gemv).mbu")).value == pytest.approx(0.75)
    # both: (77.4 + 435.375) MB / (1935 GB/s x 400 us) = 0.6625
    assert measured(kernel_outcome(kernels, A100, "kernels(gem*).mbu")).value == pytest.approx(0.6625)
    share = measured(kernel_outcome(kernels, None, "kernels(gemm).time_share"))
    assert share.value == pytest.approx(0.25)  # 100 of 400 us
    assert "what was not profiled counts nowhere" in share.method


def test_a_launch_without_operations_widens_the_whole(tmp_path: Path) -> None:
    kernels = table(tmp_path, [("gemm", GEMM), ("gemv", GEMV)])
    hfu = measured(kernel_outcome(kernels, A100, "hfu"))
    # 50 us at the peak of the 100 us that are known; of all 400 us between 50 and 350 us
    assert (hfu.value, hfu.low, hfu.high) == pytest.approx((0.5, 0.125, 0.875))
    assert hfu.judged_by == "bounds"
    assert "the operations of 1 of 2 launches in k.csv are not known" in (hfu.undecided or "")
    assert "ncu --section" in str(hfu.settle)
    verdicts = {limit: judge(parse_gate(f"hfu >= {limit}"), hfu).word for limit in ("10%", "50%", "90%")}
    assert verdicts == {"10%": "pass", "50%": "no data", "90%": "fail"}


def test_each_precision_counts_against_its_own_peak(tmp_path: Path) -> None:
    idle = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "0")}
    cuda = {f"smsp__sass_thread_inst_executed_op_f{op}_pred_on.sum": ("inst", value)
            for op, value in (("add", "0"), ("mul", "0"), ("fma", "487500000"))}  # fmt: skip
    values = {"gpu__time_duration.sum": seconds(100), **cuda}
    kernels = table(tmp_path, [("gemm", GEMM), ("norm", {**values, **idle})])
    # 975 MFLOP over 19.5 TFLOP/s are 50 us of 100
    assert measured(kernel_outcome(kernels, A100, "kernels(norm).mfu")).value == pytest.approx(0.5)
    assert measured(kernel_outcome(kernels, A100, "hfu")).value == pytest.approx(0.5)


def test_a_counter_of_several_precisions_gives_a_range(tmp_path: Path) -> None:
    values = {"gpu__time_duration.sum": seconds(100), "sm__ops_path_tensor_src_fp4_fp6_fp8.sum": ("", "90000000000")}
    b200 = accelerator("b200")
    peaks = (b200.peak("fp8"), b200.peak("fp4"))
    assert peaks[0] is not None
    assert peaks[1] is not None
    mfu = measured(kernel_outcome(table(tmp_path, [("gemm", values)], "10.0"), b200, "kernels(gemm).mfu"))
    assert (mfu.low, mfu.high) == pytest.approx((9e10 / 1e-4 / peaks[1], 9e10 / 1e-4 / peaks[0]))
    assert mfu.judged_by == "bounds"


def test_reads_alone_pass_a_lower_limit_and_nothing_else(tmp_path: Path) -> None:
    values = {"gpu__time_duration.sum": seconds(100), READ: ("byte", "154800000")}  # 0.8 of the bandwidth
    mbu = measured(kernel_outcome(table(tmp_path, [("gemv", values)]), A100, "kernels(gemv).mbu"))
    assert (mbu.low, mbu.high) == pytest.approx((0.8, 1.0))
    assert judge(parse_gate("kernels(gemv).mbu >= 75%"), mbu).word == "pass"
    assert judge(parse_gate("kernels(gemv).mbu >= 90%"), mbu).word == "no data"


@pytest.mark.parametrize(
    ("metric", "gpu", "reason", "remedy"),
    [
        ("kernels(flash).mfu", A100, "none of the 2 launches that k.csv holds matches 'flash'", "* stands for any"),
        ("kernels(gemm.*).mbu", A100, "none of the 2 launches", "patterns are no regular expressions"),
        ("kernels(nccl).time_share", A100, "the longest are gemv, gemm", "stands for any text"),
        ("kernels(gemv).mfu", A100, "k.csv: no operations were counted", "ncu --section"),
        ("hfu", None, "it needs a GPU's peak", "--llmroof-gpu"),
        ("kernels(gemm).mbu", replace(A100, memory_bandwidth_bytes_per_second=None, device_names=()),
         "the memory bandwidth of NVIDIA A100 PCIe 80GB is not known", "memory_bandwidth: ...GB/s"),
        ("kernels(gemm).mfu", replace(A100, peaks={"fp16": 312e12}),
         "the bf16 peak of NVIDIA A100 PCIe 80GB is not known", "peaks: {bf16: ...TFLOP/s}"),
    ],
)  # fmt: skip
def test_no_data(tmp_path: Path, metric: str, gpu: Accelerator | None, reason: str, remedy: str) -> None:
    found = kernel_outcome(table(tmp_path, [("gemm", GEMM), ("gemv", GEMV)]), gpu, metric)
    assert isinstance(found, NoData)
    assert reason in found.reason
    assert remedy in str(found.remedy)


def test_a_launch_without_a_time_is_no_data(tmp_path: Path) -> None:
    timeless = {**GEMM, "gpu__time_duration.sum": ("ns", "n/a")}
    kernels = table(tmp_path, [("gemm", GEMM), ("gemm_2", timeless), ("gemv", GEMV)])
    for metric in ("hfu", "kernels(gemm).mfu", "kernels(gemv).time_share", "kernels(gemm).time_share"):
        found = kernel_outcome(kernels, A100, metric)
        assert isinstance(found, NoData), metric
        assert "holds no time" in found.reason
    assert measured(kernel_outcome(kernels, A100, "kernels(gemv).mbu")).value == pytest.approx(0.75)


def test_shares_of_the_memorys_own_peak_are_said_where_bytes_are_missing(tmp_path: Path) -> None:
    section = "GPU Speed Of Light Throughput"
    values = {(section, "Duration"): ("us", "6.75"), (section, "DRAM Throughput"): ("%", "19.66")}
    found = kernel_outcome(read_ncu(long(tmp_path / "k.csv", [("gemv", values)])), A100, "kernels(gemv).mbu")
    assert isinstance(found, NoData)
    assert "only shares of the memory's own peak: 19.7 % at most" in found.reason


def test_whole_graphs_do_not_tell_their_kernels_apart(tmp_path: Path) -> None:
    kernels = table(tmp_path, [("graph", GEMM), ("graph", GEMM)])
    found = kernel_outcome(kernels, A100, "kernels(gemm).mfu")
    assert isinstance(found, NoData)
    assert str(found.remedy) == "profile the kernels of graphs one by one: ncu --graph-profiling node ..."
    hfu = measured(kernel_outcome(kernels, A100, "hfu"))
    assert (hfu.value, hfu.low, hfu.high) == pytest.approx((0.5, 0.5, 1.0))  # only bf16 was counted
    assert "2 whole graphs" in hfu.method


def test_more_than_the_peak_is_impossible(tmp_path: Path) -> None:
    fast = {**GEMM, "gpu__time_duration.sum": seconds(40)}  # 125 % of the peak, 100 % of the bandwidth
    kernels = table(tmp_path, [("gemm", fast)])
    found = kernel_outcome(kernels, A100, "kernels(gemm).mfu")
    assert isinstance(found, Impossible)
    assert found.implied == pytest.approx(1.25)
    assert "are 125 % of what NVIDIA A100 PCIe 80GB can do in that time" in found.reason
    assert isinstance(kernel_outcome(kernels, A100, "kernels(gemm).mbu"), Measurement)
    # At a clock a quarter above that of the peak it is possible.
    boosted = {**fast, "smsp__cycles_elapsed.avg.per_second": ("Ghz", "1.7625")}
    assert measured(kernel_outcome(table(tmp_path, [("gemm", boosted)]), A100, "hfu")).value == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("device", "cc", "says"),
    [
        ({"device__attribute_display_name": ("", "NVIDIA H100 80GB HBM3")}, "9.0", "ran on NVIDIA H100 80GB HBM3"),
        ({"device__attribute_display_name": ("", "NVIDIA A100 80GB PCIe MIG 1g.10gb")}, "8.0",
         "ran on a slice of a GPU"),
        ({}, "9.0", r"has compute capability 9.0 (Hopper), a100-pcie-80gb is of Ampere"),
        # The board of 40 GB: 5120 bits / 8 x 1215 MHz x 2 = 1555 GB/s
        ({"device__attribute_memory_clock_rate": ("", "1215000"), "device__attribute_fb_bus_width": ("", "5120")},
         "8.0", "moves 1555 GB/s (memory clock x bus width), a100-pcie-80gb 1935 GB/s"),
    ],
)  # fmt: skip
def test_another_device_is_impossible(tmp_path: Path, device: dict[str, tuple[str, str]], cc: str, says: str) -> None:
    kernels = table(tmp_path, [("gemm", {**GEMM, **device})], cc)
    for metric in ("hfu", "kernels(gemm).mfu", "kernels(gemm).mbu"):
        found = kernel_outcome(kernels, A100, metric)
        assert isinstance(found, Impossible)
        assert says in found.reason
    assert isinstance(kernel_outcome(kernels, A100, "kernels(gemm).time_share"), Measurement)
    assert all(point.mbu is None and point.regime is None for point in kernel_points(kernels, A100))


def test_the_device_itself_and_one_of_ones_own_fit(tmp_path: Path) -> None:
    device = {
        "device__attribute_display_name": ("", "NVIDIA A100 80GB PCIe"),
        "device__attribute_memory_clock_rate": ("", "1512000"),
        "device__attribute_fb_bus_width": ("", "5120"),
    }
    kernels = table(tmp_path, [("gemm", {**GEMM, **device})])
    mine = accelerator_from_mapping({"name": "mine", "base": "a100-pcie", "memory_bandwidth": "1.9TB/s"})
    assert isinstance(kernel_outcome(kernels, A100, "hfu"), Measurement)
    assert isinstance(kernel_outcome(kernels, mine, "hfu"), Measurement)


def test_locked_clocks_are_said(tmp_path: Path) -> None:
    slow = {**GEMM, "smsp__cycles_elapsed.avg.per_second": ("Mhz", "765")}
    method = measured(kernel_outcome(table(tmp_path, [("gemm", slow)]), A100, "hfu")).method
    assert "the SM clock was 765 MHz, the peak is of 1.41 GHz: Nsight Compute holds clocks at base" in method


def test_other_metrics_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"kernels tell nothing of decode\.mbu"):
        kernel_outcome(table(tmp_path, [("gemm", GEMM)]), A100, "decode.mbu")


def launched(time: float, work: float | None, moved: float | None, partial: bool) -> Launch:
    """A launch that works for a share of its time at the A100's peaks."""
    operations = None
    if work is not None:
        operations = (Operations(("bf16",), Bounded.exactly(work * time * 312e12), "tensor cores"),)
    amount = None if moved is None else moved * time * 1935e9
    return Launch(
        name="k",
        scope="kernel",
        device="0",
        line=2,
        seconds=time,
        operations=operations,
        operations_lacking="unknown" if work is None else None,
        partial=partial and work is not None,
        dram_bytes=None if amount is None else Bounded(amount, amount, float("inf") if partial else amount),
    )


SHARES = st.none() | st.floats(0.001, 1)
LAUNCHES = st.lists(st.builds(launched, st.floats(1e-7, 1), SHARES, SHARES, st.booleans()), min_size=1, max_size=8)


@given(LAUNCHES)
def test_an_interval_holds_its_value_and_whatever_was_not_counted(launches: list[Launch]) -> None:
    kernels = KernelTable("k.csv", tuple(launches), ())
    for metric, known in (
        ("hfu", [one.operations for one in launches]),
        ("kernels(k).mbu", [one.dram_bytes for one in launches]),
    ):
        found = kernel_outcome(kernels, A100, metric)
        if all(one is None for one in known):
            assert isinstance(found, NoData)
            continue
        measurement = measured(found)
        assert 0 <= measurement.low <= measurement.value <= measurement.high <= 1 + 1e-9
        assert measurement.bounded.exact or measurement.judged_by == "bounds"
        if any(one is None for one in known):
            assert not measurement.bounded.exact
    share = measured(kernel_outcome(kernels, None, "kernels(k).time_share"))
    assert share.value == pytest.approx(1)


def test_kernels_as_points(tmp_path: Path) -> None:
    extra = {
        "lts__t_sector_hit_rate.pct": ("%", "60"), "launch__waves_per_multiprocessor": ("", "0.5"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "55"),
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "40"),
        "smsp__average_warp_latency_per_inst_issued.ratio": ("cycle", "10"),
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "6"),
    }  # fmt: skip
    slower = {**GEMM, **extra, "gpu__time_duration.sum": seconds(300), "lts__t_sector_hit_rate.pct": ("%", "20")}
    kernels = table(
        tmp_path, [("void gemm<bf16>(int)", {**GEMM, **extra}), ("void gemm<bf16>(int)", slower), ("gemv", GEMV)]
    )
    gemm, gemv = kernel_points(kernels, A100)
    assert (gemm.label, gemm.launches, gemm.scope) == ("gemm", 2, "kernel")
    # 31.2 GFLOP in 400 us; 154.8 MB: 201.6 FLOP/B, above the ridge of 161.2
    assert gemm.flops_per_second == pytest.approx(78e12)
    assert gemm.intensity == pytest.approx(31.2e9 / 154.8e6)
    assert (gemm.regime, gemm.precision) == ("compute", "bf16")
    assert gemm.of_roof == gemm.mfu == pytest.approx(0.25)
    assert gemm.mbu == pytest.approx(0.2)
    assert gemm.time_share == pytest.approx(400 / 700)
    assert gemm.l2_hit_rate == pytest.approx(0.3)  # 60 % of 100 us, 20 % of 300 us
    assert gemm.reading == "small grid"  # both shares below 60 %, fewer than one wave
    assert [what for what, _ in gemm.stalls] == ["L1TEX (global, local, surface, texture memory)"]
    assert gemm.stalls[0][1] == pytest.approx(0.6)
    assert not gemm.lower_bound
    assert (gemv.flops_per_second, gemv.intensity, gemv.regime, gemv.mfu) == (None, None, None, None)
    assert gemv.mbu == pytest.approx(0.75)
    assert kernel_points(kernels, None)[0].intensity == gemm.intensity


@pytest.mark.parametrize(
    ("compute", "memory", "waves", "reading"),
    [(0.85, 0.3, 2, "compute"), (0.3, 0.85, 2, "memory"), (0.7, 0.65, 2, "balanced"), (0.7, 0.4, 2, "compute"),
     (0.4, 0.7, 2, "memory"), (0.5, 0.5, 2, "latency"), (0.5, 0.5, 0.7, "small grid"), (0.5, 0.5, None, "latency"),
     (None, 0.5, 2, None), (0.9, 0.85, 2, "compute")],
)  # fmt: skip
def test_the_tools_own_reading(
    compute: float | None, memory: float | None, waves: float | None, reading: str | None
) -> None:
    assert reading_of(compute, memory, waves) == reading


def test_the_document_holds_points_quotes_and_nothing_private(tmp_path: Path) -> None:
    section = "GPU Speed Of Light Throughput"
    rules = [
        ("SOLBottleneck", "OPT", "Memory is more\nheavily utilized"),
        ("SOLFPRoofline", "INF", "The ratio of peaks"),
        ("Long", "WRN", "x" * 5000),
    ]
    path = long(
        tmp_path / "k.csv", [("gemv\x1b[31m" + "y" * 500, {(section, "Duration"): ("us", "6.75")})], rules=rules
    )
    kernels = read_ncu(path)
    document = json.loads(json.dumps(kernels_document(kernels, A100)))
    (point,) = document["points"]
    assert (document["source"], document["launches"], document["notes"]) == ("k.csv", 1, [])
    assert document["seconds"] == pytest.approx(6.75e-6)
    assert len(point["label"]) <= 80
    assert "\x1b" not in point["kernel"]
    assert [rule["name"] for rule in point["rules"]] == ["SOLBottleneck", "Long"]
    assert len(point["rules"][1]["text"]) <= 800
    assert PROCESS not in json.dumps(document)
    assert HOST not in json.dumps(document)
    (quote,) = rule_quotes(kernel_points(kernels, A100))
    assert quote.endswith('(SOLBottleneck): "Memory is more heavily utilized"')


def test_the_reference_figures(shared_data: Path) -> None:
    kernels = read_ncu(shared_data / "profiles" / "ncu" / "aime-bench_vllm_decode_graph_ncu_raw_trimmed.csv")
    each = [KernelTable(kernels.location, (one,), kernels.devices) for one in kernels.launches]
    shares = [measured(kernel_outcome(one, A100, "kernels(graph).mbu")).value for one in each]
    assert shares == pytest.approx([0.178, 0.402, 0.487], abs=0.001)
    # 32.0, 37.6 and 25.4 TFLOP/s of 312
    hfu = [measured(kernel_outcome(one, A100, "hfu")).value for one in each]
    assert hfu == pytest.approx([0.1026, 0.1204, 0.0814], abs=0.001)
    (point,) = kernel_points(kernels, A100)
    assert (point.regime, point.scope, point.launches, point.lower_bound) == ("memory", "graph", 3, True)
    assert isinstance(kernel_outcome(kernels, accelerator("h100"), "hfu"), Impossible)
