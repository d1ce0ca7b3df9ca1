"""Interval arithmetic against its definition, names of kernels and steps, and which profiler wrote a file."""

from __future__ import annotations

import gzip
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.data import load
from pytest_llmroof.profiles.annotations import StepName, is_capture, step_of
from pytest_llmroof.profiles.calls import capturing, launching, replaying, waiting
from pytest_llmroof.profiles.elements import whole_elements
from pytest_llmroof.profiles.intervals import gaps, union
from pytest_llmroof.profiles.kernels import OTHER, collective_kind, kernel_class, modern_attention
from pytest_llmroof.profiles.recognise import recognise, refuse_report
from pytest_llmroof.profiles.timeline import Intervals, Timeline, Work, int32, int64

INTERVALS = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 30)), max_size=30)
WINDOWS = st.lists(st.tuples(st.integers(-60, 90), st.integers(0, 60)), min_size=1, max_size=5)


@given(intervals=INTERVALS, windows=WINDOWS)
def test_a_union_covers_what_its_intervals_cover(
    intervals: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    covered = {moment for start, length in intervals for moment in range(start, start + length)}
    found = union(int64(start for start, _ in intervals), int64(start + length for start, length in intervals))
    assert found.total == len(covered)
    assert (found.start < found.end).all()
    assert (found.start[1:] > found.end[:-1]).all()
    within = found.within(int64(a for a, _ in windows), int64(a + b for a, b in windows))
    assert within.tolist() == [len(covered & set(range(a, a + b))) for a, b in windows]
    if covered:
        idle = gaps(found)
        between = set(range(min(covered), max(covered))) - covered
        assert {moment for a, b in zip(idle.start, idle.end, strict=True) for moment in range(a, b)} == between


VALUES = st.recursive(
    st.none() | st.integers() | st.text('{}[]",\\: a'), lambda inner: st.lists(inner, max_size=3), max_leaves=6
)


@given(objects=st.lists(st.dictionaries(st.text('{}"\\x'), VALUES, max_size=3), max_size=5), cut=st.integers(0, 40))
def test_whole_elements_are_found_whatever_stands_in_them(objects: list[dict[str, object]], cut: int) -> None:
    import json

    texts = [json.dumps(one) for one in objects]
    text = " , ".join(texts).encode()
    starts, ends = whole_elements(text)
    assert [text[a:b].decode() for a, b in zip(starts, ends, strict=True)] == texts
    cut_off = text[: max(0, len(text) - 1 - cut)]
    starts, ends = whole_elements(cut_off)
    found = [text[a:b].decode() for a, b in zip(starts, ends, strict=True)]
    assert found == texts[: len(found)]
    assert len(found) < max(len(texts), 1)


def test_a_timeline_that_is_not_sorted_is_a_mistake() -> None:
    none = int32([-1, -1])
    kinds = np.zeros(2, dtype=np.uint8)
    work = Work(int64([5, 0]), int64([6, 1]), int32([0, 0]), kinds, int32([0, 0]), none, int64([-1, -1]))
    with pytest.raises(ValueError, match="Work of t are not sorted by start"):
        Timeline("t", "PyTorch profiler", work, ("k",))
    assert len(Intervals()) == 0


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("communication", [
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)",
            "ncclDevKernel_Generic", "rcclGenericKernel<1, false>(ncclDevComm*)", "msccl_execution_kernel",
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
            "void sglang::cross_device_reduce_2stage_write_mode<half>", "quickreduce::allreduce_prototype_twoshot",
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>", "two_shot_all_reduce_kernel",
            "all_reduce_one_shot_push_kernel", "trtllm_mnnvl_allreduce::oneshotAllreduceKernel", "rmsNormLamport",
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<3, half, 8, true>",
            "moereduce_allreduce_fusion_kernel_oneshot_lamport", "nvshmemi_transfer_rma", "pplx_a2a_dispatch",
            "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>", "dpsk::ep::internode::combine_ll",
            "void deep_ep::intranode::combine<__nv_bfloat16, 8>", "mori::moe::EpDispatchInterNodeKernel",
        ]),
        ("communication barrier", ["void deep_ep::intranode::notify_dispatch<8>", "cached_notify_combine"]),
        ("attention", [
            "flash_fwd_splitkv_combine_kernel", "fmhaSm100aKernel_QkvBfloat16OBfloat16H128PagedKvCausalP32VarSeqQ128",
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<",
            "_fwd_grouped_kernel_stage1",
            "void flashinfer::BatchDecodeWithPagedKVCacheKernel", "kernel_unified_attention_3d",
            "flash_fwd_splitkv_mla_kernel",
            "void vllm::paged_attention_v2_kernel", "merge_attn_states_kernel",
            "ck_tile::FmhaBatchPrefillWithPagedKVCache",
        ]),
        ("moe", [
            "fused_moe_kernel", "_matmul_ogs_NNT_bf16xbf16xmxfp4", "topkGating", "finalizeKernel",
            "routingIndicesClusterKernel",
            "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x8x512u2_s6",
            "cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape",
        ]),
        ("gemv", ["std::enable_if<!T7, void>::type internal::gemvx::kernel<int", "wvSplitK_hf_sml_", "gemmk1_kernel"]),
        ("gemm", [
            "nvjet_tst_64x64", "sm90_xmma_gemm_bf16bf16", "Cijk_Alik_Bljk_BBS_BH", "void marlin::Marlin<", "machete",
            "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16>", "void deep_gemm::fp8_gemm_kernel<",
            "void cublasLt::splitKreduce_kernel", "cutlass::gemm::kernel::GemmUniversal<NoPermute>",
        ]),
        ("kv cache", ["void vllm::reshape_and_cache_flash_kernel", "concat_and_cache_mla_kernel", "store_kvcache"]),
        ("memory", ["__amd_rocclr_copyBuffer", "MEMORY_COPY_HOST_TO_DEVICE"]),
        (OTHER, ["my_own_thing", "k"]),
    ],
)  # fmt: skip
def test_kernels_are_classed_by_their_names(title: str, names: list[str]) -> None:
    assert {name: kernel_class(name) for name in names} == dict.fromkeys(names, title)


