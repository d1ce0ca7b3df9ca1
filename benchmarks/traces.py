"""What a long PyTorch profiler trace costs, against json.load of the same file in the same run.

    python benchmarks/traces.py [MEGABYTES] [--hta PYTHON]

Writes a trace as the profiler lays it out (host operators, Python frames, API calls, kernels of two streams, flow
arrows), then reads and analyses it in a process of its own, and lets another load it with json.load. Ours must take
no more than 0.4 times the CPU and stay under 120 MiB at its peak. HolisticTraceAnalysis, which has many dependencies,
is measured with an interpreter that has it (python -m venv hta && hta/bin/pip install HolisticTraceAnalysis).
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import Row, growth, reported

MEGABYTES = 180.0
REPEATS = 3
MOST_CPU = 0.4
MOST_MEBIBYTES = 120.0
LAUNCHES = 32  # of a step
KERNELS = (
    "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT",
    "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, c10::BFloat16*, int)",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false>>(Flash_fwd_params)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals, __nv_bfloat16*, int)",
)

HEADER = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "numSms": 132}],
  "cuda_runtime_version": 12040, "record_shapes": 1,
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
  "displayTimeUnit": "ms", "baseTimeNanoseconds": 1767189312000000000,
  "traceEvents": ["""

EVENT = """
  {{
    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},
    "ts": {begin:.3f}, "dur": {duration:.3f},
    "args": {{
      {args}
    }}
  }},"""
FLOW = """
  {{
    "ph": "{phase}", "id": {correlation}, "pid": {pid}, "tid": {tid}, "ts": {begin:.3f},
    "cat": "ac2g", "name": "ac2g"{bound}
  }},"""
TAIL = """
  {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 0}
  ],
  "traceName": "trace.json"
}
"""


def step(number: int) -> str:
    """One decode step: for every kernel a Python frame, two operators, four calls and two arrows."""
    begin = 5_000_000_000.0 + number * 2000
    events = [
        EVENT.format(
            category="user_annotation",
            name="execute_context_0(0)_generation_32(32)",
            pid=851,
            tid=851,
            begin=begin,
            duration=1900,
            args='"External id": 1, "Record function id": 0, "Ev Idx": 0',
        )
    ]
    for index in range(LAUNCHES):
        at, correlation = begin + 50 * index, number * LAUNCHES + index + 1
        shapes = '"Input Dims": [[32, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]'
        host = [
            ("python_function", "vllm/model_executor/models/llama.py(198): run", 40.0, '"Python id": 7, "Ev Idx": 3'),
            ("cpu_op", "aten::linear", 30.0, f'"External id": {correlation}, {shapes}'),
            ("cpu_op", "aten::mm", 20.0, f'"External id": {correlation}, {shapes}'),
            ("cuda_runtime", "cudaFuncSetAttribute", 1.0, '"cbid": 273, "correlation": 0'),
            ("cuda_runtime", "cudaStreamIsCapturing", 1.0, '"cbid": 317, "correlation": 0'),
            ("cuda_runtime", "cudaLaunchKernel", 5.0, f'"cbid": 211, "correlation": {correlation}'),
        ]
        for offset, (category, name, duration, args) in enumerate(host):
            events.append(
                EVENT.format(
                    category=category, name=name, pid=851, tid=851, begin=at + offset, duration=duration, args=args
                )
            )
        stream = 7 + index % 2 * 13
        args = (
            f'"External id": {correlation}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, '
            f'"correlation": {correlation},\n      "registers per thread": 96, "shared memory": 87568, '
            '"blocks per SM": 0.97, "warps per SM": 7.76,\n      "grid": [128, 1, 1], "block": [256, 1, 1], '
            '"est. achieved occupancy %": 12'
        )
        kernel, ran = KERNELS[index % len(KERNELS)], at + 14
        events.append(
            EVENT.format(category="kernel", name=kernel, pid=0, tid=stream, begin=ran, duration=30.5, args=args)
        )
        events.append(FLOW.format(phase="s", correlation=correlation, pid=851, tid=851, begin=at + 5, bound=""))
        arrow = ', "bp": "e"'
        events.append(FLOW.format(phase="f", correlation=correlation, pid=0, tid=stream, begin=ran, bound=arrow))
    return "".join(events)


def write_trace(path: Path, megabytes: float) -> int:
    """A trace of so many MB (10^6 bytes); the number of steps in it."""
    steps, written = 0, 0
    with path.open("w", encoding="utf-8") as file:
        written += file.write(HEADER)
        while written < megabytes * 1e6:
            written += file.write(step(steps))
            steps += 1
        file.write(TAIL)
    return steps


def write_kernels(path: Path, megabytes: float) -> None:
    """A trace of nothing but kernels, a gap after each, one to a line: the most that has to be kept of so many MB."""
    args = (
        '"External id": {n}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {n}, '
        '"registers per thread": 96, "shared memory": 87568, "blocks per SM": 0.97, "warps per SM": 7.76, '
        '"grid": [128, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 12'
    )
    with path.open("w", encoding="utf-8") as file:
        written, number = file.write(HEADER), 0
        while written < megabytes * 1e6:
            number += 1
            event = EVENT.format(
                category="kernel", name=KERNELS[number % len(KERNELS)], pid=0, tid=7,
                begin=5e9 + number * 12, duration=9.5, args=args.format(n=number),
            )  # fmt: skip
            written += file.write(" ".join(event.split()) + "\n")
        file.write(TAIL)


