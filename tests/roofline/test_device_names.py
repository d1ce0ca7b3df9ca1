"""What drivers call devices, against the catalogue's accelerators: the same, another, or a name that tells nothing."""

from __future__ import annotations

import pytest

from pytest_llmroof.roofline.catalogue import accelerator, accelerators
from pytest_llmroof.roofline.devicenames import kinship


def test_every_device_name_of_the_catalogue_is_of_its_own_accelerator() -> None:
    for each in accelerators().values():
        for name in each.device_names:
            others = [other.name for other in accelerators().values() if kinship(name, other) == "same"]
            assert each.name in others
            assert all(name in accelerators()[other].device_names for other in others)


@pytest.mark.parametrize(
    ("device", "gpu"),
    [
        # Variants of a board that the catalogue does not list: another memory, a suffix of the driver's.
        ("NVIDIA H100", "h100"),
        ("NVIDIA H100 80GB HBM3 (UUID: GPU-1)", "h100"),
        ("NVIDIA A100-SXM-64GB", "a100"),
        ("NVIDIA H20-141GB", "h20"),
        ("NVIDIA GB200 NVL72", "gb200"),
        ("Gaudi3 HL-325", "gaudi3"),
        ("AMD Instinct MI300X HC", "mi300x"),
        ("AMD INSTINCT MI300 (MCM) OAM AC MBA", "mi300x"),  # its family, as firmware calls the card
        # Names that say no model: any device of that vendor, or of one that is not told, may print them.
        ("NVIDIA Graphics Device", "h100"),
        ("AMD Radeon Graphics", "mi300x"),
        ("Device 740c", "mi210"),
        ("0x740c", "mi210"),
        ("a device of tomorrow", "h100"),
    ],
)
def test_a_name_that_may_be_the_accelerator_tells_nothing(device: str, gpu: str) -> None:
    assert kinship(device, accelerator(gpu)) == "untold"


@pytest.mark.parametrize(
    ("device", "gpu"),
    [
        ("NVIDIA H200", "h100"),  # both in the catalogue
        ("NVIDIA H100 PCIe", "h100"),  # another board of one model
        ("NVIDIA GeForce RTX 4080", "h100"),  # another model
        ("NVIDIA L40G", "l40"),
        ("AMD Instinct MI300A", "mi300x"),
        ("NVIDIA TITAN V", "h100"),  # another series
        ("AMD Radeon Graphics", "h100"),  # another vendor
        ("Intel(R) Xeon(R) Platinum 8480+", "h100"),
        ("AMD Ryzen 7 7800X3D 8-Core Processor", "mi300x"),  # its maker's, and no GPU
        ("CPU", "a100"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100"),  # a part of one
    ],
)
def test_a_name_that_cannot_be_the_accelerator_is_of_another(device: str, gpu: str) -> None:
    assert kinship(device, accelerator(gpu)) == "other"
