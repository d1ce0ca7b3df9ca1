"""Facts of windows made by hand, for tests of what is concluded from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_llmroof.analysis.facts import Busy, DecodeFacts, Phase, PrefillFacts, WindowFacts
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.catalogue import accelerator
from pytest_llmroof.roofline.cost import floor, step_cost
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import named_model
from pytest_llmroof.roofline.step import Prefill, Step
from pytest_llmroof.telemetry.window import Engine, Histogram, Series, SourceInfo, Window
from pytest_llmroof.units import Unit

#: Bytes that a decode step of Llama 3.1 70B in bf16 reads of its weights: all but the input embedding
#: (128 256 x 8 192 = 1 050 673 152 of 70 553 706 496 parameters), 2 bytes each.
LLAMA_70B_READ = 2 * (70_553_706_496 - 1_050_673_152)
H100_BANDWIDTH = 3.35e12
exactly = Bounded.exactly


def llama_70b(**changes: Any) -> Deployment:
    """Llama 3.1 70B in bf16, TP 4 on H100 SXM."""
    return replace(
        Deployment(named_model("llama-3.1-70b"), accelerator("h100"), tensor_parallel=4),
        **changes,
    )


def llama_8b(**changes: Any) -> Deployment:
    """Llama 3.1 8B in bf16 on one H100 SXM."""
    return replace(Deployment(named_model("llama-3.1-8b"), accelerator("h100")), **changes)


def mixtral(**changes: Any) -> Deployment:
    """Mixtral 8x7B in bf16, TP 2 on H100 SXM."""
    return replace(
        Deployment(named_model("mixtral-8x7b"), accelerator("h100"), tensor_parallel=2),
        **changes,
    )


def engine(**kept: Any) -> Engine:
    """One vLLM engine."""
    return replace(Engine("engine 0", "a-model"), **kept)


def window(*engines: Engine) -> Window:
    """A minute between two scrapes."""
    return Window("vllm", engines or (engine(),), (SourceInfo("vllm", "after.prom"),), duration_seconds=60.0)


def series(*values: float) -> Series:
    """Samples one second apart."""
    return Series(tuple(float(time) for time in range(len(values))), values)


def mean_of(seconds: float, count: float = 100.0) -> Histogram:
    """A histogram whose observations have this mean."""
    return Histogram((float("inf"),), (count,), seconds * count)


def decoding(
    deployment: Deployment,
    step_seconds: float,
    batch: float = 12.4,
    context: float = 1480.0,
    *,
    interleaved: float = 0.0,
    phase: Phase = "decode",
    engines: tuple[Engine, ...] = (),
) -> WindowFacts:
    """A window of decode steps of that length, batch and mean context."""
    priced = deployment.model is not None and deployment.accelerator is not None
    cost = step_cost(deployment, Step(batch, context)) if priced else None
    bound = floor(deployment, cost) if cost else None
    steps = 60.0 / step_seconds
    return WindowFacts(
        window=window(*engines),
        deployment=deployment,
        phase=phase,
        phase_given=False,
        prefill_share=0.0,
        duration_seconds=60.0,
        busy=Busy(exactly(60.0), "the counters' movement"),
        prompt_tokens=100_000.0,
        computed_prompt_tokens=100_000.0,
        generated_tokens=batch * steps,
        finished_requests=100.0,
        prefix_hit_rate=0.0,
        mean_prompt_tokens=1000.0,
        mean_output_tokens=960.0,
        decode=DecodeFacts(
            step_seconds=exactly(step_seconds),
            batch=exactly(batch),
            context=exactly(context),
            steps=steps,
            tokens_per_step=1.0,
            cost=cost,
            floor=bound,
            joint_floor_seconds=bound.seconds + interleaved if bound else None,
            interleaved_seconds=interleaved,
        ),
    )


def prefilling(deployment: Deployment, prompt: float, requests: float, busy_seconds: float) -> WindowFacts:
    """A window of prompts alone, each computed in a step of its own."""
    step = Step(prefills=(Prefill(prompt),))
    cost = step_cost(deployment, step)
    bound = floor(deployment, cost)
    assert bound is not None
    tokens = prompt * requests
    return WindowFacts(
        window=window(),
        deployment=deployment,
        phase="prefill",
        phase_given=False,
        prefill_share=1.0,
        duration_seconds=60.0,
        busy=Busy(exactly(busy_seconds), "the counters' movement"),
        prompt_tokens=tokens,
        computed_prompt_tokens=tokens,
        generated_tokens=requests,
        finished_requests=requests,
        prefix_hit_rate=0.0,
        mean_prompt_tokens=prompt,
        mean_output_tokens=1.0,
        decode=None,
        prefill_floor_seconds=bound.seconds * requests,
        decode_floor_seconds=0.0,
        joint_floor_seconds=bound.seconds * requests,
        prefill=PrefillFacts(exactly(tokens), requests, exactly(requests), False, step, cost, bound),
    )


def measured(**values: float) -> Mapping[str, Measurement]:
    """Measurements by name, ``__`` for the dot: ``decode__mbu=0.41``."""
    named = {name.replace("__", "."): value for name, value in values.items()}
    return {
        name: Measurement(name, exactly(value), unit_of(name), "after.prom", "by hand") for name, value in named.items()
    }


def unit_of(name: str) -> Unit:
    """The unit of a metric that tests use."""
    return "fraction" if name.endswith(("mbu", "mfu")) else "seconds"
