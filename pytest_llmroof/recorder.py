"""The verb ``record``: frame a load with scrapes, so that gates can judge it.

First scrape, the command, a sample every interval while it runs, last scrape. It exits with the command's code and
keeps what it has; its own failures are 2. The command's input and output are its own: this one writes to stderr only.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

from pytest_llmroof.errors import ConfigError, SourceError
from pytest_llmroof.telemetry.endpoint import endpoints_of
from pytest_llmroof.telemetry.live import LiveRecording
from pytest_llmroof.telemetry.recording import Ended, Recording
from pytest_llmroof.units import UnitError, parse_as

FAILED: Final = 2

_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.usage = "%(prog)s --out=FOLDER [options] URL [URL ...] (-- COMMAND ... | --duration=60s)"
    parser.epilog = (
        "Exits with the command's code, or 2 for failures of its own. The folder is telemetry for gates: "
        "'telemetry: FOLDER' in a gate file, or --llmroof-telemetry=FOLDER."
    )
    parser.add_argument("urls", nargs="+", metavar="URL", help="what to scrape, like http://localhost:8000/metrics")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where to record: a new or empty folder")
    parser.add_argument("--interval", type=_positive, default=1.0, metavar="TIME",
                        help="time between samples (default 1s)")  # fmt: skip
    parser.add_argument("--warmup", type=_duration, default=0.0, metavar="TIME",
                        help="leave out this long at the start of the load")  # fmt: skip
    parser.add_argument("--duration", type=_positive, metavar="TIME",
                        help="record this long, in place of a command, where traffic comes from elsewhere")  # fmt: skip
    parser.add_argument("--timeout", type=_positive, default=10.0, metavar="TIME",
                        help="how long a scrape may take (default 10s)")  # fmt: skip
    parser.add_argument("--header", type=_header, action="append", default=[], metavar="'NAME: VALUE'",
                        help="send a header; ${VAR} in it comes from the environment")  # fmt: skip
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="send what it holds as a bearer token")
    parser.add_argument("--insecure", action="store_true", help="do not check TLS certificates")


def run(arguments: argparse.Namespace, command: Sequence[str] | None) -> int:
    """Record as asked on the command line; the exit code."""
    if command and arguments.duration:
        return _fail("--duration stands for a command: give one of them")
    if not command and not arguments.duration:
        return _fail("nothing to record: give a command after --, or --duration=60s where traffic comes from elsewhere")
    with _Signals() as signals:
        try:
            return _Run(arguments, command, signals).record()
        except (ConfigError, SourceError) as error:
            return _fail(str(error))
        except OSError as error:
            return _fail(f"{arguments.out} can't be written: {error.strerror}")


class _Run:
    """One recording, from its first scrape to its last."""

    def __init__(self, arguments: argparse.Namespace, command: Sequence[str] | None, signals: _Signals) -> None:
        endpoints = endpoints_of(
            arguments.urls, headers=dict(arguments.header), token_file=arguments.token_file,
            verify=not arguments.insecure, timeout_seconds=arguments.timeout,
        )  # fmt: skip
        self.command = command
        self.signals = signals
        self.out: str = arguments.out
        self.warmup: float = arguments.warmup
        self.duration: float | None = arguments.duration
        self.recording = Recording(
            Path(arguments.out), endpoints, interval_seconds=arguments.interval, warmup_seconds=arguments.warmup,
            command=Path(command[0]).name if command else None, shown=arguments.out,
        )  # fmt: skip
        self.live = LiveRecording(endpoints, self.recording, arguments.interval)

    def record(self) -> int:
        """The exit code. ConfigError or SourceError for what fails before the load begins."""
        process = None
        try:
            self.live.check() if self.warmup else self.live.open()
            if self.command and not self.signals.received:
                process = self._start(self.command)
        except BaseException:  # an interrupt, too: nothing half-recorded is left
            self.live.abandon()
            self.recording.discard()
            raise
        if self.signals.received and process is None:
            self.live.abandon()
            self.recording.discard()
            _say("interrupted before the load began: nothing was recorded")
            return self.signals.code
        return self._frame(process)

    def _frame(self, process: subprocess.Popen[bytes] | None) -> int:
        """Wait for the load and complete the recording. A full disk ends the recording, never the load."""
        broken: OSError | None = None
        try:
            if not self._warm_up(process):
                return self._nothing_recorded(process)
        except OSError as error:
            broken = error
        code, ended = self._wait(process)
        try:
            self.live.close(ended, code)
        except OSError as error:
            broken = broken or error
        if broken is not None:
            _say(f"{self.out} can't be written ({broken.strerror}): the recording is not complete")
            return code or FAILED
        return self._report(code)

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(command)  # noqa: S603 - running the user's own command is the purpose
        except FileNotFoundError:
            raise ConfigError(f"the command was not found: {command[0]}") from None
        except OSError as error:
            raise ConfigError(f"the command can't be run: {command[0]}: {error.strerror}") from None
        self.signals.forward_to(process)
        return process

    def _warm_up(self, process: subprocess.Popen[bytes] | None) -> bool:
        """Wait for the warm-up's end and begin; False where the load ended before it."""
        if not self.warmup:
            return True
        if process is None:
            over = not self.signals.wait(self.warmup)
        else:
            try:
                process.wait(self.warmup)
                over = False
            except subprocess.TimeoutExpired:
                over = True
        if over:
            self.live.open(tolerant=True)
        return over

    def _nothing_recorded(self, process: subprocess.Popen[bytes] | None) -> int:
        self.recording.discard()
        _say(f"the load ended within the warm-up of {self.warmup:g} s: nothing was recorded")
        return (self._code(process) if process else 0) or self.signals.code or FAILED

    def _wait(self, process: subprocess.Popen[bytes] | None) -> tuple[int, Ended]:
        """Until the load is over: its exit code, and what ended it."""
        if process is not None:
            process.wait()
            return self._code(process), "signal" if self.signals.received else "command"
        interrupted = self.signals.wait(self.duration or 0.0)
        return self.signals.code, "signal" if interrupted else "duration"

    @staticmethod
    def _code(process: subprocess.Popen[bytes]) -> int:
        """The exit code as a shell would give it: 128 + n for a command that signal n ended."""
        code = process.wait()
        return code if code >= 0 else 128 - code

    def _report(self, code: int) -> int:
        pages = self.recording.pages
        failed = self.recording.failed_scrapes
        _say(f"{sum(pages.values())} scrapes of {len(pages)} endpoint{'s' * (len(pages) != 1)} in {self.out}"
             + (f", {failed} failed" if failed else ""))  # fmt: skip
        for each in self.recording.failures:
            _say(f"{each.count} failed: {each.reason}")
        if any(count < 2 for count in pages.values()):
            return code or _fail("an endpoint has fewer than two scrapes: no window can be measured from it")
        _say(f"gates read it with 'telemetry: {self.out}' in a gate file, or --llmroof-telemetry={self.out}")
        return code


