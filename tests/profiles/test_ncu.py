"""Nsight Compute's tables: both layouts, what they can and cannot tell, damage, and hostile content."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tables import HOST, IDS, PROCESS, ids, line, long, seconds, wide

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.kernel_names import matches, short_name
from pytest_llmroof.profiles.kernel_table import Launch
from pytest_llmroof.profiles.ncu import read_ncu
from pytest_llmroof.profiles.recognise import recognise

SOL, MEMORY, LINE = "GPU Speed Of Light Throughput", "Memory Workload Analysis", "Command line profiler metrics"
BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32"
FFMA = {f"smsp__sass_thread_inst_executed_op_f{op}_pred_on.sum": ("inst", value)
        for op, value in (("add", "100"), ("mul", "200"), ("fma", "1000"))}  # fmt: skip
TIME = {"gpu__time_duration.sum": seconds(10)}


def one(path: Path) -> Launch:
    (launch,) = read_ncu(path).launches
    return launch


def flops(launch: Launch) -> dict[str, tuple[float, float]]:
    """Precisions -> lowest and highest count."""
    return {"/".join(each.precisions): (each.count.low, each.count.high) for each in launch.operations or ()}


def test_a_wide_table(tmp_path: Path) -> None:
    values = {
        "gpu__time_duration.sum": ("us", "12.5"), "dram__bytes_read.sum": ("Mbyte", "20.5"),
        "dram__bytes_write.sum": ("Kbyte", "500"), "lts__t_sector_hit_rate.pct": ("%", "27.66"),
        BF16 + ".sum": ("", "2147483648"), "launch__waves_per_multiprocessor": ("", "0.5"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "9.15"),
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "78"),
        "smsp__average_warp_latency_per_inst_issued.ratio": ("cycle", "10"),
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "6"),
        "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": ("inst", "1.5"),
        "smsp__average_warps_issue_stalled_wait_not_issued_per_issue_active.ratio": ("inst", "9"),
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": ("", "25"),
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": ("", "100"),
        "smsp__cycles_elapsed.avg.per_second": ("Ghz", "1.2"),
        "device__attribute_display_name": ("", "NVIDIA A100 80GB PCIe"),
        "device__attribute_memory_clock_rate": ("", "1512000"), "device__attribute_fb_bus_width": ("", "5120"),
        "device__attribute_clock_rate": ("", "1410000"), "device__attribute_multiprocessor_count": ("", "108"),
    }  # fmt: skip
    before = '==PROF== Connected to process 4711 (/usr/bin/python3.12)\n==PROF== Profiling "gemm" - 0: 0%....100%\n'
    table = read_ncu(wide(tmp_path / "k.csv", [("gemm", values)], before=before))
    (launch,) = table.launches
    assert launch.seconds == pytest.approx(12.5e-6)
    assert launch.dram_bytes is not None
    assert launch.dram_bytes.value == pytest.approx(21.0e6)  # 20.5 MB + 500 kB
    assert (launch.dram_read_bytes, launch.dram_write_bytes) == pytest.approx((20.5e6, 5e5))
    assert flops(launch) == {"bf16": (2147483648, 2147483648)}  # 2 x 1024 x 1024 x 1024: no factor on it
    assert launch.l2_hit_rate == pytest.approx(0.2766)
    assert (launch.compute_share, launch.memory_share) == pytest.approx((0.0915, 0.78))
    waits = ("L1TEX (global, local, surface, texture memory)", "other warps of the block (barrier)")
    assert tuple(what for what, _ in launch.stalls) == waits
    assert [share for _, share in launch.stalls] == pytest.approx([0.6, 0.15])
    assert (launch.bank_conflicts, launch.bank_conflict_share) == (25, 0.25)
    assert (launch.waves, launch.sm_clock_hertz) == pytest.approx((0.5, 1.2e9))
    (device,) = table.devices
    assert device.name == "NVIDIA A100 80GB PCIe"
    # 5120 / 8 B x 1512 MHz x 2 = 1935.36 GB/s, the datasheet's figure
    assert device.bandwidth_bytes_per_second == pytest.approx(1935.36e9)
    assert (device.compute_capability, device.multiprocessors, device.clock_hertz) == (8.0, 108, 1.41e9)
    assert table.notes == ()


@pytest.mark.parametrize("with_rules", [True, False])
def test_a_long_table(tmp_path: Path, with_rules: bool) -> None:
    values = {
        (SOL, "Duration"): ("us", "6.75"), (SOL, "Memory Throughput"): ("%", "19.66"),
        (SOL, "DRAM Throughput"): ("%", "19.66"), (SOL, "Compute (SM) Throughput"): ("%", "9.15"),
        (SOL, "Elapsed Cycles"): ("cycle", "13,485"), (MEMORY, "Memory Throughput"): ("Gbyte/s", "345.14"),
        (MEMORY, "L2 Hit Rate"): ("%", "27.66"), ("Launch Statistics", "Waves Per SM"): ("", "0.70"),
        ("Launch Statistics", "Function Cache Configuration"): ("", "CachePreferNone"),
    }  # fmt: skip
    rules = [("SOLBottleneck", "OPT", "This kernel grid is too small,\nsay\x1b[31m we."), ("Empty", "OPT", " ")]
    path = long(tmp_path / "k.csv", [("a", values), ("b", values)], rules=rules if with_rules else (),
                with_rules=with_rules)  # fmt: skip
    table = read_ncu(path)
    assert [launch.name for launch in table.launches] == ["a", "b"]
    launch = table.launches[0]
    assert launch.seconds == pytest.approx(6.75e-6)
    # One name, two sections: a share in one, bytes per second in the other. 345.14 GB/s x 6.75 us = 2.3297 MB
    assert launch.memory_share == pytest.approx(0.1966)
    assert launch.dram_bytes is not None
    assert launch.dram_bytes.value == pytest.approx(2.3297e6, rel=1e-4)
    assert launch.dram_read_bytes is None
    assert launch.operations is None
    assert launch.operations_lacking == "no operations were counted"
    if with_rules:
        (rule,) = launch.rules
        assert (rule.name, rule.kind) == ("SOLBottleneck", "OPT")
        assert rule.text == "This kernel grid is too small, say\ufffd[31m we."


def test_what_is_not_available_is_not_zero(tmp_path: Path) -> None:
    values = {**TIME, "dram__bytes_read.sum": ("byte", "n/a"), "dram__bytes_write.sum": ("byte", "(!) nan"),
              BF16 + ".sum": ("", "n/a"), "lts__t_sector_hit_rate.pct": ("%", "nan")}  # fmt: skip
    launch = one(wide(tmp_path / "k.csv", [("k", values)]))
    assert (launch.dram_bytes, launch.l2_hit_rate, launch.operations) == (None, None, None)
    assert one(wide(tmp_path / "k.csv", [("k", {"gpu__time_duration.sum": ("ns", "n/a")})])).seconds is None
    assert one(wide(tmp_path / "k.csv", [("k", {"gpu__time_duration.sum": ("ns", "0")})])).seconds is None


def test_half_of_the_bytes_is_a_lower_bound(tmp_path: Path) -> None:
    launch = one(wide(tmp_path / "k.csv", [("k", {**TIME, "dram__bytes_read.sum": ("byte", "5000")})]))
    assert launch.dram_bytes is not None
    assert (launch.dram_bytes.low, launch.dram_bytes.high) == (5000, float("inf"))


@pytest.mark.parametrize(
    "values",
    [
        {"dram__bytes_op_read.sum": ("Kbyte", "3"), "dram__bytes_op_write.sum": ("Kbyte", "1")},  # Blackwell
        {"dram__bytes.sum": ("Kbyte", "4")},
        {"dram__bytes.sum.per_second": ("Mbyte/s", "400")},  # over 10 us
        {"dram__bytes_read.sum.per_second": ("Mbyte/s", "300"), "dram__bytes_write.sum.per_second": ("Mbyte/s", "100")},
    ],
)
def test_bytes_by_every_name(tmp_path: Path, values: dict[str, tuple[str, str]]) -> None:
    launch = one(wide(tmp_path / "k.csv", [("k", {**TIME, **values})]))
    assert launch.dram_bytes is not None
    assert launch.dram_bytes.exact
    assert launch.dram_bytes.value == pytest.approx(4000)


@pytest.mark.parametrize(
    ("cc", "counts", "expected"),
    [
        # The counter without a path, and the same again with dense and sparse apart: one of them, never the sum.
        ("8.0", {BF16: 1000, BF16 + "_sparsity_off": 1000, BF16 + "_sparsity_on": 0}, {"bf16": 1000}),
        ("8.0", {BF16 + "_sparsity_off": 1000}, {"bf16": 1000}),
        ("8.0", {BF16 + "_sparsity_off": 700, BF16 + "_sparsity_on": 300}, {"bf16": 1000}),
        # Hopper's paths add up; op_hmma alone reads 0 where WGMMA did the work.
        ("9.0", {"sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off": 900,
                 "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32_sparsity_off": 100}, {"bf16": 1000}),
        ("9.0", {"sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off": 900,
                 "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32_sparsity_off": 100, BF16: 1000}, {"bf16": 1000}),
        ("9.0", {"sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off": 500,
                 "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off": 0,
                 "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp16_sparsity_off": 0}, {"fp16": 500}),
        ("9.0", {"sm__ops_path_tensor_src_fp8": 800, "sm__ops_path_tensor_src_fp8_sparsity_off": 800}, {"fp8": 800}),
        ("9.0", {"sm__ops_path_tensor_src_fp8": 800, BF16: 200}, {"fp8": 800, "bf16": 200}),
        ("8.0", {"sm__ops_path_tensor_src_fp16_dst_fp16": 10, "sm__ops_path_tensor_src_fp16_dst_fp32": 20},
         {"fp16": 30}),
        ("8.0", {"sm__ops_path_tensor_src_fp16": 30, "sm__ops_path_tensor_src_fp16_dst_fp32": 20}, {"fp16": 30}),
        # Blackwell's counter of three precisions does not tell which of them it was.
        ("10.0", {"sm__ops_path_tensor_src_fp4_fp6_fp8": 600}, {"fp8/fp4": 600}),
        ("8.0", {"sm__ops_path_tensor_op_imma_src_int8_sparsity_off": 40}, {"int8": 40}),
    ],
)  # fmt: skip
def test_operations_are_counted_once(tmp_path: Path, cc: str, counts: dict[str, int], expected: dict[str, int]) -> None:
    values = {**TIME, **{f"{name}.sum": ("", str(count)) for name, count in counts.items()}}
    launch = one(wide(tmp_path / "k.csv", [("k", values)], cc=cc))
    assert flops(launch) == {name: (count, count) for name, count in expected.items()}
    assert launch.uncounted == ("CUDA cores",)
    assert not launch.partial


def test_a_counter_of_several_sources_may_hold_those_of_each(tmp_path: Path) -> None:
    counts = {"fp4_dst_fp32": 600, "fp4_fp6_dst_fp32": 600, "fp4_fp6_fp8_dst_fp32": 1000}
    values = {**TIME, **{f"sm__ops_path_tensor_src_{name}.sum": ("", str(count)) for name, count in counts.items()}}
    launch = one(wide(tmp_path / "k.csv", [("k", values)], cc="10.0"))
    # Nested: 600 of fp4, and 400 more. Apart from each other: 600, 600 and 1000.
    found = [(each.precisions, each.count.low, each.count.high) for each in launch.operations or ()]
    assert found == [(("fp4",), 600, 600), (("fp8", "fp4"), 0, 600), (("fp8", "fp4"), 400, 1000)]


def test_the_counters_of_the_full_set_tell_all_of_a_hopper(tmp_path: Path) -> None:
    names = (
        "op_hgmma_src_bf16_dst_fp32_sparsity_off", "op_hgmma_src_bf16_dst_fp32_sparsity_on",
        "op_hgmma_src_fp16_sparsity_off", "op_hgmma_src_tf32_dst_fp32_sparsity_off", "op_igmma_src_int8_sparsity_off",
        "op_hmma_src_bf16_dst_fp32_sparsity_off", "op_hmma_src_fp16_dst_fp16_sparsity_off",
        "op_hmma_src_fp16_dst_fp32_sparsity_off", "op_hmma_src_tf32_dst_fp32_sparsity_off",
        "op_imma_src_int8_sparsity_off", "src_fp8_sparsity_off", "src_fp8_sparsity_on", "op_bmma_src_int1", "src_fp64",
    )  # fmt: skip
    rates = {f"sm__ops_path_tensor_{name}.sum.per_cycle_elapsed": ("1/cycle", "0") for name in names}
    rates["sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum.per_cycle_elapsed"] = ("1/cycle", "1000")
    cycles = {"smsp__cycles_elapsed.avg.per_second": ("Ghz", "1.5")}
    graph = one(wide(tmp_path / "k.csv", [("graph", {**TIME, **cycles, **rates})], cc="9.0"))
    assert flops(graph)["bf16"] == pytest.approx((1.5e7, 1.5e7))  # 1000 x 1.5 GHz x 10 us
    assert (graph.partial, graph.uncounted) == (False, ("CUDA cores",))


def test_a_path_that_was_not_counted_may_have_done_the_rest(tmp_path: Path) -> None:
    values = {**TIME, "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32_sparsity_off.sum": ("", "100")}
    hopper = one(wide(tmp_path / "h.csv", [("k", values)], cc="9.0"))
    assert hopper.partial
    assert "other paths or precisions of the tensor cores" in hopper.uncounted
    assert not one(wide(tmp_path / "a.csv", [("k", values)], cc="8.0")).partial


def test_a_whole_graph_may_multiply_in_precisions_that_were_not_counted(tmp_path: Path) -> None:
    values = {**TIME, BF16 + "_sparsity_off.sum": ("", "100")}
    graph = one(wide(tmp_path / "g.csv", [("graph", values)]))
    assert (graph.scope, graph.partial) == ("graph", True)
    others = {f"sm__ops_path_tensor_src_{source}.sum": ("", "0") for source in ("fp16", "tf32", "int8")}
    assert not one(wide(tmp_path / "g.csv", [("graph", {**values, **others})])).partial


def test_rates_of_counters_are_counts(tmp_path: Path) -> None:
    # 50 operations a cycle at 1.2 GHz for 10 us: 600 000; 3e12 a second for 10 us: 3e7
    cycles = {"smsp__cycles_elapsed.avg.per_second": ("Ghz", "1.2")}
    per_cycle = {**TIME, **cycles, BF16 + ".sum.per_cycle_elapsed": ("1/cycle", "50")}
    assert flops(one(wide(tmp_path / "k.csv", [("k", per_cycle)])))["bf16"][0] == pytest.approx(600_000)
    per_second = {**TIME, BF16 + ".sum.per_second": ("1/ns", "3,000.5")}
    assert flops(one(wide(tmp_path / "k.csv", [("k", per_second)])))["bf16"][0] == pytest.approx(3.0005e7)


def test_cuda_cores_count_where_the_tensor_cores_are_known_to_rest(tmp_path: Path) -> None:
    idle = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "0")}
    launch = one(wide(tmp_path / "k.csv", [("gemv", {**TIME, **FFMA, **idle})]))
    assert flops(launch) == {"fp32": (2300, 2300)}  # 100 + 200 + 2 x 1000
    twice = {name.replace("smsp__", "sm__"): value for name, value in FFMA.items()}
    assert flops(one(wide(tmp_path / "k.csv", [("gemv", {**TIME, **FFMA, **twice, **idle})]))) == {"fp32": (2300, 2300)}
    zeros = {f"sm__ops_path_tensor_src_{one}.sum": ("", "0") for one in ("bf16", "fp16", "tf32", "int8")}
    assert flops(one(wide(tmp_path / "k.csv", [("gemv", {**TIME, **FFMA, **zeros})]))) == {"fp32": (2300, 2300)}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (FFMA, "what the tensor cores did is not known"),
        ({BF16 + ".sum": ("", "0")}, "the tensor cores' operations on bf16 read 0"),
        ({"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "0"),
          "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": ("inst", "5")},
         "the instructions of the CUDA cores were not counted"),
        ({}, "no operations were counted"),
    ],
)  # fmt: skip
def test_operations_that_are_not_known_say_why(tmp_path: Path, values: dict[str, tuple[str, str]], why: str) -> None:
    launch = one(wide(tmp_path / "k.csv", [("k", {**TIME, **values})]))
    assert launch.operations is None
    assert why in (launch.operations_lacking or "")


@pytest.mark.parametrize("beside", [{}, FFMA])
def test_one_path_of_several_that_did_nothing_is_named(tmp_path: Path, beside: dict[str, tuple[str, str]]) -> None:
    """Hopper's tensor cores have two paths: one that reads 0 says nothing of the other, and is no CUDA core."""
    path = "sm__ops_path_tensor_op_hmma_src_"
    launch = one(wide(tmp_path / "k.csv", [("k", {**TIME, **beside, f"{path}bf16.sum": ("", "0")})], cc="9.0"))
    assert launch.operations is None
    assert launch.operations_lacking == (
        "of the tensor cores' operations only tensor_op_hmma_src_bf16 was counted and read 0: what their other paths "
        "did is not known"
    )
    both = {f"{path}{source}.sum": ("", "0") for source in ("bf16", "fp16")}
    launch = one(wide(tmp_path / "k.csv", [("k", {**TIME, **beside, **both})], cc="9.0"))
    assert "only tensor_op_hmma_src_bf16 and 1 more were counted" in (launch.operations_lacking or "")


