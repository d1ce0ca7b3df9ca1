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
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.targets import TARGETS
from fuzz.worker import MOST_SECONDS, Fault, Feeder, Tally, bound_memory, feed, schedule

#: A worker that says nothing for so long hangs where no signal reaches it.
_SILENT_SECONDS = 3 * MOST_SECONDS
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
            workers.append((process, ours, folder))
        for process, ours, folder in workers:
            died = _until_done(process, ours, found)
            if died:
                name, number = (folder / "next").read_text().split("\n") if (folder / "next").exists() else ("?", "0")
                fault = Fault(name, int(number), died, f"{name}: {died}")
                found.setdefault(name, Tally()).faults[fault.where] = fault
    return found


def _until_done(process: Any, ours: Connection, found: dict[str, Tally]) -> str | None:
    """Hear of a worker until it is done; what became of it where it is not. What it did until then counts."""
    heard: dict[str, Tally] = {}
    died, done = None, False
    while not done and died is None:
        if not ours.poll(_SILENT_SECONDS):
            process.kill()
            died = f"a hang that no signal ends (more than {_SILENT_SECONDS:g} s)"
            break
        try:
            heard, done = ours.recv()
        except EOFError:
            process.join()
            died = f"the process ended with {process.exitcode}"
        if sys.stderr.isatty():
            print(f"\r{sum(tally.inputs for tally in heard.values())} inputs ", end="", file=sys.stderr, flush=True)
    for name, tally in heard.items():
        _add(found[name], tally)
    return died


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
