"""Gate files written from reports, and for a model and an accelerator."""

from __future__ import annotations

import itertools
import json
import math
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import assessments as made
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import pytest_llmroof
from pytest_llmroof.__main__ import main
from pytest_llmroof.analysis.measurement import Outcome
from pytest_llmroof.errors import SourceError
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.spec import TelemetrySource
from pytest_llmroof.report import json_report
from pytest_llmroof.report.calibrate import calibrated
from pytest_llmroof.report.document import report_document, window_document
from pytest_llmroof.report.gatefile import scalar
from pytest_llmroof.report.wire import visible

TPOT = made.measured("tpot.p99", 0.046, 0.04, 0.05, "seconds", bucketed=True)


def outcomes(slower: float = 1.0) -> dict[str, Outcome]:
    """The flagship's window, every step longer by a factor."""
    mbu, itl = made.mbu(), made.itl()
    return {
        "decode.mbu": replace(mbu, bounded=mbu.bounded.scaled(1 / slower)),
        "itl.mean": replace(itl, bounded=itl.bounded.scaled(slower)),
        "tpot.p99": TPOT,
    }


def report(*verdicts: Any, measured: Mapping[str, Outcome] | None = None, **changes: Any) -> dict[str, Any]:
    assessment = made.assessment(*verdicts, outcomes=measured or outcomes(), **changes)
    return report_document([window_document(assessment)], labels={}, created="2026-11-29T12:00:00Z")


def read(text: str, folder: Path) -> Any:
    """The window of a gate file, with the real reader: what is written must be accepted without a word."""
    path = folder / "llmroof.yaml"
    path.write_text(text, encoding="utf-8")
    (spec,) = load_gate_file(path, folder)
    return spec


def holds(expression: str, value: float) -> bool:
    gate = parse_gate(expression)
    return value >= gate.limit.value if gate.operator == ">=" else value <= gate.limit.value


def test_the_file_is_valid_and_says_where_its_limits_come_from(tmp_path: Path) -> None:
    text = calibrated([("report.json", report())])
    spec = read(text, tmp_path)
    assert [(gate.canonical, gate.id, gate.why) for gate in spec.gates] == [
        ("decode.mbu >= 39%", "REL-7", "41.3 % (40.9 % to 41.8 %, 3100 samples) in report.json of 2026-11-29"),
        ("itl.mean <= 27.5ms", None, "26.2 ms (3100 samples) in report.json of 2026-11-29"),  # 26.2 x 1.05 = 27.51
        ("tpot.p99 <= 50ms", None, "46 ms (40 ms to 50 ms, 3100 samples) in report.json of 2026-11-29"),
    ]
    assert (spec.gpu, spec.model, spec.phase) == ("h100", "llama-3.1-70b", "decode")
    assert spec.deployment == {"tensor_parallel": 4}
    assert [source.shown for source in spec.telemetry] == ["after.prom"]
    assert "75%" not in text


def test_it_passes_on_its_own_window_and_fails_on_a_slower_one(tmp_path: Path) -> None:
    gates = read(calibrated([("report.json", report())]), tmp_path).gates
    assert [holds(gate.canonical, outcomes()[gate.metric].value) for gate in gates] == [True, True, True]  # type: ignore[union-attr]  # measured
    slower = [holds(gate.canonical, outcomes(1.1)[gate.metric].value) for gate in gates]  # type: ignore[union-attr]  # measured
    assert slower == [False, False, True]


def test_several_reports_support_what_the_worst_of_them_does(tmp_path: Path) -> None:
    text = calibrated([("one.json", report()), ("two.json", report(measured=outcomes(1.02)))])
    gates = read(text, tmp_path).gates
    assert gates[0].canonical == "decode.mbu >= 38%"  # 0.409 / 1.02 x 0.95 = 0.381
    assert gates[1].canonical == "itl.mean <= 28.1ms"  # 26.2 x 1.02 x 1.05 = 28.06
    assert gates[0].why is not None
    assert gates[0].why.count("2026-11-29") == 2


