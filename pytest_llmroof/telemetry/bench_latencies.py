"""The statistics of latencies that benchmark results state, in seconds and by canonical names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pytest_llmroof.data import load
from pytest_llmroof.telemetry.bench_json import at, number
from pytest_llmroof.telemetry.client import Client, Summary

_PERCENTILE: Final = re.compile(r"p(\d+(?:\.\d+)?)")


def summaries(run: Mapping[str, Any], tool: Mapping[str, Any], client: Client) -> dict[str, Summary]:
    """What a run states of each latency that its tool knows; ``client`` is the run without them."""
    found = {}
    for name, latency in tool["latencies"].items():
        where = run if "named" in latency else at(run, latency["at"])
        values = _values(where, latency) if isinstance(where, Mapping) else {}
        mean = number(at(run, latency["mean"])) if "mean" in latency else None
        if mean is not None:
            values.setdefault("mean", mean * float(latency.get("scale", 1.0)))
        if values:
            called = latency["named"].format("*") if "named" in latency else latency["at"].rpartition(".")[2]
            called = latency["at"] if called in ("successful", "") else called
            told = latency["per_token"]["definition"] if _per_token(run, latency) else latency["definition"]
            found[name] = Summary(called, values, told)
    for name in [name for name in found if tool["latencies"][name].get("per_piece")]:
        if _per_token(run, tool["latencies"][name]):
            continue
        stretch = _stretch(found, client)
        if stretch is None:  # how long a token took may be anything
            del found[name]
        else:
            found[name] = replace(found[name], stretch=stretch)
    return found


def _per_token(run: Mapping[str, Any], latency: Mapping[str, Any]) -> bool:
    """Whether a latency of pieces is one of tokens in this run, as newer releases of its tool count."""
    return "per_token" in latency and at(run, latency["per_token"]["has"]) is not None


def stated_waits(run: Mapping[str, Any], tool: Mapping[str, Any]) -> dict[str, float]:
    """How long requests waited in the client, as it states it. A schedule that was kept early has no wait."""
    where = tool.get("waits")
    if isinstance(where, Mapping):
        found = _values(run, where)
        return {name: found[name] for name in ("mean", "max") if name in found}
    stated = at(run, where) if where else None
    figures = {name: number(stated.get(name)) for name in ("mean", "max")} if isinstance(stated, Mapping) else {}
    return {name: value for name, value in figures.items() if value is not None}


def _values(where: Mapping[str, Any], latency: Mapping[str, Any]) -> dict[str, float]:
    """Statistics in seconds, by their canonical names."""
    if "units" in latency:
        factor = load("benchmarks.yaml")["units"].get(str(where.get("unit")))
        if factor is None:
            return {}
        scale = float(factor)
    else:
        scale = float(latency["scale"])
    inner = where.get("percentiles")
    places = {**where, **inner} if isinstance(inner, Mapping) and "named" not in latency else dict(where)
    pattern = re.escape(latency.get("named", "p{}" if latency.get("bare") else "{}"))
    names = re.compile(pattern.replace(r"\{\}", "(.+)").removeprefix("p" if latency.get("bare") else ""))
    found: dict[str, float] = {}
    for key, value in places.items():
        match, figure = names.fullmatch(key), number(value)
        statistic = _statistic(f"p{match[1]}" if latency.get("bare") else match[1]) if match else None
        if statistic is not None and figure is not None and figure >= 0:
            found.setdefault(statistic, figure * scale)
    return found


def _statistic(name: str) -> str | None:
    """``median`` -> p50, ``p99.9`` and GuideLLM's ``p999`` -> p99.9, ``p05`` -> p5."""
    for statistic, names in load("benchmarks.yaml")["statistics"].items():
        if name in names:
            return str(statistic)
    match = _PERCENTILE.fullmatch(name)
    if match is None:
        return None
    digits = match[1]
    share = float(f"{digits[:2]}.{digits[2:]}") if len(digits) == 3 and "." not in digits else float(digits)
    return f"p{share:g}" if 0 < share < 100 else None


def _stretch(found: Mapping[str, Summary], client: Client) -> float | None:
    """How much longer a token took than a piece of the stream, by latency, TTFT and output tokens; None without."""
    needed = [found[name].values.get("mean") if name in found else None for name in ("e2e", "ttft", "tpot")]
    e2e, ttft, piece = needed
    if not e2e or not ttft or not piece or not client.completed or client.output_tokens is None:
        return None
    mean = client.output_tokens / client.completed
    if mean < 1:
        return None  # nobody completes a request without a token
    return max(1.0, (e2e - ttft) / (mean - 1) / piece) if mean > 1 else 1.0
