"""The report document: the one account of a run. Every rendering, the failing text included, is made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from pytest_llmroof import __version__
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.report.causes import attribution_document, diagnosis_document, window_diagnosis
from pytest_llmroof.report.measures import facts_document, measurements_document
from pytest_llmroof.report.scope import asked_document, deployment_document, gpu_document, model_document
from pytest_llmroof.report.verdicts import gate_document
from pytest_llmroof.report.vocabulary import own_words
from pytest_llmroof.report.wire import Document, cleaner, to_wire

SCHEMA: Final = "llmroof.report/1"

#: The words of a summary, in its order. ``approximate`` counts passes and fails that are also counted as such.
SUMMARY: Final = ("pass", "approximate", "fail", "inconclusive", "no data", "impossible", "warned", "not run")


def window_document(assessment: Assessment) -> Document:
    """Everything that is known of a window, as exact built-ins: safe between processes and in files."""
    spec, facts, deployment = assessment.spec, assessment.facts, assessment.deployment
    window = facts.window if facts else None
    document = {
        "id": spec.id,
        "name": spec.name,
        "title": spec.title,
        "labels": spec.labels,
        "phase": facts.phase if facts else spec.phase,
        "started": timestamp(window.started) if window and window.started is not None else None,
        "duration_seconds": facts.duration_seconds if facts else None,
        "gpu": gpu_document(deployment),
        "model": model_document(deployment),
        "deployment": deployment_document(deployment),
        "provenance": deployment.provenance,
        "sources": [{"kind": one.kind, "location": one.location} for one in (window.sources if window else ())],
        "asked": asked_document(spec, clocked=window is not None and window.started is not None),
        "telemetry": [{"kind": one.kind, "shown": one.shown} for one in spec.telemetry],
        "notes": (*window.notes, *facts.notes) if window and facts else (),
        "unread": window.unread if window else (),
        "facts": facts_document(facts),
        "measurements": measurements_document(assessment),
        "attribution": attribution_document(assessment.attribution),
        "attributed": {"of": assessment.attribution.of, "seconds": assessment.attribution.seconds}
        if assessment.attribution else None,
        "gates": [gate_document(assessment, verdict) for verdict in assessment.verdicts],
        "diagnosis": diagnosis_document(window_diagnosis(assessment)),
        "diagnoses": {family: diagnosis_document(one) for family, one in assessment.diagnoses.items()},
        "kernels": _kernels(assessment),
        "failure": assessment.failure,
        "change": None,
        "changes": {},
    }  # fmt: skip
    wire: Document = to_wire(document, cleaner(spec, own_words()))
    return wire


def _kernels(assessment: Assessment) -> Document | None:
    """What Nsight Compute measured of kernels one by one; None without it."""
    profile = assessment.facts.profile if assessment.facts else None
    if profile is None or profile.kernels is None:
        return None
    from pytest_llmroof.analysis.kernelpoints import kernels_document

    return kernels_document(profile.kernels, assessment.deployment.accelerator)


def report_document(
    windows: Sequence[Document],
    *,
    labels: Mapping[str, str],
    created: datetime | str,
    not_run: Sequence[Document] = (),
) -> Document:
    """The document of a run: its windows, what was not run (``node_id`` and ``reason`` each), and the counts.

    ``windows`` are documents already (``window_document``), and stand in it as they are.
    """
    gates = [gate for window in windows for gate in window["gates"]]
    return {
        "schema": SCHEMA,
        "created": created if isinstance(created, str) else timestamp(created.timestamp()),
        "version": __version__,
        "labels": to_wire(labels),
        "windows": list(windows),
        "not_run": to_wire(not_run),
        "summary": summary(gates, len(not_run)),
    }  # fmt: skip


def summary(gates: Iterable[Document], not_run: int = 0) -> dict[str, int]:
    """How many gates came out how. A warned gate counts under ``warned`` only, an unjudged one under ``not run``."""
    counts = dict.fromkeys(SUMMARY, 0)
    counts["not run"] = not_run
    for gate in gates:
        word = shown_word(gate)
        counts[word] += 1
        if gate["approximate"] and word in ("pass", "fail"):
            counts["approximate"] += 1
    return counts


def shown_word(gate: Document) -> str:
    """Under which word of the summary a gate counts."""
    if gate["verdict"] in ("not judged", "not run"):
        return "not run"
    if gate["severity"] == "warn" and gate["verdict"] != "pass":
        return "warned"
    word: str = gate["verdict"]
    return word


def timestamp(seconds: float) -> str:
    """Unix seconds as RFC 3339 in UTC: ``2026-11-29T12:00:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
