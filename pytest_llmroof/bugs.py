"""An exception that nobody foresaw: one sentence instead of a traceback through this package."""

from __future__ import annotations

import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_llmroof.breach import GateBreach, representation
from pytest_llmroof.errors import Deliberate, LlmroofError

_PACKAGE: Final = Path(__file__).parent
_MEANT: Final = (LlmroofError, Deliberate, GateBreach, pytest.UsageError)
_WATCH: Final = "llmroof-bugs"
_HOOKS: Final = Path(pytest.__file__).parent.parent / "pluggy"


def is_bug(error: BaseException) -> bool:
    """Whether this package raised it by mistake: not on purpose, and not in somebody's hook or an outcome of a test."""
    if not isinstance(error, Exception) or isinstance(error, _MEANT):
        return False
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [place for place, file in enumerate(files) if file.is_relative_to(_PACKAGE)]
    return bool(ours) and not any(file.is_relative_to(_HOOKS) for file in files[ours[-1] :])


def bug_representation(node: pytest.Item | pytest.Collector, error: BaseException, line: int = 0) -> Any:
    """What pytest prints for it; plain text from a worker's collection, where the controller compares it."""
    text = sentence(error)
    if hasattr(node.config, "workerinput") and isinstance(node, pytest.Collector):
        return text
    path = node.path
    root = node.config.rootpath
    return representation(text, text, path.relative_to(root) if path.is_relative_to(root) else path, line)


def watch(config: pytest.Config) -> None:
    """Say what goes wrong of ours in Python tests in a sentence, from here on."""
    if not config.pluginmanager.has_plugin(_WATCH):
        config.pluginmanager.register(BugReports(), _WATCH)


class BugReports:
    """Puts a sentence in place of the traceback where a Python test met a mistake of ours."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """The report of a phase that failed by a mistake of ours."""
        report = yield
        error = call.excinfo.value if call.excinfo is not None and report.failed else None
        if error is None or item.config.option.fulltrace or not isinstance(item, pytest.Function):
            return report
        if is_bug(error) and not _called_back(item, error):
            report.longrepr = bug_representation(item, error, (item.location[1] or 0) + 1)
        return report


def _called_back(item: pytest.Item, error: BaseException) -> bool:
    """Whether the test's own file raised it, called by this package."""
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    return bool(files) and files[-1] == item.path


def sentence(error: BaseException) -> str:
    """What it is, its type and message, and the deepest place in this package."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = next(each for each in reversed(frames) if Path(each.filename).is_relative_to(_PACKAGE))
    place = f"{Path(frame.filename).relative_to(_PACKAGE.parent).as_posix()}:{frame.lineno}"
    message = (str(error).splitlines() or [""])[0][:200]
    said = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"this is a bug in pytest-llmroof, please report it: {said} ({place}); --full-trace shows the way there"