def test_packed_half_precision_is_uncertain(tmp_path: Path) -> None:
    half = {f"smsp__sass_thread_inst_executed_op_h{op}_pred_on.sum": ("inst", "100") for op in ("add", "mul", "fma")}
    launch = one(wide(tmp_path / "k.csv", [("k", {**TIME, **half, BF16 + ".sum": ("", "1000")})]))
    assert flops(launch) == {"bf16": (1000, 1000), "fp16": (400, 800)}  # 1 + 1 + 2, or twice that: of two lanes
    packed = {"smsp__sass_thread_inst_executed_op_ffma2_pred_on.sum": ("inst", "10"),
              "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "0")}  # fmt: skip
    blackwell = one(wide(tmp_path / "k.csv", [("k", {**TIME, **FFMA, **packed})], cc="10.0"))
    assert flops(blackwell) == {"fp32": (2340, 2340)}  # 2300 + 4 x 10


def test_a_european_table(tmp_path: Path) -> None:
    values = {
        (SOL, "Duration"): ("us", "1.250,5"), (MEMORY, "L2 Hit Rate"): ("%", "27,66"),
        (LINE, "dram__bytes_read.sum"): ("byte", "1.234"), (LINE, "dram__bytes_write.sum"): ("byte", "2.000.000"),
    }  # fmt: skip
    launch = one(long(tmp_path / "k.csv", [("k", values)]))
    assert launch.seconds == pytest.approx(1250.5e-6)
    assert launch.l2_hit_rate == pytest.approx(0.2766)
    assert (launch.dram_read_bytes, launch.dram_write_bytes) == (1234, 2e6)


def test_a_table_whose_numbers_may_mean_two_things_is_refused(tmp_path: Path) -> None:
    values = {(SOL, "Duration"): ("us", "13,485"), (MEMORY, "L2 Hit Rate"): ("%", "50")}
    path = long(tmp_path / "k.csv", [("k", values)])
    with pytest.raises(SourceError, match=r"k\.csv:2: Duration is '13,485', and nothing in the file tells"):
        read_ncu(path)
    both = long(
        tmp_path / "k.csv", [("k", {(SOL, "Duration"): ("us", "6.75"), (MEMORY, "L2 Hit Rate"): ("%", "2,75")})]
    )
    with pytest.raises(SourceError, match=r"line 2 writes decimals with '\.' and line 3 with ','") as refused:
        read_ncu(both)
    assert "LC_ALL=C ncu --import" in str(refused.value.remedy)


def test_an_unknown_unit_is_said_and_left_out(tmp_path: Path) -> None:
    table = read_ncu(wide(tmp_path / "k.csv", [("k", {"gpu__time_duration.sum": ("parsec", "3")})]))
    assert table.launches[0].seconds is None
    assert table.notes == ("k.csv:3: gpu__time_duration.sum is in 'parsec', a unit that is not known; it was left out",)


def test_two_values_of_one_metric_are_none(tmp_path: Path) -> None:
    path = long(tmp_path / "k.csv", [("k", {(SOL, "Duration"): ("us", "6.75")})])
    path.write_text(path.read_text() + line((*ids(0, "k"), SOL, "Duration", "us", "7.75")) + ",\n")
    table = read_ncu(path)
    assert table.launches[0].seconds is None
    assert "Duration has several values for one launch" in table.notes[0]
    path.write_text(path.read_text().replace('"7.75"', '"6.75"'))
    assert read_ncu(path).launches[0].seconds == pytest.approx(6.75e-6)


def test_negative_counts_are_none(tmp_path: Path) -> None:
    table = read_ncu(wide(tmp_path / "k.csv", [("k", {"gpu__time_duration.sum": ("ns", "-5")})]))
    assert table.launches[0].seconds is None
    assert "negative" in table.notes[0]


def test_names_with_line_feeds_quotes_and_commas(tmp_path: Path) -> None:
    name = 'void f<"a,b",\n int>(char const*, int)'
    launch = one(wide(tmp_path / "k.csv", [(name, TIME)]))
    assert launch.name == 'void f<"a,b", int>(char const*, int)'
    assert launch.seconds == pytest.approx(10e-6)


def test_launches_of_several_processes_are_kept_apart(tmp_path: Path) -> None:
    path = wide(tmp_path / "k.csv", [("k", TIME)])
    path.write_text(
        path.read_text() + path.read_text().splitlines()[-1].replace("4711", "4712").replace("10000", "20000") + "\n"
    )
    assert [launch.seconds for launch in read_ncu(path).launches] == [pytest.approx(10e-6), pytest.approx(20e-6)]


def test_units_in_the_heads_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "k.csv"
    path.write_text(line((*IDS, "gpu__time_duration.sum [us]", "dram__bytes.sum (Mbyte)")) + "\n"
                    + line((*ids(0, "k"), "4.5", "3.5")) + "\n")  # fmt: skip
    launch = one(path)
    assert launch.seconds == pytest.approx(4.5e-6)
    assert launch.dram_bytes is not None
    assert launch.dram_bytes.value == pytest.approx(3.5e6)


@pytest.mark.parametrize("write", ["utf-16", "utf-8-sig", "crlf", "gzip"])
def test_other_encodings(tmp_path: Path, write: str) -> None:
    path = wide(tmp_path / "k.csv", [("k", TIME)])
    text = path.read_text()
    content = {"utf-16": text.encode("utf-16"), "utf-8-sig": text.encode("utf-8-sig"),
               "crlf": text.replace("\n", "\r\n").encode(), "gzip": gzip.compress(text.encode())}[write]  # fmt: skip
    path.write_bytes(content)
    assert recognise(path) == "ncu csv"
    assert one(path).seconds == pytest.approx(10e-6)


def test_lines_of_the_application_between_rows_are_said(tmp_path: Path) -> None:
    path = wide(tmp_path / "k.csv", [("a", TIME), ("b", TIME)])
    rows = path.read_text().splitlines()
    path.write_text(
        "\n".join(["loading weights, 3 of 4", *rows[:3], "INFO: step, done", "==WARNING== slow", rows[3]]) + "\n"
    )
    table = read_ncu(path)
    assert len(table.launches) == 2
    assert table.notes == ("k.csv: 1 lines between the rows are no rows, and were left out",)


def test_a_cut_off_last_line_is_left_out_and_said(tmp_path: Path) -> None:
    path = wide(tmp_path / "k.csv", [("a", TIME), ("b", {"gpu__time_duration.sum": ("ns", "123456")})])
    whole = path.read_text()
    path.write_text(whole[:-6])  # within the last number
    table = read_ncu(path)
    assert [launch.name for launch in table.launches] == ["a"]
    assert table.notes == ("k.csv:4: the last line is cut off, and was left out",)
    path.write_text(whole[:-1])  # only the line feed is missing
    assert len(read_ncu(path).launches) == 2


@settings(max_examples=60)
@given(cut=st.integers(0, 900))
def test_a_table_that_is_cut_anywhere_holds_no_wrong_number(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("cut")
    values = {**TIME, "dram__bytes_read.sum": ("byte", "123456"), "dram__bytes_write.sum": ("byte", "654321")}
    path = long(folder / "k.csv", [(name, {(LINE, one): value for one, value in values.items()}) for name in "ab"])
    path.write_bytes(path.read_bytes()[: -cut or None])
    try:
        table = read_ncu(path)
    except SourceError:
        return
    for launch in table.launches:
        assert launch.seconds in (None, pytest.approx(10e-6))
        assert launch.dram_read_bytes in (None, 123456)
        assert launch.dram_write_bytes in (None, 654321)


@settings(max_examples=150)
@given(content=st.binary(max_size=400), into=st.integers(0, 300))
def test_damaged_content_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, into: int
) -> None:
    path = wide(tmp_path_factory.mktemp("bad") / "k.csv", [("k", TIME)])
    whole = path.read_bytes()
    path.write_bytes(whole[:into] + content + whole[into:])
    try:
        found = read_ncu(path).location
    except SourceError as error:
        found = error.reason
    assert found.startswith("k.csv")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"), (b"a,b\n1,2\n", "no line names the columns"),
        (line((*IDS, "gpu__time_duration.sum")).encode() + b"\n", "no launch"),
        ((line((*IDS, "x__y")) + "\n" + line(ids(0, "k")[:5]) + "\n" + line((*ids(1, "k"), "1")) + "\n").encode(),
         r"k\.csv:2: a row of 5 cells, where the head has 12"),
        ((line(("ID", "Kernel Name", "Metric Name")) + "\n").encode(), "no column of values"),
        (gzip.compress(b"x" * 5000, mtime=0)[:-8], "end too early"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "k.csv"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=says) as refused:
        read_ncu(path)
    assert "ncu --import" in str(refused.value.remedy)


def test_a_report_of_the_tool_itself_is_refused_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="only Nsight Compute itself can open") as refused:
        read_ncu(tmp_path / "x.ncu-rep")
    assert str(refused.value.remedy) == "export it: ncu --import x.ncu-rep --csv --page raw --print-units base > x.csv"


