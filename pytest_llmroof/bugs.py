"""An exception that nobody foresaw: one sentence instead of a traceback through this package."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_llmroof.breach import representation
from pytest_llmroof.errors import LlmroofError

_PACKAGE: Final = Path(__file__).parent
_HOOKS: Final = Path(pytest.__file__).parent.parent / "pluggy"


def is_bug(error: BaseException) -> bool:
    """Whether this package raised it by mistake: not on purpose, and not in somebody's hook or an outcome of a test."""
    if not isinstance(error, Exception) or isinstance(error, LlmroofError | pytest.UsageError):
        return False
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [place for place, file in enumerate(files) if file.is_relative_to(_PACKAGE)]
    return bool(ours) and not any(file.is_relative_to(_HOOKS) for file in files[ours[-1] :])


def bug_representation(node: pytest.Item | pytest.Collector, error: BaseException, line: int = 0) -> Any:
    """What pytest prints for it; plain text from a worker's collection, where the controller compares it."""
    text = _sentence(error)
    if hasattr(node.config, "workerinput") and isinstance(node, pytest.Collector):
        return text
    path = node.path
    root = node.config.rootpath
    return representation(text, text, path.relative_to(root) if path.is_relative_to(root) else path, line)


def _sentence(error: BaseException) -> str:
    """What it is, its type and message, and the deepest place in this package."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = next(each for each in reversed(frames) if Path(each.filename).is_relative_to(_PACKAGE))
    place = f"{Path(frame.filename).relative_to(_PACKAGE.parent).as_posix()}:{frame.lineno}"
    message = (str(error).splitlines() or [""])[0][:200]
    said = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"this is a bug in pytest-llmroof, please report it: {said} ({place}); --full-trace shows the way there"
