"""No file of this process may grow beyond a size, as on a disk that is full: EFBIG in place of ENOSPC."""

from __future__ import annotations

import resource
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def limited(size: int) -> Iterator[None]:
    """Until the end of the block, also in the processes that it starts.

    Some bytes must be allowed: whoever asks for a temporary folder tries whether one can be written.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class FullDisk:
    """A plugin for a run inside a test: while its tests run and its reports are written, files are limited."""

    def __init__(self, size: int) -> None:
        self.size = size

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        with limited(self.size):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, Any, Any]:
        with limited(self.size):
            return (yield)


def left(folder: Path) -> list[str]:
    """The names of all files there, those that start with a dot included."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())