def test_what_was_not_bounded_is_a_comment(tmp_path: Path) -> None:
    beyond = made.measured("ttft.p99", 12.0, 10.0, math.inf, "seconds", bucketed=True)
    gate = made.verdict(made.gate("ttft.p99", "<=", 2.0, "2s", "seconds"), beyond)
    text = calibrated([("report.json", report(gate, measured={**outcomes(), "ttft.p99": beyond}))])
    assert "# ttft.p99 <=: no limit is supported: 12 s (10 s to unbounded, 3100 samples)" in text
    assert "ttft.p99" not in [gate.metric for gate in read(text, tmp_path).gates]


def test_reports_that_measured_nothing_support_no_file() -> None:
    beyond = made.measured("ttft.p99", 12.0, 10.0, math.inf, "seconds", bucketed=True)
    gate = made.verdict(made.gate("ttft.p99", "<=", 2.0, "2s", "seconds"), beyond)
    empty = report(gate, measured={"ttft.p99": beyond})
    with pytest.raises(SourceError, match=r"night\.json: no limit is supported.*--llmroof-report="):
        calibrated([("night.json", empty)])


def test_severity_and_replicas_are_kept(tmp_path: Path) -> None:
    gate = made.gate("itl.mean", "<=", 0.02, "20ms", "seconds", severity="warn", per="replica")
    worst = replace(made.itl(), bounded=made.itl().bounded.scaled(1.2))
    (first, *_) = read(calibrated([("r.json", report(made.verdict(gate, worst)))]), tmp_path).gates
    assert (first.canonical, first.severity, first.per) == ("itl.mean <= 33ms", "warn", "replica")  # 31.44 x 1.05


def test_windows_on_other_hardware_keep_apart(tmp_path: Path) -> None:
    other = replace(made.TP4, accelerator=replace(made.H100, name="h200-sxm-141gb"))
    on_h200 = report(deployment=other, spec=made.spec(gpu="h200"))
    content = yaml.safe_load(calibrated([("a.json", report()), ("b.json", on_h200)]))
    assert content["model"] == "llama-3.1-70b"
    assert {name: window["gpu"] for name, window in content["windows"].items()} == {
        "decode llama-3.1-70b h100-sxm5-80gb": "h100", "decode llama-3.1-70b h200-sxm-141gb": "h200"
    }  # fmt: skip


def test_windows_that_differ_in_their_deployment_alone_are_numbered() -> None:
    wide = report(deployment=replace(made.TP4, tensor_parallel=8), spec=made.spec(deployment={"tensor_parallel": 8}))
    content = yaml.safe_load(calibrated([("a.json", report()), ("b.json", wide)]))
    assert list(content["windows"]) == [
        "decode llama-3.1-70b h100-sxm5-80gb 1", "decode llama-3.1-70b h100-sxm5-80gb 2"
    ]  # fmt: skip


def test_paths_are_made_relative_to_the_root_directory() -> None:
    folder = made.spec(
        id="perf/nightly.llmroof.yaml::decode",
        telemetry=(TelemetrySource("path", "../rec/night1", Path("/project/rec/night1")),),
        model="models/config.json",
    )
    window = yaml.safe_load(calibrated([("a.json", report(spec=folder))]))
    assert window["windows"]["decode"]["telemetry"] == "rec/night1"
    assert window["model"] == "perf/models/config.json"


def test_a_limit_that_nothing_can_breach_is_none(tmp_path: Path) -> None:
    full = made.measured("kv_cache.usage.max", 0.993, 0.993, 0.993, "fraction")
    gate = made.verdict(made.gate("kv_cache.usage.max", "<=", 0.95, "95%"), full)
    text = calibrated([("r.json", report(gate, measured={**outcomes(), "kv_cache.usage.max": full}))])
    assert "# kv_cache.usage.max <=: no limit is supported: 99.3 %" in text


def test_a_servers_secrets_are_asked_for(tmp_path: Path) -> None:
    source = TelemetrySource("url", "https://host/metrics", options={"url": "https://me:pass-word@host/metrics"})
    text = calibrated([("r.json", report(spec=made.spec(telemetry=(source,))))])
    assert "# headers, selectors and credentials are in no report" in text
    assert yaml.safe_load(text)["windows"]["decode"]["telemetry"] == {"url": "https://host/metrics"}
    assert "pass-word" not in text


