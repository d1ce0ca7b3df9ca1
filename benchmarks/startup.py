"""What an installed plugin costs a run that does not use it.

    python benchmarks/startup.py [--timed]

pytest runs one test that does nothing, with the plugin and with ``-p no:llmroof``; no other plugin is loaded. The
difference must not exceed 3 ms of CPU.

valgrind counts the instructions of both, which come out the same however busy the machine is, where any timing varies
by more than is judged here. They become time by what an instruction of the run without the plugin takes: the least CPU
time of some runs, in the same minute, divided by its instructions. Without valgrind, or with ``--timed``, CPU time
itself is compared, in turns: the median of a hundred turns' differences.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, Popen

from rows import Row, reported

CALIBRATIONS = 40
TURNS = 100
MOST_SECONDS = 0.003

#: The plugin is handed over: finding it among what is installed is work that pytest does for any plugin.
WITH = "import pytest, sys; from pytest_llmroof import plugin; sys.exit(pytest.main(sys.argv[1:], [plugin]))"
WITHOUT = "import pytest, sys; sys.exit(pytest.main([*sys.argv[1:], '-p', 'no:llmroof']))"
OPTIONS = ("-q", "--disable-plugin-autoload", "-p", "no:cacheprovider")


def rows(*, timed: bool = False) -> list[Row]:
    """Run both."""
    with tempfile.TemporaryDirectory() as name:
        folder = project(Path(name))
        valgrind = None if timed else shutil.which("valgrind")
        return [by_time(folder) if valgrind is None else by_instructions(folder, valgrind)]


def project(parent: Path) -> Path:
    """A folder with one test, where both have run once."""
    folder = parent / "tests"
    folder.mkdir()
    (folder / "pytest.ini").touch()
    (folder / "test_it.py").write_text("def test_it(): pass\n", encoding="utf-8")
    # The first run compiles, as it does once for every user; the cache is ours, so that it is there for sure.
    run(folder, WITH), run(folder, WITHOUT)
    return folder


def turns(folder: Path, count: int) -> Iterator[tuple[float, float]]:
    """CPU seconds with the plugin and without it, in turns."""
    for _ in range(count):
        yield run(folder, WITH), run(folder, WITHOUT)


def by_instructions(folder: Path, valgrind: str) -> Row:
    """The plugin's instructions, as time."""
    used, bare = (instructions(folder, script, valgrind) for script in (WITH, WITHOUT))
    seconds = min(run(folder, WITHOUT) for _ in range(CALIBRATIONS))
    each = seconds / bare
    return row(used * each, seconds, f"{(used - bare) / 1e6:.1f} of {bare / 1e6:.0f} million instructions")


def by_time(folder: Path) -> Row:
    """The plugin's CPU time: what the runs of a turn differ by."""
    times = list(turns(folder, TURNS))
    bare = statistics.median(without for _, without in times)
    difference = statistics.median(used - without for used, without in times)
    return row(bare + difference, bare, f"{TURNS} turns")


def row(used: float, bare: float, how: str) -> Row:
    """The seconds with and without the plugin, judged."""
    added = used - bare
    return Row(
        f"a run of one test, plugin unused ({how})", f"{used * 1e3:.1f} ms", f"{bare * 1e3:.1f} ms",
        f"{added * 1e3:+.1f} ms", f"at most {MOST_SECONDS * 1e3:.0f} ms", added <= MOST_SECONDS,
    )  # fmt: skip


def run(folder: Path, script: str, *before: str) -> float:
    """CPU seconds of one run. It must pass."""
    command = [*before, sys.executable, "-c", script, *OPTIONS]
    environment = {
        **os.environ, "PYTEST_ADDOPTS": "", "PYTHONPYCACHEPREFIX": str(folder.parent / "cache"), "PYTHONHASHSEED": "0",
    }  # fmt: skip
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = Popen(command, cwd=folder, stdout=DEVNULL, stderr=DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"exit code {process.returncode} from {script}")
    return usage.ru_utime + usage.ru_stime


def instructions(folder: Path, script: str, valgrind: str) -> int:
    """How many instructions one run takes."""
    counts = folder.parent / "counts"
    run(folder, script, valgrind, "--tool=callgrind", f"--callgrind-out-file={counts}")
    found = re.search(r"^(?:summary|totals): (\d+)", counts.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    if found is None:
        raise SystemExit("valgrind counted nothing")
    return int(found[1])


def main() -> int:
    """Run both, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--timed", action="store_true", help="compare CPU time, also where valgrind is installed")
    return reported(rows(timed=parser.parse_args().timed))


if __name__ == "__main__":
    sys.exit(main())
