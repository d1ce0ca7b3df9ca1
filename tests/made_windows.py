"""Windows made by hand, and deployments to hold them against: what the tests of the analysis measure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerator
from pytest_llmroof.roofline.deployment import Deployment, Provenance
from pytest_llmroof.roofline.model import Model
from pytest_llmroof.roofline.models import model_from_mapping, named_model
from pytest_llmroof.telemetry.window import Engine, Histogram, Series, SourceInfo, Window

GIVEN: dict[str, Provenance] = {
    "gpu": "given", "model": "given", "tensor_parallel": "given", "weights": "given", "kv_cache": "given",
}  # fmt: skip

#: H100's peaks as articles state them, with memory for two boards' worth of weights: the golden numbers' hardware.
GOLDEN_GPU = Accelerator(
    name="h100-160",
    product="H100 with 160 GB",
    peaks={"bf16": 989e12, "fp8": 1979e12},
    memory_bandwidth_bytes_per_second=3.35e12,
    memory_bytes=160e9,
)


def deployment(
    model: Model | str | None = "llama-3.1-70b",
    gpu: Accelerator | str | None = "h100",
    tensor_parallel: int = 1,
    data_parallel: int | None = None,
    **changes: Any,
) -> Deployment:
    """A deployment of which everything was given."""
    made = Deployment(
        model=named_model(model) if isinstance(model, str) else model,
        accelerator=accelerator(gpu) if isinstance(gpu, str) else gpu,
        tensor_parallel=tensor_parallel,
        data_parallel=data_parallel,
        provenance=GIVEN,
    )
    return replace(made, **changes)


def figures(**values: object) -> Model:
    """A model given by its figures."""
    return model_from_mapping(values)


def around(mean: float, count: float) -> Histogram:
    """A histogram of equal observations, in a bucket that they fill to its upper bound."""
    return Histogram((mean / 2, mean, math.inf), (0.0, count, 0.0), mean * count)


def engine(
    *,
    identity: str = "engine 0",
    itl: float = 0.0,
    outputs: float = 0.0,
    steps: float | None = None,
    prompt: float = 0.0,
    output: float = 0.0,
    requests: float = 0.0,
    computed: float | None = None,
    present: tuple[float, float] | None = (0.0, 0.0),
    model_name: str = "a-model",
    counters: dict[str, float] | None = None,
    histograms: dict[str, Histogram] | None = None,
    gauges: dict[str, Series] | None = None,
    span: tuple[float, float] = (0.0, 60.0),
    facts: dict[str, str] | None = None,
) -> Engine:
    """One engine that counted ``outputs`` latencies of ``itl`` seconds in ``steps`` steps.

    ``requests`` came and finished, each with ``prompt`` tokens (``computed`` in all, else none cached) and ``output``
    tokens. ``present`` are requests running at the first and last sample.
    """
    counted: dict[str, float] = {
        "prompt_tokens": prompt * requests,
        "prompt_tokens_computed": prompt * requests if computed is None else computed,
        "generation_tokens": outputs + requests,
        **({} if steps is None else {"steps": steps}),
        **(counters or {}),
    }
    observed = {
        "itl": around(itl, outputs),
        "ttft": around(0.1, requests),
        "prompt_length": around(prompt, requests),
        "generation_length": around(output, requests),
    }
    observed = {name: histogram for name, histogram in observed.items() if histogram.total} | (histograms or {})
    if present is not None:
        gauges = {"running": Series(span, present), "waiting": Series(span, (0.0, 0.0)), **(gauges or {})}
    names = {quantity: f"vllm:{quantity}" for quantity in (*counted, *observed, *(gauges or {}))}
    return Engine(identity, model_name, counted, observed, gauges or {}, {"length": requests}, names, facts or {})


def window(*engines: Engine, seconds: float | None = 60.0, **changes: Any) -> Window:
    """A window of a vLLM over some engines."""
    made = Window(
        kind="vllm",
        engines=engines,
        sources=(SourceInfo("vllm", "after.prom"),),
        started=0.0 if seconds else None,
        duration_seconds=seconds,
        conventions=frozenset({"itl_per_step", "tpot_zeros"}),
    )
    return replace(made, **changes)


def moving(times: Sequence[float], first: float, last: float) -> Series:
    """The counters' running total at some times: it moves between ``first`` and ``last``."""
    return Series(tuple(times), tuple(min(max(time, first), last) - first for time in times))
