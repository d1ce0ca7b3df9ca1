"""A run as TensorRT-LLM's Prometheus page shows it: all of a request is recorded when it ends."""

from __future__ import annotations

from simulator.counted import Counted
from simulator.exposition import Lines
from simulator.vllm_page import BETWEEN, REQUEST, TTFT

PREFILL = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)


def page(counted: Counted, moment: float) -> str:
    """What a scrape gets at a moment of the run."""
    lines = Lines("trtllm_", {"model_name": counted.run.plan.net.served, "engine_type": "pytorch"}, moment)
    step = counted.step_at(moment)
    lines.gauge("num_requests_running", step.running if step else 0)
    lines.gauge("num_requests_waiting", step.waiting if step else 0)
    lines.gauge("kv_cache_utilization", step.cache_used if step else 0.0)
    if not counted.finished.at(moment):
        return lines.text
    lines.counter("request_success", ({"finished_reason": "length"}, counted.finished.at(moment)))
    lines.counter("prompt_tokens", ({}, counted.finished_prompts.at(moment)))
    lines.counter("generation_tokens", ({}, counted.finished_answers.at(moment)))
    lines.counter("prompt_cached_tokens", ({}, counted.finished_cached.at(moment)))
    for name, observed, bounds in (
        ("time_to_first_token_seconds", counted.ttft_at_end, TTFT),
        ("time_per_output_token_seconds", counted.per_token, BETWEEN),
        ("e2e_request_latency_seconds", counted.e2e, REQUEST),
        ("request_queue_time_seconds", counted.queue, REQUEST),
        ("request_prefill_time_seconds", counted.prefill, PREFILL),
        ("request_decode_time_seconds", counted.decode, REQUEST),
    ):
        lines.histogram(name, observed, bounds)
    return lines.text
