"""Whole inputs of every kind, small so that many fit into a second. What is mutated of one stands among its files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmark_files import detailed, vllm_result
from dcgm_pages import page as dcgm_page
from engine_pages import START, dynamo, llamacpp, lmdeploy, sglang, tgi, trtllm
from gguf_files import dense
from kernel_tables import long, seconds, wide
from nsys_files import write_nsys
from planted import short_gaps
from reports import hostile, ordinary
from timelines import GEMM, MICROSECOND, NCCL_ALL_REDUCE, Schedule, write_kineto
from vllm_pages import Load, page

DATA = Path(__file__).parents[1] / "data"
SHARED = Path(__file__).parents[3] / "shared" / "data"
#: Larger ones would say little more, and take the time of many inputs.
_LARGEST = 20_000


@dataclass(frozen=True)
class Seed:
    """An input that is whole. ``name`` is its file's; the files ``beside`` it stay as they are."""

    content: bytes
    name: str
    beside: Mapping[str, bytes] = field(default_factory=dict)


def _each(files: Mapping[str, bytes]) -> list[Seed]:
    """A window of several files as one seed for each of them."""
    return [
        Seed(content, name, {other: held for other, held in files.items() if other != name})
        for name, content in files.items()
    ]


def _pages(make: Callable[[float, float | None], str], prefix: str = "") -> dict[str, bytes]:
    return {
        f"{prefix}before.prom": make(0.0, START).encode(), f"{prefix}after.prom": make(1.0, START + 60).encode()
    }  # fmt: skip


def vllm() -> dict[str, bytes]:
    """Two scrapes of a vLLM with a slow decode."""
    load = Load(model="meta-llama/Llama-3.1-8B-Instruct", started=START, seconds=60.0)
    return _pages(lambda done, at: page(load, done, at))


def made_engines() -> list[Seed]:
    """Scrapes of every engine, as the helpers of the tests make them."""
    made: list[Callable[[float, float | None], str]] = [sglang, llamacpp, tgi, trtllm, lmdeploy, dynamo]
    found = [seed for make in made for seed in _each(_pages(make))] + _each(vllm())
    record = {f"pod.{number:06}.prom": content for number, content in enumerate(vllm().values())}
    return found + _each({**record, "recording.json": json.dumps(_MANIFEST).encode()})


def engines() -> list[Seed]:
    """Scrapes of every engine, and real ones of two."""
    captured = DATA / "llamacpp-cpu"
    real = _each({name: (captured / name).read_bytes() for name in ("before.prom", "after-decode.prom")})
    captured = DATA / "vllm-cpu/plain"
    vllms = _each({name: (captured / name).read_bytes() for name in ("before.prom", "after-decode.prom")})
    return [*made_engines(), *real, *vllms[:1]]


_MANIFEST = {
    "schema": "llmroof.recording/1", "command": ["vllm", "bench", "serve"], "failed_scrapes": [
        {"endpoint": "pod", "count": 2, "reason": "timed out"}],
}  # fmt: skip


