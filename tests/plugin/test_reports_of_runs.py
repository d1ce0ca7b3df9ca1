"""Every report of one run: hostile names from gate file to file, alone and under pytest-xdist, and very many gates."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import junit_readers
import pytest
import runs
from prometheus_client.parser import text_string_to_metric_families
from reportschema import valid

from pytest_llmroof.formats import REPORT_WRITERS
from pytest_llmroof.report.text import failing_text

FAILS = "decode.mbu >= 75%"
#: What names and ids may hold: a gate file refuses control characters and, in a window's name, `::`, `[` and `]`.
NAMES = [
    "<script>alert(1)<!-- & \" '", "`code` *bold* | @team #1 ~x {{ y }}", "שלום ≥ 75 % \u2603",
    "x" * 300,
]  # fmt: skip
TEXTS = ["</failure>]]>", "::error::x ##[group]x", "- [x] ticked", "quote \" back \\ slash", "µ ≥ ☃"]
#: A reason may hold anything that YAML can.
WHY = "\u202e tfel \u2028 \ufeff \u200f \x1b[31m \x07\n::error::x\n## heading"
UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff]")


def hostile(project: Any) -> None:
    lines = [project.gates(FAILS).read_text().partition("windows:\n")[0] + "windows:"]
    for name in NAMES:
        lines += [f"  {json.dumps(name)}:", "    phase: decode", "    telemetry: [before.prom, after.prom]"]
        lines.append("    gates:")
        for number, text in enumerate(TEXTS):
            gate = {"gate": FAILS if number % 2 else "hfu >= 50%", "id": text, "why": WHY}
            lines.append(f"      - {json.dumps(gate)}")
    (project.path / "llmroof.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def reports(project: Any, *options: str) -> dict[str, str]:
    """The text of every report of a run."""
    files = [f"out/{'workers' if '-n2' in options else 'alone'}{ending}" for ending in REPORT_WRITERS]
    wanted = [f"--llmroof-report={file}" for file in files]
    more = ("-q", "--llmroof-label=note=<b> @all `x`", *options)
    result = runs.run(project.pytester, *wanted, *more)
    assert result.ret == 1, result.stdout.str()
    return {Path(file).suffix: (project.path / file).read_text(encoding="utf-8") for file in files}


def timeless(text: str) -> str:
    """Without the moment of the run."""
    text = re.sub(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\dZ?)?", "NOW", text)
    return re.sub(r"(llmroof_report_timestamp_seconds) .*", r"\1 NOW", text)


def test_hostile_names_in_every_format_alone_and_under_workers(project: Any) -> None:
    hostile(project)
    alone, workers = reports(project), reports(project, "-n2")
    for ending, text in alone.items():
        assert timeless(text) == timeless(workers[ending]), ending
        assert not UNSAFE.search(text), ending
    document = valid(json.loads(alone[".json"]))
    assert len(document["windows"]) == len(NAMES)
    count = len(NAMES) * len(TEXTS)
    seen = junit_readers.gitlab(alone[".xml"])
    assert len(seen) == count
    assert {one.state for one in seen} == {"failed"}
    assert sum(line.startswith("- [ ] ") for line in alone[".md"].splitlines()) == count
    assert "- [x]" not in re.sub(r"(?m)^.*\\\[x\\\].*$", "", alone[".md"])
    samples = [one for family in text_string_to_metric_families(alone[".prom"]) for one in family.samples]
    assert sum(one.name == "llmroof_gate_judged" for one in samples) == count
    assert "<script>alert" not in alone[".html"]
    assert "&lt;script&gt;alert(1)" in alone[".html"]


def test_pytests_own_junit_carries_the_same_text(project: Any) -> None:
    project.gates(f"{{gate: {FAILS}, id: REL-7}}", "itl.mean <= 50ms")
    own = reports(project, "--junitxml=out/pytest.xml")
    root = ET.parse(project.path / "out" / "pytest.xml").getroot()
    (failure,) = root.iter("failure")
    window = json.loads(own[".json"])["windows"][0]
    text = failing_text(window, window["gates"][0])
    assert (failure.text or "").rstrip("\n") == text
    assert failure.attrib["message"] == text.splitlines()[0]
    (ours,) = [one for one in junit_readers.gitlab(own[".xml"]) if one.state == "failed"]
    assert ours.text == text


#: What pytest does for each test besides, and again for each failure at the end: most of the time of so many.
SPARE = ("-p", "no:logging", "-p", "no:warnings", "--capture=sys", "--tb=no", "-rN")


@pytest.mark.parametrize("count", [10_000])
def test_ten_thousand_gates_in_every_format(project: Any, count: int) -> None:
    # 41.3 % was measured: every twentieth limit lies above.
    gates = [f"decode.mbu >= {(50 if place % 20 == 0 else 0.1) + place * 0.004:.3f}%" for place in range(count)]
    project.gates(*gates)
    made = reports(project, *SPARE)
    document = json.loads(made[".json"])
    assert sum(document["summary"][word] for word in ("pass", "fail")) == count
    failed = document["summary"]["fail"]
    assert failed == 500
    seen = junit_readers.gitlab(made[".xml"])
    assert (len(seen), sum(one.state == "failed" for one in seen)) == (count, failed)
    assert made[".md"].count("\n- [x] ") == count - failed
    assert made[".prom"].count("\nllmroof_gate_judged{") == count
    assert f"{failed} of {count} gates failed" in " ".join(re.sub(r"<[^>]+>", " ", made[".html"][:20_000]).split())
