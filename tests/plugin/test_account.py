"""What a run comes to: the report, gates that did not run, exit codes, pytest-xdist."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import runs
from reportschema import valid

from pytest_llmroof import aggregate, plugin

PASSES, FAILS = "decode.mbu >= 30%", "decode.mbu >= 75%"
NO_DATA = "hfu >= 50%"
MARKED = (
    "import os, pytest\n"
    '@pytest.mark.llmroof(telemetry=["before.prom", "after.prom"])\n'
    '@pytest.mark.llmroof_gate("itl.mean <= 50ms")\n'
    "def test_marked(llmroof): {body}\n"
)


def marked(project: Any, body: str = "llmroof.check('itl.mean <= 40ms')") -> None:
    (project.path / "test_it.py").write_text(MARKED.format(body=body))


def outcome(project: Any, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of a run."""
    strict = ("--strict-markers", "-W", "error", "--llmroof-report=report.json")
    result = runs.run(project.pytester, *strict, *options)
    return int(result.ret), valid(json.loads((project.path / "report.json").read_text()))


def test_deselected_default_gates_stand_in_their_window(project: Any) -> None:
    file = project.gates(PASSES)
    lines = file.read_text().splitlines()
    kept = (line for line in lines if "gates:" not in line and PASSES not in line and "phase:" not in line)
    file.write_text("\n".join(kept).replace("  decode:", "  night:") + "\n")
    project.gates(PASSES, name="other.llmroof.yaml")
    document = project.report("-k", "decode and not night")
    night = next(window for window in document["windows"] if window["name"] == "night")
    assert [(gate["default"], gate["verdict"], gate["reason"]) for gate in night["gates"]] == [
        (True, "not run", "deselected")
    ]
    assert document["not_run"] == []


def test_labels_of_a_gate_file_are_in_the_report_and_the_command_line_adds(project: Any) -> None:
    file = project.gates(PASSES)
    file.write_text("labels: {engine: vllm-0.33.1, node: a}\n" + file.read_text())
    project.gates(PASSES, window="chat")
    file.write_text(file.read_text().replace("  chat:\n", "  chat:\n    labels: {node: b}\n"))
    document = project.report("--llmroof-label=commit=abc")
    assert document["labels"] == {"engine": "vllm-0.33.1", "commit": "abc"}
    assert [window["labels"]["node"] for window in document["windows"]] == ["a", "b"]
    assert project.report("--llmroof-label=engine=mine")["labels"] == {"engine": "mine"}


def test_the_report_holds_every_gate_and_the_labels(project: Any) -> None:
    project.gates(PASSES, FAILS, f"{{gate: {FAILS}, severity: warn}}", NO_DATA)
    marked(project)
    document = project.report("--llmroof-label=engine=vllm-0.33.0", "--llmroof-label=note=a=b")
    assert document["schema"] == "llmroof.report/1"
    assert document["labels"] == {"engine": "vllm-0.33.0", "note": "a=b"}
    assert [window["id"] for window in document["windows"]] == ["llmroof.yaml::decode", "test_it.py::test_marked"]
    assert document["summary"] == {
        "pass": 3, "approximate": 0, "fail": 1, "inconclusive": 0, "no data": 1, "impossible": 0, "warned": 1,
        "not run": 0,
    }  # fmt: skip


@pytest.mark.parametrize("distribution", ["load", "each"])
def test_two_workers_tell_the_same(project: Any, distribution: str, verdicts_of: Callable[..., Any]) -> None:
    project.gates(PASSES, FAILS, f"{{gate: {FAILS}, severity: warn}}", NO_DATA, "itl.mean <= 50ms")
    project.gates("ttft.mean <= 2s", window="chat", phase="mixed")
    marked(project)
    alone_rc, alone = outcome(project)
    both_rc, both = outcome(project, f"--dist={distribution}", "--tx=2*popen")
    assert (alone_rc, both_rc) == (1, 1)
    assert {**both, "created": ""} == {**alone, "created": ""}
    assert len(verdicts_of(both)) == 8


