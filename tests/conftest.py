"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import chromium
import pytest
from hypothesis import HealthCheck, settings
from vllm_pages import write_pages

TEST_DATA = Path(__file__).parent / "data"

# How long an example takes, and how long it takes to think of one, says something about the machine only.
settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# A shell that starts the tests in the background has interrupts ignored, and what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Runs inside tests collect garbage at their end: what was imported before them is none."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The runs inside tests must neither write to a real CI's summary nor change with it, nor with a user's network.

    And they are spared a plugin that imports half a second's worth into each.
    """
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path_factory.getbasetemp() / "no-netrc"))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")


@pytest.fixture
def run_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No run leaves its recordings behind in the folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield
    assert list(folder.glob("pytest-llmroof-*")) == []


@pytest.fixture
def unheard() -> Iterator[str]:
    """The address of a port where nobody listens, and nobody else can begin to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture(autouse=True, scope="session")
def _bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where no bytecode may be written beside the code, the runs inside tests share a folder for it.

    Without one, each would compile the package anew, which takes longer than what most of them are about.
    """
    of_this_run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        of_this_run = of_this_run.parent  # what all workers share
    with pytest.MonkeyPatch.context() as environment:
        if "PYTHONDONTWRITEBYTECODE" in os.environ:
            environment.delenv("PYTHONDONTWRITEBYTECODE")
            environment.setenv("PYTHONPYCACHEPREFIX", str(of_this_run / "bytecode"))
        yield


@pytest.fixture(scope="session")
def browser() -> Iterator[chromium.Browser]:
    """One browser for all tests of a process; each opens pages of its own, in a context of its own."""
    with chromium.started() as one:
        yield one


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
