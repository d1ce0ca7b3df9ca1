"""Pages as a vLLM server would expose them, around a load of known figures: what the tests gate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

LATENCIES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)
BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
REQUESTS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)

#: Llama 3.1 8B on an H100: 15.0 GB of weights and 2.1 GB of KV cache take 5.1 ms at 3.35 TB/s, an MBU of some 78 %.
EIGHT_B = {"model": "meta-llama/Llama-3.1-8B-Instruct", "itl": 0.0066, "batch": 16, "context": 1024, "output": 1024}


@dataclass(frozen=True)
class Load:
    """A load on one vLLM engine, steady from the first scrape to the last. Tokens, seconds; times are means.

    Every request is as long as every other, so that histograms hold one bucket each and means are exact.
    ``context`` is the mean of a decoding sequence: half of its output stands behind the prompt. ``output`` is the
    length of a request's answer; one token makes a prefill-only load. ``seconds`` is from scrape to scrape.
    """

    itl: float = 0.0262
    batch: float = 12.4
    context: float = 1500.0
    output: int = 1000
    seconds: float = 60.0
    queue: float = 0.01
    prefill: float = 0.06
    front_end: float = 0.01
    hit_rate: float = 0.0
    running: float = 12.0
    waiting: float = 0.0
    kv_usage: float = 0.4
    preemptions: int = 0
    requests: int | None = None
    model: str = "meta-llama/Llama-3.1-70B-Instruct"
    engine: str = "0"
    started: float = 1_795_975_800.0

    @property
    def steps(self) -> int:
        """Decode steps of the window: it is busy from end to end."""
        return round(self.seconds / self.itl)

    @property
    def intervals(self) -> int:
        """Observations of the inter-token latency: one per sequence and step."""
        return 0 if self.output == 1 else round(self.steps * self.batch)

    @property
    def finished(self) -> int:
        """Requests that finished: each has one interval less than tokens."""
        if self.requests is not None:
            return self.requests
        if self.output == 1:
            return round(self.seconds / self.prefill)
        return max(1, round(self.intervals / (self.output - 1)))

    @property
    def prompt(self) -> int:
        """Tokens of a prompt: what is left of the context besides half of the answer."""
        return max(1, round(self.context - (self.output if self.output > 1 else 0) / 2))

    @property
    def generated(self) -> int:
        """Tokens generated in the window."""
        return self.intervals + self.finished


def page(load: Load, done: float, at: float | None) -> str:
    """One scrape when a share of the load is ``done`` (0 to 1); ``at`` is its clock in Unix seconds."""
    lines = [f"# scraped_at {at:.6f}"] if at is not None else []
    lines.extend(_samples(load, done))
    return "\n".join(lines) + "\n"


def write_pages(folder: Path, load: Load | None = None, *, clock: bool = True, **changes: Any) -> tuple[Path, Path]:
    """``before.prom`` and ``after.prom`` in ``folder`` around a load; keywords change the load's figures."""
    load = replace(load or Load(), **changes)
    folder.mkdir(parents=True, exist_ok=True)
    before, after = folder / "before.prom", folder / "after.prom"
    before.write_text(page(load, 0.0, load.started if clock else None), encoding="utf-8")
    after.write_text(page(load, 1.0, load.started + load.seconds if clock else None), encoding="utf-8")
    return before, after


def _samples(load: Load, done: float) -> Iterator[str]:
    def part(count: int) -> int:
        # The server was warmed up before: a tenth of the same load stands in the first page already.
        return round(count * done) + count // 10

    labels = f'engine="{load.engine}",model_name="{load.model}"'
    finished, intervals, steps = part(load.finished), part(load.intervals), part(load.steps)
    prompts, generated = finished * load.prompt, intervals + finished
    cached = finished * math.floor(load.prompt * load.hit_rate)
    counters = {
        "prompt_tokens": prompts,
        "generation_tokens": generated,
        "prefix_cache_queries": prompts,
        "prefix_cache_hits": cached,
        "num_preemptions": part(load.preemptions),
    }
    gauges = {
        "num_requests_running": load.running,
        "num_requests_waiting": load.waiting,
        "kv_cache_usage_perc": load.kv_usage,
    }
    for name, value in gauges.items():
        yield from (f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{labels}}} {value}")
    for name, value in counters.items():
        yield from (f"# TYPE vllm:{name} counter", f"vllm:{name}_total{{{labels}}} {float(value)}")
    yield "# TYPE vllm:request_success counter"
    yield f'vllm:request_success_total{{{labels},finished_reason="length"}} {float(finished)}'
    yield f'vllm:request_success_total{{{labels},finished_reason="abort"}} 0.0'
    for source, tokens in (("local_compute", prompts - cached), ("local_cache_hit", cached)):
        yield f'vllm:prompt_tokens_by_source_total{{{labels},source="{source}"}} {float(tokens)}'
    decode = load.itl * (load.output - 1)
    ttft = load.front_end + load.queue + load.prefill
    histograms = [
        ("time_to_first_token_seconds", LATENCIES, ttft, finished),
        ("request_queue_time_seconds", REQUESTS, load.queue, finished),
        ("request_prefill_time_seconds", REQUESTS, load.prefill, finished),
        ("request_decode_time_seconds", REQUESTS, decode, finished),
        ("request_inference_time_seconds", REQUESTS, load.prefill + decode, finished),
        ("e2e_request_latency_seconds", REQUESTS, ttft + decode, finished),
        ("inter_token_latency_seconds", BETWEEN, load.itl, intervals),
        ("request_time_per_output_token_seconds", BETWEEN, load.itl if load.output > 1 else 0.0, finished),
        ("request_prompt_tokens", LENGTHS, load.prompt, finished),
        ("request_generation_tokens", LENGTHS, load.output, finished),
    ]
    for name, bounds, value, count in histograms:
        yield from _histogram(name, labels, bounds, value, count, value * count)
    passes = steps if load.output > 1 else finished
    tokens = prompts - cached + generated
    mean = tokens / passes if passes else 0.0
    yield from _histogram("iteration_tokens_total", labels, STEP_TOKENS, mean, passes, tokens)


def _histogram(
    name: str, labels: str, bounds: tuple[float, ...], value: float, count: int, total: float
) -> Iterator[str]:
    yield f"# TYPE vllm:{name} histogram"
    for bound in (*bounds, math.inf):
        edge = "+Inf" if math.isinf(bound) else f"{float(bound)}"
        yield f'vllm:{name}_bucket{{{labels},le="{edge}"}} {float(count if value <= bound else 0)}'
    yield f"vllm:{name}_count{{{labels}}} {float(count)}"
    yield f"vllm:{name}_sum{{{labels}}} {total!r}"
