"""What was tested, in a few lines: model, accelerator, when, labels, and what was taken for granted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.report.figures import quantity
from pytest_llmroof.report.headline import one_line
from pytest_llmroof.report.wire import Document
from pytest_llmroof.units import format_quantity

#: Different values of one line that are told; a fleet of many kinds is in the windows' details.
_MOST: Final = 3
#: Assumptions that move a figure.
_ASSUMED: Final = {
    "gpu": "accelerator", "model": "model", "tensor_parallel": "tensor parallel", "weights": "weights",
    "kv_cache": "KV cache", "compute": "compute precision",
}  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """A line of the head: a name and what there is to say, one text for each different value."""

    name: str
    texts: tuple[str, ...]


def tested(document: Document) -> list[Fact]:
    """The lines that have something to say."""
    windows = document["windows"]
    lines = {
        "Model": _distinct(map(model_text, windows)),
        "Accelerator": _distinct(map(gpu_text, windows)),
        "Measured": [_when(windows)],
        "Labels": [f"{one_line(key)}={one_line(str(value))}" for key, value in document["labels"].items()],
        "Assumed": _distinct(", ".join(_assumed(window)) for window in windows),
    }
    kept = {name: [text for text in texts if text] for name, texts in lines.items()}
    return [Fact(name, tuple(texts)) for name, texts in kept.items() if texts]


def model_text(window: Document) -> str:
    """``Llama 3.1 70B bf16, TP 4``."""
    model, deployment = window["model"], window["deployment"]
    if model is None:
        return ""
    parallel = [
        f"{name} {deployment[key]}"
        for name, key in (("TP", "tensor_parallel"), ("PP", "pipeline_parallel"), ("DP", "data_parallel"))
        if key == "tensor_parallel" or deployment[key] != 1
    ]
    if deployment["expert_parallel"]:
        parallel.append("EP")
    return f"{one_line(model['title'])} {deployment['weights']}, {' '.join(parallel)}"


def gpu_text(window: Document) -> str:
    """``4 x NVIDIA H100 SXM5 80GB, 989 TFLOP/s dense bf16, 3.35 TB/s``."""
    gpu = window["gpu"]
    if gpu is None:
        return ""
    parts = [f"{gpu['count']} × {one_line(gpu['product'])}"]
    if gpu["peak_flops_per_second"] is not None:
        parts.append(f"{format_quantity(gpu['peak_flops_per_second'], 'FLOP/s')} dense {gpu['precision']}")
    if gpu["memory_bandwidth_bytes_per_second"] is not None:
        parts.append(quantity(gpu["memory_bandwidth_bytes_per_second"], "bytes/s"))
    return ", ".join(parts)


def moment(text: str | None) -> str:
    """``2026-11-29 18:10 UTC`` of an RFC 3339 time in UTC; anything else as it is."""
    shown = one_line(text or "")
    day, separator, clock = shown.partition("T")
    return f"{day} {clock[:5]} UTC" if separator and clock.endswith("Z") else shown


def _when(windows: Sequence[Document]) -> str:
    count = f"{len(windows)} window{'s' * (len(windows) != 1)}"
    started = sorted({moment(window["started"]) for window in windows if window["started"]})
    lengths = sorted({window["duration_seconds"] for window in windows if window["duration_seconds"]})
    parts = [count]
    if lengths:
        parts.append("of " + " to ".join(dict.fromkeys(quantity(end, "seconds") for end in (lengths[0], lengths[-1]))))
    if started:
        parts.append(f"from {started[0]}" if len(started) == 1 else f"between {started[0]} and {started[-1]}")
    return " ".join(parts)


def _assumed(window: Document) -> Iterator[str]:
    if window["gpu"] is None and window["model"] is None:
        return
    provenance = window["provenance"]
    yield from (name for key, name in _ASSUMED.items() if provenance.get(key) == "assumed")
    model = window["model"]
    yield from (f"{key} (its class's default)" for key in (model["class_defaults"] if model else ()))


def _distinct(texts: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(text for text in texts if text))
    more = len(found) - _MOST
    return found if more <= 0 else [*found[:_MOST], f"and {more} more"]
