"""What profiled kernels speak for, and what is said of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_tables import seconds, wide

from pytest_llmroof.analysis.kernelevidence import kernel_evidence, leading, letter_of
from pytest_llmroof.analysis.kernelpoints import kernel_points
from pytest_llmroof.profiles.kernel_table import KernelTable, joined
from pytest_llmroof.profiles.ncu import read_ncu
from pytest_llmroof.roofline.catalogue import accelerator

A100 = accelerator("a100-pcie")  # 312 TFLOP/s bf16, 1935 GB/s
SHARES = ("sm__throughput.avg.pct_of_peak_sustained_elapsed",
          "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")  # fmt: skip


def kernel(
    microseconds: float,
    *,
    mbu: float | None = None,
    mfu: float | None = None,
    shares: tuple[float, float] | None = None,
) -> dict[str, tuple[str, str]]:
    """A launch's counters for shares of the A100's peaks."""
    time = microseconds * 1e-6
    values = {"gpu__time_duration.sum": seconds(microseconds)}
    if mbu is not None:
        values["dram__bytes.sum"] = ("byte", f"{mbu * time * 1935e9:.0f}")
    if mfu is not None:
        values["sm__ops_path_tensor_src_bf16_dst_fp32.sum"] = ("", f"{mfu * time * 312e12:.0f}")
    if shares is not None:
        values |= {name: ("%", f"{share * 100:.2f}") for name, share in zip(SHARES, shares, strict=True)}
    return values


@pytest.mark.parametrize(
    ("values", "letter"),
    [
        (kernel(100, mbu=0.8), "A"), (kernel(100, mbu=0.8, mfu=0.5), "A"), (kernel(100, mbu=0.3, mfu=0.5), "B"),
        (kernel(100, mbu=0.3, mfu=0.2), "F"), (kernel(100, mbu=0.3, shares=(0.2, 0.3)), "F"),
        (kernel(100, mbu=0.3, shares=(0.9, 0.3)), None),  # something that was not counted keeps it busy
        (kernel(100, mbu=0.65, mfu=0.2), None), (kernel(5, mbu=0.2, shares=(0.1, 0.2)), "D"),
        (kernel(5, mbu=0.2, mfu=0.1), "F"), (kernel(100, mfu=0.2), None), (kernel(100), None),
    ],
)  # fmt: skip
def test_what_one_kernel_speaks_for(tmp_path: Path, values: dict[str, tuple[str, str]], letter: str | None) -> None:
    (point,) = kernel_points(read_ncu(wide(tmp_path / "k.csv", [("k", values)])), A100)
    assert letter_of(point) == letter


def test_shares_of_the_profiled_time(tmp_path: Path) -> None:
    launches = [("gemv", kernel(600, mbu=0.8)), ("slow", kernel(300, mbu=0.3, mfu=0.2)), ("gemm", kernel(100, mfu=0.6))]
    first, second = kernel_evidence(read_ncu(wide(tmp_path / "k.csv", launches)), A100)
    assert (first.scenario, first.supports, first.source) == ("A", True, "Nsight Compute, k.csv")
    assert first.statement == "kernels of 60 % of the profiled time (gemv) move 75 % of the memory bandwidth and more"
    assert (second.scenario, second.statement) == (
        "F",
        "kernels of 30 % of the profiled time (slow) reach neither 60 % of the memory bandwidth nor 45 % of the "
        "compute peak",
    )  # 10 % of the time are too little for B
    assert kernel_evidence(read_ncu(tmp_path / "k.csv"), None) == ()
    assert leading(read_ncu(tmp_path / "k.csv"), A100) == "A"  # of more than half of the time


def test_what_does_not_speak_for_most_of_the_time_decides_nothing(tmp_path: Path) -> None:
    halves = [("gemv", kernel(500, mbu=0.8)), ("slow", kernel(500, mbu=0.3, mfu=0.2))]
    assert leading(read_ncu(wide(tmp_path / "k.csv", halves)), A100) is None
    short = [("tiny", kernel(5, mbu=0.2, shares=(0.1, 0.2)))]
    assert leading(read_ncu(wide(tmp_path / "k.csv", short)), A100) is None  # kernels alone never prove gaps
    assert leading(read_ncu(wide(tmp_path / "k.csv", [("slow", kernel(5))])), A100) is None


def test_tables_of_one_window_are_joined(tmp_path: Path) -> None:
    first = read_ncu(wide(tmp_path / "a.csv", [("a", kernel(10))]))
    second = read_ncu(wide(tmp_path / "b.csv", [("b", kernel(30))]))
    both = joined([first, second])
    assert (both.location, len(both.launches)) == ("a.csv, b.csv", 2)
    assert both.seconds == pytest.approx(40e-6)
    assert joined([first]) is first
    with pytest.raises(ValueError, match="no table"):
        joined([])
    assert isinstance(both, KernelTable)