def test_neither_process_nor_host_is_kept(tmp_path: Path) -> None:
    rules = [("SOLBottleneck", "OPT", "too small")]
    table = read_ncu(long(tmp_path / "k.csv", [("k", {(SOL, "Duration"): ("us", "6.75")})], rules=rules))
    assert PROCESS not in repr(table)
    assert HOST not in repr(table)
    assert "4711" not in repr(table)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::copy<4, F<int>>(int, F)", "at::native::copy"),
        ("nvjet_tst_64x8_v_bz_TNT", "nvjet_tst_64x8_v_bz_TNT"),
        ("enable_if<!T7, void>::type kernel<int, cublasGemv<a>>(T13)", "kernel"),
        ("void (anonymous namespace)::elementwise<int>(int)", "elementwise"), ("graph", "graph"),
        ("copy_blocked[v1,cw51](Array<long long>)", "copy_blocked[v1,cw51]"), ("", ""), ("<<<>>>", "<<<>>>"),
    ],
)  # fmt: skip
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("gemm", "void cutlass::Gemm<bf16>(int)", True), ("gemm*", "void cutlass::gemm_nt<bf16>(int)", True),
        ("cutlass::*", "void cutlass::gemm_nt<bf16>(int)", True), ("*bf16*", "void cutlass::gemm_nt<bf16>(int)", True),
        ("nt*", "void cutlass::gemm_nt<bf16>(int)", False), ("gemm_n?", "void cutlass::gemm_nt<bf16>(int)", True),
        ("copy[v1]", "copy[v1](int)", True), ("copy[v1]*", "copy[v1](int)", True), ("copy[v1]*", "copyv(int)", False),
        ("nccl", "flash", False), ("gemm.*", "gemm_nt", False), ("", "gemm", False), ("*", "anything", True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, name: str, fits: bool) -> None:
    assert matches(pattern, name) is fits


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not matches("*a" * 200 + "b", "a" * 4000)


