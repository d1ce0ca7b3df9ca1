"""The lines of a failing text that say what was tested and where the time went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pytest_llmroof.analysis.metrics import OF_WINDOW
from pytest_llmroof.report.figures import percentages, quantity, short_count, yielding
from pytest_llmroof.report.rows import Row
from pytest_llmroof.report.wire import Document
from pytest_llmroof.units import format_quantity, grouped

#: Certainly busy for less of the window than this, and the text says how long.
_FULLY_BUSY: Final = 0.98

#: What the shares of a step are called, in this order; a name of two causes adds them up.
_STEP_NAMES: Final[Mapping[str, str]] = {
    "front end": "front end",
    "queue": "queue",
    "other requests' prefill": "other requests' prefill",
    "memory floor: weights": "memory floor",
    "memory floor: KV": "memory floor",
    "compute floor": "compute floor",
    "interleaved prefill": "interleaved prefill",
    "exposed communication: transport": "exposed communication",
    "exposed communication: waiting": "exposed communication",
    "idle: within steps": "idle",
    "idle: between steps": "idle",
    "clock": "lowered clock",
    "not attributed": "not attributed",
    "kernel ceiling": "kernel ceiling",
    "slow kernels": "slow kernels",
}
_REST: Final = ("kernel ceiling", "slow kernels")
#: What is left is neither observed nor estimated.
_UNLABELLED: Final = (*_REST, "not attributed")

_ATTRIBUTED: Final = {
    "decode step": "step time",
    "prefill": "prefill time",
    "ttft": "TTFT",
    "recording": "recorded time",
}
_EXPLAINS: Final = {
    "decode": ("decode step",),
    "prefill": ("prefill",),
    "ttft": ("ttft", "prefill"),
    **dict.fromkeys(OF_WINDOW, ("decode step", "prefill", "ttft", "recording")),
}


def explains(attributed: str, family: str) -> bool:
    """Whether the time that was attributed is part of the time that gates of a family measure."""
    return attributed in _EXPLAINS.get(family, ())


def deployment_text(window: Document) -> str | None:
    """``Llama 3.1 70B bf16, TP 4 on 4 x H100 SXM (h100-sxm5-80gb, dense bf16 peak)``; assumed facts are marked."""
    model, gpu, deployment = window["model"], window["gpu"], window["deployment"]
    if model is None and gpu is None:
        return None
    parts = []
    if model is not None:
        size = given_weights(window)
        weights = f"in {size}" if size else f"{deployment['weights']}{_assumed(window, 'weights')}"
        parts.append(f"{model['title']} {weights}")
    parallel = " ".join(
        f"{name} {deployment[key]}{_assumed(window, key)}"
        for name, key in (("TP", "tensor_parallel"), ("PP", "pipeline_parallel"), ("DP", "data_parallel"))
        if key == "tensor_parallel" or deployment[key] != 1
    )
    parts.append(parallel + (" EP" if deployment["expert_parallel"] else ""))
    text = ", ".join(parts)
    if gpu is None:
        return text
    peak = f", dense {gpu['precision']} peak" if gpu["peak_flops_per_second"] is not None else ""
    return f"{text} on {gpu['count']} x {gpu['short']} ({gpu['name']}{peak})"


def given_weights(window: Document) -> str | None:
    """``4.92 GB``, where the model's weights were given in bytes, which no precision need be assumed for."""
    asked = window["asked"]["model"]
    if window["model"] is None or not isinstance(asked, Mapping) or asked.get("weight_bytes") is None:
        return None
    return format_quantity(window["model"]["weight_bytes"], "bytes")


def _assumed(window: Document, key: str) -> str:
    return " (assumed)" if window["provenance"].get(key) == "assumed" else ""


def window_text(window: Document) -> str | None:
    """``decode, 60.0 s: 28 400 output tokens, batch 12.4, context 1.5k, prefix hits 0 %, ITL mean 26.2 ms``."""
    facts = window["facts"]
    if facts is None:
        failure: str | None = window["failure"]
        return failure
    parts = ", ".join(_window_parts(window, facts))
    head = ", ".join(filter(None, [window["phase"], _duration(window, facts)]))
    locations = list(dict.fromkeys(source["location"] for source in window["sources"]))
    shown = ", ".join(locations[:2]) + (f" and {len(locations) - 2} more" if len(locations) > 2 else "")
    return f"{head}: {parts}".removesuffix(": ") + (f" ({shown})" if shown else "")