def gpus() -> list[Seed]:
    """Counters of a DCGM exporter, nvidia-smi's and amd-smi's tables, and their documents, beside an engine's pages."""
    figures = {"PROF_SM_ACTIVE": 0.8, "PROF_DRAM_ACTIVE": 0.6, "PROF_PIPE_TENSOR_ACTIVE": 0.2, "DEV_GPU_UTIL": 97.0,
               "DEV_SM_CLOCK": 1755.0, "DEV_FB_USED": 70_000.0, "DEV_POWER_USAGE": 640.0}  # fmt: skip
    dcgm = {f"dcgm-{at}.prom": dcgm_page(START + at, START, figures, gpus=2).encode() for at in (0, 30, 60)}
    times = [f"2026/11/29 18:{10 + at // 60:02}:{at % 60:02}.000" for at in range(0, 62, 10)]
    head = ("timestamp, index, name, utilization.gpu [%], memory.used [MiB], clocks.current.sm [MHz], power.draw [W], "
            "clocks_event_reasons.active")  # fmt: skip
    rows = [f"{at}, {gpu}, NVIDIA H100 80GB HBM3, 98 %, 70000 MiB, 1755 MHz, 640.50 W, 0x{gpu * 4:016x}"
            for at in times for gpu in (0, 1)]  # fmt: skip
    smi = "\n".join([head, *rows, ""]).encode()
    amd_rows = [{"gpu": gpu, "usage": {"gfx_activity": {"value": 97, "unit": "%"}},
                 "clock": {"gfx_0": {"clk": {"value": 1900, "unit": "MHz"}}},
                 "mem_usage": {"used_vram": {"value": 100_000, "unit": "MB"}},
                 "power": {"socket_power": {"value": 700, "unit": "W"}}} for gpu in (0, 1)]  # fmt: skip
    amd_csv = "timestamp,gpu,xcp,power_usage,gfx_clk,gfx,mem,vram_used,vram_total\n" + "".join(
        f"{START + at:.0f},{gpu},0,700,1900,97,61,180000,196592\n" for at in range(0, 60, 10) for gpu in (0, 1)
    )
    pages = vllm()
    return [
        *_each(dcgm),
        Seed(dcgm["dcgm-30.prom"], "dcgm-30.prom", {**dcgm, **pages}),
        Seed(smi, "smi.csv"), Seed(smi, "smi.csv", pages),
        Seed(json.dumps(amd_rows).encode(), "amd.json"), Seed(amd_csv.encode(), "amd.csv"),
    ]  # fmt: skip


def benchmarks() -> list[Seed]:
    """Results of load generators, of every tool of which a file is at hand."""
    requests = [(0.05 + 0.001 * number, [0.02] * 9) for number in range(12)]
    made = [Seed(json.dumps(vllm_result()).encode(), "vllm.json"),
            Seed(json.dumps(detailed(requests, failed=1)).encode(), "detailed.json")]  # fmt: skip
    real = [path for path in sorted((DATA / "benchmarks").rglob("*.json*")) if path.is_file()]
    if SHARED.is_dir():
        real += [path for path in sorted((SHARED / "benchmarks").glob("*.json*")) if path.is_file()]
    found = [*made, *(Seed(_some_lines(path), path.name) for path in real)]
    beside = Seed(found[0].content, "bench.json", vllm())
    return [seed for seed in [*found, beside] if len(seed.content) <= _LARGEST]


def _some_lines(path: Path) -> bytes:
    content = path.read_bytes()
    return b"".join(content.splitlines(keepends=True)[:10]) if path.suffix == ".jsonl" else content


def records() -> list[Seed]:
    """TensorRT-LLM's iteration statistics: a list, and a recording's answers."""
    def one(number: int) -> dict[str, Any]:
        return {
            "iter": number, "iterLatencyMS": 19.0, "hostStepTimeMS": 20.0, "numActiveRequests": 4, "gpuMemUsage": 7e10,
            "kvCacheStats": {"usedNumBlocks": 40, "maxNumBlocks": 100, "reusedBlocks": 3, "missedBlocks": 5},
            "inflightBatchingStats": {"numContextRequests": 0, "numGenRequests": 4, "numCtxTokens": 0,
                                      "numPausedRequests": 0, "numScheduledRequests": 4},
            "specDecodingStats": {"numDraftTokens": 8, "numAcceptedTokens": 5, "numRequestsWithDraftTokens": 4},
        }  # fmt: skip

    whole = json.dumps([one(number) for number in range(8)]).encode()
    answers = {
        f"trt.{number:06}.json": (f"# scraped_at {START + 20 * number}\n" + json.dumps(
            [one(6 * number + step) for step in range(6)])).encode() for number in range(3)
    }  # fmt: skip
    return [Seed(whole, "stats.json"), *_each(answers)]


def _step(length: int = 100, steps: int = 5) -> Schedule:
    made = Schedule(rank=0, world_size=2, zero_unix_ns=10**18)
    for number in range(steps):
        at = number * length * MICROSECOND
        made.step(at, at + 80 * MICROSECOND)
        made.launch(at, [(GEMM, at + 6_000, at + 60_000)])
        made.launch(at + 8_000, [(NCCL_ALL_REDUCE, at + 60_000, at + 80_000)])
    return made