# Real exports.


def test_the_reference_figures_of_whole_graphs(shared_data: Path) -> None:
    path = shared_data / "profiles" / "ncu" / "aime-bench_vllm_decode_graph_ncu_raw_trimmed.csv"
    table = read_ncu(path)
    rates = [(one.dram_bytes.value if one.dram_bytes else 0) / (one.seconds or 1) for one in table.launches]
    assert [round(rate / 1e9) for rate in rates] == [344, 778, 943]
    assert [rate / 1935e9 * 100 for rate in rates] == pytest.approx([17.8, 40.2, 48.7], abs=0.1)
    counts = [sum(high for _, high in flops(one).values()) / (one.seconds or 1) / 1e12 for one in table.launches]
    assert [round(count) for count in counts] == [32, 38, 25]
    assert {one.scope for one in table.launches} == {"graph"}
    assert table.devices[0].bandwidth_bytes_per_second == pytest.approx(1935.36e9)


def test_the_reference_figures_of_details(shared_data: Path) -> None:
    folder = shared_data / "profiles" / "ncu"
    copy = one(folder / "nsightful_copy_blocked.details.csv")
    assert copy.seconds == pytest.approx(21.058944e-3)
    assert copy.dram_bytes is not None
    # 196.46 GB/s = 61.4 % of the T4's 320 GB/s, and 61.84 % of its memory's own peak
    assert copy.dram_bytes.value / (copy.seconds or 1) / 320e9 == pytest.approx(0.614, abs=0.001)
    assert (copy.dram_share, copy.l2_hit_rate, copy.waves) == pytest.approx((0.6184, 0.0458, 6.4))
    assert sum(rule.name == "CPIStall" for rule in copy.rules) == 3
    gemv = one(folder / "dsocr_kernel_0001.details.csv")
    assert short_name(gemv.name) == "kernel"
    assert (gemv.seconds, gemv.dram_read_bytes, gemv.dram_write_bytes) == pytest.approx((6.75e-6, 2.33e6, 0))
    assert gemv.operations is None  # the tensor counters read 0 or n/a, and nothing else was counted


def test_scaled_units_and_what_is_not_available(shared_data: Path) -> None:
    folder = shared_data / "cases" / "70-ncu-csv-units-and-na"
    expected = json.loads((folder / "expected.json").read_text())["gbs"]
    table = read_ncu(folder / "ncu.csv")
    found = [one.dram_bytes.value / (one.seconds or 1) / 1e9 if one.dram_bytes else None for one in table.launches]
    assert found == [pytest.approx(rate) if rate is not None else None for rate in expected]
    assert all(one.dram_bytes is None or one.dram_bytes.high == float("inf") for one in table.launches)


@pytest.mark.parametrize(("written", "read"), [("6,752", "1,500"), ("6.752", "1.500")])
def test_sums_in_base_units_are_whole(tmp_path: Path, written: str, read: str) -> None:
    values = {(LINE, "gpu__time_duration.sum"): ("ns", written), (LINE, "dram__bytes_read.sum"): ("byte", read)}
    launch = one(long(tmp_path / "k.csv", [("k", values)]))
    assert (launch.seconds, launch.dram_read_bytes) == pytest.approx((6.752e-6, 1500))