def test_gates_of_the_command_line_under_two_workers(project: Any, verdicts_of: Callable[..., Any]) -> None:
    telemetry = ("--llmroof-telemetry=before.prom", "--llmroof-telemetry=after.prom")
    gates = ("--llmroof-gate=itl.mean <= 50ms", "--llmroof-gate=itl.mean <= 1ms")
    rc, document = outcome(project, "-n2", *telemetry, *gates)
    assert rc == 1
    assert verdicts_of(document) == {"llmroof::itl.mean <= 50ms": "pass", "llmroof::itl.mean <= 1ms": "fail"}


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        (["-k", "REL-7"], {"deselected"}),
        (["-k", "REL-7", "-n1"], {"deselected"}),
        (["-x"], {"the run stopped before it"}),
        (["-x", "-n1"], {"the run stopped before it"}),
        (["--deselect", "llmroof.yaml::chat"], {"deselected"}),
    ],
)
def test_what_did_not_run_is_in_the_report(project: Any, options: list[str], reasons: set[str]) -> None:
    project.gates(f"{{gate: {FAILS}, id: REL-7}}", PASSES)
    project.gates("ttft.mean <= 2s", window="chat", phase="mixed")
    marked(project)
    _, document = outcome(project, *options)
    rows = [gate for window in document["windows"] for gate in window["gates"]]
    unrun = [row for row in rows if row["verdict"] == "not run"]
    assert {row["reason"] for row in unrun} | {row["reason"] for row in document["not_run"]} == reasons
    # What was measured for others is not a result of a gate that did not run.
    assert all(row["value"] is None and row["margin"] is None for row in unrun)
    assert document["summary"]["not run"] == len(unrun) + len(document["not_run"])
    assert len(rows) + len(document["not_run"]) == (5 if "--deselect" in options else 4)


def test_a_crashed_worker_leaves_its_gate_unticked(project: Any) -> None:
    project.gates(PASSES)
    marked(project, body="os._exit(3)")
    rc, document = outcome(project, "-n1")
    assert rc == 1
    assert [gate["verdict"] for window in document["windows"] for gate in window["gates"]] == ["pass"]
    assert document["not_run"] == [{"node_id": "test_it.py::test_marked", "reason": "the worker that ran it crashed"}]


def test_a_test_whose_setup_fails_was_not_run(project: Any) -> None:
    project.gates(PASSES)
    (project.path / "conftest.py").write_text("import pytest\n@pytest.fixture\ndef llmroof(): raise OSError('no')\n")
    marked(project)
    document = project.report()
    assert document["not_run"] == [{"node_id": "test_it.py::test_marked", "reason": "its setup failed"}]


RERUN = """
import pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    for run in range(3):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        again = run < 2 and any(report.failed for report in reports)
        for report in reports:
            report.outcome = "rerun" if again and report.failed else report.outcome
            item.ihook.pytest_runtest_logreport(report=report)
        if not again:
            return True
"""


def test_reruns_count_once(project: Any, verdicts_of: Callable[..., Any]) -> None:
    project.pytester.makeconftest(RERUN)
    project.gates(PASSES, FAILS)
    # The body holds at its third run.
    marked(project, body="RUNS.append(1); assert len(RUNS) == 3")
    file = project.path / "test_it.py"
    file.write_text(f"RUNS = []\n{file.read_text()}")
    document = project.report("--junitxml=junit.xml")
    assert verdicts_of(document) == {
        f"llmroof.yaml::decode::{PASSES}": "pass",
        f"llmroof.yaml::decode::{FAILS}": "fail",
        "test_it.py::test_marked::itl.mean <= 50ms": "pass",
    }
    assert document["summary"]["not run"] == 0


