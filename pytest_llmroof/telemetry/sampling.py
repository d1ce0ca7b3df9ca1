"""Scraping endpoints side by side: all at once, or again and again at an interval while something else runs."""

from __future__ import annotations

import math
import resource
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.endpoint import Endpoint
from pytest_llmroof.telemetry.fetching import fetch
from pytest_llmroof.telemetry.patience import Unavailable, pause_before
from pytest_llmroof.telemetry.recording import Page
from pytest_llmroof.telemetry.threads import apart

#: The load may patch these in the process under test, and the sampler must not see it.
_monotonic = time.monotonic
_time = time.time
_sleep = time.sleep

#: How long to wait before asking once more a server that took up the whole time-out, in seconds.
_AFTER_A_TIMEOUT: Final = 0.2
#: What a further try may take beyond the time-out, which the tries before it used up, in seconds.
GRACE_SECONDS: Final = 2.0
#: How long pages that are being written are waited for, where a window is given up, in seconds.
_ABANDON_SECONDS: Final = 1.0
#: How many endpoints are asked at the same time: each takes a socket, of which a process has some hundreds by default.
MOST_AT_ONCE: Final = 256


@dataclass(frozen=True)
class Failure:
    """A scrape that gave no page. ``at`` is Unix seconds."""

    endpoint: Endpoint
    at: float
    error: SourceError


class Clock:
    """Unix seconds that run evenly: the wall clock is read once, so that setting it does not bend a recording."""

    def __init__(self) -> None:
        self._offset = _time() - _monotonic()

    def now(self) -> float:
        """Unix seconds."""
        return _monotonic() + self._offset


class Sampler:
    """Scrapes endpoints, each in a thread of its own: a slow one holds up no other, up to ``MOST_AT_ONCE`` of them.

    ``receive`` gets every page or failure, from those threads; pages of one endpoint come one after another.
    """

    def __init__(
        self, endpoints: Sequence[Endpoint], receive: Callable[[Page | Failure], None], interval_seconds: float
    ) -> None:
        if not interval_seconds > 0:
            raise ValueError("the interval must be more than zero")
        self.endpoints = endpoints
        self.clock = Clock()
        self._receive = receive
        self._interval = interval_seconds
        self._stopping = threading.Event()
        self._abandoned = False
        self._running: list[Future[None]] = []
        self._turn = threading.BoundedSemaphore(_most_at_once())

    def scrape(self) -> list[Page | Failure]:
        """Every endpoint at the same time, in their order; nothing is handed to ``receive``.

        A window hangs on these scrapes: what may pass is tried again within the time-out, and a server that did not
        answer in time is asked once more. All tries of an endpoint together take its time-out and ``GRACE_SECONDS``,
        and a quarter of both where a page comes in drops.
        """
        scraped = [apart("llmroof-scrape", self._insist, endpoint) for endpoint in self.endpoints]
        return [each.result() for each in scraped]

    def start(self) -> None:
        """Scrape every interval from now on, the first time after one interval."""
        self._stopping.clear()
        start = _monotonic()
        self._running = [apart("llmroof-sampler", self._sample, endpoint, start) for endpoint in self.endpoints]

    def stop(self) -> None:
        """Scrape no more, once the scrapes under way are done. Raises what ``receive`` raised."""
        self._stopping.set()
        running, self._running = self._running, []
        wait(running)
        for each in running:
            each.result()

    def abandon(self) -> None:
        """Scrape no more, and wait for no answer: what is under way is not kept."""
        self._abandoned = True
        self._stopping.set()
        running, self._running = self._running, []
        wait(running, _ABANDON_SECONDS)

    def _sample(self, endpoint: Endpoint, start: float) -> None:
        due = start + self._interval
        while not self._stopping.wait(max(0.0, due - _monotonic())):
            with self._turn:
                if self._stopping.is_set():
                    return
                scraped = self._scrape(endpoint)
            if self._abandoned:
                return
            self._receive(scraped)
            # Times stay multiples of the interval; those that a slow answer took up are left out, not made up for.
            due += self._interval * max(1, math.ceil((_monotonic() - due) / self._interval))

    def _insist(self, endpoint: Endpoint) -> Page | Failure:
        with self._turn:
            return self._tried_again(endpoint)

    def _tried_again(self, endpoint: Endpoint) -> Page | Failure:
        start, tries = _monotonic(), 1
        scraped = self._scrape(endpoint)
        while isinstance(scraped, Failure):
            pause = pause_before(scraped.error, tries, _monotonic() - start, endpoint.timeout_seconds)
            if pause is None and tries == 1 and isinstance(scraped.error, Unavailable) and scraped.error.timed_out:
                pause = _AFTER_A_TIMEOUT
            if pause is None:
                break
            _sleep(pause)
            tries += 1
            left = endpoint.timeout_seconds - (_monotonic() - start)
            shorter = min(endpoint.timeout_seconds, max(left, GRACE_SECONDS))
            again = self._scrape(replace(endpoint, timeout_seconds=shorter))
            if isinstance(again, Failure) and isinstance(again.error, Unavailable) and again.error.timed_out:
                break  # the first failure tells more: this one had what was left of the time only
            scraped = again
        return scraped

    def _scrape(self, endpoint: Endpoint) -> Page | Failure:
        at, start = self.clock.now(), _monotonic()
        try:
            body = fetch(endpoint)
        except SourceError as error:
            # Without its traceback, whose frames hold headers and tokens.
            return Failure(endpoint, at, error.with_traceback(None))
        except Exception as error:  # one that nobody foresaw
            # Nothing of an error that nobody foresaw is repeated: it may hold the URL's query or a header.
            problem = f"the request failed ({type(error).__name__}) at {endpoint.shown}"
            return Failure(endpoint, at, SourceError(problem))
        return Page(endpoint.slug, endpoint.shown, at, _monotonic() - start, body)


def _most_at_once() -> int:
    """Half of the files that this process may open are for others."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_AT_ONCE if allowed == resource.RLIM_INFINITY else max(1, min(MOST_AT_ONCE, allowed // 2))