def _duration(window: Document, facts: Mapping[str, Any]) -> str | None:
    seconds, busy = window["duration_seconds"], facts["busy_seconds"]
    if seconds is None:
        return None
    text = f"{seconds:.1f} s"
    if busy and busy["high"] is not None and busy["high"] < _FULLY_BUSY * seconds:
        known = busy["low"] >= _FULLY_BUSY * busy["high"]
        text += f" of which {busy['value']:.1f} s busy" if known else f" of which at most {busy['high']:.1f} s busy"
    return text


def _window_parts(window: Document, facts: Mapping[str, Any]) -> Iterator[str]:
    decode, phase = facts["decode"], window["phase"]
    if phase != "decode" and facts["computed_prompt_tokens"]:
        # Where nothing tells what a prefix cache held, all of them may have been computed, or few.
        computed = " computed" if facts["prefix_hit_rate"] is not None else ""
        yield f"{grouped(facts['computed_prompt_tokens'])} prompt tokens{computed}"
    if facts["generated_tokens"] is not None:
        yield f"{grouped(facts['generated_tokens'])} output tokens"
    if (facts["replicas"] or 1) > 1:
        yield f"{facts['replicas']} replicas"
    if decode:
        yield f"batch {format_quantity(decode['batch']['value'], 'count')}"
        if decode["context"]:
            context = decode["context"]
            if context["value"] or not context["high"]:
                yield f"context {short_count(context['value'])}"
            else:  # not measured: only how long it can be is known
                yield f"context at most {short_count(context['high'])}"
    if facts["prefix_hit_rate"] is not None:
        yield f"prefix hits {quantity(facts['prefix_hit_rate'], 'fraction', 2)}"
    if decode:
        if decode["tokens_per_step"] != 1:
            yield f"{format_quantity(decode['tokens_per_step'], 'count')} tokens per step"
        name = "ITL mean" if "itl.mean" in window["measurements"] else "step"
        yield f"{name} {quantity(decode['step_seconds']['value'], 'seconds')}"


def convention_text(window: Document, gate: Document) -> str | None:
    """How FLOPs are counted, for gates on MFU: the choice can flip one."""
    gpu, deployment = window["gpu"], window["deployment"]
    if not gate["metric"].endswith("mfu") or gpu is None:
        return None
    if gate["metric"].startswith("kernels("):
        return "operations that the kernels executed, against the dense peak of their precision"
    exact = deployment["flops"] == "exact"
    text = "FLOPs of every matrix product and of attention" if exact else "two FLOPs per active parameter and token"
    text += f", against the dense {gpu['precision']} peak"
    decode = window["facts"]["decode"] if window["facts"] else None
    cost = decode["cost"] if decode and gate["metric"] == "decode.mfu" else None
    if cost:
        text += f"; two per parameter is {cost['model_flops'] / cost['flops']:.2f} of the exact count"
    return text


def roofline_text(window: Document, gate: Document) -> str | None:
    """``145.0 GB per step -> floor 10.8 ms; 12.2 FLOP/B, ridge 295: memory-bound side``."""
    work = _work(window, gate["family"])
    if work is None or window["gpu"] is None or not work["cost"] or not work["floor"]:
        return None
    cost, floor, ridge = work["cost"], work["floor"], window["gpu"]["ridge_flops_per_byte"]
    memory_bound = floor["memory_bound"]
    moved = quantity(cost["bytes"], "bytes", 4) if memory_bound else _flop(cost["flops"])
    estimated = " (steps estimated)" if work.get("estimated") else ""
    whose = " of the busiest GPU" if cost["busiest"] else ""
    text = f"{moved} per step{estimated} -> floor{whose} {quantity(floor['seconds'], 'seconds')}"
    if ridge is not None:
        side = "memory-bound" if memory_bound else "compute-bound"
        text += f"; {quantity(cost['intensity'], 'FLOP/byte')}, ridge {ridge:.0f}: {side} side"
    return text