def test_a_rerun_does_not_pile_up_properties(project: Any) -> None:
    project.pytester.makeconftest(
        RERUN
        + "def pytest_sessionfinish(session):\n"
        + "    for item in session.items: assert len(item.user_properties) == 3, item.user_properties\n"
    )
    project.gates(PASSES, FAILS)
    project.run().assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize(
    ("gates", "body", "rc"),
    [
        ([PASSES], "pass", 0),
        ([PASSES, NO_DATA], "pass", 75),
        ([NO_DATA, f"{{gate: {FAILS}, severity: warn}}"], "pass", 75),
        ([FAILS, NO_DATA], "pass", 1),
        ([NO_DATA], "assert 0", 1),
        ([f"{{gate: {NO_DATA}, severity: warn}}"], "pass", 0),
    ],
)
def test_an_exit_code_for_gates_that_could_not_be_judged(project: Any, gates: list[str], body: str, rc: int) -> None:
    project.gates(*gates)
    marked(project, body)
    assert outcome(project, "--llmroof-unmeasured-exit=75")[0] == rc


def test_the_exit_code_is_the_same_under_workers(project: Any) -> None:
    project.gates(PASSES, NO_DATA)
    assert outcome(project, "--llmroof-unmeasured-exit=75", "-n1")[0] == 75
    project.gates(FAILS, window="other")
    assert outcome(project, "--llmroof-unmeasured-exit=75", "-n1")[0] == 1


def test_strict_makes_an_approximate_verdict_fail(project: Any) -> None:
    # The weights' precision is assumed here, and in 8 bits the gate would fail: the verdict is approximate.
    project.gates(PASSES)
    file = project.path / "llmroof.yaml"
    file.write_text(file.read_text().replace(", weights: bf16", ""))
    assert project.run().ret == 0
    result = project.run("--llmroof-strict", "-v")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["llmroof.yaml::decode::* INCONCLUSIVE*"])
    project.pytester.makeini("[pytest]\nllmroof_strict = true\n")
    assert project.run().ret == 1


@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_no_gate_collected_is_not_green(project: Any, workers: list[str]) -> None:
    (project.path / "test_unit.py").write_text("def test_unit(): pass\n")
    (project.path / "llm-roof.yml").write_text("windows: {}\n")
    (project.path / "ci").mkdir()
    (project.path / "ci" / "nightly.llmrof.yaml").write_text("windows: {}\n")
    result = runs.run(project.pytester, "--llmroof-gpu=h100", *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "ERROR: no gate was collected, though --llmroof-gpu asks for one; looked in the root directory for *",
            "*llm-roof.yml looks like a gate file: rename it to llmroof.yaml",
            "*ci/nightly.llmrof.yaml looks like a gate file: rename it to nightly.llmroof.yaml",
        ]
    )


def test_the_near_miss_of_the_root_directory_comes_first_and_the_advice_is_short(project: Any) -> None:
    (project.path / "llmroof_gates.yml").write_text("windows: {}\n")
    (project.path / "llmroof-report.json").write_text("{}\n")  # a report, no gate file
    for folder in ("a", "a/b", "c", "d"):
        (project.path / folder).mkdir()
        (project.path / folder / "llm-roof.yaml").write_text("windows: {}\n")
        (project.path / folder / "other.llmroof.yaml").write_text("windows: {}\n")
    (project.path / "tests").mkdir()
    result = project.run("--llmroof-gpu=h100", "tests")
    assert [line.split()[0] for line in result.outlines if line.startswith("  ")] == [
        "llmroof_gates.yml", "a/llm-roof.yaml", "c/llm-roof.yaml"
    ]  # fmt: skip


def test_a_gate_file_outside_of_testpaths_is_named(project: Any) -> None:
    project.gates(PASSES)
    tests = project.path / "tests"
    tests.mkdir()
    (tests / "test_unit.py").write_text("def test_unit(): pass\n")
    project.pytester.makeini("[pytest]\ntestpaths = tests\nllmroof_required = true\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        [
            "*though llmroof_required asks for one; looked in tests for*",
            "*llmroof.yaml is outside of what was collected*",
        ]
    )


@pytest.mark.parametrize(
    ("options", "rc"),
    [
        ([], 0),  # nothing asked for gates
        (["--llmroof-label=a=b"], 4),
        (["--llmroof-strict"], 4),
        (["--llmroof-report=x.json"], 4),
    ],
)
def test_which_options_ask_for_gates(project: Any, options: list[str], rc: int) -> None:
    (project.path / "test_unit.py").write_text("def test_unit(): pass\n")
    assert project.run(*options).ret == rc
    assert not (project.path / "x.json").exists()


