"""The one road from a window's specification to its assessment: read, measure, attribute, diagnose, judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final, get_args

from pytest_llmroof.analysis.added_scenarios import with_added
from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.facts import Phase, WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.hardwaremetrics import HARDWARE, each_gpu, each_replica
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome, Outcomes
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.observing import observe
from pytest_llmroof.analysis.thresholds import remedy
from pytest_llmroof.asked import ask, asks, of_files
from pytest_llmroof.baseline.limits import baseline_of, identity_of
from pytest_llmroof.baseline.matching import Baselines
from pytest_llmroof.errors import ConfigError, LlmroofError, SourceError
from pytest_llmroof.gates.assessment import Assessment, Reasons
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.judge import hangs_on_baseline, judge
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.profiles.finding import find_profiles
from pytest_llmroof.profiles.profile import Profile, ProfileFile
from pytest_llmroof.repeats import Medians, with_notes
from pytest_llmroof.report.wire import Document
from pytest_llmroof.resolve import resolve, with_telemetry
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.taken import Taken
from pytest_llmroof.telemetry.engine_entries import with_engines
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Engine, SourceInfo, Window

#: What messages call a recording that is only kept while pytest runs.
UNNAMED: Final = "live"
#: The kind of a window that nothing but profiles tells of.
PROFILED: Final = "profile"
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)
#: Judges a gate on what was measured, with everything else known already.
JudgeOn = Callable[[Gate, Outcome], Verdict]
_FAMILY: Final[Mapping[str, Family]] = {family: family for family in FAMILIES}


@dataclass(frozen=True)
class Measured:
    """A window that was read and measured, before any gate is judged."""

    facts: WindowFacts
    outcomes: Outcomes
    reasons: Reasons


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
    judge_on = partial(judge_against, strict=strict, here=_identity(spec, measured.facts), baselines=baselines)
    verdicts = tuple(_judged(gate, measured, windows, spec, judge_on) for gate in spec.gates)
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


def profile_files(spec: WindowSpec) -> tuple[ProfileFile, ...]:
    """The files among the window's telemetry, and in its recordings, that a profiler wrote."""
    return find_profiles([(source.path, source.shown) for source in spec.telemetry if source.path is not None])


def read_profiles(spec: WindowSpec) -> Profile | None:
    """What the window's profiles tell; None without any. One that cannot be read is in there, with the reason."""
    files = profile_files(spec)
    if not files:
        return None
    # Here, so that windows without a profile do not pay for NumPy.
    from pytest_llmroof.profiles.reading import read_profile

    return read_profile(files)


def read(spec: WindowSpec, taken: Taken | None = None) -> list[Window]:
    """The window's telemetry, and that of its repeats. Raises SourceError where there is none, or it can't be read."""
    if spec.unset:
        names = ", ".join(f"${name}" for name in spec.unset)
        raise SourceError(f"environment variable {names} is not set and has no default", f"set {names} for pytest")
    if not spec.telemetry:
        in_file = spec.id.partition("::")[0].endswith((".yaml", ".yml"))
        key = "telemetry:" if in_file else "@pytest.mark.llmroof(telemetry=[...])"
        raise SourceError("the window names no telemetry", f"write `{key}` or give --llmroof-telemetry=SOURCE")
    paths = [(source.path, source.shown) for source in spec.telemetry if source.path is not None]
    if taken is not None and taken.failure is not None:
        raise SourceError(*taken.failure)
    if asks(spec):
        return [taken.window if taken and taken.window else ask(spec, taken.block if taken else None)]
    if not spec.sampled:
        return [of_files(spec, _read_files(spec, paths))]
    if taken is None:
        raise SourceError("the window was not measured")
    return [
        _read_recording(spec, [one, *paths], f"window {number} of {len(taken.recordings)}: ")
        for number, one in enumerate(taken.recordings, 1)
    ]


def _read_files(spec: WindowSpec, paths: Sequence[tuple[Path, str]]) -> Window:
    """Files; a duration that was given for live windows counts only where they carry no clock."""
    profiles = frozenset(file.path for file in profile_files(spec))
    read_lasting = partial(
        read_window,
        paths,
        served_model_name=spec.served_model_name,
        engines=with_engines(spec.engines),
        elsewhere=profiles,
        warmup_seconds=spec.warmup_seconds,
    )
    if spec.duration_fallback:
        window = read_lasting()
        if window.duration_seconds is not None:
            return window
    window = read_lasting(duration_seconds=spec.duration_seconds)
    return replace(window, kind=PROFILED, title="a profile") if not window.kind else window


def _read_recording(spec: WindowSpec, paths: Sequence[tuple[Path, str]], which: str) -> Window:
    """A recording that was made for this window (the first of the paths), with the files that belong to it."""
    try:
        engines, profiles = with_engines(spec.engines), frozenset(file.path for file in profile_files(spec))
        window = read_window(
            paths, served_model_name=spec.served_model_name, engines=engines, elsewhere=profiles
        )  # fmt: skip
    except SourceError as error:
        raise SourceError(error.reason if spec.repeat == 1 else which + error.reason, error.remedy) from None
    if paths[0][1] != UNNAMED:
        return window
    # Nobody keeps this recording: reports name the servers.
    servers = ", ".join(source.shown for source in spec.telemetry if source.kind == "url")
    infos = (
        SourceInfo(info.kind, servers) if info.location == UNNAMED else info for info in window.sources
    )  # fmt: skip
    return replace(window, sources=tuple(dict.fromkeys(infos)))


