"""Pages as SGLang, llama.cpp, TensorRT-LLM, LMDeploy, TGI and Dynamo expose them, around loads of known figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

START = 1_795_975_800.0
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TOKENS = (1, 10, 100, 500, 1000, 5000, 10000)


class Exposition:
    """Lines of one page."""

    def __init__(self, prefix: str, at: float | None = None) -> None:
        self.prefix = prefix
        self.lines: list[str] = [] if at is None else [f"# scraped_at {at:.3f}"]

    def add(self, kind: str, name: str, value: float, suffix: str = "", /, **labels: str) -> Exposition:
        """A counter or gauge; ``suffix`` is what its samples have behind the name."""
        self.lines.append(f"# TYPE {self.prefix}{name} {kind}")
        self.lines.append(f"{self.prefix}{name}{suffix}{_labels(labels)} {value!r}")
        return self

    def counter(self, name: str, value: float, /, **labels: str) -> Exposition:
        """A counter, with ``_total``."""
        return self.add("counter", name, value, "_total", **labels)

    def gauge(self, name: str, value: float, /, **labels: str) -> Exposition:
        """A gauge."""
        return self.add("gauge", name, value, **labels)

    def histogram(
        self, name: str, value: float, count: float, bounds: tuple[float, ...] = SECONDS, /, **labels: str
    ) -> Exposition:
        """A histogram of ``count`` equal observations."""
        self.lines.append(f"# TYPE {self.prefix}{name} histogram")
        for bound in (*bounds, math.inf):
            edge = "+Inf" if math.isinf(bound) else f"{float(bound)}"
            inside = float(count if value <= bound else 0)
            self.lines.append(f"{self.prefix}{name}_bucket{_labels({**labels, 'le': edge})} {inside}")
        self.lines.append(f"{self.prefix}{name}_sum{_labels(labels)} {value * count!r}")
        self.lines.append(f"{self.prefix}{name}_count{_labels(labels)} {float(count)}")
        return self

    @property
    def text(self) -> str:
        """The page."""
        return "\n".join(self.lines) + "\n"


Page = Callable[[float, float | None], str]
"""Writes a page when a share of the load is done (0 to 1), with a clock."""


def write(folder: Path, page: Page, seconds: float = 60.0, *, clock: bool = True, name: str = "") -> tuple[Path, Path]:
    """``before.prom`` and ``after.prom`` around the load of a page; ``name`` stands in front of both."""
    folder.mkdir(parents=True, exist_ok=True)
    before, after = folder / f"{name}before.prom", folder / f"{name}after.prom"
    before.write_text(page(0.0, START if clock else None), encoding="utf-8")
    after.write_text(page(1.0, START + seconds if clock else None), encoding="utf-8")
    return before, after


def sglang(
    done: float,
    at: float | None,
    *,
    live: bool = True,
    steps: int = 2000,
    batch: int = 16,
    step_seconds: float = 0.02,
    prompt: int = 1000,
    output: int = 501,
    hits: int = 0,
    idle: float = 10.0,
    forward_decode: float = 36.0,
    forward_prefill: float = 4.0,
    tp_ranks: int = 1,
    dp_ranks: int = 1,
    prefix: str = "sglang:",
    running: float = 0.0,
    accepted: int = 0,
    verify_calls: int = 0,
    hit_rate: float = 0.77,
) -> str:
    """A load on SGLang: ``steps`` decode steps of ``batch`` sequences on each data-parallel rank.

    Every request makes ``output`` tokens, the first of them in its prefill. ``live`` has what 0.5.20 exports, else
    what 0.4.8 did. Idle and forward seconds are of one rank.
    """
    page = Exposition(prefix, at)
    decoded = steps * batch * (1 + accepted)
    requests = decoded / (output - 1)

    def part(value: float) -> float:
        return value * (done + 0.25)  # it was warmed up before

    model = {"model_name": "m", "engine_type": "unified"}
    for dp in range(dp_ranks):
        for tp in range(tp_ranks):
            rank = {**model, "tp_rank": str(dp * tp_ranks + tp), "pp_rank": "0", "moe_ep_rank": "0"}
            if dp_ranks > 1:
                rank["dp_rank"] = str(dp)
            page.gauge("num_running_reqs", running, **rank).gauge("num_queue_reqs", 0.0, **rank)
            page.gauge("token_usage", 0.4, **rank).gauge("gen_throughput", 99999.0, **rank)
            page.gauge("cache_hit_rate", hit_rate, **rank)
            page.gauge("spec_accept_length", float(bool(accepted)) * 9.9, **rank)
            page.gauge("routing_key_running_req_count", 3.0, gt="0", le="1", **rank)
            page.gauge("routing_key_running_req_count", 1.0, gt="1", le="+Inf", **rank)
            page.gauge("fwd_occupancy", math.nan, **rank)
            if not live:
                continue
            page.counter("realtime_tokens", part(requests * (prompt - hits)), mode="prefill_compute", **rank)
            if hits:
                page.counter("realtime_tokens", part(requests * hits), mode="prefill_cache", **rank)
            page.counter("realtime_tokens", part(decoded), mode="decode", **rank)
            page.counter("cuda_graph_passes", part(steps * 0.75), mode="decode_cuda_graph", **rank)
            page.counter("cuda_graph_passes", part(steps * 0.25), mode="decode_none", **rank)
            page.counter("cuda_graph_passes", part(requests), mode="prefill_none", **rank)
            page.counter("forward_execution_seconds", part(forward_decode), category="forward_decode", **rank)
            page.counter("forward_execution_seconds", part(forward_prefill), category="forward_extend", **rank)
            page.counter("forward_execution_seconds", part(7.0), category="forward_idle", **rank)
            page.counter("scheduler_idle_seconds", part(idle), **rank)
            page.counter("num_retracted_requests", part(4), **rank)
            page.counter("estimated_flops_per_gpu", part(1e15), **rank)
    requests *= dp_ranks
    for streaming, share in (("true", 0.75), ("false", 0.25)):
        labels = {**model, "is_streaming": streaming} if live else model
        if not live and streaming == "false":
            break
        share = share if live else 1.0
        page.counter("num_requests", part(requests * share), **labels)
        page.counter("prompt_tokens", part(requests * prompt * share), **labels)
        page.counter("generation_tokens", part(requests * output * share), **labels)
        page.histogram("time_to_first_token_seconds", 0.15, part(requests * share), **labels)
        page.histogram("e2e_request_latency_seconds", 9.0, part(requests * share), **labels)
        if verify_calls:
            page.counter("spec_verify_calls", part(verify_calls * share), **labels)
        if hits:
            # 0.5.8 and later: the parts, and "total" where nothing is known of the source. Never both.
            page.counter("cached_tokens", part(requests * hits * share * 0.6), cache_source="device", **labels)
            page.counter("cached_tokens", part(requests * hits * share * 0.4), cache_source="host", **labels)
            page.counter("cached_tokens", part(requests * hits * share), cache_source="total", **labels)
    page.histogram("inter_token_latency_seconds", step_seconds / (1 + accepted), part(decoded * dp_ranks), **model)
    page.histogram("prompt_tokens_histogram", float(prompt), part(requests), TOKENS, **model)
    page.histogram("generation_tokens_histogram", float(output), part(requests), TOKENS, **model)
    return page.text


def llamacpp(
    done: float,
    at: float | None,
    *,
    steps: int = 5000,
    tokens: int = 5000,
    seconds: float = 38.5,
    longest: int = 2048,
    prompt: int = 100,
    busy: float | None = None,
    running: float = 0.0,
) -> str:
    """llama-server around ``steps`` calls of llama_decode that made ``tokens`` in ``seconds``, summed over slots.

    ``busy`` is the mean number of busy slots in these steps, where it is exposed.
    """
    page = Exposition("llamacpp:", at)

    def counter(name: str, value: float) -> None:
        page.counter(name, value)

    def part(value: float) -> float:
        return value * done + 100.0  # it was warmed up before

    for name, value in (("prompt_tokens", prompt), ("tokens_predicted", tokens), ("n_decode", steps)):
        counter(name, part(value))
    counter("prompt_seconds", done * 0.1 + 1.0)
    counter("tokens_predicted_seconds", done * seconds + 1.0)
    page.add("counter", "n_tokens_max", longest)
    for name in ("requests_deferred", "prompt_tokens_seconds", "predicted_tokens_seconds"):
        page.gauge(name, 0.0 if name == "requests_deferred" else 777.0)
    page.gauge("requests_processing", running)
    if busy is not None:
        # A mean since the start: here the 100 steps of the warm-up had one slot each.
        page.gauge("n_busy_slots_per_decode", (100.0 + busy * steps * done) / (100.0 + steps * done))
    return page.text


def tgi(done: float, at: float | None, *, steps: int = 1000, batch: int = 8, output: int = 101) -> str:
    """TGI: ``steps`` decode steps of 25 ms with ``batch`` sequences; a request's prefill takes 100 ms."""
    page = Exposition("tgi_", at)
    requests = steps * batch / (output - 1) * done
    if not requests:
        return Exposition("tgi_", at).gauge("queue_size", 0.0).gauge("batch_current_size", 0.0).text
    page.gauge("queue_size", 2.0).gauge("batch_current_size", 0.0).gauge("batch_current_max_tokens", 4096.0)
    page.add("counter", "request_count", requests + 1).add("counter", "request_success", requests - 1)
    page.add("counter", "request_failure", 1.0, err="overloaded")
    page.histogram("request_duration", 3.0, requests).histogram("request_queue_duration", 0.1, requests)
    page.histogram("request_input_length", 400.0, requests, TOKENS)
    page.histogram("request_generated_tokens", float(output), requests, TOKENS)
    page.histogram("request_mean_time_per_token_duration", 0.03, requests)
    for method, seconds, count in (("prefill", 0.1, requests), ("decode", 0.025, steps * done)):
        page.histogram("batch_inference_duration", seconds, count, method=method)
        page.add("counter", "batch_inference_count", count, method=method)
    return page.text


