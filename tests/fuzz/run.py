"""The long run: inputs by the million, on some processes, with figures for every reader.

    nice -n 10 python tests/fuzz/run.py --inputs=1000000 --processes=2
    python tests/fuzz/run.py --target=profiles --inputs=50000 --seed=7
    python tests/fuzz/run.py --target=profiles --input=48123       one input again, with its traceback

Exits with 1 where there is a fault: each is printed once, with the number that makes its input again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.targets import TARGETS
from fuzz.worker import MOST_CLOCK_SECONDS, Fault, Feeder, Tally, bound_memory, feed, schedule

#: A worker that says nothing for so long hangs where no signal reaches it.
_SILENT_SECONDS = 2 * MOST_CLOCK_SECONDS
_TOLD_EVERY = 5.0


def _work(
    talk: Connection, counts: Mapping[str, int], folder: Path, seed: int, part: int, parts: int, seconds: float | None
) -> None:
    """A process of its own: tells which input is next before it is fed, and now and then what all of them did."""
    os.environ["HOME"] = str(folder)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    bound_memory()
    told, deadline = time.monotonic(), None if seconds is None else time.monotonic() + seconds
    tallies: dict[str, Tally] = {}
    beat = folder / "next"
    for name, number, tallies in feed(counts, folder, seed, part, parts, deadline):
        beat.write_text(f"{name}\n{number}")
        if time.monotonic() > told + _TOLD_EVERY:
            told = time.monotonic()
            talk.send((tallies, False))
    talk.send((tallies, True))


def _run(counts: Mapping[str, int], seed: int, processes: int, seconds: float | None) -> dict[str, Tally]:
    spawn = multiprocessing.get_context("spawn")
    fast = Path("/dev/shm")
    found: dict[str, Tally] = {name: Tally() for name in counts}
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as made:
        workers = []
        for part in range(processes):
            ours, theirs = spawn.Pipe()
            folder = Path(made) / str(part)
            folder.mkdir()
            given = (theirs, counts, folder, seed, part, processes, seconds)
            process = spawn.Process(target=_work, args=given, daemon=True)
            process.start()
            theirs.close()
            workers.append(_Worker(process, ours, folder))
        _hear(workers, found)
    return found


def _hear(workers: Sequence[_Worker], found: dict[str, Tally]) -> None:
    """Hear of all workers until they are done, or died. What a worker did until then counts."""
    heard: dict[Connection, dict[str, Tally]] = {worker.talk: {} for worker in workers}
    at_work = {worker.talk: (worker, time.monotonic()) for worker in workers}
    while at_work:
        ready = [each for each in wait(list(at_work), _TOLD_EVERY) if isinstance(each, Connection)]
        for talk in ready:
            worker = at_work[talk][0]
            try:
                heard[talk], done = talk.recv()
                at_work[talk] = (worker, time.monotonic())
                if done:
                    del at_work[talk]
            except EOFError:
                worker.process.join()
                worker.died(found, f"the process ended with {worker.process.exitcode}")
                del at_work[talk]
        for talk, (worker, last) in list(at_work.items()):
            if time.monotonic() - last > _SILENT_SECONDS:
                worker.process.kill()
                worker.died(found, f"a hang that no signal ends (more than {_SILENT_SECONDS:g} s)")
                del at_work[talk]
        if sys.stderr.isatty():
            count = sum(tally.inputs for tallies in heard.values() for tally in tallies.values())
            print(f"\r{count} inputs ", end="", file=sys.stderr, flush=True)
    for tallies in heard.values():
        for name, tally in tallies.items():
            _add(found[name], tally)


@dataclass(frozen=True)
class _Worker:
    process: SpawnProcess
    talk: Connection
    folder: Path

    def died(self, found: dict[str, Tally], how: str) -> None:
        """Note that it died, and of which input."""
        name, number = (self.folder / "next").read_text().split("\n") if (self.folder / "next").exists() else ("?", "0")
        fault = Fault(name, int(number), how, f"{name}: {how}")
        found.setdefault(name, Tally()).faults[fault.where] = fault


def _add(total: Tally, tally: Tally) -> None:
    total.inputs += tally.inputs
    total.seconds += tally.seconds
    total.slowest = max(total.slowest, tally.slowest)
    for where, fault in tally.faults.items():
        known = total.faults.setdefault(where, fault)
        known.count += fault.count if known is not fault else 0


def main() -> int:
    """Feed the inputs, print a table, and every fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=20_000, help="inputs over all targets (20000)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the random generator: the same seed, the same inputs")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this reader; repeatable")
    parser.add_argument("--input", type=int, help="feed the one input of this number, of one target")
    parser.add_argument("--seconds", type=float, help="stop after so long, wherever it is: all readers had their part")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    options = parser.parse_args()
    targets = options.target or list(TARGETS)
    if options.input is not None:
        return _one(targets[0], options.seed, options.input)
    begin = time.monotonic()
    counts = schedule(targets, options.inputs)
    tallies = _run(counts, options.seed, options.processes, options.seconds)
    return _told(tallies, time.monotonic() - begin, options)


def _one(target: str, seed: int, number: int) -> int:
    with tempfile.TemporaryDirectory() as made:
        folder, whole, content = Feeder(TARGETS[target], Path(made), seed).input(number)
        print(f"{whole.name} ({len(content)} bytes): {content[:2000]!r}")
        TARGETS[target].read(folder, whole, content)
    print("no fault")
    return 0


def _told(tallies: Mapping[str, Tally], seconds: float, options: argparse.Namespace) -> int:
    faults = [fault for tally in tallies.values() for fault in tally.faults.values()]
    print(f"\n{'reader':<24}{'inputs':>10}{'CPU s':>10}{'slowest':>10}{'faults':>8}")
    for name, tally in tallies.items():
        print(f"{name:<24}{tally.inputs:>10}{tally.seconds:>10.1f}{tally.slowest:>8.2f} s{len(tally.faults):>8}")
    total = sum(tally.inputs for tally in tallies.values())
    print(f"{'all':<24}{total:>10}{seconds:>10.1f}{'':>10}{len(faults):>8}")
    for fault in faults:
        print(f"\n{fault.where}, {fault.count} times; --seed={options.seed} --target={fault.target!r} "
              f"--input={fault.number}\n{fault.shown}")  # fmt: skip
    if options.json:
        rows = {name: {"inputs": tally.inputs, "cpu_seconds": round(tally.seconds, 1), "faults": len(tally.faults)}
                for name, tally in tallies.items()}  # fmt: skip
        options.json.write_text(json.dumps({"seconds": round(seconds, 1), "readers": rows}, indent=1) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