def measure_window(
    window: Window, deployment: Deployment, spec: WindowSpec, profile: Profile | None = None
) -> Measured:  # fmt: skip
    """Measure, attribute and diagnose a window that was read, with what profiles of it tell."""
    if profile is not None:
        window = _profiled(window, profile)
    facts = gather(window, with_telemetry(deployment, window, spec), spec.phase, profile)
    outcomes = measure(facts)
    return Measured(facts, outcomes, _reasons(facts, outcomes, _tpot_limit(spec.gates, facts)))


def _profiled(window: Window, profile: Profile) -> Window:
    """The window with its profiles among what was read, and what was not."""
    return replace(
        window,
        sources=(*window.sources, *(SourceInfo(kind, location) for kind, location in profile.sources)),
        unread=(*window.unread, *(refused.line for refused in profile.refused)),
        device_names=tuple(dict.fromkeys((*window.device_names, *profile.device_names))),
    )


def _reasons(facts: WindowFacts, outcomes: Outcomes, tpot_limit_seconds: float | None) -> Reasons:
    """Where the time went and why, for whoever asks."""

    @cache
    def observed() -> Observed | None:
        return observe(facts)

    @cache
    def attribution() -> Attribution | None:
        return attribute(facts, outcomes, observed())

    def of(family: Family) -> Diagnosis:
        limit = tpot_limit_seconds
        found = diagnose(facts, outcomes, attribution(), family, tpot_limit_seconds=limit, observed=observed())
        return with_added(found, facts, outcomes, attribution)

    return Reasons(attribution, Diagnoses(of), _family_of_phase(facts))


class Diagnoses(Mapping[str, Diagnosis]):
    """A diagnosis for each family, made when somebody asks for it: a gate that holds needs none."""

    def __init__(self, diagnose_family: Callable[[Family], Diagnosis]) -> None:
        self._diagnose = diagnose_family
        self._known: dict[str, Diagnosis] = {}

    def __getitem__(self, family: str) -> Diagnosis:
        if family not in self._known:
            self._known[family] = self._diagnose(_FAMILY[family])
        return self._known[family]

    def __contains__(self, family: object) -> bool:
        return family in FAMILIES

    def __iter__(self) -> Iterator[str]:
        return iter(FAMILIES)

    def __len__(self) -> int:
        return len(FAMILIES)


def _tpot_limit(gates: tuple[Gate, ...], facts: WindowFacts) -> float | None:
    """The tightest limit on the time between tokens: a larger batch may not go beyond it."""
    tokens = facts.decode.tokens_per_step if facts.decode else 1.0
    limits = [
        gate.limit.value / (tokens if gate.metric == "decode.step_time" else 1.0)
        for gate in gates
        if gate.metric.startswith(("tpot.", "itl.", "decode.step_time"))
        and gate.operator in ("<=", "<")
        and gate.limit.kind == "absolute"
    ]
    return min(limits, default=None)


def _median(windows: Sequence[Measured], spec: WindowSpec) -> Measured:
    """The window that stands for several: the middle one by the first gate's metric; every metric is the median."""
    medians = Medians([one.outcomes for one in windows], spec.gates)
    metrics = [gate.metric for gate in spec.gates if gate.per is None]
    one = windows[medians.middle(metrics[0] if metrics else "output.tokens_per_second")]
    return replace(one, outcomes=medians, facts=with_notes(one.facts, medians, metrics))


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
    here = _identity(assessment.spec, facts)
    return judge_against(gate, outcome, strict=strict, here=here, baselines=baselines)


def _identity(spec: WindowSpec, facts: WindowFacts) -> Callable[[], Document]:
    """What earlier windows are compared with, worked out for the first gate that hangs on a baseline."""
    return cache(lambda: identity_of(spec, facts))


def _judged(
    gate: Gate, measured: Measured, windows: Sequence[Measured], spec: WindowSpec, judge_on: JudgeOn
) -> Verdict:  # fmt: skip
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
        return replace(verdict, reason=f"{whose} of {len(verdicts)} {of}: {verdict.reason}")
    named = f"the worst of {len(verdicts)} {of}: {name}"
    return replace(verdict, reason=f"{named}; {verdict.reason}" if verdict.reason else named)


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


def _family_of_phase(facts: WindowFacts) -> Family:
    return "prefill" if facts.phase == "prefill" else "decode"


def _unmeasured(spec: WindowSpec, deployment: Deployment, reason: str, remedy: str | None) -> Assessment:
    """Every gate has no data, for one reason."""
    verdicts = tuple(judge(gate, NoData(gate.metric, reason, remedy)) for gate in spec.gates)
    failure = f"{reason}; {remedy}" if remedy else reason
    return Assessment(spec, deployment, None, {}, verdicts, failure=failure)


def _resolved_or_nothing(spec: WindowSpec) -> Deployment:
    try:
        return resolve(spec)
    except LlmroofError:
        return Deployment()