OURS = """
from pathlib import Path
from pytest_llmroof.profiles.analyse import analyse
from pytest_llmroof.profiles.chrome import read_chrome
(timeline,) = read_chrome(Path({path!r}))
figures = analyse(timeline)
print(len(timeline.work), round(figures.whole.busy, 4))
"""
JSON = """
import json
with open({path!r}, encoding="utf-8") as file:
    print(len(json.load(file)["traceEvents"]))
"""
HTA = """
import os
from hta.trace_analysis import TraceAnalysis
folder, name = os.path.split({path!r})
print(TraceAnalysis(trace_files={{0: name}}, trace_dir=folder).get_temporal_breakdown(visualize=False))
"""
MEASURE = """
import resource, sys
exec(sys.stdin.read())
used = resource.getrusage(resource.RUSAGE_SELF)
print("used", used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def measured(program: str, path: Path, python: str = sys.executable) -> tuple[float, float, str]:
    """CPU seconds, peak MiB and output of a program in a process of its own."""
    text = program.format(path=str(path))
    run = subprocess.run([python, "-c", MEASURE], input=text, capture_output=True, text=True, check=True)
    output, _, used = run.stdout.rpartition("used ")
    seconds, mebibytes = used.split()
    return float(seconds), float(mebibytes), output.strip()


def main(megabytes: float, hta: str | None) -> int:
    """Write, read, compare."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.pt.trace.json"
        steps = write_trace(path, megabytes)
        print(f"{path.stat().st_size / 1e6:.0f} MB, {steps} steps")
        packed = path.with_suffix(".json.gz")
        with path.open("rb") as plain, gzip.open(packed, "wb", compresslevel=1) as out:
            while piece := plain.read(1 << 20):
                out.write(piece)
        # In turn, and the least of each: what else the machine does is no part of it.
        runs = [(measured(OURS, path), measured(JSON, path)) for _ in range(REPEATS)]
        ours, whole = min(mine[0] for mine, _ in runs), min(theirs[0] for _, theirs in runs)
        whole_peak = runs[0][1][1]
        gz, gz_peak, said = measured(OURS, packed)
        print(f"packed: {gz:.2f} s of CPU, {gz_peak:.0f} MiB at most; pieces of work and busy share: {said}")
        most = max(gz_peak, *(mine[1] for mine, _ in runs))
        small = Path(folder) / "small.pt.trace.json"
        write_trace(small, megabytes / 10)
        tenth = min(measured(OURS, small)[0] for _ in range(REPEATS))
        write_kernels(path, megabytes)
        kernels, kernels_peak, _ = measured(OURS, path)
        kernels_whole, kernels_whole_peak, _ = measured(JSON, path)
        name = f"a PyTorch trace of {megabytes:.0f} MB analysed, against json.load"
        rows = [
            Row(name, f"{ours:.2f} s", f"{whole:.2f} s", f"{ours / whole:.2f}", f"at most {MOST_CPU}",
                ours <= MOST_CPU * whole),
            Row(f"{name}: memory", f"{most:.0f} MiB", f"{whole_peak:.0f} MiB", f"{most / whole_peak:.2f}",
                f"at most {MOST_MEBIBYTES:.0f} MiB", most <= MOST_MEBIBYTES),
            Row("the same of kernels alone", f"{kernels:.2f} s", f"{kernels_whole:.2f} s",
                f"{kernels / kernels_whole:.2f}", f"at most {MOST_CPU}", kernels <= MOST_CPU * kernels_whole),
            Row("the same of kernels alone: memory", f"{kernels_peak:.0f} MiB", f"{kernels_whole_peak:.0f} MiB",
                f"{kernels_peak / kernels_whole_peak:.2f}", f"at most {MOST_MEBIBYTES:.0f} MiB",
                kernels_peak <= MOST_MEBIBYTES),
            growth(f"a PyTorch trace of {megabytes:.0f} MB analysed", tenth, ours),
        ]  # fmt: skip
        if hta is not None:
            theirs, their_peak, _ = measured(HTA, path, hta)
            rows += [
                Row("the same, against HolisticTraceAnalysis", f"{ours:.2f} s", f"{theirs:.2f} s",
                    f"{ours / theirs:.2f}", "at most 1", ours <= theirs),
                Row("the same, against HolisticTraceAnalysis: memory", f"{most:.0f} MiB", f"{their_peak:.0f} MiB",
                    f"{most / their_peak:.2f}", "at most 1", most <= their_peak),
            ]  # fmt: skip
    return reported(rows)


def interpreter_with_hta(named: str | None) -> str | None:
    """The interpreter to run HolisticTraceAnalysis with: the named one, this one where it has it, else none."""
    return named or (sys.executable if importlib.util.find_spec("hta") is not None else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("megabytes", nargs="?", type=float, default=MEGABYTES)
    parser.add_argument("--hta", metavar="PYTHON", help="an interpreter that has HolisticTraceAnalysis")
    options = parser.parse_args()
    sys.exit(main(options.megabytes, interpreter_with_hta(options.hta)))
