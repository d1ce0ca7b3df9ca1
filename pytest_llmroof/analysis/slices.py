"""Slices of a GPU (NVIDIA's MIG, AMD's compute partitions): what one has of it, and the mapping that describes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pytest_llmroof.data import load
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.units import Unit, format_quantity

_PROFILE: Final = re.compile(r"(?P<plain>\d+g\.(?P<gigabytes>\d+)gb)(?:[+-][\w.]+)*")
#: Precisions that no slice is described by: serving does not compute in them.
_LEFT_OUT: Final = ("fp32", "tf32")


@dataclass(frozen=True)
class Share:
    """What a slice has: its shares of the multiprocessors and of the memory, as they are written, and its bytes."""

    multiprocessors: str
    memory: str
    memory_bytes: float


def slice_name(profile: str | None) -> str:
    """``MIG 1g.10gb``, ``compute partition CPX``; what an unknown one may be."""
    if profile is None:
        return "MIG unknown profile"
    if re.match(r"\d+[cg]\.", profile):
        return f"MIG {profile}"
    return f"compute partition {profile.upper() if profile.islower() else profile}"


def share_of(profile: str, of: Accelerator) -> Share | None:
    """The shares of a profile of this GPU; None where they are not documented."""
    match = _PROFILE.fullmatch(profile)
    if match is None:
        return None
    for group in load("mig.yaml"):
        if of.name in group["accelerators"] and match["plain"] in group["profiles"]:
            multiprocessors, memory = group["profiles"][match["plain"]]
            return Share(multiprocessors, memory, float(match["gigabytes"]) * 1e9)
    return None


def mapping(profile: str | None, of: Accelerator | None) -> str:
    """A `gpu:` mapping of a slice to paste; where its shares are not documented, one to fill in."""
    share = share_of(profile, of) if profile is not None and of is not None else None
    if share is None or of is None or profile is None:
        base = of.name if of is not None and of.confidence != "given" else "NAME"
        return (
            f"`gpu: {{name: ..., base: {base}, peaks: {{bf16: ...TFLOP/s}}, memory_bandwidth: ...GB/s, memory: ...GB}}`"
            " (its shares of the GPU are not known here: its vendor's documentation has them)"
        )
    peaks = ", ".join(
        f"{name}: {_plain(peak * float(Fraction(share.multiprocessors)), 'FLOP/s')}"
        for name, peak in of.peaks.items()
        if name not in _LEFT_OUT
    )
    bandwidth = ""
    if of.memory_bandwidth_bytes_per_second:
        moved = of.memory_bandwidth_bytes_per_second * float(Fraction(share.memory))
        bandwidth = f", memory_bandwidth: {_plain(moved, 'bytes/s')}"
    name = re.sub(r"[^\w]+", "-", profile)
    return (
        f"`gpu: {{name: {of.name}-{name}, base: {of.name}, peaks: {{{peaks}}}{bandwidth}, "
        f"memory: {_plain(share.memory_bytes, 'bytes')}}}` ({share.multiprocessors} of its multiprocessors and "
        f"{share.memory} of its memory)"
    )


def _plain(value: float, unit: Unit) -> str:
    return format_quantity(value, unit, 4).replace(" ", "")
