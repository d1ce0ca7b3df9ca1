"""Loads drawn from distributions whose means and percentiles are known, written as servers and clients write them.

Nothing of the product's arithmetic is used here: times are lognormal, whose percentiles have closed forms.
"""

from __future__ import annotations

import bisect
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist

from vllm_pages import BETWEEN, LATENCIES

SECONDS = 60.0
STARTED = 1_795_975_800.0
LABELS = 'engine="0",model_name="m"'
#: Steps that memory alone paces: 16 GB of weights of a model of 8e9 parameters over 3.35 TB/s, and their true MBU.
WEIGHTS, BANDWIDTH, MBU, BATCH = 16e9, 3.35e12, 0.6, 8
STEP = WEIGHTS / BANDWIDTH / MBU
#: What each latency's median is, in seconds.
TTFT = 0.21


@dataclass(frozen=True)
class Spread:
    """A lognormal time: its mean, and its coefficient of variation."""

    mean: float
    variation: float

    @property
    def sigma(self) -> float:
        return math.sqrt(math.log1p(self.variation**2))

    @property
    def mu(self) -> float:
        return math.log(self.mean) - self.sigma**2 / 2

    def percentile(self, share: float) -> float:
        return math.exp(self.mu + self.sigma * NormalDist().inv_cdf(share))

    def draw(self, random: random.Random, count: int) -> list[float]:
        return [random.lognormvariate(self.mu, self.sigma) for _ in range(count)]


def finer(bounds: Sequence[float], pieces: int) -> tuple[float, ...]:
    """Each bucket in so many of the same ratio."""
    fine = [bounds[0]]
    for low, high in pairwise(bounds):
        fine += [low * (high / low) ** (piece / pieces) for piece in range(1, pieces + 1)]
    return tuple(fine)


def write_client(folder: Path, ttfts: Sequence[float], outputs: int = 50) -> Path:
    """A detailed result of vllm bench serve."""
    count = len(ttfts)
    run = {
        "date": "20260301-120000", "backend": "vllm", "model_id": "m", "num_prompts": count, "request_rate": "inf",
        "max_concurrency": BATCH, "duration": SECONDS, "completed": count, "failed": 0,
        "total_input_tokens": 100 * count, "total_output_tokens": outputs * count,
        "request_throughput": count / SECONDS, "request_goodput": None, "output_throughput": outputs * count / SECONDS,
        "total_token_throughput": 1.0, "mean_ttft_ms": 1e3 * sum(ttfts) / count, "median_ttft_ms": 1.0,
        "p99_ttft_ms": 1.0, "input_lens": [100] * count, "output_lens": [outputs] * count, "ttfts": list(ttfts),
        "itls": [[STEP] * (outputs - 1)] * count, "errors": [""] * count,
    }  # fmt: skip
    path = folder / "run.json"
    path.write_text(json.dumps(run), encoding="utf-8")
    return path


def write_server(
    folder: Path, ttfts: Sequence[float], steps: Sequence[float], pieces: int = 1
) -> tuple[Path, Path]:  # fmt: skip
    """Two pages of a vLLM server around the load: its histograms, of vLLM's buckets in so many pieces each."""
    finished, intervals = len(ttfts), len(steps) * BATCH
    length = max(2, round(intervals / finished) + 1)
    seconds = sum(steps)
    pages = []
    for done in (0, 1):
        lines = [f"# scraped_at {STARTED + done * seconds:.6f}"]
        counts = {"prompt_tokens": finished, "generation_tokens": intervals + finished}
        for name, value in counts.items():
            lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}_total{{{LABELS}}} {float(value * done)}"]
        lines += ["# TYPE vllm:num_requests_running gauge", f"vllm:num_requests_running{{{LABELS}}} {BATCH * done}"]
        seen = [("time_to_first_token_seconds", finer(LATENCIES, pieces), list(ttfts), 1)]
        seen.append(("inter_token_latency_seconds", finer(BETWEEN, pieces), list(steps), BATCH))
        seen.append(("request_prompt_tokens", (1.0, 2.0), [1.0] * finished, 1))
        seen.append(("request_generation_tokens", (float(length), 2.0 * length), [float(length)] * finished, 1))
        seen.append(("iteration_tokens_total", (1.0, 64.0, 128.0), [float(BATCH)] * len(steps), 1))
        for name, bounds, values, weight in seen:
            lines += _histogram(name, bounds, values, weight * done)
        pages.append(folder / f"{done}.prom")
        pages[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return pages[0], pages[1]


def _histogram(name: str, bounds: Sequence[float], values: list[float], weight: int) -> list[str]:
    ordered = sorted(values)
    lines = [f"# TYPE vllm:{name} histogram"]
    for bound in (*bounds, math.inf):
        edge = "+Inf" if math.isinf(bound) else repr(float(bound))
        count = float(weight * bisect.bisect_right(ordered, bound))
        lines.append(f'vllm:{name}_bucket{{{LABELS},le="{edge}"}} {count}')
    lines.append(f"vllm:{name}_sum{{{LABELS}}} {weight * math.fsum(values)!r}")
    lines.append(f"vllm:{name}_count{{{LABELS}}} {float(weight * len(values))}")
    return lines
