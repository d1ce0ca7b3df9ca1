"""vLLM's metrics in prometheus_client, for servers that count what they do."""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """Those of one engine, with buckets in seconds; ``started`` (Unix seconds) is an hour ago, and 0 is not told."""

    def __init__(self, model: str, bounds: tuple[float, ...], started: float | None = None) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        self.finished = self.labelled(Counter, "vllm:request_success", "finished_reason")
        self.generated = self.labelled(Counter, "vllm:generation_tokens")
        self.prompts = self.labelled(Counter, "vllm:prompt_tokens")
        self.running = self.labelled(Gauge, "vllm:num_requests_running")
        self.itl = self.labelled(Histogram, "vllm:inter_token_latency_seconds", buckets=bounds)
        self.ttft = self.labelled(Histogram, "vllm:time_to_first_token_seconds", buckets=bounds)
        self.e2e = self.labelled(Histogram, "vllm:e2e_request_latency_seconds", buckets=bounds)
        if started != 0:
            start = Gauge("process_start_time_seconds", "start", registry=self.registry)
            start.set(time.time() - 3600 if started is None else started)

    def labelled(self, kind: Any, name: str, *more: str, **options: Any) -> Any:
        """A metric with an engine's labels; more of them have the value ``length``."""
        metric = kind(name, name, ["engine", "model_name", *more], registry=self.registry, **options)
        return metric.labels("0", self._model, *(["length"] if more else []))
