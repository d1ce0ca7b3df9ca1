"""What a driver calls a device, against an accelerator: the same, another one, or a name that does not tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal

from pytest_llmroof.data import load
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerator_for_device, accelerators, short_names

Kinship = Literal["same", "other", "untold"]

#: What tells boards of one model apart, or sizes, and is no model: ``80GB``, ``SXM4``, ``HBM3e``, ``PCIe``, ``NVL16``.
_NO_MODEL: Final = re.compile(r"\d{1,2}|\d+(gb|gib|g|mb|mib|m|ghz)|(sxm|hbm|nvl|pcie|gen|ddr|gddr|mig)\w*")
#: How ROCm calls a device whose name it does not have.
_NUMBER: Final = re.compile(r"(device )?(0x)?[0-9a-f]{4}")


def kinship(device: str, gpu: Accelerator) -> Kinship:
    """Whether a device that names itself so is this accelerator.

    A name that the catalogue lacks is another one where it names a vendor, a model or a series that the accelerator is
    not. ``H100 PCIe 96GB`` may be an H100, and ``Graphics Device`` anything of the same vendor.
    """
    if device in gpu.device_names:
        return "same"
    known = accelerator_for_device(device)
    if known is not None:
        return "same" if known.name == gpu.name else "other"
    words = tuple(_words(device))
    if "mig" in words:
        return "other"  # a slice has not the peaks of the whole
    vendor = next((vendor for vendor in _vendors() if vendor.casefold() in words), None)
    if vendor is not None and gpu.vendor is not None and vendor != gpu.vendor:
        return "other"
    if _NUMBER.fullmatch(" ".join(words)) or (device.casefold() in _ambiguous() and not _models(words)):
        return "untold"
    own = [tuple(_words(name)) for name in _names(gpu)]
    models = _models(words)
    if models:
        ours = {model for name in own for model in _models(name)}
        return "untold" if any(_of_family(model, mine) for model in models for mine in ours) else "other"
    series = set(words) & _series()
    return "other" if series - {word for name in own for word in name} else "untold"


def _words(name: str) -> Iterator[str]:
    """Words in lower case; a trade mark is no part of one."""
    yield from re.findall(r"[a-z0-9]+", re.sub(r"\((r|tm|c)\)", " ", name.casefold()))


def _models(words: tuple[str, ...]) -> set[str]:
    return {word for word in words if any(char.isdigit() for char in word) and not _NO_MODEL.fullmatch(word)}


def _of_family(model: str, mine: str) -> bool:
    """Whether a model is this one, or the family of it without the letter behind: ``MI300`` of an MI300X."""
    return model == mine or (mine.startswith(model) and mine[len(model) :].isalpha())


def _names(gpu: Accelerator) -> Iterator[str]:
    """All that this accelerator goes by."""
    yield from (gpu.name, gpu.product, *gpu.device_names)
    yield from (short for short, key in short_names().items() if key == gpu.name)


@cache
def _vendors() -> frozenset[str]:
    return frozenset(one.vendor for one in accelerators().values() if one.vendor)


@cache
def _series() -> frozenset[str]:
    return frozenset(_catalogue()["series"])


@cache
def _ambiguous() -> frozenset[str]:
    return frozenset(name.casefold() for name in _catalogue()["ambiguous_device_names"])


def _catalogue() -> Mapping[str, Any]:
    content: Mapping[str, Any] = load("accelerators.yaml")
    return content
