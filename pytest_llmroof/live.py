"""Live windows in a pytest run: each measured once, however many gates, workers and reruns read it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from pytest_llmroof.acquire import Framing, duration_seconds, length_seconds, take
from pytest_llmroof.asked import asks
from pytest_llmroof.blocks import AskedFraming
from pytest_llmroof.errors import Deliberate, SourceError
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.options import settings
from pytest_llmroof.progress import Progress
from pytest_llmroof.rundir import run_folder, writing
from pytest_llmroof.taken import Taken

#: What messages call a recording that nobody asked to keep.
_UNNAMED: Final = "live"
_INTERRUPTED: Final = Taken(failure=("the window was interrupted before its end", "measure again"))
_POLL_SECONDS: Final = 0.05

_monotonic = time.monotonic
_sleep = time.sleep


class StillOpen(Deliberate, RuntimeError):
    """A measurement was read while its window was open."""


def taken(config: pytest.Config, spec: WindowSpec) -> Taken:
    """What was recorded of a window of a duration: by this process now, or by whichever came first.

    Failures and interruptions are kept like successes: nobody else waits for the same server again. A worker that is
    killed in it gives the lock back, and the next one measures.
    """
    try:
        with writing():
            stored = run_folder(config) / f"{_key(spec.id)}.json"
            with _locked(stored.with_suffix(".lock")):
                return _taken_once(config, spec, stored)
    except SourceError as error:
        return Taken.failed(error)


def _taken_once(config: pytest.Config, spec: WindowSpec, stored: Path) -> Taken:
    if stored.exists():
        return Taken.read(stored)
    try:
        found = _take(config, spec)
    except BaseException:  # an interrupt, too: others need not wait for it
        # What can't be written must not hide that somebody interrupts the run.
        with contextlib.suppress(OSError):
            _INTERRUPTED.write(stored)
        raise
    found.write(stored)
    return found


def timeout_seconds(spec: WindowSpec) -> float:
    """What pytest-timeout must grant to any gate of the window, as each may be the one that measures it."""
    return length_seconds(spec)


class Frame:
    """A live window around a load that the test itself drives: its body, or a ``with`` block."""

    def __init__(self, config: pytest.Config, spec: WindowSpec, least_seconds: float) -> None:
        self.config = config
        self.spec = spec
        self.least_seconds = least_seconds
        self._locks = contextlib.ExitStack()
        self._framing: Framing | AskedFraming | None = None

    def open(self) -> None:
        """First scrape. What fails is kept, and becomes the verdict of the window's gates."""
        frames = _frames(self.config)
        if isinstance(frames.get(self.spec.id), Taken):
            return  # A rerun of the test: its window stands, as gates are not measured again until they are green.
        frames[self.spec.id] = None
        try:
            with writing():
                self._locks.enter_context(_hold(self.config, self.spec))
                with _place(self.config, self.spec) as (folder, shown):
                    self._framing = AskedFraming(self.spec) if asks(self.spec) else Framing(self.spec, folder, shown)
                    self._framing.open()
        except SourceError as error:
            frames[self.spec.id] = Taken.failed(error)
            self._locks.close()
        except BaseException:  # an interrupt, too: no scrape goes on
            self.abandon()
            raise

    def close(self) -> None:
        """Last scrape: the window can be read."""
        frames = _frames(self.config)
        if self._framing is None:
            return
        progress = Progress(self.config, self.spec.name, self.least_seconds)
        with self._locks:
            try:
                found = self._framing.close(self.least_seconds, progress.wait)
            except BaseException:  # an interrupt, too: no scrape goes on
                self.abandon()
                raise
        frames[self.spec.id] = _noted(self.config, self.spec, found)

    def abandon(self) -> None:
        """The load did not get to its end: there is no window, and a rerun of the test opens a new one."""
        frames = _frames(self.config)
        if frames.get(self.spec.id) is None:
            frames.pop(self.spec.id, None)
        with self._locks:
            if self._framing is not None:
                self._framing.abandon()


def probed(config: pytest.Config, spec: WindowSpec, server: str, take_it: Callable[[Path, str], Taken]) -> None:
    """A window whose load is a probe's: ``take_it`` drives and records it in a folder, while no other worker's does.

    ``server`` is host and port of what the load goes to.
    """
    frames = _frames(config)
    if isinstance(frames.get(spec.id), Taken):
        return  # A rerun of the test: its window stands.
    try:
        with writing(), _hold(config, spec, server), _place(config, spec) as (folder, shown):
            found = take_it(folder, shown)
    except SourceError as error:
        found = Taken.failed(error)
    frames[spec.id] = _noted(config, spec, found)


