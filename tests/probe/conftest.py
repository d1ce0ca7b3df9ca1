"""A server that streams completions, and pytest run beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from completions import Server, serving

# Runs inside this process forget what they import: what is slow or cannot be imported twice is imported before.
import pytest_llmroof.account
import pytest_llmroof.command_line
import pytest_llmroof.markers
import pytest_llmroof.probing
import pytest_llmroof.report.json_report
import pytest_llmroof.report.text  # noqa: F401


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path_factory.getbasetemp() / "no-netrc"))


@pytest.fixture(autouse=True)
def _run_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield
    assert list(folder.glob("pytest-llmroof-*")) == []


@pytest.fixture
def serve() -> Iterator[Callable[[Server], Server]]:
    """Starts servers that end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda server: stack.enter_context(serving(server))