def test_patterns_are_written_in_lower_case_as_names_are_looked_at() -> None:
    kinds = load("kernels.yaml")
    patterns = [one for table in ("classes", "attention", "collectives") for e in kinds[table] for one in e["patterns"]]
    assert [one for one in patterns if re.sub(r"\\[A-Za-z]", "", one) != re.sub(r"\\[A-Za-z]", "", one).lower()] == []
    assert kernel_class("NCCLDEVKERNEL_ALLREDUCE_SUM") == kernel_class("ncclDevKernel_AllReduce_Sum") == "communication"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send and receive"),
        ("p2p_copy", "send and receive"), ("mscclpp send kernel", "send and receive"), ("all_gather_p2p", "all-gather"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING", "all-reduce"), ("ncclDevKernel_ReduceScatter", "reduce-scatter"),
        ("deep_ep::intranode::dispatch<8>", "all-to-all"), ("nvshmem_unheard_of", "communication"),
    ],
)  # fmt: skip
def test_what_communication_does_is_told_by_its_name(name: str, kind: str) -> None:
    assert collective_kind(name) == kind


def test_recent_attention_is_told_from_older() -> None:
    assert modern_attention(["flash::FlashAttnFwdSm90<", "nvjet"]) is True
    assert modern_attention(["void flash::flash_fwd_splitkv_kernel<"]) is False
    assert modern_attention(["nvjet_tst"]) is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("execute_context_2(900)_generation_30(30)", StepName("mixed", 2, 900, 30, 30)),
        ("execute_context_0(0)_generation_1(1)", StepName("decode", 0, 0, 1, 1)),
        ("execute_context_1(888_788544)_generation_0(0)", StepName("prefill", 1, 888, 0, 0)),
        (
            "execute_8192_context_9(sq8155sk8430sqsq1sqsk2)_generation_37(sq37sk34489sqsq37sqsk34489)",
            StepName("mixed", 9, 8155, 37, 37),
        ),
        ("execute_context_0(0)_generation_0(0)", StepName(None, 0, 0, 0, 0)),
        ("step[DECODE bs=32]", StepName("decode", 0, 0, 32, 32)),
        ("step[EXTEND bs=2 toks=512]", StepName("prefill", 2, 512, 0, 0)),
        ("step[EXTEND bs=2]", StepName("prefill", 2, None, 0, 0)),
        ("ProfilerStep#7", StepName()),
        ("Optimizer.step#SGD.step", None),
    ],
)
def test_step_annotations(name: str, told: StepName | None) -> None:
    assert step_of(name) == told


