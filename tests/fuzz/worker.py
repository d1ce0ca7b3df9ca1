"""One process that feeds inputs to targets: bounded in memory and in the time that each may take."""

from __future__ import annotations

import random
import resource
import signal
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from fuzz.seeds import Seed
from fuzz.targets import TARGETS, Target

#: No input of some kilobytes takes more of a processor; what does hangs. What waits for something hangs by the clock.
MOST_SECONDS = 20.0
MOST_CLOCK_SECONDS = 120.0
#: What the process may have mapped beside what it starts with: interpreter, libraries and catalogues.
MOST_BYTES = 2 << 30
#: How often each target's turn comes.
_TURNS = 50


class Hang(BaseException):
    """An input took too long: no ``except Exception`` of the code that is tested may catch that."""


@dataclass
class Fault:
    """One fault: how it shows, and the first input that did it."""

    target: str
    number: int
    shown: str
    where: str
    count: int = 1


@dataclass
class Tally:
    """What a target was fed: ``seconds`` of the processor's time, and the ``slowest`` input by the clock."""

    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    faults: dict[str, Fault] = field(default_factory=dict)


def bound_memory() -> None:
    """From here on, what is beyond the bound is a MemoryError, and so a fault."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MOST_BYTES, mapped + MOST_BYTES))


def _too_long(number: int, frame: FrameType | None) -> None:
    raise Hang(f"it took more than {MOST_SECONDS:g} s of a processor, or {MOST_CLOCK_SECONDS:g} s by the clock")


class Feeder:
    """Makes the inputs of a target, and keeps its seeds' files in a folder of its own."""

    def __init__(self, target: Target, folder: Path, seed: int) -> None:
        self.target = target
        self._seeds = target.seeds()
        self._contents = [one.content for one in self._seeds]
        self._folder, self._seed = folder, seed

    def input(self, number: int) -> tuple[Path, Seed, bytes]:
        """The input of a number: always the same. The first ones are the seeds as they are."""
        place = number % len(self._seeds)
        seed = self._seeds[place]
        folder = self._folder / f"{self.target.name.replace(' ', '-').replace(chr(39), '')}-{place}"
        if not folder.is_dir():
            folder.mkdir(parents=True)
            for name, content in seed.beside.items():
                (folder / name).write_bytes(content)
        if number < len(self._seeds):
            return folder, seed, seed.content
        chance = random.Random(f"{self._seed}:{self.target.name}:{number}")
        return folder, seed, self.target.mutate(seed.content, chance, self._contents)

    def feed(self, number: int, tally: Tally) -> None:
        """One input, and what it did."""
        folder, seed, content = self.input(number)
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, MOST_CLOCK_SECONDS)
        begin, worked = time.perf_counter(), time.process_time()
        try:
            self.target.read(folder, seed, content)
        except (Exception, Hang) as error:
            fault = _fault(self.target.name, number, error)
            known = tally.faults.setdefault(fault.where, fault)
            known.count += known is not fault
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        took = time.perf_counter() - begin
        tally.inputs += 1
        tally.seconds += time.process_time() - worked
        tally.slowest = max(tally.slowest, took)


def _fault(target: str, number: int, error: BaseException) -> Fault:
    """A fault is known by its kind and by the line of the package that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "pytest_llmroof" in frame.filename] or frames
    where = f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else repr(error)
    shown = "".join(traceback.format_exception(error))
    return Fault(target, number, shown[-4000:], f"{target}: {where}")


def schedule(targets: Sequence[str], inputs: int) -> Mapping[str, int]:
    """How many of the inputs are each target's, by their shares."""
    total = sum(TARGETS[name].share for name in targets)
    return {name: max(1, round(inputs * TARGETS[name].share / total)) for name in targets}


def feed(
    counts: Mapping[str, int], folder: Path, seed: int, part: int = 0, parts: int = 1, deadline: float | None = None
) -> Iterator[tuple[str, int, dict[str, Tally]]]:
    """Feed every target its inputs, those of this ``part``; tells before each which it is, and what was done so far.

    A little of each target comes after the other, again and again: a run that ends early has fed all of them.
    """
    previous = [(kind, signal.signal(kind, _too_long)) for kind in (signal.SIGALRM, signal.SIGPROF)]
    feeders = {name: Feeder(TARGETS[name], folder, seed) for name in counts}
    tallies = {name: Tally() for name in counts}
    try:
        for turn in range(_TURNS):
            for name, count in counts.items():
                begin, end = count * turn // _TURNS, count * (turn + 1) // _TURNS
                for number in range(begin + (part - begin) % parts, end, parts):
                    if deadline is not None and time.monotonic() > deadline:
                        return
                    yield name, number, tallies
                    feeders[name].feed(number, tallies[name])
        yield "", 0, tallies
    finally:
        for kind, handler in previous:
            signal.signal(kind, handler)
