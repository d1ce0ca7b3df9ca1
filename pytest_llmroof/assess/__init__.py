"""The one road from a window's specification to its assessment: read, measure, attribute, diagnose, judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.analysis.facts import Phase
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.assess.judging import identity, judge_against, judged
from pytest_llmroof.assess.measuring import Measured, measure_window
from pytest_llmroof.assess.reading import PROFILED, read, read_profiles
from pytest_llmroof.baseline.matching import Baselines
from pytest_llmroof.errors import ConfigError, LlmroofError, SourceError
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.repeats import Medians, with_notes
from pytest_llmroof.resolve import resolve, with_telemetry
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.taken import Taken


def assess(
    spec: WindowSpec, *, strict: bool = False, taken: Taken | None = None, baselines: Baselines | None = None
) -> Assessment:
    """Read, measure and judge one window. What cannot be measured becomes verdicts, never an exception.

    ``taken`` is what was recorded of its live sources. Where it repeats, the window whose value is the median is
    judged, gate by gate. ``baselines`` are the earlier reports that gates on a baseline are held against.
    """
    try:
        deployment = resolve(spec)
        profile = read_profiles(spec)
        windows = [measure_window(window, deployment, spec, profile) for window in read(spec, taken)]
    except ConfigError as error:
        return _unmeasured(spec, Deployment(), str(error), None)
    except SourceError as error:
        return _unmeasured(spec, _resolved_or_nothing(spec), error.reason, error.remedy)
    measured = windows[0] if len(windows) == 1 else _median(windows, spec)
    judge_on = partial(judge_against, strict=strict, here=identity(spec, measured.facts), baselines=baselines)
    verdicts = tuple(judged(gate, measured, windows, spec, judge_on) for gate in spec.gates)
    facts = measured.facts
    return Assessment(
        spec=spec,
        deployment=facts.deployment,
        facts=facts,
        outcomes=measured.outcomes,
        verdicts=verdicts,
        reasons=measured.reasons,
    )


def phase_of(spec: WindowSpec) -> Phase:
    """The phase that the traffic of files shows. Decode where they tell none: its gates then have no data."""
    try:
        window = read(spec)[0]
        if window.kind == PROFILED:
            return "decode"
        return gather(window, with_telemetry(resolve(spec), window, spec), spec.phase).phase
    except SourceError:
        return "decode"


def _median(windows: Sequence[Measured], spec: WindowSpec) -> Measured:
    """The window that stands for several: the middle one by the first gate's metric; every metric is the median."""
    medians = Medians([one.outcomes for one in windows], spec.gates)
    metrics = [gate.metric for gate in spec.gates if gate.per is None]
    one = windows[medians.middle(metrics[0] if metrics else "output.tokens_per_second")]
    return replace(one, outcomes=medians, facts=with_notes(one.facts, medians, metrics))


def _unmeasured(spec: WindowSpec, deployment: Deployment, reason: str, remedy: AnyAdvice | None) -> Assessment:
    """Every gate has no data, for one reason."""
    verdicts = tuple(judge(gate, NoData(gate.metric, reason, remedy)) for gate in spec.gates)
    failure = f"{reason}; {remedy}" if remedy else reason
    return Assessment(spec, deployment, None, {}, verdicts, failure=failure)


def _resolved_or_nothing(spec: WindowSpec) -> Deployment:
    try:
        return resolve(spec)
    except LlmroofError:
        return Deployment()
