"""The canonical quantities of a window: their names and units are described in telemetry/window.py."""

from __future__ import annotations

from typing import Final

COUNTERS: Final = frozenset({
    "prompt_tokens", "prompt_tokens_computed", "prompt_tokens_cached", "prompt_tokens_recomputed",
    "finished_prompt_tokens", "prefix_queries", "prefix_hits", "external_prefix_queries", "external_prefix_hits",
    "generation_tokens", "decode_tokens", "finished_generation_tokens",
    "steps", "step_tokens", "step_seconds", "step_number", "timed_step_seconds", "step_sequences",
    "prefill_steps", "decode_steps", "prefill_step_seconds", "decode_step_seconds",
    "decode_sequences", "decode_context_tokens", "overlapping_steps",
    "prefill_seconds", "decode_seconds", "forward_seconds", "unloaded_seconds",
    "preemptions", "requests_finished", "requests_succeeded", "requests_aborted", "requests_errored",
    "requests_rejected", "draft_steps", "draft_tokens", "accepted_tokens",
    "estimated_flops", "estimated_read_bytes",
})  # fmt: skip

HISTOGRAMS: Final = frozenset({
    "ttft", "itl", "tpot", "e2e", "queue", "prefill_time", "decode_time", "inference_time", "forward_time",
    "execute_time", "step_tokens", "prompt_length", "generation_length", "computed_length",
})  # fmt: skip

GAUGES: Final = frozenset({
    "running", "waiting", "swapped", "kv_usage", "prefix_hit_rate", "acceptance_rate", "accept_length",
    "longest_sequence",
})  # fmt: skip
