"""What calls of CUDA's and ROCm's API do, by their names (without the version suffix of some exports)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from pytest_llmroof.profiles.timeline import Bool

#: What the names hold: a trace has as many names of kernels as of calls, or a thousand times more.
#: A call that waits for the device. (Synchronous copies of ROCm wait, too.)
_WAITS: Final = ("Synchronize", "hipMemcpyWithStream")
_WAITS_WHOLE: Final = frozenset({"cudaMemcpy", "hipMemcpy", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"})
#: A call that starts a kernel or a graph of them.
_LAUNCHES: Final = ("LaunchKernel", "GraphLaunch", "LaunchCooperativeKernel")
#: A call that starts a graph of kernels.
_REPLAYS: Final = ("GraphLaunch",)
_CAPTURES: Final = ("BeginCapture", "EndCapture", "GetCaptureInfo", "GraphInstantiate")


def waiting(names: Iterable[str]) -> Bool:
    """Which calls make the host wait for the device."""
    return _matching(_WAITS, names, _WAITS_WHOLE)


def launching(names: Iterable[str]) -> Bool:
    """Which calls start kernels."""
    return _matching(_LAUNCHES, names)


def replaying(names: Iterable[str]) -> Bool:
    """Which calls start a graph of kernels that was recorded before."""
    return _matching(_REPLAYS, names)


def capturing(names: Iterable[str]) -> Bool:
    """Which calls record a graph, or make one of a record."""
    return _matching(_CAPTURES, names)


def _matching(parts: tuple[str, ...], names: Iterable[str], whole: frozenset[str] = frozenset()) -> Bool:
    return np.array([name in whole or any(part in name for part in parts) for name in names], dtype=np.bool_)
