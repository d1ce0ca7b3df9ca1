"""Attribution and diagnosis as plain data, and which diagnosis explains which gate."""

from __future__ import annotations

from pytest_llmroof.advice import AnyAdvice, command, plain
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.metrics import METRICS, Family
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.report.wire import Document


def attribution_document(attribution: Attribution | None) -> list[Document]:
    """The shares of a step, in order; they add up to 1."""
    return [
        {
            "cause": part.cause,
            "seconds": part.seconds,
            "share": part.share,
            # A floor is no estimate: it is worked out from what was counted.
            "observed": part.observed or part.cause.startswith(("memory floor", "compute floor")),
            "source": part.source,
        }
        for part in (attribution.shares if attribution else ())
    ]


def diagnosis_document(diagnosis: Diagnosis | None) -> Document | None:
    """A diagnosis with its evidence for and against, its remedies, and what is missing."""
    if diagnosis is None:
        return None
    return {
        "scenario": diagnosis.scenario,
        "candidates": diagnosis.candidates,
        "title": diagnosis.title,
        "regime": diagnosis.regime,
        "confidence": diagnosis.confidence,
        "of": diagnosis.of,
        "evidence": [
            {"scenario": one.scenario, "supports": one.supports, "statement": one.statement, "source": one.source}
            for one in diagnosis.evidence
        ],
        "remedies": [
            {"title": one.title, "detail": one.detail, "effect": one.effect,
             "metric": one.metric, "low": one.low, "high": one.high}
            for one in diagnosis.remedies
        ],
        "missing": [str(one) for one in diagnosis.missing],
        "advice": [advice_document(one) for one in diagnosis.missing],
    }  # fmt: skip


def advice_document(advice: AnyAdvice) -> Document:
    """What to do, and the command for it: null where there is none."""
    return {"text": plain(advice), "command": command(advice)}


def family_of(metric: str) -> Family:
    """Whose time a metric measures: ``tpot.p99`` -> decode, ``goodput(ttft<=2s)`` -> window."""
    head, _, tail = metric.partition("(")
    name = head + tail.rpartition(")")[2]
    while name not in METRICS and "." in name:
        name = name.rpartition(".")[0]
    return METRICS[name].family if name in METRICS else "window"


def diagnosis_for(assessment: Assessment, metric: str) -> Diagnosis | None:
    """The diagnosis of the time that a metric measures; None where nothing was said about that time."""
    family = family_of(metric)
    diagnosis = assessment.diagnoses.get(family)
    if diagnosis is None and assessment.diagnosis is not None and assessment.diagnosis.of == family:
        return assessment.diagnosis
    return diagnosis


def window_diagnosis(assessment: Assessment) -> Diagnosis | None:
    """That of the window's first breach of severity error, else the one of its phase."""
    for word in ("fail", "inconclusive"):
        for verdict in assessment.verdicts:
            if verdict.word == word and verdict.gate.severity == "error":
                breach = diagnosis_for(assessment, verdict.gate.metric)
                if breach is not None:
                    return breach
    return assessment.diagnosis


def scenario_of(assessment: Assessment, verdict: Verdict) -> str | None:
    """The scenario that explains a gate: of the time it measures; None where nothing was measured."""
    if verdict.word not in ("pass", "fail", "inconclusive"):
        return None
    diagnosis = diagnosis_for(assessment, verdict.gate.metric)
    return diagnosis.scenario if diagnosis else None
