"""A disk that is full when reports are written, when a live window is recorded, and behind standard output."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exporters import Exporter, serving
from limited import FullDisk, left, limited
from prometheus_client.parser import text_string_to_metric_families
from reportschema import valid

from pytest_llmroof.__main__ import main
from pytest_llmroof.formats import REPORT_WRITERS

PASSES, FAILS, NO_DATA = "decode.mbu >= 30%", "decode.mbu >= 75%", "hfu >= 50%"

#: How each report is read whole.
WHOLE: dict[str, Callable[[str], object]] = {
    ".json": lambda text: valid(json.loads(text)),
    ".html": lambda text: text.index("</html>", -10),
    ".xml": ET.fromstring,
    ".md": lambda text: text.index("\n- [ ] ") and text.index("\n", -1),
    ".prom": lambda text: list(text_string_to_metric_families(text)) and text.index("\n", -1),
}


REPORTS = ("-q", "-p", "no:cacheprovider", *(f"--llmroof-report=out/report{ending}" for ending in REPORT_WRITERS))


def files(project: Any) -> dict[str, Path]:
    return {ending: project.path / "out" / f"report{ending}" for ending in REPORT_WRITERS}


def run(project: Any, size: int, *options: str) -> pytest.RunResult:
    """Run pytest where no file can be larger."""
    strict = ("--strict-markers", "--strict-config", "-W", "error")
    result = project.pytester.runpytest_inprocess(*strict, *options, plugins=[FullDisk(size)])
    assert isinstance(result, pytest.RunResult)
    return result


def said(result: pytest.RunResult) -> str:
    """Everything that a run printed, which is no traceback."""
    text = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in text
    assert "this is a bug" not in text
    return text


def test_every_report_that_finds_no_room_is_named_and_the_others_are_whole(project: Any) -> None:
    """The room is a byte less than one of them needs, for each of them in turn."""
    assert WHOLE.keys() == REPORT_WRITERS.keys()
    project.gates(PASSES, FAILS)
    assert project.run(*REPORTS).ret == pytest.ExitCode.TESTS_FAILED
    sizes = {ending: path.stat().st_size for ending, path in files(project).items()}
    for size in sizes.values():
        # Those of a run before lie there: none may be taken for one of this run.
        for path in files(project).values():
            path.write_text("of an earlier run", encoding="utf-8")
        result = run(project, size - 1, *REPORTS)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        text = said(result)
        missing = {ending for ending, needed in sizes.items() if needed >= size}
        for ending, path in files(project).items():
            assert (f"report{ending}: File too large" in text) is (ending in missing), (ending, text)
            if ending not in missing:
                WHOLE[ending](path.read_text(encoding="utf-8"))
        assert left(project.path / "out") == sorted(f"report{ending}" for ending in sizes if ending not in missing)


@pytest.mark.parametrize("gate", [PASSES, FAILS, NO_DATA])
def test_a_report_that_is_missing_is_never_green_nor_a_reason_to_measure_again(project: Any, gate: str) -> None:
    project.gates(gate)
    result = run(project, 100, *REPORTS, "--llmroof-unmeasured-exit=75")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said(result).count("File too large") == len(REPORT_WRITERS)
    assert left(project.path / "out") == []


def test_a_full_summary_of_github_fails_nothing(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/dev/full")
    project.gates(PASSES)
    result = project.run("--llmroof-gpu=h100")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["llmroof: GITHUB_STEP_SUMMARY could not be written: No space left on device"])


@pytest.fixture
def server() -> Iterator[Exporter]:
    with serving(Exporter()) as running:
        yield running


LIVE = """
import pytest

pytestmark = pytest.mark.llmroof(telemetry="{url}")

@pytest.mark.llmroof_gate("ttft.p99 <= 2s")
def test_body(): pass

def test_block(llmroof):
    with llmroof.window() as window: pass
    window.check("ttft.p99 <= 2s")
"""


@pytest.mark.parametrize(
    ("size", "workers"), [(10, False), (100, False), (2000, False), (10, True)],
    ids=["nothing", "notes", "notes and manifest", "nothing, in a worker"],
)  # fmt: skip
@pytest.mark.usefixtures("run_folders_are_removed")
def test_a_live_window_without_room_is_no_data(project: Any, server: Exporter, size: int, workers: bool) -> None:
    """Of what a window leaves in the run's folder notes are small, the recording's manifest is larger, a page most.

    Whichever does not fit: no data, in words that name no folder of the run's own.
    """
    (project.path / "live.llmroof.yaml").write_text(
        f"windows:\n  decode:\n    phase: decode\n    telemetry: {server.url}\n    duration: 0.1s\n"
        "    gates: [ttft.p99 <= 2s, itl.mean <= 1s]\n",
        encoding="utf-8",
    )
    (project.path / "test_live.py").write_text(LIVE.format(url=server.url), encoding="utf-8")
    options = ("-q", "-p", "no:cacheprovider", "--llmroof-unmeasured-exit=75")
    if workers:
        command = [sys.executable, "-m", "pytest", "-n1", *options]
        with limited(size):
            done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False, timeout=300)
        text, code = done.stdout + done.stderr, done.returncode
    else:
        result = run(project, size, *options)
        text, code = said(result), int(result.ret)
    text = " ".join(text.split())
    assert "4 failed" in text
    assert code == (1 if "window.check" in text else 75)
    assert "this is a bug" not in text
    assert text.count("can't be written: File too large") >= 4
    assert str(project.path.parent) not in text.replace(str(project.path), "")


VERBS = ("init --model=llama-3.1-8b --gpu=h100", "render report.json --html=-", "render report.json --json=-")


@pytest.mark.parametrize("arguments", VERBS)
def test_standard_output_without_room(
    project: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    project.gates(PASSES)
    project.report()
    capsys.readouterr()
    with Path("/dev/full").open("w", encoding="utf-8") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        assert main(arguments.split()) == 2
    verb = arguments.split()[0]
    assert capsys.readouterr().err == f"{verb}: standard output can't be written: No space left on device\n"


def test_a_list_without_room() -> None:
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "--llmroof-list=metrics"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=300,
        )  # fmt: skip
    assert run.stderr.strip() == "ERROR: standard output can't be written: No space left on device"
    assert run.returncode == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("ending", REPORT_WRITERS)
def test_a_report_rendered_without_room_is_not_there(
    project: Any, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    project.gates(PASSES)
    project.report()
    capsys.readouterr()
    with limited(100):
        assert main(["render", "report.json", f"--{ending[1:]}=out/other{ending}"]) == 2
    assert capsys.readouterr().err == f"render: out/other{ending}: File too large\n"
    assert left(project.path / "out") == []