def trtllm(
    done: float, at: float | None, *, prefix: str = "trtllm_", requests: int = 100, output: int = 201,
    running: float = 0.0,
) -> str:  # fmt: skip
    """TensorRT-LLM's Prometheus page: requests of 500 prompt tokens with 4 s of decoding each."""
    page = Exposition(prefix, at)
    count, labels = requests * done, {"model_name": "m", "engine_type": "pytorch"}
    page.counter("request_success", count, finished_reason="length", **labels)
    page.counter("request_error", done * 3, http_code="500", **labels)
    page.counter("prompt_tokens", count * 500, **labels).counter("generation_tokens", count * output, **labels)
    page.counter("prompt_cached_tokens", count * 100, **labels)
    page.histogram("time_to_first_token_seconds", 0.4, count, **labels)
    page.histogram("time_per_output_token_seconds", 0.02, count, **labels)
    page.histogram("e2e_request_latency_seconds", 4.4, count, **labels)
    page.histogram("request_queue_time_seconds", 0.2, count, **labels)
    page.histogram("request_prefill_time_seconds", 0.15, count, **labels)
    page.histogram("request_decode_time_seconds", 4.0, count, **labels)
    page.gauge("num_requests_running", running, **labels).gauge("num_requests_waiting", 0.0, **labels)
    page.gauge("kv_cache_utilization", 0.6, **labels).gauge("iteration_latency_seconds", 0.5, **labels)
    return page.text


