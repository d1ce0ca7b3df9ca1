"""The catalogue of accelerators: names, what drivers print, and the traps between them."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.roofline.accelerator import PRECISIONS
from pytest_llmroof.roofline.catalogue import accelerator, accelerator_for_device, accelerators, short_names


def test_the_h100_is_what_its_datasheet_says() -> None:
    h100 = accelerator("h100")
    assert (h100.name, h100.product, h100.vendor) == ("h100-sxm5-80gb", "NVIDIA H100 SXM5 80GB", "NVIDIA")
    assert h100.peaks["bf16"] == 989.4e12
    assert h100.peaks["fp8"] == 1978.9e12
    assert h100.memory_bandwidth_bytes_per_second == 3.35e12
    assert h100.memory_bytes == 80e9
    assert h100.link_bytes_per_second == 900e9  # both directions together
    assert h100.pcie_bytes_per_second == 128e9  # 5.0 x16: 16 lanes x 4 GB/s x 2 directions
    assert h100.source
    assert h100.confidence == "good"
    assert "989.43" in h100.conflicts
    ridge = h100.ridge("bf16")
    assert ridge is not None
    assert round(ridge, 1) == 295.3  # 989.4 / 3.35


@pytest.mark.parametrize(
    ("name", "both"),
    [
        ("t4", 32e9),  # 3.0 x16: 16 lanes x 1 GB/s x 2 directions, as the signalling rate states it
        ("a100-pcie", 64e9),  # 4.0 x16: 2 GB/s
        ("arc-pro-b60", 64e9),  # 5.0 x8: 8 lanes x 4 GB/s
        ("b300", 256e9),  # 6.0 x16: 8 GB/s
    ],
)
def test_the_host_interface_by_generation_and_lanes(name: str, both: float) -> None:
    assert accelerator(name).pcie_bytes_per_second == both


def test_a_slice_of_what_nobody_knows_is_not_known() -> None:
    with pytest.raises(ConfigError, match=r"unknown accelerator 'Foo MIG 1g\.5gb'"):
        accelerator("Foo MIG 1g.5gb")


def test_what_is_not_published_is_not_known() -> None:
    assert accelerator("a100").peak("fp8") is None
    assert accelerator("t4").peak("bf16") is None
    assert accelerator("gb10").peaks.keys() == {"fp32", "fp4"}
    assert accelerator("gb10").ridge("bf16") is None
    assert accelerator("l4").link_bytes_per_second is None
    assert accelerator("tpu-v4").pcie_bytes_per_second is None
    assert accelerator("gb200").pcie_bytes_per_second is None  # "C2C 900 (5.0/6.0 NICs)" names no lanes


def test_every_entry_is_sound() -> None:
    for key, entry in accelerators().items():
        assert entry.name == key
        assert entry.vendor
        assert entry.product.startswith(entry.vendor)
        assert entry.architecture
        assert entry.source
        assert entry.confidence in ("good", "fair", "poor")
        assert set(entry.peaks) <= set(PRECISIONS)
        assert all(1e12 < peak < 1e17 for peak in entry.peaks.values())
        assert entry.memory_bandwidth_bytes_per_second is not None
        assert 1e11 < entry.memory_bandwidth_bytes_per_second < 1e13
        assert entry.memory_bytes is not None
        assert 1e10 < entry.memory_bytes < 1e12
        assert all(0 < share < 1 for share in entry.achievable.values())


@pytest.mark.parametrize("name", ["h100", "H100", "h100-sxm", "h100-sxm5-80gb", "H100_SXM5_80GB", "h100 sxm",
                                  "NVIDIA H100 80GB HBM3", "H100 80GB HBM3", "nvidia_h100_80gb_hbm3"])  # fmt: skip
def test_names_of_the_h100_sxm(name: str) -> None:
    assert accelerator(name).name == "h100-sxm5-80gb"


@pytest.mark.parametrize(("name", "key"), [
    ("h100-pcie", "h100-pcie-80gb"), ("h100-nvl", "h100-nvl-94gb"), ("h200", "h200-sxm-141gb"),
    ("a100", "a100-sxm4-80gb"), ("b200", "b200-sxm"), ("b300", "b300-sxm"), ("gb200", "gb200"), ("mi300x", "mi300x"),
    ("l40s", "l40s"), ("l4", "l4"), ("t4", "t4"), ("a10g", "a10g"), ("h20", "h20-96gb"),
])  # fmt: skip
def test_short_names(name: str, key: str) -> None:
    assert accelerator(name).name == key


def test_every_short_name_leads_to_an_entry_and_hides_none() -> None:
    assert set(short_names().values()) <= set(accelerators())
    assert not set(short_names()) & set(accelerators())
    for name in short_names():
        assert set(accelerator(name).also) <= set(accelerators())


def test_a_short_name_that_boards_of_another_memory_share_names_them() -> None:
    assert accelerator("a100").also == ("a100-sxm4-40gb", "a100-pcie-40gb")
    assert accelerator("a100-sxm4-80gb").also == ()
    assert accelerator("h100").also == ()


@pytest.mark.parametrize(("device", "key"), [
    # One name inside another: each is only itself.
    ("NVIDIA H20", "h20-96gb"), ("NVIDIA H20-3e", "h20-3e-141gb"), ("NVIDIA H200", "h200-sxm-141gb"),
    ("NVIDIA H200 NVL", "h200-nvl-141gb"), ("NVIDIA B200", "b200-sxm"), ("NVIDIA GB200", "gb200"),
    ("NVIDIA B300 SXM6 AC", "b300-sxm"), ("NVIDIA GB300", "gb300"),
    ("NVIDIA A10", "a10"), ("NVIDIA A10G", "a10g"), ("NVIDIA A40", "a40"),
    ("NVIDIA L4", "l4"), ("NVIDIA L40", "l40"), ("NVIDIA L40S", "l40s"),
    ("NVIDIA RTX A6000", "rtx-a6000"), ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-ws"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-maxq"),
    # The number in a Grace Hopper's name is the CPU's memory: its GPU has 96 GB.
    ("NVIDIA GH200 480GB", "gh200-96gb"), ("NVIDIA GH200 144G HBM3e", "gh200-144gb"),
    # Drivers before about R470 print no vendor; tuned-kernel files have underscores.
    ("A100-SXM4-80GB", "a100-sxm4-80gb"), ("Tesla T4", "t4"), ("NVIDIA_A100-SXM4-40GB", "a100-sxm4-40gb"),
    ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"), ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
    ("AMD_Instinct_MI300X", "mi300x"), ("AMD Instinct MI325X", "mi325x"),
    # Each half of an MI250X shows as a device of its own.
    ("AMD Instinct MI250X", "mi250x-gcd"),
])  # fmt: skip
def test_device_names(device: str, key: str) -> None:
    found = accelerator_for_device(device)
    assert found is not None
    assert found.name == key


@pytest.mark.parametrize("device", [
    "NVIDIA H100", "H100", "nvidia h100",  # custom boards of 64 and 96 GB: the name does not tell which
    "AMD Radeon Graphics",  # any of them
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb",  # a slice
    "NVIDIA RTX A4000", "NVIDIA T400", "NVIDIA T4000", "Quadro RTX 6000", "NVIDIA GH200", "NVIDIA H2000",
    "NVIDIA A100", "xNVIDIA L4", "NVIDIA L4x", "", "NVIDIA", "unknown",
])  # fmt: skip
def test_strings_that_are_no_known_device(device: str) -> None:
    assert accelerator_for_device(device) is None


def test_half_an_mi250x_is_half_of_it() -> None:
    whole, half = accelerator("mi250x"), accelerator("mi250x-gcd")
    assert whole.memory_bytes == 2 * (half.memory_bytes or math.nan)
    assert whole.memory_bandwidth_bytes_per_second == 2 * (half.memory_bandwidth_bytes_per_second or math.nan)
    assert whole.peaks["bf16"] == 2 * half.peaks["bf16"]


def test_no_device_name_is_printed_by_two_entries() -> None:
    names = [name.casefold() for entry in accelerators().values() for name in entry.device_names]
    assert len(names) == len(set(names))
    for entry in accelerators().values():
        for name in entry.device_names:
            assert accelerator_for_device(name) is entry


@pytest.mark.parametrize(("name", "expected"), [
    ("h1000", r"unknown accelerator 'h1000' \(did you mean 'h100' or .*\); --llmroof-list=gpus names all"),
    ("NVIDIA H100 PCI", r"did you mean 'NVIDIA H100 PCIe'"),
    ("xyzzy", r"^unknown accelerator 'xyzzy'; --llmroof-list=gpus names all$"),
    ("NVIDIA H100", r"not unique: custom boards with 64 and 96 GB"),
    ("AMD Radeon Graphics", r"not unique: any AMD accelerator"),
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", r"a slice of h100-sxm5-80gb: describe it as a mapping with name, base:"),
])  # fmt: skip
def test_names_that_are_refused(name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        accelerator(name)


def test_one_name_four_peaks() -> None:
    # 400 TFLOP/s in bf16 are another share of each H100: 400/989.4, 400/756.5, 400/835.5; the bare name tells none.
    shares = []
    for device in ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H100"):
        found = accelerator_for_device(device)
        shares.append(None if found is None else round(400e12 / found.peaks["bf16"], 4))
    assert shares == [0.4043, 0.5288, 0.4788, None]


def test_the_selected_device_counts_not_the_host() -> None:
    selected = accelerator_for_device("NVIDIA A100-SXM4-80GB")
    assert selected is not None
    assert 156e12 / selected.peaks["bf16"] == 0.5  # not 156/835.5 of the H100 NVL in the same host


def test_40_and_80_gb_boards_have_their_own_bandwidth() -> None:
    rate = 13_214_687_232 * 120  # bytes of weights x steps per second = 1585.8 GB/s
    shares = []
    for device in ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"):
        found = accelerator_for_device(device)
        assert found is not None
        assert found.memory_bandwidth_bytes_per_second is not None
        shares.append(rate / found.memory_bandwidth_bytes_per_second)
    # 1585.8 / 1555 (more than there is), / 2039, / 1935
    assert shares == pytest.approx([1.01978, 0.77772, 0.81952], abs=1e-5)


def test_the_catalogue_holds_the_reference_table(shared_data: Path) -> None:
    columns = {"fp32": "fp32_tflops", "tf32": "tf32_dense", "bf16": "bf16_dense", "fp16": "fp16_dense",
               "fp8": "fp8_dense", "int8": "int8_dense_tops", "fp4": "fp4_dense"}  # fmt: skip
    with (shared_data / "gpus.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["key"] for row in rows} == set(accelerators()) - {"mi250x-gcd"}
    for row in rows:
        entry = accelerator(row["key"])
        assert entry.peaks == {kind: float(f"{row[name]}e12") for kind, name in columns.items() if row[name]}
        assert entry.memory_bytes == float(row["mem_gb"]) * 1e9
        assert entry.memory_bandwidth_bytes_per_second == float(row["mem_bw_gb_s"]) * 1e9
        link = row["link_total_bidir_gb_s"]
        assert entry.link_bytes_per_second == (float(link) * 1e9 if link else None)
        for device in row["device_name_strings"].split("|"):
            found = accelerator_for_device(device)
            if device in ("NVIDIA H100", "AMD Radeon Graphics"):
                assert found is None
            else:
                assert found is not None
                assert found.name.removesuffix("-gcd") == row["key"]


@pytest.mark.parametrize(
    ("name", "units", "flops_per_cycle", "megahertz"),
    [
        # Units x tensor FLOPs of a unit and cycle x clock is the dense 16-bit peak.
        ("v100", 80, 1024, 1530),  # 125.3 TFLOP/s
        ("t4", 40, 1024, 1590),  # 65.1
        ("a100", 108, 2048, 1410),  # 311.9
        ("a10", 72, 1024, 1695),  # 125.0
        ("l4", 58, 1024, 2040),  # 121.2
        ("l40s", 142, 1024, 2490),  # 362.1
        ("h100", 132, 4096, 1830),  # 989.4; at a boost of 1980 MHz it is 1070
        ("h100-pcie", 114, 4096, 1620),  # 756.4
        ("h100-nvl", 132, 4096, 1545),  # 835.3
        ("b200", 148, 8192, 1856),  # 2250
        ("mi300x", 304, 2048, 2100),  # 1307
        ("mi355x", 256, 4096, 2400),  # 2517
    ],
)
def test_the_clock_is_the_one_at_which_the_peak_holds(
    name: str, units: int, flops_per_cycle: int, megahertz: float
) -> None:
    entry = accelerator(name)
    assert entry.clock_hertz == megahertz * 1e6
    assert entry.peaks["fp16"] == pytest.approx(units * flops_per_cycle * megahertz * 1e6, rel=0.01)
