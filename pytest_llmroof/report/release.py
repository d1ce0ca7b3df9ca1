"""What a run came to for somebody who decides on a release: one sentence, and each gate in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pytest_llmroof.report.document import shown_word
from pytest_llmroof.report.headline import judged, one_line, quantity_apart, shorten
from pytest_llmroof.report.limits import limit_text
from pytest_llmroof.report.terminal import scope_text
from pytest_llmroof.report.wire import Document

UNMEASURED: Final = ("no data", "inconclusive", "impossible")

_LONGEST_LABEL: Final = 100
#: Parts of a metric's name that people write otherwise.
_WRITTEN: Final = {
    "mbu": "MBU", "mfu": "MFU", "hfu": "HFU", "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "end to end",
    "kv_cache": "KV cache", "sm_active": "SM active",
}  # fmt: skip


def blocks(gate: Document) -> bool:
    """Whether a gate stands in the way of a release: anything but a pass, unless it only warns."""
    return shown_word(gate) not in ("pass", "warned")


def outcome_sentence(document: Document) -> str:
    """``Blocked: 1 of 9 gates failed, 2 were not measured``, or ``Passed: all 9 gates hold``."""
    counts = document["summary"]
    unmeasured = sum(counts[word] for word in UNMEASURED)
    total = sum(counts[word] for word in ("pass", "fail", *UNMEASURED, "warned", "not run"))
    if not total:
        return "Blocked: no gate was judged"
    parts = list(_counted(total, counts["fail"], unmeasured, counts["not run"]))
    warned = f"; {counts['warned']} gave a warning" if counts["warned"] else ""
    if parts:
        return "Blocked: " + ", ".join(parts) + warned
    if counts["pass"] == total:
        return "Passed: the only gate holds" if total == 1 else f"Passed: all {total} gates hold"
    held = f"{counts['pass']} of {_gates(total)} {'holds' if counts['pass'] == 1 else 'hold'}"
    return f"Passed: {held}{warned}"


def _counted(total: int, failed: int, unmeasured: int, not_run: int) -> Iterator[str]:
    """What stands in the way; the first part says of how many gates."""
    whole = f" of {_gates(total)}"
    for number, singular, plural in (
        (failed, "failed", "failed"),
        (unmeasured, "was not measured", "were not measured"),
        (not_run, "did not run", "did not run"),
    ):
        if number:
            yield f"{number}{whole} {singular if number == 1 else plural}"
            whole = ""


def _gates(count: int) -> str:
    return f"{count} gate{'s' * (count != 1)}"


def asked_in_words(gate: Document) -> str:
    """``decode MBU >= 75 %``: what was asked, as people say it. Metrics with parameters stay as they are written."""
    per = f" per {gate['per']}" if gate["per"] else ""
    return f"{metric_in_words(gate['metric'])} {gate['operator']} {one_line(limit_text(gate))}{per}"


def metric_in_words(metric: str) -> str:
    """``tpot.p99`` -> ``TPOT p99``, ``output.tokens_per_second`` -> ``output tokens per second``."""
    if "(" in metric:
        return one_line(metric)
    parts = re.split(r"\.(?!\d)", metric)  # p99.9 is one part
    return " ".join(_WRITTEN.get(part, part.replace("_", " ")) for part in parts)


def came_to(gate: Document) -> str:
    """``measured 81.2 %``, ``not measured: connection refused``, ``not run: deselected``; not what would mend it."""
    if judged(gate):
        return f"measured {quantity_apart(gate)}" + (", approximate" if gate["approximate"] else "")
    reason = one_line(because(gate) or "no reason was given").rstrip(".; ")
    word = {"no data": "not measured", "not run": "not run", "not judged": "not judged"}.get(
        gate["verdict"], f"not measured, {gate['verdict']}"
    )
    return f"{word}: {reason}"


def because(gate: Document) -> str | None:
    """Why a gate came out as it did, and not what to do; of a report that does not tell these apart both."""
    said: str | None = gate.get("because") or gate["reason"]
    return said


def plain_reason(gate: Document) -> str | None:
    """Why, and what to do about it, without commands: for a reader who decides, and does not type."""
    return "; ".join(filter(None, (because(gate), *(one["text"] for one in gate.get("advice") or ())))) or None


def what_was_tested(document: Document) -> list[str]:
    """A line for the labels, and one for each different model and hardware. Empty where nothing is known."""
    labels = [shorten(one_line(f"{key} {value}"), _LONGEST_LABEL) for key, value in document["labels"].items()]
    scopes = dict.fromkeys(text for window in document["windows"] if (text := scope_text(window)))
    return [*([", ".join(labels)] if labels else []), *scopes]
