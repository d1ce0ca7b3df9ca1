"""What a long export of Nsight Systems costs, against reading the same columns of it in the same run.

    python benchmarks/nsys.py [MILLIONS]

Writes a database as nsys export lays it out (40 columns a kernel, two streams in runs that are not in the order of
time, a call of the host for each kernel), then reads and analyses it in a process of its own, and lets another read the
same columns into NumPy arrays with sqlite3, which is the quickest way found. Ours must take no more than 1.5 times the
CPU of that. pandas.read_sql of the same columns is measured where pandas is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rows import Row, growth, reported

MILLIONS = 2.0
REPEATS = 3
MOST_CPU = 1.5
RUN = 4096  # kernels of a stream that stand together
PROCESS = 1 << 48 | 144 << 24
KERNELS = (
    "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT",
    "void vllm::rotary_embedding_kernel<c10::BFloat16, (bool)1>(const long *, c10::BFloat16 *, c10::BFloat16 *, int)",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<(int)128, (int)64, (int)128>>(Flash_fwd_params)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)2>(vllm::RankData *, vllm::RankSignals, vllm::Signal *)",
)
STRINGS = dict(enumerate((*KERNELS, "cudaLaunchKernel_v7000"), start=10))
COLUMNS = (
    "start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid",
    "demangledName", "shortName", "mangledName", "launchType", "cacheConfig", "registersPerThread", "gridX", "gridY",
    "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread",
    "localMemoryTotal", "gridId", "sharedMemoryExecuted", "graphNodeId", "sharedMemoryLimitConfig",
    "qmdBulkReleaseDone", "qmdPreexitDone", "qmdLastCtaDone", "graphId", "clusterX", "clusterY", "clusterZ",
    "clusterSchedulingPolicy", "maxPotentialClusterSize", "maxActiveClusters", "sharedMemoryRequestedPercentage",
    "tensorSizeMinusOneElements",
)  # fmt: skip
KINDS = dict.fromkeys(("start", "end", "deviceId", "streamId", "demangledName", "nameId"), "INTEGER NOT NULL")
KINDS["tensorSizeMinusOneElements"] = "TEXT NOT NULL"
CALLS = ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue", "callchainId")
READ = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, COALESCE(streamId, -1), COALESCE(correlationId, -1), "
    "COALESCE(globalPid, -1), demangledName, gridX * gridY * gridZ",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, COALESCE(globalTid, -1), COALESCE(correlationId, -1), nameId",
}


def kernels(count: int) -> Iterator[tuple[object, ...]]:
    """Kernels of 9 us, a gap of 1 us after each, the streams in turns."""
    for begin in range(0, count, 2 * RUN):
        for stream, parity in ((7, 0), (20, 1)):
            for number in range(begin + parity, min(begin + 2 * RUN, count), 2):
                start, name = number * 10_000, 10 + number % len(KERNELS)
                yield (
                    start, start + 9000, 0, 1, 0, stream, number + 1, PROCESS, name, name, name, 1, 1, 96, 128, 1, 1,
                    256, 1, 1, 0, 87568, 0, 250871808, number, 161656, None, 0, None, None, None, None, 1, 1, 1, 0, 0,
                    0, None, "[]",
                )  # fmt: skip


def calls(count: int) -> Iterator[tuple[object, ...]]:
    """Launches of 4 us: every tenth after the kernel before has ended."""
    for number in range(count):
        start = number * 10_000 - (500 if number % 10 == 0 else 6000)
        yield (start, start + 400 if number % 10 == 0 else start + 4000, 0, PROCESS | 145, number + 1, 14, 0, None)


def write_export(path: Path, count: int) -> None:
    """An export of so many kernels."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        database.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", STRINGS.items())
        for table, columns, rows in (
            ("CUPTI_ACTIVITY_KIND_KERNEL", COLUMNS, kernels(count)),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", CALLS, calls(count)),
        ):
            kinds = (KINDS.get(column, "INTEGER") for column in columns)
            told = ", ".join(f'"{column}" {kind}' for column, kind in zip(columns, kinds, strict=True))
            database.execute(f"CREATE TABLE {table} ({told})")
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
        database.commit()


