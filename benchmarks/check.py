"""Has anything become slower? A few cheap ratios, each held against a bound (bounds.yaml).

    python benchmarks/check.py [ROW ...] [--show]

Every row is work of ours against a peer's in the same process or minute, by CPU time, in turns. The median of the
turns' ratios must not exceed the bound: what was measured when it was last set, times a margin for noise. A row above
it is measured again, twice at most: what is slower stays so, what a busy machine did does not. Fails where a row stays
above. ``--show`` prints the ratios as bounds.yaml has them, for whoever sets them anew.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gates
import nsys
import parsing
import startup
import traces
import yaml
from accounting import account
from rows import Row, reported, shown_seconds

from pytest_llmroof.data import load
from pytest_llmroof.profiles.analyse import analyse
from pytest_llmroof.profiles.chrome import read_chrome
from pytest_llmroof.profiles.nsys import read_nsys

BOUNDS = Path(__file__).parent / "bounds.yaml"
ROUNDS = 3
PAGE = parsing.DATA / "vllm-cpu/spec/after.prom"
SCRAPES = 10
MEGABYTES = 5.0
KERNELS = 60_000

#: CPU seconds of ours, and of the peer, in one turn.
Turn = tuple[float, float]
Turns = Iterator[Turn]


def _compared(count: int, ours: Callable[[], Any], peer: Callable[[], Any]) -> Turns:
    ours(), peer()  # what is made once in a process is no part of it
    for _ in range(count):
        yield parsing.cpu(ours), parsing.cpu(peer)


def _pages(work: Callable[[list[bytes]], None], scrapes: int, times: int) -> Turns:
    page = PAGE.read_text(encoding="utf-8")
    texts = [page] if scrapes == 1 else [parsing.moved(page, step) for step in range(scrapes)]
    pages = [text.encode() for text in texts]
    yield from _compared(
        7,
        lambda: [work(pages) for _ in range(times)],
        lambda: [parsing.theirs(texts) for _ in range(times)],
    )


def _trace() -> Turns:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rank0.pt.trace.json")
        traces.write_trace(path, MEGABYTES)

        def ours() -> None:
            (timeline,) = read_chrome(path)
            analyse(timeline)

        yield from _compared(5, ours, lambda: json.loads(path.read_bytes()))


def _trace_growth() -> Turns:
    """Tenfold work against ten times the small one's."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.pt.trace.json"), Path(folder, "large.pt.trace.json")
        traces.write_trace(small, MEGABYTES / 10)
        traces.write_trace(large, MEGABYTES)

        def read(path: Path, times: int) -> None:
            for _ in range(times):
                (timeline,) = read_chrome(path)
                analyse(timeline)

        yield from _compared(5, partial(read, large, 1), partial(read, small, 10))


def _export() -> Turns:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.sqlite")
        nsys.write_export(path, KERNELS)

        def ours() -> None:
            (timeline,) = read_nsys(path)
            analyse(timeline)

        alone = compile(nsys.COLUMNS_ALONE.format(path=str(path), read=nsys.READ).replace("print", ""), "alone", "exec")
        yield from _compared(5, ours, lambda: exec(alone, {}))


def _models() -> Turns:
    configs = {name: entry["config"] for name, entry in load("models.yaml").items()}
    yield from _compared(
        7,
        lambda: [account(config, name) for name, config in configs.items()],
        lambda: [copy.deepcopy(config) for config in configs.values()],
    )


def _gates() -> Turns:
    with tempfile.TemporaryDirectory() as folder:
        yield from gates.turns(Path(folder), 10, 3)


def _unused() -> Turns:
    with tempfile.TemporaryDirectory() as folder:
        yield from startup.turns(startup.project(Path(folder)), 15)


MEASURED: dict[str, Callable[[], Turns]] = {
    "a page parsed, against prometheus_client": lambda: _pages(parsing.parsed, 1, 5),
    "a page to quantities, against prometheus_client's parsing": lambda: _pages(parsing.to_quantities, 1, 5),
    f"{SCRAPES} scrapes parsed, against prometheus_client": lambda: _pages(parsing.parsed, SCRAPES, 1),
    f"{SCRAPES} scrapes to quantities, against prometheus_client's parsing": lambda: _pages(
        parsing.to_quantities, SCRAPES, 1
    ),
    f"a PyTorch trace of {MEGABYTES:.0f} MB analysed, against json": _trace,
    f"a PyTorch trace of {MEGABYTES:.0f} MB analysed, against ten of a tenth of it": _trace_growth,
    f"an Nsight Systems export of {KERNELS} kernels analysed, against reading its columns": _export,
    "accounting of all models, against copies of their configs": _models,
    f"{10 * gates.GATES} gates over 10 windows, against items that do nothing": _gates,
    "a run of one test, plugin unused, against the run without it": _unused,
}


def checked(name: str, bound: dict[str, float], *, show: bool) -> Row:
    """The row of one comparison, measured again where it is above its bound."""
    most = bound["measured"] * bound["noise"]
    number = 0
    while number < ROUNDS:
        number += 1
        turns = list(MEASURED[name]())
        ratios = sorted(ours / peer for ours, peer in turns)
        ratio = statistics.median(ratios)
        if ratio <= most or show:
            break
    again = f", round {number}" if number > 1 else ""
    ours, peer = (shown_seconds(statistics.median(column)) for column in zip(*turns, strict=True))
    shown = f"{ratio:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}{again})"
    return Row(name, ours, peer, shown, f"at most {most:.3f}", ratio <= most)


def main() -> int:
    """Measure the rows that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows whose name holds this; all without")
    parser.add_argument("--show", action="store_true", help="print the ratios as bounds.yaml has them; nothing fails")
    given = parser.parse_args()
    bounds: dict[str, dict[str, float]] = yaml.safe_load(BOUNDS.read_text(encoding="utf-8"))["rows"]
    if bounds.keys() != MEASURED.keys():
        print(f"bounds.yaml and this script differ in {sorted(bounds.keys() ^ MEASURED.keys())}", file=sys.stderr)
        return 2
    names = [name for name in MEASURED if not given.rows or any(each in name for each in given.rows)]
    gc.disable()
    rows = []
    for name in names:
        row = checked(name, bounds[name], show=given.show)
        rows.append(row)
        if given.show:
            print(f"  {name}: {{measured: {row.ratio.split()[0]}, noise: {bounds[name]['noise']}}}  # {row.ratio}")
        else:
            print(f"{name}: {row.ratio}", file=sys.stderr)
    return 0 if given.show else reported(rows)


if __name__ == "__main__":
    sys.exit(main())
