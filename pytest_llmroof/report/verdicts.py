"""The verdict on a gate as plain data, with everything that its failing text says."""

from __future__ import annotations

from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.baseline import Baseline
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.report.causes import advice_document, family_of, scenario_of
from pytest_llmroof.report.known import known_range
from pytest_llmroof.report.measures import bounded_document
from pytest_llmroof.report.wire import Document
from pytest_llmroof.report.words import in_words


def gate_document(assessment: Assessment, verdict: Verdict) -> Document:
    """One gate: what was asked, what was found, and why."""
    gate, outcome = verdict.gate, verdict.outcome
    return {
        "expression": gate.canonical,
        "node_id": f"{assessment.spec.id}::{gate.name}",
        "id": gate.id,
        "why": gate.why,
        "default": gate.default,
        "severity": gate.severity,
        "verdict": verdict.word,
        "value": verdict.value,
        "limit": verdict.limit,
        "margin": verdict.margin,
        "approximate": verdict.approximate,
        "supported": verdict.supported,
        "scenario": scenario_of(assessment, verdict),
        "reason": verdict.reason,
        "because": verdict.because,
        "advice": [advice_document(one) for one in verdict.advice],
        "name": gate.name,
        "canonical": gate.canonical,
        "metric": gate.metric,
        "operator": gate.operator,
        "unit": gate.unit,
        "per": gate.per,
        "limit_kind": gate.limit.kind,
        "limit_written": gate.limit.value,
        "family": family_of(gate.metric),
        "file": gate.position.file if gate.position else None,
        "line": gate.position.line if gate.position else None,
        "known": known_range(gate.metric, assessment.deployment) if gate.default else None,
        "in_words": in_words(assessment, verdict),
        "labels": dict(gate.labels),
        "found": outcome.value if isinstance(outcome, Measurement) else None,
        "baseline": _baseline(verdict.baseline),
        **_outcome(outcome),
        **({"settle": verdict.settle} if verdict.settle else {}),
    }


def _baseline(baseline: Baseline | None) -> Document | None:
    """What the limit was made from."""
    if baseline is None:
        return None
    return {
        "value": baseline.value,
        "windows": baseline.windows,
        "spread": baseline.spread,
        "low": baseline.low,
        "high": baseline.high,
        "ratio": bounded_document(baseline.ratio) if baseline.ratio else None,
        "reports": baseline.reports,
        "conditions": baseline.conditions,
    }


def _outcome(outcome: Measurement | NoData | Impossible | None) -> Document:
    """What was found beyond the value: the interval, how to get missing data, which inputs to check."""
    measured = outcome if isinstance(outcome, Measurement) else None
    return {
        "low": measured.bounded.low if measured else None,
        "high": measured.bounded.high if measured else None,
        "source": measured.source if measured else None,
        "method": measured.method if measured else None,
        "settle": str(measured.settle) if measured and measured.settle else None,
        "remedy": str(outcome.remedy) if isinstance(outcome, NoData) and outcome.remedy else None,
        "check": outcome.check if isinstance(outcome, Impossible) else None,
        "implied": outcome.implied if isinstance(outcome, Impossible) else None,
    }
