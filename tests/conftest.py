"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from vllm_pages import write_pages

TEST_DATA = Path(__file__).parent / "data"

# A shell that starts the tests in the background has interrupts ignored, and what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs inside tests must neither write to a real CI's summary nor change with it."""
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "BUILD_NUMBER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of test inputs that belong to the project."""
    return TEST_DATA


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Reference facts beside the checkout, for extra checks; the permanent tests do not need them."""
    folder = Path(os.environ.get("LLMROOF_SHARED", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the reference data beside the checkout is not here")
    return folder


@pytest.fixture
def vllm_pages() -> Callable[..., tuple[Path, Path]]:
    """Writes ``before.prom`` and ``after.prom`` of a vLLM server around a load (figures: vllm_pages.Load)."""
    return write_pages
