"""Real recordings, held to the reference figures beside the checkout, to 0.1 point."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.analyse import analyse, analyse_ranks
from pytest_llmroof.profiles.chrome import read_chrome
from pytest_llmroof.profiles.figures import TimelineFigures
from pytest_llmroof.profiles.intervals import union
from pytest_llmroof.profiles.recognise import recognise

POINT = 0.0005  # 0.1 point, rounded


def figures(shared_data: Path, name: str) -> TimelineFigures:
    (timeline,) = read_chrome(shared_data / "profiles" / "torch" / name)
    return analyse(timeline)


@pytest.mark.parametrize(
    ("name", "seconds", "busy", "exposed", "host_bound"),
    [
        ("TraceLens_b200_eager_trace.json.gz", 0.0845, 0.137, 0.025, 0.858),
        ("TraceLens_vllm_decode_full_graph_execution.json.gz", 0.0107, 0.998, 0, 0),
        ("HTA_nccl_data.json.gz", None, 0.238, 0.059, 0.759),
        ("TraceLens_sglang_Qwen3-8B_decode.json.gz", 0.474, 0.021, 0, 0.979),
    ],
)
def test_reference_figures(
    shared_data: Path, name: str, seconds: float | None, busy: float, exposed: float, host_bound: float
) -> None:
    whole = figures(shared_data, name).whole
    if seconds is not None:
        assert whole.seconds == pytest.approx(seconds, rel=0.005)
    assert whole.busy == pytest.approx(busy, abs=POINT)
    assert whole.exposed == pytest.approx(exposed, abs=POINT)
    assert whole.host_bound == pytest.approx(host_bound, abs=POINT)


def test_an_eager_prefill_is_bound_by_its_host(shared_data: Path) -> None:
    found = figures(shared_data, "TraceLens_b200_eager_trace.json.gz")
    assert found.classes["communication"] == pytest.approx(0.184, abs=POINT)  # of busy time; 0.2 % by NCCL's names
    assert found.classes.get("other", 0) < 0.001
    assert np.median(found.gaps_ns) == pytest.approx(65_000, rel=0.01)
    assert (found.device_name, found.rank, found.world_size) == ("NVIDIA B200", 0, 8)
    assert found.steps["prefill"].prefill_tokens == 888
    assert any(said.startswith("recorded with with_stack") for said in found.distortions)
    assert any(said.startswith("1 step only") for said in found.distortions)
    assert found.host is not None
    assert found.host.elsewhere > 0.85


def test_a_replayed_decode_step_is_busy(shared_data: Path) -> None:
    found = figures(shared_data, "TraceLens_vllm_decode_full_graph_execution.json.gz")
    assert found.graph_launched == pytest.approx(0.973, abs=POINT)
    assert found.classes["moe"] > 0.7
    assert found.unknown_kernels < 0.02
    decode = found.steps["decode"]
    assert (decode.decode_requests, decode.decode_tokens, decode.prefill_tokens) == (32, 32, 0)
    assert found.device_name is None  # this recording's devices have no name


def test_a_trimmed_recording_is_judged_by_its_step(shared_data: Path) -> None:
    found = figures(shared_data, "TraceLens_sglang_Qwen3-8B_decode.json.gz")
    assert any("trimmed" in said for said in found.distortions)
    decode = found.typical("decode")
    assert decode.seconds == pytest.approx(0.0104, rel=0.01)
    assert decode.busy > 0.93
    assert found.unknown_kernels < 0.02
    assert found.device_name == "AMD Instinct MI300X"


def test_what_tells_nothing_of_serving_is_refused(shared_data: Path) -> None:
    with pytest.raises(SourceError, match="while graphs were captured"):
        figures(shared_data, "TraceLens_vllm_decode_full_graph_capture.pt.trace.json.gz")
    with pytest.raises(SourceError, match="holds no GPU activity"):
        figures(shared_data, "HTA_cupti_profiler.json.gz")
    (cpu,) = (shared_data / "captures" / "torch_profiler").glob("*.json.gz")
    with pytest.raises(SourceError, match="holds no GPU activity"):
        read_chrome(cpu)


@pytest.mark.parametrize("name", ["53-kernel-sum-is-not-busy-time", "59-trace-invalid-utf8", "61-trace-nan-infinity"])
def test_cases(shared_data: Path, name: str) -> None:
    folder = shared_data / "cases" / name
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    (timeline,) = read_chrome(folder / "trace.json")
    assert union(timeline.work.start, timeline.work.end).total == expected["busy_us"] * 1000
    if "exposed_comm_us" in expected:
        whole = analyse(timeline).whole
        assert whole.exposed == pytest.approx(expected["exposed_comm_us"] / 2000)
        assert whole.idle == pytest.approx(expected["idle_us"] / 2000)


def test_cases_that_are_refused_or_packed(shared_data: Path) -> None:
    cases = shared_data / "cases"
    with pytest.raises(SourceError, match="holds no GPU activity"):
        read_chrome(cases / "56-trace-without-gpu-events" / "trace.json")
    with pytest.raises(SourceError, match="truncated at byte 717, after 5 complete events"):
        read_chrome(cases / "57-trace-truncated-json" / "trace.json")
    assert len(read_chrome(cases / "64-trace-gz-named-json" / "trace.json")[0].work) == 1


def test_ranks_are_aligned_by_their_base_times(shared_data: Path) -> None:
    """Rank 0 waits 300 of its 500 us for rank 1; the transfer takes 200."""
    folder = shared_data / "cases" / "65-ranks-need-base-time"
    first, second = analyse_ranks([read_chrome(folder / f"rank{rank}.json")[0] for rank in (0, 1)])
    assert first.whole.waiting == pytest.approx(300 / 500)
    assert first.whole.transport == pytest.approx(200 / 500)
    assert second.whole.waiting == 0
    assert (first.late, second.late) == (0, 1)


def test_files_without_a_rank_are_not_compared(shared_data: Path) -> None:
    folder = shared_data / "cases" / "67-no-rank-in-file"
    found = analyse_ranks([read_chrome(path)[0] for path in sorted(folder.glob("worker*.json"))])
    assert [one.rank for one in found] == [None, None]
    assert [one.ranks for one in found] == [1, 1]
    assert [one.location for one in found] == ["worker_a.pt.trace.json", "worker_b.pt.trace.json"]


def test_every_profile_is_recognised(shared_data: Path) -> None:
    folders = [shared_data / "profiles" / name for name in ("nsys", "ncu", "torch")]
    kinds = {path.name: recognise(path) for folder in folders for path in folder.iterdir()}
    assert {kind for name, kind in kinds.items() if name.endswith(".json.gz")} == {"torch trace"}
    assert {kind for name, kind in kinds.items() if name.endswith(".sqlite")} == {"nsys sqlite"}
    assert kinds["dsocr_decode_summary_cuda_gpu_kern_sum.csv"] == "nsys stats csv"
    assert kinds["dsocr_kernel_0001.details.csv"] == kinds["nsightful_copy_blocked.details.csv"] == "ncu csv"
    assert kinds["nsys_schema_3.25.0.sql"] is None