def profiles() -> list[Seed]:
    """Traces plain and packed, an export of Nsight Systems and its tables, and Nsight Compute's two pages."""
    launches = [("gemm<1, 2>", {"gpu__time_duration.sum": seconds(20.0), "dram__bytes.sum": ("byte", "4e9"),
                                "sm__inst_executed_pipe_tensor.sum": ("inst", "1000")})]  # fmt: skip
    details = {("GPU Speed Of Light Throughput", "Duration"): ("ns", "20000"),
               ("GPU Speed Of Light Throughput", "DRAM Throughput"): ("%", "81.5")}  # fmt: skip
    trace = ("Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),"
             "Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n") + "".join(
        f"{at * 100_000},60000,{at + 1},64,1,1,256,1,1,32,0.0,0.0,,,,,NVIDIA H100 (0),1,7,{GEMM}\n" for at in range(6)
    )  # fmt: skip
    sums = (" Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
            f"75.0,300000,5,60000.0,60000.0,60000,60000,0.0,{GEMM}\n25.0,100000,5,20000.0,20000.0,20000,20000,0.0,"
            f"{NCCL_ALL_REDUCE}\n").lstrip()  # fmt: skip
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        paths = [
            write_kineto(_step(), folder / "rank0.pt.trace.json"), write_kineto(_step(), folder / "r.pt.trace.json.gz"),
            write_kineto(short_gaps(), folder / "gaps.pt.trace.json"), write_nsys(folder / "a.sqlite", _step()),
            write_nsys(folder / "opaque.sqlite", _step(), _step(), opaque=True, registered=True),
            wide(folder / "raw.csv", launches * 3), long(folder / "details.csv", [("gemm", details)] * 3),
        ]  # fmt: skip
        found = [Seed(path.read_bytes(), path.name) for path in paths]
    found += [Seed(trace.encode(), "gpu_trace.csv"), Seed(sums.encode(), "sums.csv")]
    return [*found, Seed(found[0].content, found[0].name, vllm())]


def models() -> list[Seed]:
    """Configurations of every catalogue model: families, quantisations and all."""
    from pytest_llmroof.data import load

    entries = load("models.yaml").values()
    found = [Seed(json.dumps(entry["config"], indent=1).encode(), "config.json") for entry in entries]
    sidecar = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    beside = {"config.json": found[0].content}
    return [*found, Seed(json.dumps(sidecar).encode(), "hf_quant_config.json", beside)]


def headers() -> list[Seed]:
    """A GGUF file's header."""
    return [Seed(dense(), "model.gguf")]


def reports() -> list[Seed]:
    """Reports of an ordinary and of a hostile run."""
    return [Seed(json.dumps(make(), default=str).encode(), "report.json") for make in (ordinary, hostile)]


#: Expressions of every form, each with other metrics.
GATES = (
    "decode.mbu >= 75%", "tpot.p99<=50ms", "kv_cache.usage.max < 0.95", "decode.mbu >= 85% of achievable",
    "itl.mean <= 1.05x baseline", "output.tokens_per_second >= baseline - 2%", "ttft.p99.9 <= baseline + 10ms",
    "goodput(ttft<=2s, tpot<=50ms) >= 99%", "kernels(gemm.*[0-9]+(a|b)).mbu > 3.2TB/s", "requests_per_second >= 1e3",
    "timeline.gap.p50 <= 20us", "hardware.clock >= 1_980MHz", "prefill.tokens_per_second.per_gpu > 12ktok/s",
)  # fmt: skip


def gate_files() -> list[Seed]:
    """Gate files with every key, and one of the shared references' own."""
    from fuzz.gatefiles import FILES

    return [Seed(text.encode(), "llmroof.yaml") for text in FILES]


def accelerators() -> list[Seed]:
    """A YAML file that describes an accelerator."""
    text = ("name: my-gpu\nproduct: My GPU 80 GB\npeaks: {bf16: 400TFLOP/s, fp8: 800TFLOP/s}\n"
            "memory_bandwidth: 2TB/s\nmemory: 80GB\n")  # fmt: skip
    return [Seed(text.encode(), "gpu.yaml")]


def texts(*given: str) -> Callable[[], list[Seed]]:
    """Texts of an option."""
    return partial(list, [Seed(text.encode(), "text") for text in given])
