"""What 10,000 gates over 100 windows cost, against 10,000 items that do nothing.

    python benchmarks/gates.py

Both are collected and run by pytest in processes of their own, in turns; the least CPU time of five runs counts. All
gates pass, no report is written. Prints both times and their ratio, which must not exceed 1.5.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, Popen

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from rows import Row, growth, reported
from vllm_pages import write_pages

WINDOWS = 100
GATES = 100
RUNS = 5
MOST = 1.5

BARE = """
import pytest

class Nothing(pytest.Item):
    def runtest(self):
        pass

class Window(pytest.Collector):
    def collect(self):
        for number in range(GATES):
            yield Nothing.from_parent(self, name=f"decode.mbu >= {number / 1000}%")

class File(pytest.File):
    def collect(self):
        for number in range(WINDOWS):
            yield Window.from_parent(self, name=f"window{number}")

def pytest_collect_file(file_path, parent):
    return File.from_parent(parent, path=file_path) if file_path.name == "bare.yaml" else None
"""


def rows() -> list[Row]:
    """Run both in turns."""
    with tempfile.TemporaryDirectory() as name:
        times = list(turns(Path(name), WINDOWS, RUNS))
        small = gate_folder(Path(name, "small"), WINDOWS // 10)
        tenth = min(run(small) for _ in range(RUNS))
    of_gates, of_bare = (min(column) for column in zip(*times, strict=True))
    ratio = of_gates / of_bare
    return [
        Row(
            f"{WINDOWS * GATES} gates over {WINDOWS} windows, against items that do nothing",
            f"{of_gates:.2f} s", f"{of_bare:.2f} s", f"{ratio:.2f}", f"at most {MOST}", ratio <= MOST,
        ),
        growth(f"{WINDOWS * GATES} gates over {WINDOWS} windows", tenth, of_gates),
    ]  # fmt: skip


def turns(folder: Path, windows: int, count: int) -> Iterator[tuple[float, float]]:
    """CPU seconds of gates and of items that do nothing, in turns."""
    gates, bare = gate_folder(folder / "gates", windows), bare_folder(folder / "bare", windows)
    # The first run compiles, as it does once for every user; the cache is ours, so that it is there for sure.
    run(gates), run(bare, "-p", "no:llmroof")
    for _ in range(count):
        yield run(gates), run(bare, "-p", "no:llmroof")


def gate_folder(folder: Path, windows: int) -> Path:
    """A gate file whose windows each read two pages of their own."""
    lines = ["gpu: h100", "model: llama-3.1-70b", "deployment: {tensor_parallel: 4, weights: bf16}", "windows:"]
    for window in range(windows):
        write_pages(folder / f"window{window}")
        lines += [
            f"  window{window}:",
            "    phase: decode",
            f"    telemetry: [window{window}/before.prom, window{window}/after.prom]",
            "    gates:",
            *(f"      - decode.mbu >= {gate / 1000}%" for gate in range(GATES)),
        ]
    (folder / "llmroof.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "pytest.ini").touch()
    return folder


def bare_folder(folder: Path, windows: int) -> Path:
    """A file of items of the same shape that do nothing."""
    folder.mkdir()
    (folder / "conftest.py").write_text(f"WINDOWS, GATES = {windows}, {GATES}\n{BARE}", encoding="utf-8")
    (folder / "bare.yaml").touch()
    (folder / "pytest.ini").touch()
    return folder


def run(folder: Path, *options: str) -> float:
    """CPU seconds of one run. All must pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPYCACHEPREFIX": str(folder.parent / "cache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = Popen(command, cwd=folder, stdout=DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"exit code {process.returncode} in {folder.name}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(reported(rows()))
