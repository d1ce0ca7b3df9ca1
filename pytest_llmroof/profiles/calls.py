"""What calls of CUDA's and ROCm's API do, by their names (without the version suffix of some exports)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import numpy as np

from pytest_llmroof.profiles.timeline import Bool

#: A call that waits for the device. (Synchronous copies of ROCm wait, too.)
_WAITS: Final = re.compile(r"Synchronize|hipMemcpyWithStream|^(?:cuda|hip)Memcpy$|^cuMemcpy(?:DtoH|HtoD)_v2$")
#: A call that starts a kernel or a graph of them.
_LAUNCHES: Final = re.compile(r"LaunchKernel|GraphLaunch|LaunchCooperativeKernel")
#: A call that starts a graph of kernels.
_REPLAYS: Final = re.compile(r"GraphLaunch")
_CAPTURES: Final = re.compile(r"BeginCapture|EndCapture|GetCaptureInfo|GraphInstantiate")


def waiting(names: Iterable[str]) -> Bool:
    """Which calls make the host wait for the device."""
    return _matching(_WAITS, names)


def launching(names: Iterable[str]) -> Bool:
    """Which calls start kernels."""
    return _matching(_LAUNCHES, names)


def replaying(names: Iterable[str]) -> Bool:
    """Which calls start a graph of kernels that was recorded before."""
    return _matching(_REPLAYS, names)


def capturing(names: Iterable[str]) -> Bool:
    """Which calls record a graph, or make one of a record."""
    return _matching(_CAPTURES, names)


def _matching(pattern: re.Pattern[str], names: Iterable[str]) -> Bool:
    return np.array([pattern.search(name) is not None for name in names], dtype=np.bool_)
