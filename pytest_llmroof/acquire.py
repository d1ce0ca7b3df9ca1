"""From the live sources of a window to recordings of them: folders that the reader takes like any other.

Headers, tokens and addresses are only touched in threads of their own (``telemetry/threads.py`` says why). The thread
that waits holds nothing but specifications and endpoints, whose ``repr`` is free of secrets.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_llmroof.errors import LlmroofError, SourceError
from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec
from pytest_llmroof.recorded import answered, enough, refuse_few, refuse_gone
from pytest_llmroof.taken import Taken
from pytest_llmroof.telemetry.endpoint import Endpoint, distinct, endpoints_of
from pytest_llmroof.telemetry.live import LiveRecording, live_window
from pytest_llmroof.telemetry.recording import Recording
from pytest_llmroof.telemetry.sampling import GRACE_SECONDS
from pytest_llmroof.telemetry.threads import secluded

#: Seconds, where neither the window nor an option says it.
DURATION_SECONDS: Final = 30.0
INTERVAL_SECONDS: Final = 1.0

#: Seconds that scrapes, and whatever else is done between waits, may take of a time-out besides.
_SLACK_SECONDS: Final = 30.0

#: The test in this process may patch the clock.
_monotonic = time.monotonic

Wait = Callable[[float], object]


def endpoints(spec: WindowSpec) -> tuple[Endpoint, ...]:
    """The servers behind the URLs of a window. Asks the resolver: not to be called while tests are collected."""
    return secluded("llmroof-resolve", "the servers' names can't be resolved", _endpoints, spec)


def length_seconds(spec: WindowSpec) -> float:
    """How long the windows of a duration take at most, with what may go wrong on the way."""
    timeouts = [float(str(source.options.get("timeout", 10.0))) for source in spec.telemetry if source.kind == "url"]
    waiting = spec.max_wait_seconds if spec.min_requests else 0.0
    # Three scrapes decide over a window: the one that looks whether a server is there, the first and the last. Besides
    # them a scrape that is under way at the end is waited for. A body in drops takes a quarter longer.
    scrapes = 4 * 1.25 * (max(timeouts, default=0.0) + GRACE_SECONDS)
    one = duration_seconds(spec) + waiting + scrapes
    return spec.warmup_seconds + spec.repeat * one + _SLACK_SECONDS


def duration_seconds(spec: WindowSpec) -> float:
    """How long one window lasts."""
    return spec.duration_seconds or DURATION_SECONDS


def take(spec: WindowSpec, folder: Path, shown: str, wait: Wait = time.sleep) -> Taken:
    """Sample the window's servers for its duration, as often as it repeats; ``wait`` sleeps for so many seconds.

    ``folder`` (called ``shown``) must be new or empty, and then is the recording; repeats are folders in it.
    """
    try:
        return Taken(tuple(_taken(spec, folder, shown, wait)))
    except LlmroofError as error:
        return Taken.failed(error)
    except OSError as error:
        return Taken.failed(_full(error))


class Framing:
    """A window around a load that runs in this process: from ``open`` to ``close``. Failures are kept for ``close``."""

    def __init__(self, spec: WindowSpec, folder: Path, shown: str) -> None:
        self.spec = spec
        self.folder = folder
        self.shown = shown
        self._live: LiveRecording | None = None
        self._taken = Taken()
        self._opened = 0.0
        self.error: LlmroofError | None = None
        """Why nothing could be recorded from the beginning."""

    def open(self) -> None:
        """First scrape, or first look at the servers where a warm-up is cut off; then a sample every interval."""
        spec = self.spec
        try:
            require(spec)
            found = endpoints(spec)
            interval = spec.interval_seconds or INTERVAL_SECONDS
            recording = Recording(
                self.folder, found, interval_seconds=interval, warmup_seconds=spec.warmup_seconds, shown=self.shown
            )
            live = LiveRecording(found, recording, interval)
            self._begin(live)
        except LlmroofError as error:
            self.error, self._taken = error, Taken.failed(error)
        except OSError as error:
            self.error, self._taken = _full(error), Taken.failed(_full(error))
        else:
            self._live = live
        self._opened = _monotonic()

    def close(self, least_seconds: float = 0.0, wait: Wait = time.sleep) -> Taken:
        """The last scrape, once the window is ``least_seconds`` long."""
        if self._live is None:
            return self._taken
        try:
            rest = least_seconds - (_monotonic() - self._opened)
            if rest > 0:
                wait(rest)
            seconds = _monotonic() - self._opened - self.spec.warmup_seconds
            ended = self._live.now()
            self._live.close("block")
            self._check(seconds, ended)
        except LlmroofError as error:
            return Taken.failed(error)
        except OSError as error:
            return Taken.failed(_full(error))
        except BaseException:  # an interrupt, too: no scrape goes on
            self.abandon()
            raise
        return Taken(((self.folder, self.shown),))

    def abandon(self) -> None:
        """Stop at once, without a last scrape."""
        if self._live is not None:
            # What could not be written is not wanted any more, and must not hide why the load ended.
            with contextlib.suppress(OSError):
                self._live.abandon()

    def _begin(self, live: LiveRecording) -> None:
        try:
            live.open(after_seconds=self.spec.warmup_seconds)
        except BaseException:  # an interrupt, too: no scrape goes on
            live.abandon()
            live.recording.discard()
            raise

    def _check(self, seconds: float, ended: float) -> None:
        if seconds <= 0:
            warmup = f"{self.spec.warmup_seconds:g} s"
            raise SourceError(f"the load ended within the warm-up of {warmup}", "drive it longer, or warm up for less")
        assert self._live is not None
        refuse_gone(self.folder, self._live.endpoints, ended, seconds)
        refuse_few(self.spec, self.folder, seconds)


def require(spec: WindowSpec) -> None:
    """SourceError where what the window names cannot be asked at all."""
    if spec.unset:
        names = ", ".join(f"${name}" for name in spec.unset)
        raise SourceError(f"environment variable {names} is not set and has no default", f"set {names} for pytest")


def _endpoints(spec: WindowSpec) -> tuple[Endpoint, ...]:
    found = [each for source in spec.telemetry if source.kind == "url" for each in _endpoints_of(source)]
    # A server that is named twice must not count twice.
    return distinct({(each.url, each.address): each for each in found}.values())


def _endpoints_of(source: TelemetrySource) -> tuple[Endpoint, ...]:
    options: Mapping[str, Any] = source.options
    verify, cert = options.get("verify", True), options.get("cert")
    return endpoints_of(
        [options["url"]],
        headers={str(name): str(value) for name, value in options.get("headers", {}).items()},
        token_file=options.get("token_file"),
        verify=str(verify) if isinstance(verify, Path) else verify,
        cert=(str(cert[0]), str(cert[1])) if isinstance(cert, tuple) else str(cert) if cert else None,
        timeout_seconds=options.get("timeout", 10.0),
    )


def _taken(spec: WindowSpec, folder: Path, shown: str, wait: Wait) -> Iterator[tuple[Path, str]]:
    require(spec)
    found = endpoints(spec)
    for number in range(1, spec.repeat + 1):
        one, name = (folder, shown) if spec.repeat == 1 else (folder / str(number), f"{shown}/{number}")
        try:
            _one_window(spec, found, (one, name), spec.warmup_seconds if number == 1 else 0.0, wait)
        except SourceError as error:
            if spec.repeat == 1:
                raise
            raise SourceError(f"window {number} of {spec.repeat}: {error.reason}", error.remedy) from None
        yield one, name


def _one_window(
    spec: WindowSpec, found: Sequence[Endpoint], place: tuple[Path, str], warmup: float, wait: Wait
) -> None:
    folder, shown = place
    seconds = duration_seconds(spec)
    live_window(
        found,
        folder,
        duration_seconds=seconds,
        interval_seconds=spec.interval_seconds or INTERVAL_SECONDS,
        warmup_seconds=warmup,
        enough=None if spec.min_requests is None else lambda folder: enough(spec, folder),
        max_wait_seconds=spec.max_wait_seconds,
        sleep=wait,
        shown=shown,
    )
    started = min((first for first, _last in answered(folder).values()), default=0.0)
    refuse_gone(folder, found, started + seconds, seconds)
    refuse_few(spec, folder, seconds)


def _full(error: OSError) -> SourceError:
    return SourceError(f"the recording can't be written: {error.strerror}", "is the disk full?")