def test_a_test_that_reads_measurements_is_a_gate_s_worth(project: Any) -> None:
    (project.path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.llmroof(telemetry=['before.prom', 'after.prom'])\n"
        "def test_it(llmroof): assert llmroof['itl.mean'].value < 0.05\n"
    )
    assert project.run("--llmroof-gpu=h100").ret == 0


def test_other_exit_codes_stay(project: Any) -> None:
    (project.path / "test_unit.py").write_text("def test_unit(): assert 0\n")
    assert project.run("--llmroof-gpu=h100").ret == pytest.ExitCode.TESTS_FAILED
    (project.path / "test_unit.py").write_text("import nothing_of_this_name\n")
    assert project.run("--llmroof-gpu=h100").ret == pytest.ExitCode.INTERRUPTED


def test_collect_only_writes_nothing(project: Any) -> None:
    project.gates(PASSES)
    before = set(project.path.iterdir())
    result = project.run("--collect-only", "--llmroof-report=new/report.json", "-p", "no:cacheprovider")
    assert result.ret == 0
    assert set(project.path.iterdir()) == before
    result.stdout.no_fnmatch_line("*llmroof ==*")


def test_folders_of_reports_are_made_and_late_failures_told(project: Any) -> None:
    project.gates(PASSES)
    assert project.run("--llmroof-report=new/folder/report.json").ret == 0
    assert (project.path / "new" / "folder" / "report.json").exists()
    project.pytester.makeconftest("import shutil\ndef pytest_runtest_setup(): shutil.rmtree('gone', True)\n")
    result = project.run("--llmroof-report=gone/report.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["ERROR: --llmroof-report=*gone/report.json: No such file or directory"])


@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_a_hook_sees_the_finished_report(project: Any, workers: list[str]) -> None:
    project.pytester.makeconftest(
        "def pytest_llmroof_report(config, report):\n    report['labels']['commit'] = str(len(report['windows']))\n"
    )
    project.gates(PASSES)
    _, document = outcome(project, *workers)
    assert document["labels"] == {"commit": "1"}


def test_the_section_of_the_summary(project: Any) -> None:
    project.gates(PASSES, f"{{gate: {FAILS}, id: REL-7}}", NO_DATA, "itl.mean <= 50ms")
    result = project.run("--deselect", "llmroof.yaml::decode::itl.mean")
    result.stdout.fnmatch_lines(
        [
            "*= llmroof =*",
            "4 x NVIDIA H100 SXM5 80GB, bf16 989 TFLOP/s dense, 3.35 TB/s; Llama 3.1 70B*",
            "FAIL *decode.mbu >= 75 % [[]REL-7[]] *41.3 %*",
            "NOT MEASURED *hfu >= 50 %*",
            "PASS *decode.mbu >= 30 %*",
            "NOT RUN *1 gate: llmroof.yaml::decode::itl.mean <= 50ms",
        ]
    )
    quiet = project.run("-q", "-k", "30")
    quiet.stdout.no_fnmatch_line("*llmroof ==*")


def test_without_a_terminal_and_without_junit(project: Any) -> None:
    project.gates(PASSES, FAILS)
    rc, document = outcome(project, "-p", "no:terminal", "-p", "no:junitxml")
    assert rc == 1
    assert document["summary"]["fail"] == 1


def test_a_report_of_an_earlier_run_does_not_outlive_a_run_without_gates(project: Any) -> None:
    (project.path / "x.json").write_text('{"summary": {"pass": 9}}')
    (project.path / "llmroof.yaml").write_text("windows: []\n")
    project.run("--llmroof-report=x.json")
    assert json.loads((project.path / "x.json").read_text())["summary"]["pass"] == 0


def test_every_fixture_of_the_plugin_makes_a_test_one_of_ours() -> None:
    assert set(plugin.__all__) == aggregate.FIXTURES
