"""A window of live endpoints: a recording that is made while it is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.endpoint import Endpoint
from pytest_llmroof.telemetry.recording import Ended, Page, Recording
from pytest_llmroof.telemetry.sampling import Failure, Sampler

#: The load may patch this in the process under test.
_monotonic = time.monotonic


class LiveRecording:
    """Samples endpoints into a recording from ``open`` (the first scrape) to ``close`` (the last one)."""

    def __init__(self, endpoints: Sequence[Endpoint], recording: Recording, interval_seconds: float) -> None:
        self.endpoints = endpoints
        self.recording = recording
        self._keep_from = 0.0
        self._sampler = Sampler(endpoints, self._receive, interval_seconds)

    def check(self) -> None:
        """Scrape once without keeping anything. SourceError where an endpoint does not answer."""
        self._whole(self._sampler.scrape())

    def now(self) -> float:
        """The time of the recording's clock, in Unix seconds."""
        return self._sampler.clock.now()

    def open(self, *, tolerant: bool = False, after_seconds: float = 0.0) -> None:
        """First scrape, then one every interval. SourceError where it fails for an endpoint, noted where tolerant.

        Of the first ``after_seconds`` nothing is kept: the warm-up of a load that runs meanwhile.
        """
        if after_seconds:
            self.check()
            self._keep_from = self.now() + after_seconds
            self._sampler.start()
            return
        scraped = self._sampler.scrape()
        if not tolerant:
            self._whole(scraped)
        for each in scraped:
            self._receive(each)
        self._sampler.start()

    def close(self, ended: Ended, exit_code: int | None = None) -> None:
        """No more samples, the last scrape, and the recording is complete. OSError where it could not be written."""
        try:
            self._sampler.stop()
            for each in self._sampler.scrape():
                self._receive(each)
        finally:
            self.recording.finish(ended, exit_code)

    def abandon(self) -> None:
        """Stop at once, without a last scrape, keeping what there is: for errors on the way."""
        self._sampler.abandon()

    def _receive(self, scraped: Page | Failure) -> None:
        if isinstance(scraped, Page):
            if scraped.scraped_at >= self._keep_from:
                self.recording.keep(scraped)
        elif scraped.at >= self._keep_from:
            self.recording.failed(scraped.endpoint.slug, scraped.at, scraped.error.reason)

    @staticmethod
    def _whole(scraped: list[Page | Failure]) -> None:
        for each in scraped:
            if isinstance(each, Failure):
                raise each.error


def live_window(
    endpoints: Sequence[Endpoint],
    folder: Path,
    *,
    duration_seconds: float,
    interval_seconds: float = 1.0,
    warmup_seconds: float = 0.0,
    enough: Callable[[Path], bool] | None = None,
    max_wait_seconds: float = 600.0,
    sleep: Callable[[float], object] = time.sleep,
    shown: str | None = None,
) -> Path:
    """Record ``endpoints`` into an empty or new ``folder`` (called ``shown``): telemetry like any recording.

    Takes ``warmup_seconds`` (before its first scrape) and ``duration_seconds``; where ``enough`` is given, it is asked
    after that, every interval, whether the folder's pages suffice, for ``max_wait_seconds`` more at most, the time that
    it takes to tell included.
    SourceError where an endpoint does not answer the first scrape. ConfigError where the folder can't be used.
    """
    recording = Recording(
        folder, endpoints, interval_seconds=interval_seconds, warmup_seconds=warmup_seconds, shown=shown
    )
    live = LiveRecording(endpoints, recording, interval_seconds)
    try:
        if warmup_seconds:
            live.check()
            sleep(warmup_seconds)
        live.open()
    except BaseException:  # an interrupt, too: nothing half-recorded is left
        recording.discard()
        raise
    try:
        sleep(duration_seconds)
        waited, since = 0.0, _monotonic()
        while enough is not None and not enough(folder) and waited < max_wait_seconds:
            sleep(interval_seconds)
            waited = max(waited + interval_seconds, _monotonic() - since)
    except BaseException:  # an interrupt, too: nothing half-recorded is left
        live.abandon()
        raise
    try:
        live.close("duration")
    except OSError as error:
        raise SourceError(f"the recording can't be written: {error.strerror}", "is the disk full?") from None
    return folder
