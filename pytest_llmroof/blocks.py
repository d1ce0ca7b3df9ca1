"""A block of a test as a window of Prometheus servers: when it began and ended, and the wait until they know it all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from pytest_llmroof.acquire import require
from pytest_llmroof.errors import LlmroofError, SourceError
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.taken import Block, Taken
from pytest_llmroof.telemetry.engine_entries import with_engines
from pytest_llmroof.telemetry.fleetsource import scrape_interval
from pytest_llmroof.telemetry.threads import secluded

#: The longest pause between two scrapes that is waited for, in seconds.
_LONGEST_SECONDS: Final = 120.0

#: The test in this process may patch the clock.
_time = time.time
_monotonic = time.monotonic


class AskedFraming:
    """The counterpart of ``acquire.Framing`` for Prometheus servers, which sample by themselves."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self._began = 0.0
        self._opened = 0.0

    def open(self) -> None:
        """Remember when the block began."""
        self._opened = _monotonic()
        self._began = _time()

    def close(self, least_seconds: float = 0.0, wait: Callable[[float], object] = time.sleep) -> Taken:
        """The block's time, once it is ``least_seconds`` long and its last samples are in. Failures are kept."""
        rest = least_seconds - (_monotonic() - self._opened)
        if rest > 0:
            wait(rest)
        # By the clock that runs evenly: setting the other one does not bend the block.
        end = self._began + (_monotonic() - self._opened)
        try:
            require(self.spec)
            interval = secluded(
                "llmroof-ask", "the scrape interval can't be asked for", _longest_interval, self.spec, end
            )  # fmt: skip
            if end - self._began < 2 * interval:
                raise SourceError(
                    f"a block of {end - self._began:.1f} s is too short where servers are scraped every "
                    f"{interval:.3g} s: a difference takes two scrapes",
                    f"drive the load for {2 * interval:.3g} s or more, or give the mark a `duration`",
                )
            pause = min(interval, _LONGEST_SECONDS)
        except LlmroofError as error:
            return Taken.failed(error)
        wait(pause)
        return Taken(block=Block(self._began, end, pause))

    def abandon(self) -> None:
        """Nothing runs that would have to be stopped."""


def _longest_interval(spec: WindowSpec, end: float) -> float:
    """The longest scrape interval of the sources, in seconds."""
    engines = with_engines(spec.engines)
    sources = [source for source in spec.telemetry if source.kind == "prometheus"]
    found = [scrape_interval(source.options, end, engines) for source in sources]
    # Where there is no engine, the window's own question will say so.
    return max((interval for interval in found if interval is not None), default=0.0)
