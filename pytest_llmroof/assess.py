"""The one road from a window's specification to its assessment: read, measure, attribute, diagnose, judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import NoData, Outcome, Outcomes
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.errors import ConfigError, LlmroofError, SourceError
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.resolve import resolve, with_telemetry
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Engine, Window

FAMILIES: Final[tuple[Family, ...]] = ("decode", "prefill", "ttft", "window", "none")


@dataclass(frozen=True)
class Measured:
    """A window that was read and measured, before any gate is judged."""

    facts: WindowFacts
    outcomes: Outcomes
    attribution: Attribution | None
    diagnoses: Mapping[str, Diagnosis]


def assess(spec: WindowSpec, *, strict: bool = False) -> Assessment:
    """Read, measure and judge one window. What cannot be measured becomes verdicts, never an exception."""
    try:
        deployment = resolve(spec)
        measured = measure_window(read(spec), deployment, spec)
    except ConfigError as error:
        return _unmeasured(spec, Deployment(), str(error), None)
    except SourceError as error:
        return _unmeasured(spec, _resolved_or_nothing(spec), error.reason, error.remedy)
    verdicts = tuple(_judge(gate, measured, spec, strict) for gate in spec.gates)
    facts = measured.facts
    return Assessment(
        spec=spec,
        deployment=facts.deployment,
        facts=facts,
        outcomes=measured.outcomes,
        attribution=measured.attribution,
        diagnosis=measured.diagnoses[_family_of_phase(facts)],
        verdicts=verdicts,
        diagnoses=measured.diagnoses,
    )


def read(spec: WindowSpec) -> Window:
    """The window's telemetry. Raises SourceError where there is none, or it cannot be read."""
    if spec.unset:
        names = ", ".join(f"${name}" for name in spec.unset)
        raise SourceError(f"environment variable {names} is not set and has no default", f"set {names} for pytest")
    if not spec.telemetry:
        raise SourceError("the window names no telemetry", "write `telemetry:` or give --llmroof-telemetry=SOURCE")
    paths = [(source.path, source.shown) for source in spec.telemetry if source.path is not None]
    live = [source.shown for source in spec.telemetry if source.path is None]
    if live:
        raise SourceError(
            f"{', '.join(live)}: this version measures recordings, not live servers",
            f"record the load and name the folder: python -m pytest_llmroof record --out=DIR {' '.join(live)} -- ...",
        )
    return read_window(paths, served_model_name=spec.served_model_name, duration_seconds=spec.duration_seconds)


def measure_window(window: Window, deployment: Deployment, spec: WindowSpec) -> Measured:
    """Measure, attribute and diagnose a window that was read."""
    facts = gather(window, with_telemetry(deployment, window, spec), spec.phase)
    outcomes = measure(facts)
    attribution = attribute(facts, outcomes)
    limit = _tpot_limit(spec.gates)
    diagnoses: dict[str, Diagnosis] = {
        family: diagnose(facts, outcomes, attribution, family, tpot_limit_seconds=limit) for family in FAMILIES
    }
    return Measured(facts, outcomes, attribution, diagnoses)


def _tpot_limit(gates: tuple[Gate, ...]) -> float | None:
    """The tightest limit on the time between tokens: a larger batch may not go beyond it."""
    limits = [
        gate.limit.value
        for gate in gates
        if gate.metric.startswith(("tpot.", "itl.")) and gate.operator in ("<=", "<") and gate.limit.kind == "absolute"
    ]
    return min(limits, default=None)


def _judge(gate: Gate, measured: Measured, spec: WindowSpec, strict: bool) -> Verdict:
    if gate.per is None:
        return judge(gate, measured.outcomes[gate.metric], strict=strict)
    if gate.per == "gpu":
        return judge(gate, _no_gpu_series(gate), strict=strict)
    return _worst(gate, measured, spec, strict)


def _worst(gate: Gate, measured: Measured, spec: WindowSpec, strict: bool) -> Verdict:
    """The verdict of the replica that does worst, which it names."""
    window = measured.facts.window
    verdicts = [
        (engine, judge(gate, _outcome_of(engine, gate, measured, spec), strict=strict)) for engine in window.engines
    ]
    engine, verdict = min(verdicts, key=lambda pair: _badness(pair[1]))
    named = f"the worst of {len(verdicts)} replicas: {engine.identity}"
    return replace(verdict, reason=f"{named}; {verdict.reason}" if verdict.reason else named)


def _outcome_of(engine: Engine, gate: Gate, measured: Measured, spec: WindowSpec) -> Outcome:
    facts = measured.facts
    alone = replace(facts.deployment, data_parallel=1)
    return measure(gather(facts.window.only(engine), alone, spec.phase))[gate.metric]


def _badness(verdict: Verdict) -> tuple[int, float]:
    order = {"impossible": 0, "no data": 1, "fail": 2, "inconclusive": 3, "pass": 4}
    return order.get(verdict.word, 0), verdict.margin if verdict.margin is not None else 0.0


def _no_gpu_series(gate: Gate) -> NoData:
    reason = "`per: gpu` needs a series per GPU, and engine metrics have none"
    return NoData(gate.metric, reason, "add the page of a DCGM exporter")


def _family_of_phase(facts: WindowFacts) -> Family:
    return "prefill" if facts.phase == "prefill" else "decode"


def _unmeasured(spec: WindowSpec, deployment: Deployment, reason: str, remedy: str | None) -> Assessment:
    """Every gate has no data, for one reason."""
    verdicts = tuple(judge(gate, NoData(gate.metric, reason, remedy)) for gate in spec.gates)
    failure = f"{reason}; {remedy}" if remedy else reason
    return Assessment(spec, deployment, None, {}, None, None, verdicts, failure=failure)


def _resolved_or_nothing(spec: WindowSpec) -> Deployment:
    try:
        return resolve(spec)
    except LlmroofError:
        return Deployment()
