"""The ratchet: limits that reports would allow to be tightened, in the file as it was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import assessments as made
import pytest

from pytest_llmroof.__main__ import main
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.report import json_report
from pytest_llmroof.report.document import report_document, window_document

FILE = """# Ours. Limits of last year.
gpu: h100   # a comment
model: llama-3.1-70b
deployment: {tensor_parallel: 4}
windows:
  decode:
    phase: decode
    telemetry: [before.prom, after.prom]
    gates:
      - decode.mbu >= 30%       # was 28
      - {gate: "itl.mean <= 50ms", id: REL-2, why: two of them <= 50ms}
      - {gate: tpot.p99 <= 45ms, severity: warn}
      - itl.mean <= 1.05x baseline
      - kv_cache.usage.max <= 95%
"""


def report(path: Path, slower: float = 1.0, name: str = "decode") -> Path:
    mbu, itl = made.mbu(), made.itl()
    outcomes: dict[str, Any] = {
        "decode.mbu": replace(mbu, bounded=mbu.bounded.scaled(1 / slower)),
        "itl.mean": replace(itl, bounded=itl.bounded.scaled(slower)),
        "tpot.p99": made.measured("tpot.p99", 0.046, 0.04, 0.05, "seconds", bucketed=True),
    }
    window = {**window_document(made.assessment(outcomes=outcomes)), "name": name}
    document = report_document([window], labels={}, created="2026-11-29T12:00:00Z")
    json_report.write(path, document)
    return path


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    path = tmp_path / "llmroof.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_limits_move_and_nothing_else_does(gates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = [f"--from={report(tmp_path / 'a.json')}", f"--from={report(tmp_path / 'b.json', slower=1.02)}"]
    assert main(["init", *reports, f"--ratchet={gates}"]) == 0
    text, said = capsys.readouterr()
    old, new = FILE.splitlines(), text.splitlines()
    changed = {before: after for before, after in zip(old, new, strict=True) if before != after}
    # The worst report's low end is 40.9 % / 1.02 = 40.1 %, less 5 %: 38 %. ITL 26.2 ms * 1.02 * 1.05 = 28.1 ms.
    assert changed == {
        "      - decode.mbu >= 30%       # was 28": "      - decode.mbu >= 38%       # was 28",
        '      - {gate: "itl.mean <= 50ms", id: REL-2, why: two of them <= 50ms}':
            '      - {gate: "itl.mean <= 28.1ms", id: REL-2, why: two of them <= 50ms}',
    }  # fmt: skip
    assert "llmroof.yaml:10: decode: decode.mbu >= 30% becomes decode.mbu >= 38%: " in said
    assert "in a.json of 2026-11-29" in said
    assert "tpot.p99 <= 45ms stays: the reports support tpot.p99 <= 50ms" in said
    assert "itl.mean <= 1.05x baseline stays: its limit moves by itself" in said
    assert "kv_cache.usage.max <= 95% stays: the reports support no limit for it" in said
    # What comes out is a gate file, and a second turn finds nothing to do.
    gates.write_text(text, encoding="utf-8")
    assert len(load_gate_file(gates, tmp_path)[0].gates) == 5
    assert main(["init", *reports, f"--ratchet={gates}"]) == 0
    again, said = capsys.readouterr()
    assert again == text
    assert "becomes" not in said


def test_it_never_loosens(gates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", f"--from={report(tmp_path / 'a.json', slower=3.0)}", f"--ratchet={gates}"]) == 0
    assert capsys.readouterr().out == FILE


@pytest.mark.parametrize(
    ("name", "ratchet", "said"),
    [
        ("other", "llmroof.yaml", "no window of "),
        ("decode", "none.yaml", "No such file"),
        ("decode", None, "--from=REPORT.json"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    gates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, ratchet: str | None, said: str
) -> None:
    made_report = report(tmp_path / "a.json", name=name)
    options = [f"--from={made_report}"] if ratchet else []
    assert main(["init", *options, f"--ratchet={gates.with_name(ratchet or 'llmroof.yaml')}"]) == 2
    text, error = capsys.readouterr()
    assert text == ""
    assert said in error
    assert error.startswith("init: ")
    assert len(error.splitlines()) == 1
