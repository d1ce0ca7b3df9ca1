"""A line on the terminal that tells how far a long window is. Nobody who reads a log later ever sees it."""

from __future__ import annotations

import os
import sys
import time
from typing import Final

import pytest

#: Shorter windows (in seconds) are over before anybody wonders.
_SHORTEST_SECONDS: Final = 3.0
_STEP_SECONDS: Final = 1.0

# The cursor comes back to where pytest left it, so that its own line goes on as if nothing had been.
_SAVE, _RESTORE, _ERASE = "\x1b7", "\x1b8", "\x1b[J"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"

_monotonic = time.monotonic
_sleep = time.sleep


class Progress:
    """Waits, and meanwhile shows how much of a window is over."""

    def __init__(self, config: pytest.Config, name: str, total_seconds: float) -> None:
        self.name = name
        self.total = total_seconds
        self.waited = 0.0
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._wanted = (
            total_seconds >= _SHORTEST_SECONDS
            and config.get_verbosity() >= 0
            and config.pluginmanager.hasplugin("terminalreporter")
            and not any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))
            and not hasattr(config, "workerinput")
        )

    def wait(self, seconds: float) -> None:
        """Sleep for so long."""
        end = _monotonic() + seconds
        try:
            while (left := end - _monotonic()) > 0:
                self._show()
                step = min(left, _STEP_SECONDS)
                _sleep(step)
                self.waited += step
        finally:
            self._write("")

    def _show(self) -> None:
        total = max(self.total, self.waited)
        self._write(f" {self.name}: measuring, {self.waited:.0f} of {total:.0f} s")

    def _write(self, text: str) -> None:
        if not self._wanted:
            return
        if self._capture is None:
            self._put(text)
            return
        with self._capture.global_and_fixture_disabled():
            self._put(text)

    @staticmethod
    def _put(text: str) -> None:
        if sys.stdout.isatty():
            sys.stdout.write(f"{_SAVE}{_NO_WRAP}{_ERASE}{text}{_WRAP}{_RESTORE}")
            sys.stdout.flush()