def _noted(config: pytest.Config, spec: WindowSpec, found: Taken) -> Taken:
    """What was recorded around a load, noted for whoever names the recordings of the run."""
    try:
        with writing():
            found.write(run_folder(config) / f"{_key(f'{os.getpid()} {spec.id}')}.json")
    except SourceError as error:
        return Taken.failed(error)
    return found


def framed(config: pytest.Config, spec: WindowSpec) -> Taken | None:
    """What was recorded around a load; None where no window was opened. StillOpen before its end."""
    __tracebackhide__ = True
    frames = _frames(config)
    if spec.id in frames and frames[spec.id] is None:
        raise StillOpen("the window is still open: read it after the `with` block, or after the test's body")
    return frames.get(spec.id)


_FRAMES: Final = pytest.StashKey[dict[str, Taken | None]]()


def _frames(config: pytest.Config) -> dict[str, Taken | None]:
    """Windows around loads by id; None while one is open."""
    return config.stash.setdefault(_FRAMES, {})


def _take(config: pytest.Config, spec: WindowSpec) -> Taken:
    total = spec.warmup_seconds + spec.repeat * duration_seconds(spec)
    try:
        with _place(config, spec) as (folder, shown):
            return take(spec, folder, shown, Progress(config, spec.name, total).wait)
    except SourceError as error:
        return Taken.failed(error)


@contextlib.contextmanager
def _place(config: pytest.Config, spec: WindowSpec) -> Iterator[tuple[Path, str]]:
    """An empty folder for a recording, and what messages may call it. One that stays empty is removed.

    Below --llmroof-record=DIR it is ``DIR/<file's stem>/<window>``, or the next free ``<window>-2``: an earlier
    recording is evidence, and neither replaced nor mixed with this one.
    """
    record = settings(config).record
    if record is None:
        yield Path(tempfile.mkdtemp(dir=run_folder(config))), _UNNAMED
        return
    folder = _new_folder(record, *_names(spec))
    base = config.invocation_params.dir
    yield folder, folder.relative_to(base if folder.is_relative_to(base) else record.parent).as_posix()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _new_folder(record: Path, stem: str, name: str) -> Path:
    try:
        for number in count(1):
            folder = record / stem / (name if number == 1 else f"{name}-{number}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir(parents=True)
                return folder
    except OSError as error:
        raise SourceError(f"the folder of --llmroof-record can't be written: {error.strerror}") from None
    raise AssertionError("numbers do not end")


def _names(spec: WindowSpec) -> tuple[str, str]:
    """File's stem and window, as names that no file system minds."""
    file, *window = spec.id.split("::")
    return _safe(Path(file).stem), _safe("-".join(window) or spec.name)


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100] or "window"


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes, which the system takes back from one that dies."""
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


#: Servers that this process holds, and by how many of its windows.
_HELD: Final[dict[str, int]] = {}


@contextlib.contextmanager
def _hold(config: pytest.Config, spec: WindowSpec, *also: str) -> Iterator[None]:
    """Keep other workers' loads away from the servers of a window: each would count in the other's."""
    if not hasattr(config, "workerinput"):
        yield
        return
    servers = {urlsplit(source.shown).netloc for source in spec.telemetry if source.kind == "url"} | set(also)
    with contextlib.ExitStack() as stack:
        for server in sorted(servers):  # in one order everywhere, so that no two workers wait for each other
            stack.enter_context(_server_held(run_folder(config), server, spec.max_wait_seconds))
        yield


@contextlib.contextmanager
def _server_held(folder: Path, server: str, longest_seconds: float) -> Iterator[None]:
    held = _HELD.get(server, 0)
    with contextlib.ExitStack() as stack:
        if not held:
            file = stack.enter_context((folder / f"{_key(server)}.server").open("a", encoding="utf-8"))
            _wait_for(file.fileno(), server, longest_seconds)
        _HELD[server] = held + 1
        try:
            yield
        finally:
            _HELD[server] -= 1


def _wait_for(file: int, server: str, longest_seconds: float) -> None:
    end = _monotonic() + longest_seconds
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if _monotonic() > end:
            raise SourceError(
                f"another worker's window held {server} for more than {longest_seconds:g} s",
                "give windows that a whole session needs to one worker, or raise max_wait",
            )
        _sleep(_POLL_SECONDS)