def trtllm_configured(
    done: float,
    at: float | None,
    *,
    parallel: Mapping[str, str] | None = None,
    model: Mapping[str, str] | None = None,
    cache: Mapping[str, str] | None = None,
) -> str:
    """The same with what the server says of itself: TP 8 on B200, weights and cache in fp8."""
    labels = {"model_name": "m", "engine_type": "pytorch"}
    split = {"tensor_parallel_size": "8", "pipeline_parallel_size": "1", "expert_parallel_size": "None"}
    weights = {"model": "/models/llama", "dtype": "bfloat16", "quantization": "FP8", "gpu_type": "NVIDIA B200"}
    info = Exposition("trtllm_")
    info.gauge("parallel_config_info", 1.0, **{**labels, **split, "gpu_count": "8", **(parallel or {})})
    info.gauge("model_config_info", 1.0, **{**labels, **weights, **(model or {})})
    info.gauge("kv_cache_config_info", 1.0, **{**labels, "page_size": "64", "cache_dtype": "fp8", **(cache or {})})
    return trtllm(done, at) + info.text


def lmdeploy(done: float, at: float | None, *, requests: int = 50, output: int = 101) -> str:
    """LMDeploy: its iteration histogram counts outputs of requests, not steps; running totals are gauges."""
    page = Exposition("lmdeploy:", at)
    count, labels = requests * done + 10, {"engine": "0", "model_name": "m"}
    page.gauge("num_requests_succeeded", count - 2 * done, **labels)
    page.gauge("num_requests_failed", 2 * done, **labels)
    page.gauge("num_requests_running", 0.0, **labels).gauge("num_requests_waiting", 0.0, **labels)
    page.gauge("gpu_cache_usage_perc", 0.3, **labels)
    page.counter("prompt_tokens", count * 300, **labels).counter("generation_tokens", count * output, **labels)
    page.counter("cached_tokens", count * 60, **labels)
    page.histogram("iteration_tokens_total", 1.0, count * output, TOKENS, **labels)
    page.histogram("time_to_first_token_seconds", 0.2, count, **labels)
    page.histogram("iter_token_latency", 0.02, count * (output - 1), **labels)
    page.histogram("time_per_output_token_seconds", 0.03, count * (output - 1), **labels)
    page.histogram("request_prefill_time_seconds", 0.1, count, **labels)
    page.histogram("request_decode_time_seconds", 2.0, count, **labels)
    page.histogram("e2e_request_latency_seconds", 2.2, count, **labels)
    return page.text