OURS = """
from pathlib import Path
from pytest_llmroof.profiles.analyse import analyse
from pytest_llmroof.profiles.nsys import read_nsys
(timeline,) = read_nsys(Path({path!r}))
figures = analyse(timeline)
print(len(timeline.work), round(figures.whole.busy, 4), round(figures.whole.host_bound, 4))
"""
COLUMNS_ALONE = """
import sqlite3
from itertools import chain
import numpy as np
database = sqlite3.connect("file:" + {path!r} + "?mode=ro&immutable=1", uri=True)
for table, columns in {read!r}.items():
    rows = database.execute("SELECT " + columns + " FROM " + table)
    print(len(np.fromiter(chain.from_iterable(rows), dtype=np.int64)))
"""
PANDAS = """
import sqlite3
import pandas
database = sqlite3.connect("file:" + {path!r} + "?mode=ro&immutable=1", uri=True)
frames = [pandas.read_sql("SELECT " + columns + " FROM " + table, database) for table, columns in {read!r}.items()]
print(len(frames[0]))
"""
MEASURE = """
import resource, sys
exec(sys.stdin.read())
used = resource.getrusage(resource.RUSAGE_SELF)
print("used", used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def measured(program: str, path: Path) -> tuple[float, float, str]:
    """CPU seconds, peak MiB and output of a program in a process of its own."""
    text = program.format(path=str(path), read=READ)
    run = subprocess.run([sys.executable, "-c", MEASURE], input=text, capture_output=True, text=True, check=True)
    output, _, used = run.stdout.rpartition("used ")
    seconds, mebibytes = used.split()
    return float(seconds), float(mebibytes), output.strip()


def main(millions: float) -> int:
    """Write, read, compare."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.sqlite"
        write_export(path, round(millions * 1e6))
        print(f"{path.stat().st_size / 1e6:.0f} MB")
        # In turn, and the least of each: what else the machine does is no part of it.
        runs = [(measured(OURS, path), measured(COLUMNS_ALONE, path)) for _ in range(REPEATS)]
        ours, alone = min(mine[0] for mine, _ in runs), min(theirs[0] for _, theirs in runs)
        most, peer_most = max(mine[1] for mine, _ in runs), runs[0][1][1]
        small = Path(folder) / "small.sqlite"
        write_export(small, round(millions * 1e5))
        tenth = min(measured(OURS, small)[0] for _ in range(REPEATS))
        print(f"pieces of work, busy and host-bound share: {runs[0][0][2]}")
        name = f"an Nsight Systems export of {millions:g} million kernels analysed"
        rows = [
            Row(f"{name}, against reading its columns", f"{ours:.2f} s", f"{alone:.2f} s", f"{ours / alone:.2f}",
                f"at most {MOST_CPU}", ours <= MOST_CPU * alone),
            Row(f"{name}: memory", f"{most:.0f} MiB", f"{peer_most:.0f} MiB", f"{most / peer_most:.2f}", "", True),
            growth(name, tenth, ours),
        ]  # fmt: skip
        if importlib.util.find_spec("pandas") is not None:
            theirs, their_peak, _ = measured(PANDAS, path)
            rows += [
                Row(f"{name}, against pandas.read_sql alone", f"{ours:.2f} s", f"{theirs:.2f} s",
                    f"{ours / theirs:.2f}", "at most 1", ours <= theirs),
                Row(f"{name}, against pandas.read_sql alone: memory", f"{most:.0f} MiB", f"{their_peak:.0f} MiB",
                    f"{most / their_peak:.2f}", "at most 1", most <= their_peak),
            ]  # fmt: skip
    return reported(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("millions", nargs="?", type=float, default=MILLIONS)
    sys.exit(main(parser.parse_args().millions))