def _work(window: Document, family: str) -> Mapping[str, Any] | None:
    """The mean step of the time that a gate measures."""
    facts = window["facts"]
    if facts is None or family not in ("decode", "prefill", *OF_WINDOW):
        return None
    kind = "prefill" if family == "prefill" or (family in OF_WINDOW and window["phase"] == "prefill") else "decode"
    work: Mapping[str, Any] | None = facts[kind]
    return work


def _flop(count: float) -> str:
    """``5.24 TFLOP``."""
    return format_quantity(count, "FLOP/s", 4).removesuffix("/s")


def step_time_row(window: Document, gate: Document) -> Row | None:
    """``41 % memory floor, 34 % exposed communication, 4 % idle, 21 % rest (7 kernel ceiling, 14 slow kernels)``."""
    attributed, shares = window["attributed"], window["attribution"]
    if not shares or attributed is None or not explains(attributed["of"], gate["family"]):
        return None
    names, estimated = _named_shares(shares)
    # What evidence and the finding in words say of a share is the same figure.
    whole = dict(zip(names, percentages(list(names.values()), yielding(list(names))), strict=True))
    parts = [
        f"{percent} % {name}{' (estimated)' if name in estimated else ''}"
        for name, percent in whole.items()
        if name not in _REST and percent > 0
    ]
    rest = {name: whole[name] for name in _REST if whole.get(name, 0) > 0}
    if len(rest) == 1:
        parts.extend(f"{percent} % {name}" for name, percent in rest.items())
    elif rest:
        inside = ", ".join(f"{percent} {name}" for name, percent in rest.items())
        parts.append(f"{sum(rest.values())} % rest ({inside})")
    return Row(_ATTRIBUTED[attributed["of"]], ", ".join(parts))


#: What GPU counters are called beside each other, in this order.
_COUNTERS: Final[Mapping[str, str]] = {
    "hardware.idle": "idle",
    "hardware.sm_active": "multiprocessors active",
    "hardware.mbu": "memory interface active",
    "hfu": "HFU",
    "hardware.clock": "clock over that of the peak",
}


def counters_text(window: Document, gate: Document) -> str | None:
    """What the GPUs' own counters say, and what nvidia-smi's utilization hides: it stands beside a real utilisation."""
    measurements = window["measurements"]
    shown = [
        f"{name} {quantity(measurements[metric]['value'], 'fraction', 2)}"
        for metric, name in _COUNTERS.items()
        if metric in measurements
    ]
    utilised = measurements.get("hardware.utilization")
    real = _real_utilisation(window, gate)
    if utilised is not None and real is not None:
        used = quantity(utilised["value"], "fraction", 2)
        name, value = real
        shown.insert(0, f"nvidia-smi says {used} while {name} is {value}: it counts time in which any kernel ran")
    return "; ".join(filter(None, [shown[0], ", ".join(shown[1:])])) if shown else None


def _real_utilisation(window: Document, gate: Document) -> tuple[str, str] | None:
    """The utilisation to hold against nvidia-smi's: MFU of the gate's own time, else of the window's phase."""
    of = {"decode": "decode", "prefill": "prefill", **dict.fromkeys(OF_WINDOW, "window")}.get(gate["family"])
    phase = "prefill" if window["phase"] == "prefill" else "decode"
    for family in filter(None, (of, phase, "window")):
        found = window["measurements"].get(f"{family}.mfu")
        if found is not None:
            name = f"{family} MFU" if family != "window" else "the window's MFU"
            return name, quantity(found["value"], "fraction")
    return None


def _named_shares(shares: list[dict[str, Any]]) -> tuple[dict[str, float], set[str]]:
    """Shares by their printed name, in the order of ``_STEP_NAMES``, and which of them are estimates."""
    order = list(dict.fromkeys(_STEP_NAMES.values()))
    sums: dict[str, float] = {}
    estimated = set()
    for part in shares:
        name = _STEP_NAMES.get(part["cause"], part["cause"])
        sums[name] = sums.get(name, 0.0) + part["share"]
        if not part["observed"] and name not in _UNLABELLED and "floor" not in name:
            estimated.add(name)
    sums = {name: share for name, share in sums.items() if share > 0}
    return dict(sorted(sums.items(), key=lambda pair: order.index(pair[0]) if pair[0] in order else -1)), estimated
