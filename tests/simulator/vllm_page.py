"""A run as vLLM's metrics show it: of 0.8.5, and of 0.25 with its newer names and counters."""

from __future__ import annotations

from simulator.counted import Counted
from simulator.exposition import Lines

TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
        160.0, 640.0, 2560.0)  # fmt: skip
BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
           1920.0, 7680.0)  # fmt: skip
STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
LENGTH = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


def page(counted: Counted, moment: float) -> str:
    """What a scrape gets at a moment of the run."""
    plan = counted.run.plan
    new = plan.flavour == "vllm 0.25"
    lines = Lines("vllm:", {"engine": "0", "model_name": plan.net.served}, moment)
    step = counted.step_at(moment)
    lines.gauge("num_requests_running", step.running if step else 0)
    lines.gauge("num_requests_waiting", step.waiting if step else 0)
    lines.gauge("kv_cache_usage_perc" if new else "gpu_cache_usage_perc", step.cache_used if step else 0.0)
    lines.gauge("cache_config_info", 1.0, block_size="16", num_gpu_blocks=f"{plan.cache // 16}", cache_dtype="auto")
    _counters(lines, counted, new)
    shared = (
        ("time_to_first_token_seconds", counted.ttft, TTFT),
        ("inter_token_latency_seconds" if new else "time_per_output_token_seconds", counted.between_outputs, BETWEEN),
        ("e2e_request_latency_seconds", counted.e2e, REQUEST),
        ("request_queue_time_seconds", counted.queue, REQUEST),
        ("request_prefill_time_seconds", counted.prefill, REQUEST),
        ("request_decode_time_seconds", counted.decode, REQUEST),
        ("request_inference_time_seconds", counted.inference, REQUEST),
        ("request_prompt_tokens", counted.prompt_lengths, LENGTH),
        ("request_generation_tokens", counted.output_lengths, LENGTH),
        ("iteration_tokens_total", counted.steps, STEP),
    )
    for name, observed, bounds in shared:
        lines.histogram(name, observed, tuple(map(float, bounds)))
    if new:
        lines.histogram("request_time_per_output_token_seconds", counted.per_token, BETWEEN)
        lines.histogram("request_prefill_kv_computed_tokens", counted.computed_lengths, tuple(map(float, LENGTH)))
    return lines.text


def _counters(lines: Lines, counted: Counted, new: bool) -> None:
    at = lines.moment
    prompts, cached = counted.prompt_tokens.at(at), counted.cached_tokens.at(at)
    lines.counter("prompt_tokens", ({}, prompts))
    lines.counter("generation_tokens", ({}, counted.generated.at(at)))
    lines.counter("num_preemptions", ({}, counted.preemptions.at(at)))
    prefix = "prefix_cache" if new else "gpu_prefix_cache"
    lines.counter(f"{prefix}_queries", ({}, prompts))
    lines.counter(f"{prefix}_hits", ({}, cached))
    lines.counter(
        "request_success", ({"finished_reason": "length"}, counted.finished.at(at)), ({"finished_reason": "abort"}, 0.0)
    )
    if new:
        lines.counter(
            "prompt_tokens_by_source",
            ({"source": "local_compute"}, prompts - cached),
            ({"source": "local_cache_hit"}, cached),
            ({"source": "external_kv_transfer"}, 0.0),
        )
        lines.counter("prompt_tokens_cached", ({}, cached))
        for name in ("flops", "read_bytes", "write_bytes"):  # there without their flag, and never fed
            lines.counter(f"estimated_{name}_per_gpu", ({}, 0.0))
    if counted.run.plan.drafted:
        lines.counter("spec_decode_num_drafts", ({}, counted.drafts.at(at)))
        lines.counter("spec_decode_num_draft_tokens", ({}, counted.draft_tokens.at(at)))
        lines.counter("spec_decode_num_accepted_tokens", ({}, counted.accepted.at(at)))
