"""A run as SGLang's metrics show it: of 0.4.8, whose tokens are counted when a request ends, and of 0.5.20."""

from __future__ import annotations

from simulator.counted import Counted
from simulator.exposition import Lines

TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
BETWEEN = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8,
           1.0, 2.0, 4.0, 6.0, 8.0)  # fmt: skip
LENGTH = (1.0, 10.0, 100.0, 500.0, 1000.0, 5000.0, 10000.0)


def page(counted: Counted, moment: float) -> str:
    """What a scrape gets at a moment of the run. Families are absent until they are fed first."""
    plan = counted.run.plan
    live = plan.flavour == "sglang 0.5.20"
    model = {"model_name": plan.net.served, "engine_type": "unified"}
    ranked = Lines("sglang:", {**model, "tp_rank": "0", "pp_rank": "0"}, moment)
    step = counted.step_at(moment)
    ranked.gauge("num_running_reqs", step.running if step else 0)
    ranked.gauge("num_queue_reqs", step.waiting if step else 0)
    ranked.gauge("token_usage", step.cache_used if step else 0.0)
    if live:
        _live(ranked, counted)
    lines = Lines("sglang:", model, moment)
    if counted.finished.at(moment):
        streaming = {"is_streaming": "true"} if live else {}
        lines.counter("num_requests", (streaming, counted.finished.at(moment)))
        lines.counter("prompt_tokens", (streaming, counted.finished_prompts.at(moment)))
        lines.counter("generation_tokens", (streaming, counted.finished_answers.at(moment)))
        cached = counted.finished_cached.at(moment)
        if cached:
            lines.counter("cached_tokens", ({**streaming, **({"cache_source": "device"} if live else {})}, cached))
        lines.histogram("e2e_request_latency_seconds", counted.e2e, TTFT)
        lines.histogram("prompt_tokens_histogram", counted.prompt_lengths, LENGTH)
        lines.histogram("generation_tokens_histogram", counted.output_lengths, LENGTH)
    if counted.ttft.count(moment):
        lines.histogram("time_to_first_token_seconds", counted.ttft, TTFT)
        if live:
            lines.histogram("queue_time_seconds", counted.queue_at_first, TTFT)
    if counted.between_tokens.count(moment):
        lines.histogram("inter_token_latency_seconds", counted.between_tokens, BETWEEN)
    return ranked.text + lines.text


def _live(lines: Lines, counted: Counted) -> None:
    at = lines.moment
    lines.counter(
        "realtime_tokens",
        *(
            ({"mode": mode}, total.at(at))
            for mode, total in (
                ("prefill_compute", counted.computed_live),
                ("prefill_cache", counted.cached_live),
                ("decode", counted.decoded),
            )
            if total.at(at)
        ),
    )
    lines.counter(
        "cuda_graph_passes",
        ({"mode": "decode_cuda_graph"}, counted.decode_passes.at(at)),
        ({"mode": "prefill_none"}, counted.prefill_passes.at(at)),
    )
    lines.counter(
        "forward_execution_seconds",
        ({"category": "forward_decode"}, counted.forward_seconds(True).at(at)),
        ({"category": "forward_extend"}, counted.forward_seconds(False).at(at)),
    )
    lines.counter("scheduler_idle_seconds", ({}, counted.idle_seconds(at)))
    lines.counter("num_retracted_requests", ({}, counted.preemptions.at(at)))