def dynamo(done: float, at: float | None, *, requests: int = 100, output: int = 101, model: str = "m") -> str:
    """Dynamo's frontend: what a client sees. Nothing is there before the first request."""
    page = Exposition("dynamo_frontend_", at)
    if not done:
        return page.gauge("queued_requests", 0.0).gauge("inflight_requests", 0.0).text
    labels, count = {"model": model}, requests * done
    page.gauge("inflight_requests", 0.0, **labels).gauge("queued_requests", 0.0, **labels)
    page.counter("requests", count - 4, endpoint="chat_completions", status="success", **labels)
    page.counter("requests", 4.0, endpoint="chat_completions", status="error", **labels)
    page.counter("output_tokens", count * output, **labels)
    page.histogram("input_sequence_tokens", 700.0, count, TOKENS, **labels)
    page.histogram("output_sequence_tokens", float(output), count, TOKENS, **labels)
    page.histogram("cached_tokens", 70.0, count, TOKENS, **labels)
    page.histogram("time_to_first_token_seconds", 0.7, count, **labels)
    page.histogram("inter_token_latency_seconds", 0.033, count * (output - 1), **labels)
    page.histogram("request_duration_seconds", 4.0, count, **labels)
    page.gauge("model_total_kv_blocks", 1000.0, **labels)
    return page.text


def dynamo_worker(text: str, worker: str = "7") -> str:
    """A worker's page: its own series around those of its engine, which it passes through."""
    page = Exposition("dynamo_component_")
    labels: Mapping[str, str] = {"dynamo_component": "backend", "model": "m", "worker_id": worker, "dp_rank": "0"}
    page.counter("requests", 12345.0, **labels).gauge("gpu_cache_usage_percent", 0.123, **labels)
    return text + page.text


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{{{inside}}}" if inside else ""
