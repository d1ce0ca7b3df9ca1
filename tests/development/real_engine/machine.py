"""Print this machine as an accelerator (JSON that a gate file takes): what its cores reach, measured with numpy.

Best of several runs: the peak is what can be reached when nothing disturbs.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def best(work: Callable[[], object], times: int = 12) -> float:
    """Seconds of the fastest run."""
    found = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - started)
    return found


def bandwidth(numpy: Any) -> float:
    """Bytes per second: of a copy, or of a matrix that is read once for a product with a vector, as decode does."""
    source = numpy.ones(80_000_000, dtype=numpy.float32)
    target = numpy.empty_like(source)
    copied = 2 * source.nbytes / best(lambda: numpy.copyto(target, source))
    matrix, vector = source[: 8192 * 8192].reshape(8192, 8192), numpy.ones(8192, dtype=numpy.float32)
    read = matrix.nbytes / best(lambda: matrix @ vector)
    return float(max(copied, read))


def flops(numpy: Any, size: int = 2048) -> float:
    """FLOP/s of a float32 matrix product."""
    matrix = numpy.ones((size, size), dtype=numpy.float32)
    return float(2 * size**3 / best(lambda: matrix @ matrix))


def last_level_cache() -> int:
    """Bytes of the cache that the first core reaches last; 0 where the kernel does not say."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) * units[size[-1]] for size in sizes if size[-1] in units), default=0)


def main() -> None:
    """Measure and print."""
    numpy = importlib.import_module("numpy")
    single = flops(numpy)
    # Where the cores multiply bf16 themselves, they do two of them for each float32.
    doubles = "avx512_bf16" in Path("/proc/cpuinfo").read_text()
    half = single * (2 if doubles else 1)
    described: dict[str, Any] = {
        "name": "cpu",
        "vendor": "CPU",
        "peaks": {"fp32": f"{single / 1e9:.0f}GFLOP/s", "bf16": f"{half / 1e9:.0f}GFLOP/s",
                  "fp16": f"{half / 1e9:.0f}GFLOP/s"},
        "memory_bandwidth": f"{bandwidth(numpy) / 1e9:.1f}GB/s",
        "memory": "24GB",
    }  # fmt: skip
    cache = last_level_cache()
    if cache:
        described["l2"] = f"{cache / 2**20:.0f}MiB"
    print(json.dumps(described))


if __name__ == "__main__":
    main()
