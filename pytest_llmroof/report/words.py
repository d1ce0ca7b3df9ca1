"""The ``in words`` line: the finding for somebody who does not know the metric, and where the time went."""

from __future__ import annotations

from typing import Final

from pytest_llmroof.analysis.attribution import SCENARIO_OF_CAUSE, Attribution, Cause
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.analysis.metrics import find_metric
from pytest_llmroof.analysis.tokens import UNTOLD
from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.report.causes import diagnosis_for
from pytest_llmroof.report.facts_text import explains
from pytest_llmroof.report.figures import precise, quantity, share_in_words, times, wording

#: Below this ratio nobody would call it slower.
_NOTABLE_RATIO: Final = 1.1

#: Shares that are lost with one scenario or another, beside those that speak for a single one.
_ALSO_LOST: Final[dict[str, tuple[Cause, ...]]] = {"C": ("exposed communication: waiting",)}


def in_words(assessment: Assessment, verdict: Verdict) -> str | None:
    """One sentence without symbols; what was not measured says so. None for a pass, and for what was not judged."""
    if verdict.word in ("pass", "not judged", "not run"):
        return None
    if verdict.word in ("no data", "inconclusive", "impossible"):
        doubt = "unconfirmed" if verdict.word == "inconclusive" and verdict.unconfirmed else verdict.word
        return wording()["finding"]["not_measured" if doubt == "no data" else doubt]
    clauses = [_finding(assessment, verdict)]
    diagnosis = diagnosis_for(assessment, verdict.gate.metric)
    of_time = verdict.gate.unit == "seconds"
    if diagnosis is not None and (cause := _cause(diagnosis, assessment.attribution, of_time)):
        clauses.append(cause)
    return "; ".join(clause for clause in clauses if clause)


def _finding(assessment: Assessment, verdict: Verdict) -> str:
    if verdict.value is None:
        return ""
    if verdict.gate.metric in ("decode.mbu", "decode.mfu", "decode.step_time"):
        decode = _decode_finding(assessment)
        if decode is not None:
            return decode
    known = isinstance(verdict.outcome, Measurement) and verdict.outcome.undecided != UNTOLD
    if verdict.gate.metric == "prefill.mfu" and verdict.value > 0 and known:
        return wording()["finding"]["prefill"].format(ratio=times(1 / verdict.value))
    return _plain_finding(verdict, verdict.value)


def _decode_finding(assessment: Assessment) -> str | None:
    decode = assessment.facts.decode if assessment.facts else None
    if decode is None or decode.floor is None or decode.floor.seconds <= 0:
        return None
    ratio = decode.step_seconds.value / decode.floor.seconds
    finding = wording()["finding"]
    if ratio < _NOTABLE_RATIO:
        return finding["decode_near"]
    return finding["decode_memory" if decode.floor.memory_bound else "decode_compute"].format(ratio=times(ratio))


def _plain_finding(verdict: Verdict, value: float) -> str:
    gate, phrases = verdict.gate, wording()
    shown = quantity(value, gate.unit)
    asked = phrases["asked"][gate.operator].format(limit=_limit_shown(verdict.limit, gate)) if verdict.limit else ""
    try:
        metric, statistic = find_metric(gate.metric)
    except ConfigError:  # a metric with parameters: its expression says what it is
        return phrases["finding"]["plain"].format(meaning=gate.metric, value=shown, asked=asked)
    kind = statistic if statistic in ("mean", "max") else "quantile"
    template = phrases["latency"].get(f"{metric.name}.{kind}") if statistic else None
    if template is None:
        meaning = f"{metric.meaning}, {statistic}" if statistic else metric.meaning
        return phrases["finding"]["plain"].format(meaning=meaning, value=shown, asked=asked).rstrip("; ")
    finding = template.format(value=shown, requests=phrases["requests"].get(statistic or "", ""))
    if kind == "quantile" and isinstance(verdict.outcome, Measurement) and verdict.outcome.bounded.only_low:
        finding = phrases["finding"]["beyond"].format(finding=finding)
    return "; ".join(filter(None, [finding, asked]))


def _cause(diagnosis: Diagnosis, attribution: Attribution | None, of_time: bool) -> str | None:
    """What the scenario means; phrases that speak of a share need an attribution that has one."""
    if diagnosis.scenario is None:
        return None
    if diagnosis.words:
        return diagnosis.words
    phrases = {**wording()["scenario"], **(wording()["scenario_of_times"] if of_time else {})}
    of_step = diagnosis.of == "decode" or (attribution is not None and attribution.of == "decode step")
    if diagnosis.scenario == "B" and diagnosis.of in ("decode", "window", "whole") and of_step:
        return phrases["interleaved"]
    if diagnosis.scenario == "B" and diagnosis.of == "ttft" and diagnosis.confidence == "low":
        # How near the roof the prompts are computed is not known: that arithmetic fills the time would be a guess.
        return phrases["computed"]
    template = phrases.get(diagnosis.scenario, phrases["several"])
    if "{share}" not in template:
        return template
    if attribution is None or not explains(attribution.of, diagnosis.of):
        return None
    share = _lost(diagnosis.candidates, attribution)
    time = wording()["time"][attribution.of]
    return template.format(share=share_in_words(share), time=time) if share > 0 else None


def _lost(candidates: tuple[str, ...], attribution: Attribution) -> float:
    """The share that went to a scenario; of several, what nothing tells apart, estimates of one of them left out."""
    causes: set[Cause] = {cause for cause, scenario in SCENARIO_OF_CAUSE.items() if scenario in candidates}
    for candidate in candidates:
        causes.update(_ALSO_LOST.get(candidate, ()))
    if len(candidates) > 1 and (rest := attribution.share("not attributed")):
        observed = sum(part.share for part in attribution.shares if part.cause in causes and part.observed)
        return observed + rest
    return attribution.share(*causes)


def _limit_shown(limit: float, gate: Gate) -> str:
    """A limit that was written down with all of its digits, one that was computed as figures are."""
    return precise(limit, gate.unit) if gate.limit.kind == "absolute" else quantity(limit, gate.unit)
