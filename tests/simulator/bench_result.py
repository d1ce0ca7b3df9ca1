"""A run as the load generator's result tells it: vllm bench serve with details."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import fmean, median, pstdev
from typing import Any

from simulator.run import Run


def result(run: Run, zero: float = 1_795_975_800.0) -> dict[str, Any]:
    """Of a whole run that clients drove; ``date`` is when it was written."""
    done = [one for one in run.requests if one.finished and one.first is not None and one.last is not None]
    front = run.plan.front_end
    ttfts = [(one.first or 0.0) - one.arrived + front for one in done]
    itls = [[after - before for before, after in zip(one.times, one.times[1:], strict=False)] for one in done]
    whole = [(one.last or 0.0) - one.arrived + front for one in done]
    tpots = [
        (total - ttft) / (one.output - 1) for one, total, ttft in zip(done, whole, ttfts, strict=True) if one.output > 1
    ]
    begun = min(one.arrived for one in done)
    ended = max(one.last or 0.0 for one in done) + front
    duration = ended - begun
    prompts, outputs = sum(one.prompt for one in done), sum(one.output for one in done)
    gaps = [gap for each in itls for gap in each]
    return {
        "date": datetime.fromtimestamp(zero + ended, UTC).strftime("%Y%m%d-%H%M%S"),
        "backend": "vllm", "endpoint_type": "openai", "model_id": run.plan.net.served, "num_prompts": len(done),
        "request_rate": "inf", "max_concurrency": run.plan.traffic.clients, "duration": duration,
        "completed": len(done), "failed": 0, "total_input_tokens": prompts, "total_output_tokens": outputs,
        "request_throughput": len(done) / duration, "request_goodput": None, "output_throughput": outputs / duration,
        "total_token_throughput": (prompts + outputs) / duration,
        "input_lens": [one.prompt for one in done], "output_lens": [one.output for one in done],
        "ttfts": ttfts, "itls": itls, "generated_texts": ["" for _ in done], "errors": ["" for _ in done],
        **_latency("ttft", ttfts), **_latency("tpot", tpots), **_latency("itl", gaps), **_latency("e2el", whole),
    }  # fmt: skip


def _latency(name: str, seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        f"mean_{name}_ms": 1e3 * fmean(seconds),
        f"median_{name}_ms": 1e3 * median(seconds),
        f"std_{name}_ms": 1e3 * pstdev(seconds),
        f"p99_{name}_ms": 1e3 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
    }