class _Signals:
    """Ctrl-C and its kin end the load, not the recording: the command gets them, and the last scrape still follows."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._event = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        # What is ignored stays so: nohup, and Ctrl-C for jobs in the background.
        wanted = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._handle) for number in wanted}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def code(self) -> int:
        """The exit code that tells of the signal, 0 where none came."""
        return 128 + self.received if self.received else 0

    def wait(self, seconds: float) -> bool:
        """Wait, at most until a signal comes; whether one came."""
        return self._event.wait(seconds)

    def forward_to(self, process: subprocess.Popen[bytes]) -> None:
        """Pass signals on to a command from now on, one that came while it was being started included."""
        self._process = process
        if self.received:
            process.send_signal(self.received)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._event.set()
        # A terminal sends Ctrl-C to every process in its foreground: the command has it already.
        if self._process is not None and not (number == signal.SIGINT and _in_foreground()):
            self._process.send_signal(number)


def _in_foreground() -> bool:
    try:
        with open("/dev/tty", encoding="utf-8") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:  # no terminal
        return False


def _say(text: str) -> None:
    print(f"llmroof record: {text}", file=sys.stderr, flush=True)


def _fail(text: str) -> int:
    _say(text)
    return FAILED


def _duration(text: str) -> float:
    try:
        seconds = parse_as(text, "seconds")
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds < 0:
        raise argparse.ArgumentTypeError("a time can't be negative")
    return seconds


def _positive(text: str) -> float:
    seconds = _duration(text)
    if seconds == 0:
        raise argparse.ArgumentTypeError("a time must be more than zero")
    return seconds


def _header(text: str, environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Name and value; the messages never repeat the value."""
    name, colon, value = text.partition(":")
    if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip()):
        raise argparse.ArgumentTypeError("a header is written 'Name: value'")
    missing = [each for each in re.findall(r"\$\{(\w+)\}", value) if each not in environment]
    if missing:
        raise argparse.ArgumentTypeError(f"the environment variable {missing[0]} of header {name.strip()} is not set")
    return name.strip(), re.sub(r"\$\{(\w+)\}", lambda match: environment[match[1]], value).strip()
