"""What must hold of a run: replays equal to the last digit, and figures equal to arithmetic done here from the pages.

Nothing here uses the plugin's readers: pages are read by a few lines of their own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

Document = dict[str, Any]

_SAMPLE: Final = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})? (\S+)$")
#: Of a window's document, what says where it was read and what it is called, rather than what was measured.
_WHERE: Final = frozenset({"id", "name", "title", "telemetry", "sources", "asked"})
_ADVICE: Final = frozenset({"diagnosis", "diagnoses", "notes"})
_WHERE_OF_GATE: Final = frozenset({"node_id", "file", "line"})
_WORDS_OF_GATE: Final = frozenset({"reason", "remedy"})


class Checks:
    """Everything that was held against something, and what differed."""

    def __init__(self) -> None:
        self.held = 0
        self.wrong: list[str] = []

    def true(self, what: str, holds: bool, found: object = "") -> None:
        self.held += 1
        if not holds:
            self.wrong.append(f"{what}: {found}" if found != "" else what)

    def same(self, what: str, found: object, expected: object) -> None:
        self.true(what, found == expected, f"found {found!r}, expected {expected!r}")

    def close(self, what: str, found: float, expected: float, within: float = 1e-9) -> None:
        self.true(what, math.isclose(found, expected, rel_tol=within), f"found {found!r}, expected {expected!r}")


class Pages:
    """A recording's first and last page, and what its counters grew by."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(folder.glob("*.prom"))
        self.count = len(paths)
        self.first, self.last = sums(paths[0]), sums(paths[-1])

    def grew(self, name: str) -> float:
        return self.last[name] - self.first[name]

    @property
    def seconds(self) -> float:
        return self.grew("scraped_at")


def sums(path: Path) -> dict[str, float]:
    """Each name's sum over its series; the clock under ``scraped_at``."""
    found: dict[str, float] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# scraped_at "):
            found["scraped_at"] = float(line.split()[2])
        elif match := _SAMPLE.match(line):
            found[match[1]] = found.get(match[1], 0.0) + float(match[2])
    return found


def report(path: Path) -> list[Document]:
    """The windows of a JSON report."""
    windows: list[Document] = json.loads(path.read_text(encoding="utf-8"))["windows"]
    return windows


def replayed(live: Document, again: Document, same_version: bool = True) -> Iterator[str]:
    """What differs between a live window's document and that of its recording: nothing may, to the last digit.

    Of another version than that of the live run, figures are compared, and not what it advises.
    """
    left_out = _WHERE | {"gates"} | (frozenset() if same_version else _ADVICE)
    ours = {key: value for key, value in live.items() if key not in left_out}
    theirs = {key: again.get(key) for key in ours}
    yield from _differences(ours, theirs, "")
    not_compared = _WHERE_OF_GATE | (frozenset() if same_version else _WORDS_OF_GATE)
    verdicts = [
        {key: value for key, value in gate.items() if key not in not_compared}
        for window in (live, again)
        for gate in sorted(window["gates"], key=lambda gate: str(gate["expression"]))
    ]
    half = len(verdicts) // 2
    yield from _differences(verdicts[:half], verdicts[half:], "gates")


