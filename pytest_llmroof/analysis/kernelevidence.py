"""What profiled kernels speak for: near the memory or compute roof, slow, or too short.

A kernel profiler runs kernels one by one: it never tells of gaps between them, nor of communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from pytest_llmroof.analysis.diagnosis import Evidence
from pytest_llmroof.analysis.kernelpoints import KernelPoint, kernel_points
from pytest_llmroof.data import load
from pytest_llmroof.profiles.kernel_table import KernelTable
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.units import format_quantity

Letter = Literal["A", "B", "D", "F"]

_NAMED: Final = 2
_SAYS: Final[dict[Letter, str]] = {
    "A": "move {memory:.0f} % of the memory bandwidth and more",
    "B": "compute {compute:.0f} % of the peak and more",
    "D": "run for less than {short} each and do not fill the GPU: launching them may take longer (timelines tell)",
    "F": "reach neither {low:.0f} % of the memory bandwidth nor {compute:.0f} % of the compute peak",
}


def kernel_evidence(table: KernelTable, gpu: Accelerator | None) -> tuple[Evidence, ...]:
    """For each scenario that kernels speak for, their share of the profiled time, the largest first."""
    limits = load("ncu.yaml")["evidence"]
    groups: dict[Letter, list[KernelPoint]] = {}
    for point in kernel_points(table, gpu):
        if (letter := letter_of(point)) is not None:
            groups.setdefault(letter, []).append(point)
    shares = {letter: sum(point.time_share for point in points) for letter, points in groups.items()}
    figures = {
        "memory": limits["memory"] * 100,
        "compute": limits["compute"] * 100,
        "low": limits["low"] * 100,
        "short": format_quantity(limits["short_seconds"], "seconds"),
    }
    return tuple(
        Evidence(
            letter,
            True,
            f"kernels of {shares[letter] * 100:.0f} % of the profiled time ({_names(groups[letter])}) "
            f"{_SAYS[letter].format(**figures)}",
            f"Nsight Compute, {table.location}",
        )
        for letter in sorted(groups, key=lambda one: -shares[one])
        if shares[letter] >= limits["share"]
    )


def leading(table: KernelTable, gpu: Accelerator | None) -> Letter | None:
    """The scenario that most of the profiled time speaks for; None where none does, or kernels only hint at it."""
    shares: dict[Letter, float] = {}
    for point in kernel_points(table, gpu):
        if (letter := letter_of(point)) is not None:
            shares[letter] = shares.get(letter, 0.0) + point.time_share
    most = max(shares, key=lambda one: shares[one], default=None)
    if most is None or most == "D" or shares[most] <= load("ncu.yaml")["evidence"]["most"]:
        return None
    return most


def letter_of(point: KernelPoint) -> Letter | None:
    """The scenario that one kernel speaks for, None where what was counted does not tell."""
    limits = load("ncu.yaml")["evidence"]
    if point.mbu is not None and point.mbu >= limits["memory"]:
        return "A"
    if point.mfu is not None and point.mfu >= limits["compute"]:
        return "B"
    unfilled = point.reading in ("latency", "small grid")
    if unfilled and point.seconds / point.launches < limits["short_seconds"]:
        return "D"
    low = point.mbu is not None and point.mbu < limits["low"] and not point.lower_bound
    return "F" if low and (unfilled or point.mfu is not None) else None


def _names(points: Sequence[KernelPoint]) -> str:
    shown = [point.label for point in points[:_NAMED]]
    more = len(points) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
