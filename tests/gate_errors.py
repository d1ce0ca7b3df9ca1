"""How often gates err on loads whose truth is known: false alarms, misses, and what they leave open."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final, Literal

from drawn import BANDWIDTH, BATCH, MBU, STEP, TTFT, WEIGHTS, Spread, write_client, write_server

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Outcome
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.repeats import Medians
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models.figures import model_from_mapping
from pytest_llmroof.telemetry.reading import read_window

Source = Literal["requests", "histogram", "fine histogram"]
OFF = (-0.20, -0.10, -0.05, -0.02, 0.0, 0.02, 0.05, 0.10, 0.20)
#: What plain verdicts may be wrong in.
MOST_WRONG = 0.05
REPEATS = 5
RATE = "output.tokens_per_second"
#: Metrics that are known of the window exactly, of the load behind it only by several windows.
OF_THE_WINDOW = ("ttft.mean", "itl.mean", "decode.mbu", RATE)


@dataclass(frozen=True)
class Setting:
    """Where figures come from, how many requests and steps there are, and how much a time varies (1 = its mean)."""

    source: Source
    requests: int
    variation: float

    @property
    def steps(self) -> int:
        return 10 * self.requests


Truth = Literal["load", "window"]


@dataclass(frozen=True)
class Judged:
    """One gate on drawn loads: the metric, how far its limit is from the load's truth, and what came out.

    ``holds`` says whether the gate holds of what is true: of the load that was drawn from, or of this window's own
    requests and steps. ``windows``: how many were taken (`repeat:`).
    """

    setting: Setting
    metric: str
    off: float
    windows: int
    holds: Mapping[Truth, bool]
    word: str
    approximate: bool

    def outcome(self, truth: Truth) -> str:
        """``right``, ``false alarm``, ``miss``, or what was left open."""
        if self.word not in ("pass", "fail"):
            return "no data"
        if self.approximate:
            return "approximate"
        if (self.word == "pass") == self.holds[truth]:
            return "right"
        return "false alarm" if self.holds[truth] else "miss"


def settings() -> Iterator[Setting]:
    """Every source, number of requests and noise that is measured."""
    sources: tuple[Source, ...] = ("requests", "histogram", "fine histogram")
    for source in sources:
        for requests in (20, 100, 400):
            for variation in (0.01, 0.03, 0.10, 0.50):
                yield Setting(source, requests, variation)


def measured(setting: Setting, loads: int, seed: int) -> Iterator[Judged]:
    """Gates on so many loads of one setting, with limits on both sides of each truth; and on every five as repeats."""
    drawing = random.Random(f"{seed} {setting}")
    first, step = Spread(TTFT, setting.variation), Spread(STEP, setting.variation)
    truths = {name: first.percentile(share) for name, share in _PERCENTILES["ttft"].items()} | {"ttft.mean": first.mean}
    if setting.source != "requests":
        truths |= {name: step.percentile(share) for name, share in _PERCENTILES["itl"].items()}
        truths |= {"itl.mean": step.mean, "decode.mbu": MBU, RATE: _rate(setting, step.mean)}
    gates = [(metric, off, gate) for metric, truth in truths.items() for off, gate in _gates(metric, truth)]
    taken: list[Measurements] = []
    for _ in range(loads):
        ttfts, steps = first.draw(drawing, setting.requests), step.draw(drawing, setting.steps)
        found = _measurements(setting, ttfts, steps)
        mean = fmean(steps)
        own = {"ttft.mean": fmean(ttfts), "itl.mean": mean, "decode.mbu": MBU * STEP / mean, RATE: _rate(setting, mean)}
        taken.append(found)
        for metric, off, gate in gates:
            known: dict[Truth, float | None] = {"load": truths[metric], "window": own.get(metric)}
            yield _judged(setting, metric, off, 1, gate, found[metric], known)
        if len(taken) == REPEATS:
            medians = Medians(taken, [gate for _, _, gate in gates])
            for metric, off, gate in gates:
                yield _judged(setting, metric, off, REPEATS, gate, medians[metric], {"load": truths[metric]})
            taken = []


_PERCENTILES: Final = {
    "ttft": {"ttft.p50": 0.5, "ttft.p95": 0.95, "ttft.p99": 0.99}, "itl": {"itl.p50": 0.5, "itl.p99": 0.99},
}  # fmt: skip


def _rate(setting: Setting, step_seconds: float) -> float:
    """Tokens a second: each request has one more than it has pauses."""
    return (BATCH * setting.steps + setting.requests) / setting.steps / step_seconds


def _judged(
    setting: Setting, metric: str, off: float, windows: int, gate: Gate, outcome: Outcome,
    truths: Mapping[Truth, float | None],
) -> Judged:  # fmt: skip
    verdict = judge(gate, outcome)
    holds = {of: _holds(gate, truth) for of, truth in truths.items() if truth is not None}
    return Judged(setting, metric, off, windows, holds, verdict.word, verdict.approximate)


def _holds(gate: Gate, truth: float) -> bool:
    return truth >= gate.limit.value if gate.operator == ">=" else truth <= gate.limit.value


def _gates(metric: str, truth: float) -> Iterator[tuple[float, Gate]]:
    rising = metric in ("decode.mbu", RATE)
    unit = "" if metric == "decode.mbu" else "tok/s" if rising else "s"
    for off in OFF:
        yield off, parse_gate(f"{metric} {'>=' if rising else '<='} {truth * (1 + off)!r}{unit}")


def _measurements(setting: Setting, ttfts: list[float], steps: list[float]) -> Measurements:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if setting.source == "requests":
            paths: tuple[Path, ...] = (write_client(folder, ttfts),)
        else:
            paths = write_server(folder, ttfts, steps, pieces=8 if setting.source == "fine histogram" else 1)
        window = read_window([(path, path.name) for path in paths])
    return measure(gather(window, DEPLOYMENT, "decode"))


DEPLOYMENT = Deployment(
    model=model_from_mapping({"parameters": WEIGHTS / 2, "weight_bytes": WEIGHTS, "kv_bytes_per_token": 1}),
    accelerator=Accelerator(
        name="drawn", product="drawn", peaks={"bf16": 1e15}, memory_bandwidth_bytes_per_second=BANDWIDTH,
        memory_bytes=80e9,
    ),
    provenance=dict.fromkeys(("tensor_parallel", "weights", "gpu", "model", "kv_cache", "compute"), "given"),
)  # fmt: skip


def rates(found: Iterable[Judged], truth: Truth) -> dict[str, float]:
    """Shares of each outcome."""
    counts = Counter(one.outcome(truth) for one in found)
    whole = sum(counts.values())
    return {name: counts[name] / whole for name in ("right", "false alarm", "miss", "approximate", "no data")}