def _differences(ours: object, theirs: object, where: str) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**ours, **theirs}:
            yield from _differences(ours.get(key), theirs.get(key), f"{where}.{key}".lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from _differences(*pair, f"{where}[{number}]")
    elif ours != theirs:
        yield f"{where}: live {str(ours)[:80]!r}, replayed {str(theirs)[:80]!r}"


def verdicts(checks: Checks, what: str, window: Document, expected: Mapping[str, str]) -> None:
    """Each gate came out as it must, and with a figure where it was judged."""
    found = {gate["expression"]: gate for gate in window["gates"]}
    checks.same(f"{what}: gates", sorted(found), sorted(expected))
    for expression, verdict in expected.items():
        gate = found.get(expression, {})
        checks.same(f"{what}: {expression}", gate.get("verdict"), verdict)
        judged = gate.get("value") is not None
        checks.same(f"{what}: {expression} has a figure", judged, verdict != "no data")


def value(window: Document, metric: str) -> float:
    """A measurement; NaN where there is none, which no comparison survives."""
    measured = window["measurements"].get(metric)
    return float(measured["value"]) if measured else math.nan


def bytes_of_a_step(config: Mapping[str, Any], batch: float, context: float) -> float:
    """Weights that a decode step reads, and cache that it reads and writes, in 2 bytes per value.

    Per layer q, k, v, o and three matrices of the MLP; the output matrix; two norms per layer and one at the end; of
    the input embedding a row for each sequence. Each sequence's keys and values are read, its new token's written.
    """
    hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    layer = 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * inner
    values = layers * layer + hidden * config["vocab_size"] + (2 * layers + 1) * hidden + batch * hidden
    cache = batch * (context + 1) * layers * 2 * keys
    return float(2 * (values + cache))


def vllm(
    checks: Checks, what: str, window: Document, pages: Pages, config: Mapping[str, Any], bandwidth: float
) -> None:
    """The figures of a vLLM window against its pages."""
    gaps, steps = pages.grew("vllm:inter_token_latency_seconds_count"), pages.grew("vllm:iteration_tokens_total_count")
    generated, prompts = pages.grew("vllm:generation_tokens_total"), pages.grew("vllm:prompt_tokens_total")
    computed = prompts - pages.grew("vllm:prefix_cache_hits_total")
    checks.same(f"{what}: tokens in steps", pages.grew("vllm:iteration_tokens_total_sum"), computed + generated)
    checks.same(f"{what}: generated tokens", window["facts"]["generated_tokens"], generated)
    checks.same(f"{what}: computed prompt tokens", window["facts"]["computed_prompt_tokens"], computed)
    finished = pages.grew("vllm:request_success_total")
    checks.same(f"{what}: finished requests", window["facts"]["finished_requests"], finished)
    checks.close(f"{what}: seconds", window["duration_seconds"], pages.seconds, 1e-6)
    if window["phase"] != "decode":
        return
    itl = pages.grew("vllm:inter_token_latency_seconds_sum") / gaps
    checks.close(f"{what}: itl.mean", value(window, "itl.mean"), itl)
    checks.close(f"{what}: decode.step_time", value(window, "decode.step_time"), itl)
    batch = value(window, "decode.batch")
    checks.close(f"{what}: decode.batch", batch, gaps / steps, 0.02)
    moved = bytes_of_a_step(config, batch, value(window, "decode.context"))
    checks.close(f"{what}: decode.mbu", value(window, "decode.mbu"), moved / bandwidth / itl, 1e-6)
    # The engine's own estimate adds activations, and the few steps that held prompts.
    estimated = pages.grew("vllm:estimated_read_bytes_per_gpu_total") / steps
    checks.close(f"{what}: bytes of a step, as vLLM estimates them", estimated, moved, 0.05)


def llamacpp(checks: Checks, what: str, window: Document, pages: Pages) -> None:
    """The figures of a llama.cpp window against its pages."""
    generated = pages.grew("llamacpp:tokens_predicted_total")
    checks.same(f"{what}: generated tokens", window["facts"]["generated_tokens"], generated)
    checks.close(f"{what}: seconds", window["duration_seconds"], pages.seconds, 1e-6)
    for metric in ("ttft.mean", "itl.mean", "tpot.p99", "queue.mean"):
        checks.true(f"{what}: {metric} is not measured", metric not in window["measurements"])


def client_and_server(checks: Checks, what: str, window: Document, pages: Pages, result: Mapping[str, Any]) -> None:
    """A benchmark's own figures against the server's counters, and both against the report."""
    checks.same(f"{what}: requests of client and server", result["completed"], pages.grew("vllm:request_success_total"))
    generated = pages.grew("vllm:generation_tokens_total")
    checks.same(f"{what}: output tokens of client and server", result["total_output_tokens"], generated)
    measured = window["measurements"]
    checks.close(f"{what}: client's ttft.mean", value(window, "ttft.mean"), result["mean_ttft_ms"] / 1e3, 1e-6)
    server = pages.grew("vllm:time_to_first_token_seconds_sum") / pages.grew("vllm:time_to_first_token_seconds_count")
    other = measured.get("ttft.mean", {}).get("other") or {}
    checks.close(f"{what}: server's ttft.mean", other.get("value", math.nan), server)
    rate = result["total_output_tokens"] / result["duration"]
    checks.close(f"{what}: output.tokens_per_second", value(window, "output.tokens_per_second"), rate, 1e-6)
    if gaps := [gap for request in result.get("itls", ()) for gap in request]:
        seen = measured.get("itl.mean", {}).get("other") or {}
        checks.close(f"{what}: client's itl.mean", seen.get("value", math.nan), sum(gaps) / len(gaps), 1e-6)


def sent(checks: Checks, what: str, window: Document, load: Mapping[str, Any]) -> None:
    """A load that ran from the window's beginning to its end: what the client counted is what the report says."""
    facts = window["facts"]
    checks.same(f"{what}: failures of the load", load["failures"], [])
    checks.same(f"{what}: output tokens", facts["generated_tokens"], load["output_tokens"])
    checks.same(f"{what}: prompt tokens", facts["prompt_tokens"], load["prompt_tokens"])
    if facts["finished_requests"] is not None:
        checks.same(f"{what}: requests", facts["finished_requests"], load["requests"])
