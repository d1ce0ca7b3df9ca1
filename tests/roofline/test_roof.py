"""The roofline and what kernels reach of it."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.roofline.accelerator import PRECISIONS
from pytest_llmroof.roofline.catalogue import accelerator, accelerator_from_mapping, accelerators
from pytest_llmroof.roofline.roof import achievable, attainable, typical


def test_attainable_is_the_lower_of_both_roofs() -> None:
    h100 = accelerator("h100")
    assert attainable(h100, "bf16", 100) == 100 * 3.35e12  # left of the ridge of 295.3
    assert attainable(h100, "bf16", 1000) == 989.4e12  # right of it


@given(intensity=st.floats(1e-3, 1e6), key=st.sampled_from(sorted(accelerators())))
def test_no_point_lies_above_a_roof(intensity: float, key: str) -> None:
    entry = accelerator(key)
    for precision, peak in entry.peaks.items():
        ridge = entry.ridge(precision)
        assert ridge is not None
        rate = attainable(entry, precision, intensity)
        assert rate <= peak
        assert (rate == peak) == (intensity >= ridge) or intensity == pytest.approx(ridge)


def test_an_unknown_roof_is_an_error_not_a_number() -> None:
    with pytest.raises(ValueError, match="the fp8 peak of NVIDIA A100 SXM4 80GB is not known"):
        attainable(accelerator("a100"), "fp8", 10)
    with pytest.raises(ValueError, match="the memory bandwidth of x is not known"):
        attainable(accelerator_from_mapping({"name": "x", "peaks": {"bf16": 1e12}}), "bf16", 10)


def test_what_kernels_reach_was_measured_or_is_not_known() -> None:
    h100 = accelerator("h100")
    # Mean of the medians of SGLang, TensorRT-LLM and vLLM: 2.843, 2.825 and 2.974 TB/s of 3.35
    assert achievable(h100, "memory") == pytest.approx((2.843 + 2.825 + 2.974) / 3 / 3.35, abs=5e-4)
    # 728.6, 762.7 and 797.5 TFLOP/s of 989.4
    assert achievable(h100, "bf16") == pytest.approx((728.6 + 762.7 + 797.5) / 3 / 989.4, abs=5e-4)
    # per tensor and in blocks: (998.4, 1212.9), (1204.7, 1061.3), (983.3, 1151.3) of 1978.9
    assert achievable(h100, "fp8") == pytest.approx((998.4 + 1212.9 + 1204.7 + 1061.3 + 983.3 + 1151.3) / 6 / 1978.9,
                                                    abs=5e-4)  # fmt: skip
    assert achievable(accelerator("b300"), "fp4") == pytest.approx(0.299, abs=1e-3)
    assert achievable(h100, "fp16") is None
    assert achievable(accelerator("mi300x"), "memory") is None
    assert achievable(accelerator("h100-pcie"), "bf16") is None


def test_typical_figures_exist_for_every_precision() -> None:
    assert (typical("memory"), typical("bf16"), typical("fp8")) == (0.85, 0.75, 0.55)
    assert all(0 < typical(precision) < 1 for precision in PRECISIONS)
    measured = [entry.achievable["fp4"] for entry in accelerators().values() if "fp4" in entry.achievable]
    assert typical("fp4") == pytest.approx(statistics.median(measured), abs=0.005)
    with pytest.raises(KeyError):
        typical("posit")


def test_the_figures_lie_between_the_measured_medians(shared_data: Path) -> None:
    kinds = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4", "sq": "int8"}
    devices = {entry.device_names[0]: entry for entry in accelerators().values() if entry.device_names}
    measured: dict[tuple[str, str], list[float]] = {}
    with (shared_data / "measured_ceilings.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            entry, kind = devices[row["device_name_in_data"]], kinds.get(row["gemm_dtype"], "")
            if kind in entry.peaks:
                share = float(row["median_TFLOPS_big"]) * 1e12 / entry.peaks[kind]
                measured.setdefault((entry.name, kind), []).append(share)
            if kind == "bf16":
                share = float(row["median_m1_weight_stream_TBps"]) / float(row["datasheet_TBps"])
                measured.setdefault((entry.name, "memory"), []).append(share)
    found = {(name, kind) for name, entry in accelerators().items() for kind in entry.achievable}
    assert found == set(measured)
    for (name, kind), shares in measured.items():
        assert min(shares) - 5e-4 <= accelerators()[name].achievable[kind] <= max(shares) + 5e-4
