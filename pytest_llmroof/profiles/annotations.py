"""Step annotations: which phase a step was in, and how many requests and tokens it held.

Read are what vLLM, SGLang and TensorRT-LLM write (``execute_context_2(900)_generation_30(30)``, ``step[DECODE bs=32]``,
``[Executor] _forward_step 7: 0 ctx reqs, 32 gen reqs``), vLLM's older ``execute_new_2_cached_30``, builds that list
query and context lengths (``generation_32(sq32sk55086sqsq...)``), and PyTorch's own ``ProfilerStep#7``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from pytest_llmroof.profiles.timeline import Phase, Step

#: A count of requests or tokens: what is longer is none.
_COUNT: Final = r"([0-9]{1,12})(?![0-9])"
_EXECUTE: Final = re.compile(rf"execute_(?:\d+_)?context_{_COUNT}(?:\(([^)]*)\))?_generation_{_COUNT}(?:\(([^)]*)\))?")
_TOKENS: Final = re.compile(rf"(?:sq)?{_COUNT}")
_CACHED: Final = re.compile(rf"execute_new_{_COUNT}_cached_{_COUNT}")
_SGLANG: Final = re.compile(rf"step\[(\w+) bs={_COUNT}(?:[^\]]*?(?:toks|tokens|num_tokens)={_COUNT})?[^\]]*\]")
_TENSORRT_LLM: Final = re.compile(
    rf"\[Executor\] _forward_step[^:]{{0,30}}: {_COUNT} ctx reqs,(?: {_COUNT} ctx tokens,)? {_COUNT} gen reqs"
)
_PROFILER_STEP: Final = re.compile(r"ProfilerStep\s?\#\s?\d+")
_CAPTURE: Final = re.compile(r"(?:graph_)?capture_\d+")
_LONGEST: Final = 200
"""Characters of a step's name that are kept."""
PREFIXES: Final = ("execute_", "step[", "[Executor] _forward_step", "ProfilerStep", "capture_", "graph_capture_")
"""What the annotations that are read here begin with: no other one is worth fetching."""


@dataclass(frozen=True)
class StepName:
    """What an annotation's name tells; None where it does not."""

    phase: Phase | None = None
    prefill_requests: int | None = None
    prefill_tokens: int | None = None
    decode_requests: int | None = None
    decode_tokens: int | None = None


def step_of(name: str) -> StepName | None:
    """What the annotation of a step tells; None where it is none."""
    if match := _EXECUTE.match(name):
        prefills, decodes = int(match[1]), int(match[3])
        return StepName(_phase(prefills, decodes), prefills, _tokens(match[2]), decodes, _tokens(match[4]))
    if match := _TENSORRT_LLM.match(name):
        prefills, decodes = int(match[1]), int(match[3])
        tokens = int(match[2]) if match[2] else None if prefills else 0
        return StepName(_phase(prefills, decodes), prefills, tokens, decodes, None)
    if match := _CACHED.match(name):
        # Cached requests decode, or go on with a long prompt: the name does not tell which, and so no phase.
        return StepName() if int(match[1]) or int(match[2]) else None
    if match := _SGLANG.match(name):
        mode, requests = match[1].upper(), int(match[2])
        tokens = int(match[3]) if match[3] else None
        if mode == "DECODE":
            return StepName("decode", 0, 0, requests, requests if tokens is None else tokens)
        if mode in ("EXTEND", "PREFILL"):
            return StepName("prefill", requests, tokens, 0, 0)
        return StepName("mixed" if mode == "MIXED" else None)
    return StepName() if _PROFILER_STEP.match(name) else None


def annotated_step(name: str, start: int, end: int, on: Literal["host", "device"], thread: int) -> Step | None:
    """The step that an annotation names, with its interval on the clock of host or device; None where it is none."""
    told = step_of(name)
    if told is None:
        return None
    counts = (told.prefill_requests, told.prefill_tokens, told.decode_requests, told.decode_tokens)
    return Step(start, end, name[:_LONGEST], on, told.phase, *counts, thread=thread)


def is_capture(name: str) -> bool:
    """Whether an annotation says that a graph is being recorded (``capture_32_FULL``)."""
    return _CAPTURE.match(name) is not None


def _phase(prefills: int, decodes: int) -> Phase | None:
    if prefills and decodes:
        return "mixed"
    return "prefill" if prefills else "decode" if decodes else None


def _tokens(text: str | None) -> int | None:
    """Of ``30``, ``888_788544`` (tokens, then their products) and ``sq32sk55086...`` the tokens."""
    match = _TOKENS.match(text or "")
    return int(match[1]) if match else None