def test_annotations_of_captured_graphs() -> None:
    assert is_capture("capture_32_FULL")
    assert not is_capture("execute_context_0(0)_generation_1(1)")


def test_profiles_are_known_by_content(tmp_path: Path) -> None:
    def file(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    assert recognise(file("a.txt", b'{"traceEvents": []}')) == "torch trace"
    assert recognise(file("b", gzip.compress(b'[{"ph": "X"}]'))) == "torch trace"
    assert recognise(file("c.json", b'{"completed": 5}')) is None
    assert recognise(file("d.gz", b"\x1f\x8bgarbage")) is None
    assert recognise(
        file("e.csv", b"Processing [x.sqlite] with ...\r\n\r\nTime (%),Total Time (ns),Instances\r\n")
    ) == ("nsys stats csv")
    assert recognise(file("f.csv", b'"Start (ns)","Duration (ns)","CorrId"\n')) == "nsys stats csv"
    assert recognise(file("g.csv", b'==PROF== Connected\n"ID","Process ID","Kernel Name","Metric"\n')) == "ncu csv"
    assert recognise(file("h.csv", b"timestamp, name, utilization.gpu [%]\n")) is None
    assert recognise(file("i.prom", b"# TYPE x counter\nx 1\n")) is None
    for table, kind in (("CUPTI_ACTIVITY_KIND_KERNEL", "nsys sqlite"), ("users", None)):
        path = tmp_path / f"{table}.db"
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"CREATE TABLE {table} (a)")
        assert recognise(path) == kind


def test_a_profilers_own_report_is_answered_with_the_command_that_exports_it(tmp_path: Path) -> None:
    assert recognise(tmp_path / "r.nsys-rep") == "nsys report"
    assert recognise(tmp_path / "r.ncu-rep") == "ncu report"
    said = str(refuse_report(tmp_path / "run 1.nsys-rep"))
    assert said == (
        "run 1.nsys-rep is a report that only Nsight Systems itself can open; "
        "export it: nsys export --type sqlite --output 'run 1.sqlite' 'run 1.nsys-rep'"
    )
    export = "ncu --import r.ncu-rep --csv --page raw --print-units base > r.csv"
    assert export in str(refuse_report(tmp_path / "r.ncu-rep"))


def test_calls_by_their_names() -> None:
    names = (
        "cudaLaunchKernel", "cuLaunchKernelEx", "hipExtModuleLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync",
        "cudaMemcpy", "hipMemcpyWithStream", "cuMemcpyDtoH_v2", "cudaStreamSynchronize", "hipStreamBeginCapture",
    )  # fmt: skip
    assert launching(names).tolist() == [True] * 4 + [False] * 6
    assert replaying(names).tolist() == [False] * 3 + [True] + [False] * 6
    assert waiting(names).tolist() == [False] * 5 + [True] * 4 + [False]
    assert capturing(names).tolist() == [False] * 9 + [True]
