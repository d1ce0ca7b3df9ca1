"""llama-bench: an engine measured without requests. Its tests become counters of the canonical Window, not a client's.

A test either computes prompts (``n_prompt``) or generates token by token (``n_gen``) behind ``n_depth`` cached tokens,
one sequence at a time, and repeats that. A test that does both cannot be told apart and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.bench_json import number, numbers
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.window import Engine, SourceInfo, Unavailable, Window

_REMEDY: Final = Advice("measure llama-server under load", "python -m pytest_llmroof record ... -- LOAD COMMAND")
_NO_REQUESTS: Final = Unavailable("llama-bench sends no requests, so that it has no latencies of requests", _REMEDY)
_OF_REQUESTS: Final = ("ttft", "tpot", "itl", "e2e", "queue", "errors", "requests_per_second")
#: One file is one model on one machine.
_SAME: Final = (
    "model_filename", "model_size", "model_n_params", "gpu_info", "backends", "split_mode", "n_gpu_layers", "devices",
)  # fmt: skip


@dataclass(frozen=True)
class _Test:
    prompt: int
    generated: int
    depth: int
    seconds: tuple[float, ...]
    rate: float
    micro_batch: int


def llama_bench_window(runs: Sequence[Mapping[str, Any]], location: str) -> Window:
    """The tests of one file as a window. SourceError where they are not of one model on one machine, or say nothing."""
    for key in _SAME:
        if len({str(run.get(key)) for run in runs}) > 1:
            raise SourceError(f"{location}: tests of different {key}", "keep those of one model and machine together")
    tests = [_test(run) for run in runs]
    kept = [test for test in tests if test is not None and test.seconds]
    prompts, decodes = [one for one in kept if one.prompt], [one for one in kept if one.generated]
    if not kept:
        raise SourceError(f"{location}: no test of prompts or of generation alone", "llama-bench -p 512 -n 128 -o json")
    left = len(runs) - len(kept)
    notes = (f"{left} tests of prompt and generation together (-pg) are left out",) if left else ()
    first = runs[0]
    devices, backends = _devices(first), str(first.get("backends") or "")
    facts = _facts(first, backends) | _split(first, len(devices))
    rates = Client(
        tool="llama-bench",
        title="llama-bench",
        location=location,
        output_rate=_rate(decodes),
        input_rate=_rate(prompts),
    )
    return Window(
        kind="llama-bench",
        engines=(Engine("llama-bench", None, counters=_counters(prompts, decodes), facts=facts),),
        sources=(SourceInfo("llama-bench", location),),
        duration_seconds=sum(sum(test.seconds) for test in kept),
        samples=sum(len(test.seconds) for test in kept),
        conventions=frozenset({"decode_steps_apart", "whole_requests"}),
        device_names=tuple(dict.fromkeys(devices)),
        notes=notes,
        title="llama-bench",
        cannot=dict.fromkeys(_OF_REQUESTS, _NO_REQUESTS),
        client=rates,
    )


def _test(run: Mapping[str, Any]) -> _Test | None:
    prompt, generated, depth = (int(number(run.get(key)) or 0) for key in ("n_prompt", "n_gen", "n_depth"))
    if bool(prompt) == bool(generated):
        return None
    samples = [value / 1e9 for value in numbers(run.get("samples_ns")) if value] if "samples_ns" in run else []
    mean = number(run.get("avg_ns"))
    seconds = tuple(samples) or ((mean / 1e9,) if mean else ())
    rate = number(run.get("avg_ts"))
    if rate is None and seconds:
        rate = (prompt + generated) * len(seconds) / sum(seconds)
    batch = min(number(run.get("n_ubatch")) or math.inf, number(run.get("n_batch")) or math.inf)
    return _Test(prompt, generated, depth, seconds, rate or 0.0, max(1, int(batch) if math.isfinite(batch) else prompt))


def _counters(prompts: Sequence[_Test], decodes: Sequence[_Test]) -> dict[str, float]:
    """Totals over all repetitions. Decode steps hold one sequence; a prompt is computed in steps of a micro-batch."""
    found: dict[str, float] = {"prompt_tokens": 0.0, "generation_tokens": 0.0}
    if prompts:
        tokens = float(sum(test.prompt * len(test.seconds) for test in prompts))
        found |= {
            "prompt_tokens": tokens,
            "prompt_tokens_computed": tokens,
            "prefill_steps": float(sum(math.ceil(one.prompt / one.micro_batch) * len(one.seconds) for one in prompts)),
            "prefill_step_seconds": sum(sum(test.seconds) for test in prompts),
            "requests_finished": float(sum(len(test.seconds) for test in prompts)),
        }
    if decodes:
        steps = float(sum(test.generated * len(test.seconds) for test in decodes))
        found |= {
            "generation_tokens": steps,
            "decode_tokens": steps,
            "decode_steps": steps,
            "decode_sequences": steps,
            "decode_step_seconds": sum(sum(test.seconds) for test in decodes),
            "decode_context_tokens": sum(
                (test.depth + test.generated / 2) * test.generated * len(test.seconds) for test in decodes
            ),
        }
    found["step_seconds"] = found.get("prefill_step_seconds", 0.0) + found.get("decode_step_seconds", 0.0)
    return found


def _facts(run: Mapping[str, Any], backends: str) -> dict[str, str]:
    """The model's figures, which the file holds: its bytes are those of the weights as they are stored."""
    parameters, size = number(run.get("model_n_params")), number(run.get("model_size"))
    facts = {"backends": backends} if backends else {}
    if parameters and size:
        facts |= {"parameters": repr(parameters), "weight_bytes": repr(size)}
    return facts


def _devices(run: Mapping[str, Any]) -> list[str]:
    """The devices that hold the model: all GPUs, as many as were chosen, or the processor where no layer is on them."""
    gpus = [name.strip() for name in str(run.get("gpu_info") or "").split(", ") if name.strip()]
    if not gpus or run.get("n_gpu_layers") == 0:
        processor = str(run.get("cpu_info") or "").strip()
        return [processor or "CPU"] if processor or str(run.get("backends")) == "CPU" else []
    chosen = str(run.get("devices") or "auto")
    if run.get("split_mode") == "none":
        main = number(run.get("main_gpu")) or 0
        return gpus[int(main) : int(main) + 1] or gpus[:1]
    return gpus if chosen == "auto" else gpus[: chosen.count("/") + 1]


def _split(run: Mapping[str, Any], devices: int) -> dict[str, str]:
    """How the model lies on several GPUs: layer by layer one after the other, or each layer over all of them."""
    whole = run.get("split_mode") in ("row", "tensor")
    split = (devices, 1) if whole else (1, devices)
    return dict(zip(("tensor_parallel", "pipeline_parallel"), map(str, split), strict=True)) if devices else {}


def _rate(tests: Sequence[_Test]) -> float | None:
    """Tokens per second: as stated of a single test, over the time of all of several."""
    if len(tests) == 1:
        return tests[0].rate
    seconds = sum(sum(test.seconds) for test in tests)
    return sum((test.prompt + test.generated) * len(test.seconds) for test in tests) / seconds if seconds else None