@given(st.text())
def test_any_text_is_read_back_as_it_was(text: str) -> None:
    assert yaml.safe_load(scalar(visible(text))) == visible(text)


SCHEMA = Path(pytest_llmroof.__file__).resolve().parent / "data" / "gatefile.schema.json"


@pytest.mark.parametrize("text", ["no", "1e3", "60:30", "null", "~", "${TOKEN}", "a: b", "# x", "2026-11-29", "0x10"])
def test_traps_of_yaml_are_quoted(text: str) -> None:
    assert yaml.safe_load(f"key: {scalar(text)}") == {"key": text}


def test_the_verb_writes_to_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "report.json"
    json_report.write(path, report())
    assert main(["init", f"--from={path}"]) == 0
    first, command, rest = capsys.readouterr().out.split("\n", 2)
    assert first.startswith("# Editors complete and check this file by its JSON Schema. Its path on your machine")
    assert command.startswith("#   python -c ")
    assert rest == calibrated([("report.json", report())])


def test_the_command_that_a_gate_file_names_finds_the_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the environment lies elsewhere: no path of this machine is written
    assert main(["init", "--model=llama-3.1-70b", "--gpu=h100"]) == 0
    text = capsys.readouterr().out
    assert str(SCHEMA.parent) not in text
    command = shlex.split(text.splitlines()[1].removeprefix("#").replace("python", sys.executable, 1))
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert Path(told.stdout.strip()).resolve() == SCHEMA


def test_editors_find_the_schema_by_the_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(SCHEMA.parents[2])  # as where the environment lies within the project
    assert main(["init", "--model=llama-3.1-70b", "--gpu=h100"]) == 0
    path = tmp_path / "llmroof.yaml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    named = "pytest_llmroof/data/gatefile.schema.json"
    assert path.read_text().splitlines()[0] == f"# yaml-language-server: $schema={named}"
    assert load_gate_file(path, tmp_path)


def test_the_verb_without_a_report_writes_a_first_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--model=llama-3.1-70b", "--gpu=h100"]) == 0
    path = tmp_path / "llmroof.yaml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    decode, prefill = load_gate_file(path, tmp_path)
    # 141.1 GB of bf16 weights do not fit one board of 80 GB; on two, 70.6 GB of each 72 GB that may be taken do.
    assert decode.deployment == {"tensor_parallel": 2, "weights": "bf16"}
    assert [gate.canonical for gate in (*decode.gates, *prefill.gates)] == ["decode.mbu >= 75%", "prefill.mfu >= 45%"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --from=REPORT.json (with --ratchet=GATES.yaml to tighten that file), or both --model=NAME and"),
        (["--model=llama-3.1-70b"], "give --from"),
        (["--model=llama-3.1-7b", "--gpu=h100"], "llama-3.1-8b"),
        (["--from=gone.json"], "gone.json: No such file"),
        (["--from=gone.json", "--gpu=h100"], "give --from"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1


def test_reports_can_be_read_by_other_programs() -> None:
    assert json.loads(json.dumps(report()))["windows"][0]["asked"]["deployment"] == {"tensor_parallel": 4}


def _leaves(part: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of each value of a document, however deep."""
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(part, dict):
        inner = part.items()
    elif isinstance(part, list):
        inner = enumerate(part)
    for key, value in inner:
        yield (*path, key)
        yield from _leaves(value, (*path, key))


def test_a_damaged_report_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.dumps(report(made.verdict(made.gate(), made.mbu(), "pass")))
    path = tmp_path / "report.json"
    refused = 0
    places = [place for place in _leaves(json.loads(whole)) if not {"diagnosis", "attribution"} & set(place)]
    changes: tuple[Any, ...] = ("lost", "text", 1e300, None, [], "\ud800", -1)
    for (*outer, last), change in zip(places, itertools.cycle(changes), strict=False):
        document = json.loads(whole)
        part = document
        for key in outer:
            part = part[key]
        if change == "lost":
            del part[last]
        else:
            part[last] = change
        path.write_text(json.dumps(document))
        code = main(["init", f"--from={path}"])
        out, err = capsys.readouterr()
        if code == 0:
            assert "gates:" in out
            continue
        refused += 1
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
        assert err.startswith(f"init: {path}: ") or "no limit is supported" in err
    assert refused > 50
