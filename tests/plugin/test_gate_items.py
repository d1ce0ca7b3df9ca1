"""Gate files as pytest collects, selects, runs and shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
import runs

PASSES = "decode.mbu >= 30%"
FAILS = "decode.mbu >= 75%"
NO_DATA = "kv_cache.usage.max <= 95%"


def test_each_gate_is_a_test_under_its_window(project: Any) -> None:
    project.gates(PASSES, "itl.mean<=50ms")
    project.gates("ttft.mean <= 2s", window="chat")
    result = project.run("--collect-only", "-q")
    result.stdout.fnmatch_lines(
        [
            "llmroof.yaml::decode::decode.mbu >= 30%",
            "llmroof.yaml::decode::itl.mean <= 50ms",
            "llmroof.yaml::chat::ttft.mean <= 2s",
        ]
    )
    assert result.ret == 0


@pytest.mark.parametrize("name", ["llmroof.yaml", "llmroof.yml", "nightly.llmroof.yaml", "d/e/nightly.llmroof.yml"])
def test_names_of_gate_files(project: Any, name: str) -> None:
    project.gates(PASSES, name=name)
    result = project.run("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"{name}::decode::decode.mbu >= 30% PASSED*"])


def test_other_yaml_files_are_none(project: Any) -> None:
    for name in ("config.yaml", "myllmroof.yaml", "llmroof.yaml.txt"):
        (project.path / name).write_text("nonsense: [")
    assert project.run().ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize(
    ("options", "passed", "failed"),
    [
        (["llmroof.yaml"], 2, 1),
        (["llmroof.yaml::chat"], 1, 0),
        (["llmroof.yaml::decode::decode.mbu >= 75%"], 0, 1),
        (["llmroof.yaml::decode::decode.mbu >= 75%", "llmroof.yaml::chat::ttft.mean <= 2s"], 1, 1),
        (["-k", "chat"], 1, 0),
        (["-k", "decode.mbu"], 1, 1),
        (["-k", "REL-7"], 0, 1),
        (["-k", "REL-7 or chat"], 1, 1),
        (["-m", "llmroof"], 2, 1),
        (["-m", "decode"], 1, 1),
        (["-m", "mixed and not decode"], 1, 0),
        (["-m", "not llmroof_live"], 2, 1),
        (["--deselect", "llmroof.yaml::decode::decode.mbu >= 75%"], 2, 0),
        (["-x"], 1, 1),
    ],
)
def test_selection_works_as_on_any_test(project: Any, options: list[str], passed: int, failed: int) -> None:
    project.gates(PASSES, f"{{gate: {FAILS}, id: REL-7}}")
    project.gates("ttft.mean <= 2s", window="chat", phase="mixed")
    project.run(*options).assert_outcomes(passed=passed, failed=failed, deselected=pytest_deselected(options, 3))


def pytest_deselected(options: list[str], total: int) -> int:
    """How many items -k, -m and --deselect leave out: what is not said in the parameters above."""
    left_out = {"chat": 2, "decode.mbu": 1, "REL-7": 2, "REL-7 or chat": 1, "decode": 1, "mixed and not decode": 2}
    if options[0] == "--deselect":
        return 1
    return left_out.get(options[1], 0) if options[0] in ("-k", "-m") else 0


def test_last_failed_runs_what_failed(project: Any) -> None:
    project.gates(PASSES, FAILS)
    # What other runs here do without.
    project.pytester.runpytest_inprocess("-W", "error").assert_outcomes(passed=1, failed=1)
    result = project.pytester.runpytest_inprocess("-W", "error", "--lf")
    result.assert_outcomes(failed=1, deselected=1)


def test_warn_is_selected_by_its_mark(project: Any) -> None:
    project.gates(PASSES, f"{{gate: {FAILS}, severity: warn}}")
    result = project.run("-m", "llmroof_gate(severity='warn')", "-v")
    result.stdout.fnmatch_lines(["llmroof.yaml::decode::decode.mbu >= 75% WARNED*", "*1 deselected, 1 warned*"])
    assert result.ret == 0


@pytest.mark.parametrize(
    ("gate", "word"),
    [
        (FAILS, "FAILED"),
        (NO_DATA, "NO DATA"),
        (f"{{gate: {FAILS}, severity: warn}}", "WARNED"),
        (f"{{gate: {NO_DATA}, severity: warn}}", "WARNED"),
        (PASSES, "PASSED"),
    ],
)
def test_words_of_verdicts(project: Any, gate: str, word: str) -> None:
    project.gates(gate)
    result = project.run("-v")
    result.stdout.fnmatch_lines([f"llmroof.yaml::decode::* {word}*"])
    assert result.ret == (0 if word in ("WARNED", "PASSED") else 1)


def test_a_breach_has_no_traceback_and_one_line_under_ci(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    project.gates(f"{{gate: {FAILS}, id: REL-7}}", "decode.mbu >= 80%")
    result = project.run()
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*def runtest*")
    summary = [line for line in result.outlines if line.startswith("FAILED ")]
    assert len(summary) == 2
    finding = "found 41.3 %, expected decode.mbu >= 75 % (33.7 points short); "
    assert summary[0].startswith(f"FAILED llmroof.yaml::decode::decode.mbu >= 75% - {finding}")
    assert summary[0].endswith("[REL-7]")
    # The window's long text is shown once, for the first of its gates that failed.
    assert sum("DIAGNOSIS" in line for line in result.outlines) == 1


def test_the_first_breach_tells_everything_also_behind_gates_that_were_not_measured(project: Any) -> None:
    project.gates(NO_DATA, FAILS, "decode.mbu >= 80%", "goodput(ttft<=2s) >= 95%")
    out = project.run().stdout.str()
    texts = {name: out.index(f"_ decode: {name} _") for name in (NO_DATA, FAILS, "decode.mbu >= 80%")}
    # The gate without data says why, and has no diagnosis; the breach behind it has the whole text, and no other has.
    (diagnosis,) = [at for at in range(len(out)) if out.startswith("DIAGNOSIS", at)]
    (remedies,) = [at for at in range(len(out)) if out.startswith("REMEDIATION", at)]
    assert texts[NO_DATA] < texts[FAILS] < diagnosis < remedies < texts["decode.mbu >= 80%"]
    # One without data behind the breach keeps its own short text: the reason, and no deployment again.
    last = out[out.index("_ decode: goodput(ttft<=2s) >= 95% _"):]
    assert "no data" in last
    assert "deployment" not in last


@pytest.mark.parametrize("style", ["auto", "long", "short", "line", "native"])
def test_every_traceback_style_shows_the_finding(project: Any, style: str) -> None:
    project.gates(FAILS)
    result = project.run(f"--tb={style}")
    assert result.ret == 1
    assert "found 41.3 %, expected decode.mbu >= 75 %" in result.stdout.str()
    result.stdout.no_fnmatch_line("*Traceback*")


def test_junit_has_the_text_the_properties_and_the_place(project: Any) -> None:
    project.gates(PASSES, FAILS)
    project.run("--junitxml=junit.xml")
    cases = ElementTree.parse(project.path / "junit.xml").findall(".//testcase")
    assert [(case.get("classname"), case.get("name")) for case in cases] == [
        ("llmroof.yaml.decode", PASSES),
        ("llmroof.yaml.decode", FAILS),
    ]
    failure = cases[1].find("failure")
    assert failure is not None
    assert str(failure.get("message")).startswith("found 41.3 %, expected decode.mbu >= 75 %")
    assert "DIAGNOSIS" in str(failure.text)
    properties = {each.get("name"): str(each.get("value")) for each in cases[1].iter("property")}
    assert properties["llmroof.verdict"] == "fail"
    assert float(properties["llmroof.value"]) == pytest.approx(0.413, abs=0.002)
    assert float(properties["llmroof.limit"]) == 0.75


def test_the_gate_s_line_is_the_test_s_place(project: Any) -> None:
    file = project.gates(PASSES, FAILS)
    items, _ = project.pytester.inline_genitems()
    lines = file.read_text().splitlines()
    for item in items:
        path, line, _title = item.reportinfo()
        assert path == file
        assert item.name in lines[line]
    # pytest rewrites the dots of a title that ends the node id.
    result = project.run("-v")
    result.stdout.fnmatch_lines([f"llmroof.yaml::decode::{FAILS} FAILED*"])


def test_wrong_names_stand_among_the_other_errors_of_a_file(project: Any) -> None:
    file = project.gates("decode.mbux >= 75%")
    file.write_text(file.read_text().replace("h100", "h1000").replace("-70b", "-71b"))
    result = project.run()
    result.stdout.fnmatch_lines(
        [
            "llmroof.yaml:1:6: gpu: unknown accelerator 'h1000' (did you mean 'h100'*",
            "llmroof.yaml:2:8: model: unknown model 'llama-3.1-71b' (did you mean 'llama-3.1-70b'*",
            "llmroof.yaml:*: windows.decode.gates[[]0[]]: unknown metric 'decode.mbux' (did you mean 'decode.mbu'*",
        ],
        consecutive=True,
    )


def test_all_errors_of_a_file_at_once_and_other_files_run(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")  # long lines whole
    project.gates("decode.mbuu >= 75%", "ttft.p98 <= 2s", name="bad.llmroof.yaml")
    project.gates(PASSES)
    result = project.run("--continue-on-collection-errors")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "bad.llmroof.yaml:9:9: *decode.mbuu*did you mean 'decode.mbu'*",
            "bad.llmroof.yaml:10:9: *p98*",
            "ERROR bad.llmroof.yaml - *(+1 more)",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_names_are_looked_up_when_collected(project: Any) -> None:
    project.gates(PASSES)
    file = project.path / "llmroof.yaml"
    file.write_text(file.read_text().replace("gpu: h100", "gpu: h10O"))
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["llmroof.yaml:1:6: *h10O*h100*"])
    # What stands at the head is wrong once, however many windows there are.
    project.gates(PASSES, window="other")
    result = project.run()
    assert sum("llmroof.yaml:1:6" in line for line in result.outlines) == 1


def test_a_collection_error_is_told_once_by_two_workers(project: Any) -> None:
    project.gates("decode.mbuu >= 75%")
    result = runs.run(project.pytester, "-n2")
    assert result.ret == 1
    assert sum("ERROR collecting" in line for line in result.outlines) == 1


def test_two_gates_with_one_expression_have_names_of_their_own(project: Any, verdicts_of: Callable[..., Any]) -> None:
    project.gates(f"{{gate: {FAILS}, id: A}}", f"{{gate: {FAILS}, id: B, severity: warn}}")
    document = project.report()
    assert list(verdicts_of(document)) == [
        "llmroof.yaml::decode::decode.mbu >= 75%",
        "llmroof.yaml::decode::decode.mbu >= 75%#2",
    ]


def test_a_live_window_is_marked_and_collected_without_a_connection(project: Any) -> None:
    (project.path / "llmroof.yaml").write_text(
        "windows:\n  decode:\n    phase: decode\n    telemetry: http://127.0.0.1:9/metrics\n"
        "    gates: [ttft.p99 <= 2s]\n"
    )
    project.run("--collect-only", "-q", "-m", "llmroof_live").assert_outcomes()
    result = project.run("-m", "not llmroof_live")
    result.assert_outcomes(deselected=1)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["NO DATA llmroof.yaml::decode::ttft.p99*"])
