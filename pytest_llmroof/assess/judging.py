"""Gates on a window that was measured: each on the whole, on its worst replica or its worst GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.hardwaremetrics import HARDWARE, each_gpu, each_replica
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.analysis.thresholds import remedy
from pytest_llmroof.assess.measuring import Measured
from pytest_llmroof.baseline.limits import baseline_of, identity_of
from pytest_llmroof.baseline.matching import Baselines
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.judge import hangs_on_baseline, judge
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.report.wire import Document
from pytest_llmroof.telemetry.window import Engine

#: Judges a gate on what was measured, with everything else known already.
JudgeOn = Callable[[Gate, Outcome], Verdict]


def judge_against(
    gate: Gate, outcome: Outcome, *, strict: bool, here: Callable[[], Document], baselines: Baselines | None
) -> Verdict:
    """Judge a gate, on what earlier reports hold where its limit hangs on a baseline. ``here`` tells which window."""
    earlier = baselines or Baselines()
    baseline = baseline_of(gate, outcome, here(), earlier) if hangs_on_baseline(gate) else None
    return judge(gate, outcome, baseline=baseline, strict=strict)


def judged_again(assessment: Assessment, gate: Gate, outcome: Outcome, strict: bool, baselines: Baselines) -> Verdict:
    """Judge a further gate on a window that was measured."""
    facts = assessment.facts
    if facts is None:
        return judge(gate, outcome, strict=strict)
    here = identity(assessment.spec, facts)
    return judge_against(gate, outcome, strict=strict, here=here, baselines=baselines)


def identity(spec: WindowSpec, facts: WindowFacts) -> Callable[[], Document]:
    """What earlier windows are compared with, worked out for the first gate that hangs on a baseline."""
    return cache(lambda: identity_of(spec, facts))


def judged(
    gate: Gate, measured: Measured, windows: Sequence[Measured], spec: WindowSpec, judge_on: JudgeOn
) -> Verdict:  # fmt: skip
    """The verdict; of repeated windows by their worst replica or GPU, the median of theirs."""
    if gate.per is None or len(windows) == 1:
        return _judge(gate, measured, spec, judge_on)
    verdicts = sorted((_judge(gate, one, spec, judge_on) for one in windows), key=_badness)
    return verdicts[0] if verdicts[0].value is None else verdicts[(len(verdicts) - 1) // 2]


def _judge(gate: Gate, measured: Measured, spec: WindowSpec, judge_on: JudgeOn) -> Verdict:
    if gate.per is None:
        return judge_on(gate, measured.outcomes[gate.metric])
    if gate.per == "gpu":
        return _worst(gate, each_gpu(measured.facts, gate.metric), judge_on, "GPUs")
    if gate.metric in HARDWARE:
        return _worst(gate, each_replica(measured.facts, gate.metric), judge_on, "replicas")
    return _worst(gate, _each_engine(gate, measured, spec), judge_on, "replicas")


def _worst(
    gate: Gate, each: list[tuple[str, Outcome]] | NoData | Impossible, judge_on: JudgeOn, of: str
) -> Verdict:  # fmt: skip
    """The verdict of the replica or GPU that does worst, which it names."""
    if isinstance(each, NoData | Impossible):
        return judge_on(gate, each)
    verdicts = [(name, judge_on(gate, outcome)) for name, outcome in each]
    name, verdict = min(verdicts, key=lambda pair: _worse(gate, pair[1]))
    if not isinstance(verdict.outcome, Measurement):  # nothing was measured of it that could be the worst
        alike = len(verdicts) > 1 and all(other.reason == verdict.reason for _, other in verdicts)
        whose = "each" if alike else f"{name}, one"
        return replace(verdict, because=f"{whose} of {len(verdicts)} {of}: {verdict.because}")
    named = f"the worst of {len(verdicts)} {of}: {name}"
    return replace(verdict, because="; ".join(filter(None, (named, verdict.because))))


def _each_engine(gate: Gate, measured: Measured, spec: WindowSpec) -> list[tuple[str, Outcome]] | NoData:
    """The metric of each replica by its own engine's metrics."""
    window = measured.facts.window
    if not window.engines:
        reason = f"`per: replica` needs each replica's own metrics, and {window.engine_title} has none"
        return NoData(gate.metric, reason, remedy("server"))
    return [(engine.identity, _outcome_of(engine, gate, measured, spec)) for engine in window.engines]


def _worse(gate: Gate, verdict: Verdict) -> tuple[int, float, float]:
    """Where no limit tells (there is no baseline yet), the worst value does: later runs are held against it."""
    outcome = verdict.outcome
    value = outcome.value if isinstance(outcome, Measurement) else 0.0
    return (*_badness(verdict), value if gate.operator in (">=", ">") else -value)


def _outcome_of(engine: Engine, gate: Gate, measured: Measured, spec: WindowSpec) -> Outcome:
    facts = measured.facts
    alone = replace(facts.deployment, data_parallel=1)
    # The counters are those of all replicas' GPUs.
    window = replace(facts.window.only(engine), hardware=None)
    return measure(gather(window, alone, spec.phase))[gate.metric]


def _badness(verdict: Verdict) -> tuple[int, float]:
    order = {"impossible": 0, "no data": 1, "fail": 2, "inconclusive": 3, "pass": 4}
    return order.get(verdict.word, 0), verdict.margin if verdict.margin is not None else 0.0
