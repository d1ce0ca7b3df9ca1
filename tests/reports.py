"""Report documents made by hand, for every rendering: an ordinary one, one of hostile texts, one of very many gates."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import assessments as made

from pytest_llmroof.errors import Position
from pytest_llmroof.report.document import report_document, window_document

#: What people and machines could put into a name, an id or a note to break a report or to speak in its name.
HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</failure></testcase>]]><!--",
    "&lt;b&gt; &amp; &#60;",
    "\x1b[31mred\x1b[0m \x00 \x07 \x9b",
    "lone \ud800 surrogate \udfff",
    "right \u202eot tfel\u202c \u2066iso\u2069",
    "``` ` `` [x](javascript:alert(1)) ![i](http://x/y) | a | b |",
    "@everyone #123 !45 GH-7 org/repo#9 *bold* _it_ ~~no~~ $x^2$ :tada: www.example.com",
    "::error file=x::injected ::add-mask::a %0A::stop-commands::t",
    "\n::error::at the start of a line\n## heading\n- [x] ticked\n> quoted\n/close",
    "{{ 7 * 7 }} {% raw %} ${TOKEN} %s %(x)s",
    'quote " and \\ backslash \n newline \t tab \r return',
    "\u2028 separators \u2029 \ufeff \ufffe \uffff \U0001f680 \u0085",
    "a" * 3000,
)


def ordinary(**changes: Any) -> dict[str, Any]:
    """One window with every kind of verdict, and a test that did not run."""
    gates = {
        "itl": made.gate("itl.mean", "<=", 0.05, "50ms", "seconds", position=Position("llmroof.yaml", 9)),
        "ttft": made.gate("ttft.p99", "<=", 2.0, "2s", "seconds", id="REL-9", position=Position("llmroof.yaml", 10)),
        "warn": made.gate(limit=0.42, written="42%", severity="warn", why="headroom for a failover"),
        "mfu": made.gate("prefill.mfu", ">=", 0.45, "45%", id="REL-3"),
    }
    flagship = made.flagship_verdict()
    flagship = replace(flagship, gate=replace(flagship.gate, position=Position("llmroof.yaml", 8)))
    near = "the limit 41 % lies inside the interval of the measurement, 40.9 .. 41.8 %"
    window = window_document(
        made.assessment(
            made.verdict(gates["itl"], made.itl(), "pass"),
            made.verdict(made.gate(limit=0.41, written="41%"), made.mbu(), "pass", approximate=True, because=near),
            made.verdict(gates["ttft"], made.no_data("ttft.p99", "no series ttft"), "no data"),
            made.verdict(gates["warn"], made.mbu(), "fail"),
            made.verdict(made.gate(id="REL-2"), made.impossible(), "impossible"),
            replace(made.verdict(gates["mfu"], made.no_data("prefill.mfu", "deselected"), "not run"), outcome=None),
            flagship,
            **changes,
        )
    )
    missed = [{"node_id": "tests/test_gates.py::TestChat::test_load", "reason": "the worker that ran it crashed"}]
    return report_document([window], labels={"engine": "vllm-0.33.1"}, created="2026-11-29T12:00:00Z", not_run=missed)


def hostile() -> dict[str, Any]:
    """A window whose names, ids, notes, reasons and labels are hostile texts, one gate for each."""
    verdicts = []
    for number, text in enumerate(HOSTILE):
        place = Position(f"{text[:40]}.yaml", number + 1)
        asked = made.gate(id=text, why=text, name=f"{number} {text}", position=place)
        if number % 3 == 0:
            verdicts.append(made.verdict(asked, made.mbu()))
        elif number % 3 == 1:
            verdicts.append(made.verdict(asked, made.no_data(reason=text), "no data"))
        else:
            verdicts.append(made.verdict(replace(asked, severity="warn"), made.mbu(), because=text))
    everything = "\n".join(HOSTILE[:-1])
    window = window_document(
        made.assessment(
            *verdicts,
            spec=made.spec(id=f"llmroof.yaml::{everything}", name=everything, title=everything),
            facts=made.facts(seen=made.window(notes=HOSTILE, unread=HOSTILE)),
        )
    )
    missed = [{"node_id": f"tests/test_it.py::{text}", "reason": text} for text in HOSTILE]
    labels = {f"label {number} {text}": text for number, text in enumerate(HOSTILE)}
    return report_document([window], labels=labels, created="2026-11-29T12:00:00Z", not_run=missed)


@cache
def many(count: int = 10_000, windows: int = 10) -> dict[str, Any]:
    """Very many gates: a tenth of them breached, a tenth not measured. Made once: treat it as read-only."""
    documents = []
    for number in range(windows):
        verdicts = []
        for place in range(count // windows):
            asked = made.gate(id=f"REL-{number}-{place}", position=Position("llmroof.yaml", place + 1))
            if place % 10 == 0:
                verdicts.append(made.verdict(asked, made.mbu()))
            elif place % 10 == 1:
                verdicts.append(made.verdict(asked, made.no_data(), "no data"))
            else:
                low = replace(asked, limit=replace(asked.limit, value=0.3))
                verdicts.append(made.verdict(low, made.mbu(), "pass"))
        spec = made.spec(id=f"llmroof.yaml::window {number}", name=f"window {number}")
        documents.append(window_document(made.assessment(*verdicts, spec=spec)))
    return report_document(documents, labels={}, created="2026-11-29T12:00:00Z")
