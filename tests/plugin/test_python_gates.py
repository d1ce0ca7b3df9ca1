"""Marks and fixtures: gates on the body of a Python test, measurements in it."""

from __future__ import annotations

from typing import Any

import pytest

MARK = (
    '@pytest.mark.llmroof(gpu="h100", model="llama-3.1-70b", deployment={"tensor_parallel": 4, "weights": "bf16"}, '
    'telemetry=["before.prom", "after.prom"], phase="decode")\n'
)
GATE = '@pytest.mark.llmroof_gate("decode.mbu >= {}%")\n'
PASSES, FAILS = GATE.format(30), GATE.format(75)


def module(project: Any, body: str, name: str = "test_it.py") -> None:
    file = project.path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"import pytest\n{body}")


def test_a_body_with_gates_that_hold(project: Any) -> None:
    module(project, f"{MARK}{PASSES}def test_decode(llmroof):\n    assert llmroof['decode.mbu'].value > 0.3\n")
    project.run().assert_outcomes(passed=1)


def test_all_breaches_in_one_failure_without_a_traceback(project: Any) -> None:
    gates = '@pytest.mark.llmroof_gate("decode.mbu >= 75%", "itl.mean <= 1ms")\n'
    module(project, f"{MARK}{gates}{PASSES}def test_decode(): pass\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["found 41.3 %, expected decode.mbu *", "found 26.2 ms, expected itl.mean *"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*GateBreach*")
    assert "(+1 more)" in project.pytester.runpytest("-rf", "--tb=line").stdout.str()


def test_a_breach_is_caught_by_its_name(project: Any) -> None:
    body = (
        "from pytest_llmroof import GateBreach\n"
        f"{MARK}def test_decode(llmroof):\n"
        "    with pytest.raises(GateBreach, match='found 41.3 %'):\n"
        "        llmroof.check('decode.mbu >= 75%')\n"
    )
    module(project, body)
    project.run().assert_outcomes(passed=1)


def test_reports_name_the_line_of_the_test(project: Any) -> None:
    module(project, f"\n\n{MARK}{FAILS}def test_decode(): pass\n")
    gate = project.report()["windows"][0]["gates"][0]
    lines = (project.path / "test_it.py").read_text().splitlines()
    assert gate["file"] == "test_it.py"
    assert "llmroof" in lines[gate["line"] - 1] or lines[gate["line"] - 1].startswith("def test_decode")


@pytest.mark.parametrize(
    ("marks", "body", "outcomes", "judged"),
    [
        ("", "assert 0, 'the body itself'", {"failed": 1}, "not judged"),
        ("", "pytest.skip('not here')", {"skipped": 1}, "not judged"),
        ("@pytest.mark.xfail(raises=AssertionError)\n", "pass", {"xfailed": 1}, "fail"),
        ("@pytest.mark.xfail(run=False)\n", "raise SystemError", {"xfailed": 1}, None),
        ("@pytest.mark.skip\n", "raise SystemError", {"skipped": 1}, None),
        ("", "pass", {"failed": 1}, "fail"),
    ],
)
def test_the_body_comes_first(
    project: Any, marks: str, body: str, outcomes: dict[str, int], judged: str | None
) -> None:
    module(project, f"{MARK}{FAILS}{marks}def test_decode():\n    {body}\n")
    document = project.report()
    verdicts = [gate["verdict"] for window in document["windows"] for gate in window["gates"]]
    assert verdicts == ([judged] if judged else [])
    assert [each["node_id"] for each in document["not_run"]] == ([] if judged else ["test_it.py::test_decode"])
    project.run().assert_outcomes(**outcomes)


def test_the_body_s_own_failure_keeps_its_traceback(project: Any) -> None:
    module(project, f"{MARK}{FAILS}def test_decode():\n    assert 1 == 2\n")
    result = project.run()
    result.stdout.fnmatch_lines([">       assert 1 == 2*", "E       assert 1 == 2"])


def test_a_broken_teardown_is_told_beside_the_breach(project: Any) -> None:
    fixture = "@pytest.fixture\ndef broken():\n    yield\n    raise OSError('teardown')\n"
    module(project, f"{fixture}{MARK}{FAILS}def test_decode(broken): pass\n")
    project.run().assert_outcomes(failed=1, errors=1)


def test_a_test_case_s_methods_have_gates_too(project: Any) -> None:
    methods = (
        f"    {FAILS}    def test_breach(self): pass\n"
        f"    {PASSES}    def test_pass(self): pass\n"
        f"    {FAILS}    def test_body(self): self.fail('the body')\n"
    )
    module(project, f"import unittest\n{MARK}class TestIt(unittest.TestCase):\n{methods}")
    document = project.report()
    assert {window["id"].rpartition("::")[2]: window["gates"][0]["verdict"] for window in document["windows"]} == {
        "test_breach": "fail",
        "test_pass": "pass",
        "test_body": "not judged",
    }


def test_marks_of_module_class_and_function_merge_and_the_closest_wins(project: Any) -> None:
    module(
        project,
        'pytestmark = pytest.mark.llmroof(gpu="h100", model="llama-3.1-8b", telemetry=["before.prom", "after.prom"])\n'
        '@pytest.mark.llmroof(model="llama-3.1-70b", phase="prefill")\n'
        "class TestIt:\n"
        '    @pytest.mark.llmroof(deployment={"tensor_parallel": 4, "weights": "bf16"}, phase="decode")\n'
        "    def test_it(self, llmroof):\n"
        "        assert llmroof.spec.phase == 'decode'\n"
        "        assert llmroof.deployment.model.name == 'llama-3.1-70b'\n"
        "        assert llmroof.deployment.tensor_parallel == 4\n"
        "        assert llmroof.deployment.accelerator.name == 'h100-sxm5-80gb'\n",
    )
    project.run().assert_outcomes(passed=1)


def test_gate_marks_add_up_and_say_the_same_once(project: Any) -> None:
    marks = (
        f'pytestmark = [pytest.mark.llmroof_gate("decode.mbu >= 30%")]\n{MARK}'
        '@pytest.mark.llmroof_gate("itl.mean <= 50ms", id="REL-7", why="chat feels slow")\n'
        '@pytest.mark.llmroof_gate("decode.mbu >= 30%")\n'
        '@pytest.mark.llmroof_gate("itl.mean <= 1ms", severity="warn")\n'
    )
    module(project, f"{marks}def test_decode(): pass\n")
    (window,) = project.report()["windows"]
    assert [(gate["expression"], gate["id"], gate["severity"]) for gate in window["gates"]] == [
        ("decode.mbu >= 30%", None, "error"),
        ("itl.mean <= 50ms", "REL-7", "error"),
        ("itl.mean <= 1ms", None, "warn"),
    ]
    project.run("-v").stdout.fnmatch_lines(["test_it.py::test_decode WARNED*"])


@pytest.mark.parametrize(
    ("mark", "gist"),
    [
        ('llmroof_gate("decode.mbuu >= 75%")', "*did you mean 'decode.mbu'*"),
        ("llmroof_gate()", "*needs an expression*"),
        ('llmroof_gate("ttft.p99 <= 2s", "itl.p99 <= 1s", id="A")', "*exactly one expression, not 2*"),
        ('llmroof_gate("ttft.p99 <= 2s", severity="warning")', "*'error' or 'warn', not 'warning'*"),
        ('llmroof_gate("ttft.p99 <= 2s", serverity="warn")', "*did you mean 'severity'*"),
        ("llmroof_gate(75)", "*expressions as text, not 75*"),
    ],
)
def test_a_wrong_gate_mark_is_a_collection_error(project: Any, mark: str, gist: str) -> None:
    module(project, f"{MARK}@pytest.mark.{mark}\ndef test_decode(): pass\n")
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([gist])
    result.stdout.no_fnmatch_line("*During handling*")
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("mark", "gist"),
    [
        ('llmroof(telemetri="x")', "*telemetri*did you mean 'telemetry'*"),
        ('llmroof(gpu="h10O", telemetry="after.prom")', "*h10O*h100*"),
        ('llmroof("after.prom")', "*takes keywords only*"),
        ('llmroof(telemetry="after.prom", deployment={"tensor_paralel": 2})', "*tensor_parallel*"),
    ],
)
@pytest.mark.parametrize(
    "test", [f"{PASSES}def test_a(): pass\n", "def test_a(llmroof): len(llmroof)\n", "def test_a(): pass\n"]
)
def test_a_wrong_window_mark_is_an_error_of_collection(project: Any, mark: str, gist: str, test: str) -> None:
    module(project, f"\n@pytest.mark.{mark}\n{test}")
    result = project.run()
    result.assert_outcomes(errors=1)
    line = (project.path / "test_it.py").read_text().split("@", 1)[0].count("\n") + 1
    result.stdout.fnmatch_lines([f"test_it.py:{line}: test_a: {gist}"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*During handling*")


def test_a_wrong_gate_on_a_parameter_fails_that_test(project: Any) -> None:
    parameter = 'pytest.param(1, marks=pytest.mark.llmroof_gate("decode.mbuu >= 1%"))'
    module(project, f"{MARK}@pytest.mark.parametrize('x', [0, {parameter}])\ndef test_it(x): pass\n")
    result = project.run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*did you mean 'decode.mbu'*"])


def test_paths_are_relative_to_the_test_s_file(project: Any) -> None:
    moved = MARK.replace('"before', '"../before').replace('"after', '"../after')
    module(project, f"{moved}{PASSES}def test_decode(): pass\n", "tests/test_it.py")
    project.run("tests").assert_outcomes(passed=1)


def test_check_fails_at_its_own_line_and_lists_every_breach(project: Any) -> None:
    module(
        project,
        f"{MARK}def test_decode(llmroof):\n"
        "    llmroof.check('decode.mbu >= 30%')\n"
        "    llmroof.check('decode.mbu >= 75%', 'itl.mean <= 1ms', 'ttft.p99 <= 9s')\n",
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["found 41.3 %*", "found 26.2 ms*"])
    junit = project.path / "junit.xml"
    project.run("--tb=line", f"--junitxml={junit}")
    (window,) = project.report()["windows"]
    assert [gate["verdict"] for gate in window["gates"]] == ["pass", "fail", "fail", "pass"]


def test_check_is_an_assertion(project: Any) -> None:
    module(
        project,
        f"{MARK}def test_decode(llmroof):\n"
        "    with pytest.raises(AssertionError, match='found 41.3 %'):\n"
        "        llmroof.check('decode.mbu >= 75%')\n"
        "    llmroof.check('decode.mbu >= 75%', severity='warn')\n"
        "    llmroof.check('decode.mbu >= 30%', id='REL-7', why='because')\n",
    )
    assert project.run("-v").ret == 0


def test_a_wrong_check_is_one_sentence(project: Any) -> None:
    module(project, f"{MARK}def test_decode(llmroof):\n    llmroof.check('decode.mbuu >= 75%')\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*did you mean 'decode.mbu'*"])


def test_measurements_are_a_mapping(project: Any) -> None:
    module(
        project,
        f"{MARK}def test_decode(llmroof):\n"
        "    found = llmroof['decode.mbu']\n"
        "    assert (found.value, found.unit) == (pytest.approx(0.413, abs=0.002), 'fraction')\n"
        "    assert found.bounded.low <= found.value <= found.bounded.high\n"
        "    assert 'inter_token_latency' in found.source and found.method\n"
        "    assert 'decode.mbu' in llmroof and 'hfu' not in llmroof\n"
        "    assert {'itl.mean', 'decode.batch'} <= set(llmroof) and len(llmroof) == len(list(llmroof))\n"
        "    assert llmroof.get('hfu') is None\n"
        "    assert llmroof.diagnosis.scenario == 'C or D'\n"
        "    assert llmroof.deployment.gpus == 4\n"
        "    assert sum(part.share for part in llmroof.attribution.shares) == pytest.approx(1)\n"
        "    roof = llmroof.roofline\n"
        "    assert roof.ridge_flops_per_byte == pytest.approx(989.4e12 / 3.35e12)\n"
        "    assert roof.attainable(1) == pytest.approx(3.35e12)\n"
        "    assert roof.attainable(1e4) == roof.peak_flops_per_second == pytest.approx(989.4e12)\n"
        "    assert 'test_decode' in repr(llmroof)\n",
    )
    project.run().assert_outcomes(passed=1)


def test_a_metric_without_a_value_says_why(project: Any) -> None:
    module(
        project,
        f"{MARK}def test_decode(llmroof):\n"
        "    with pytest.raises(KeyError) as info: llmroof['hfu']\n"
        "    assert str(info.value).startswith('hfu is not measured: ')\n"
        "    with pytest.raises(Exception, match=\"did you mean 'decode.mbu'\"): llmroof['decode.mbuu']\n"
        "@pytest.mark.llmroof(telemetry='none.prom')\n"
        "def test_missing(llmroof):\n"
        "    with pytest.raises(KeyError, match='none.prom does not exist'): llmroof['itl.mean']\n"
        "    assert list(llmroof) == [] and llmroof.diagnosis is None\n"
        "    with pytest.raises(ValueError, match='no accelerator'): llmroof.roofline\n",
    )
    project.run().assert_outcomes(passed=2)


def test_a_live_server_that_is_down_is_not_measured(project: Any) -> None:
    live = "@pytest.mark.llmroof(telemetry='http://127.0.0.1:9/metrics')\n"
    module(
        project,
        f"{live}{PASSES}def test_body(): pass\n"
        f"{live}def test_read(llmroof): llmroof['itl.mean']\n"
        f"{live}def test_with(llmroof):\n    with llmroof.window(): pass\n",
    )
    result = project.run()
    # Nothing was asked of the window of the third one.
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(
        ["*connection refused at http://127.0.0.1:9/metrics*", "*with llmroof.window() as window*"]
    )


def test_further_windows_share_the_marks(project: Any) -> None:
    mark = MARK.replace('["before.prom", "after.prom"]', '"none.prom"')
    module(
        project,
        f"{mark}def test_windows(llmroof):\n"
        "    with llmroof.window(telemetry=['before.prom', 'after.prom']) as window: pass\n"
        "    window.check('decode.mbu >= 30%')\n"
        "    assert window.deployment.gpus == 4\n",
    )
    (window,) = project.report()["windows"]
    assert window["id"] == "test_it.py::test_windows::window 1"
    assert window["gates"][0]["verdict"] == "pass"


def test_a_window_wider_than_a_test(project: Any) -> None:
    module(
        project,
        "@pytest.fixture(scope='module')\n"
        "def load(llmroof_factory):\n"
        "    pages = ['../before.prom', '../after.prom']\n"
        "    deployment = {'tensor_parallel': 4, 'weights': 'bf16'}\n"
        "    keys = {'gpu': 'h100', 'deployment': deployment, 'telemetry': pages, 'phase': 'decode'}\n"
        "    with llmroof_factory.window(**keys) as window:\n"
        "        yield window\n"
        "def test_one(load): load.check('decode.mbu >= 30%')\n"
        "def test_two(load): load.check('decode.mbu >= 75%')\n",
        "tests/test_it.py",
    )
    (window,) = project.report("tests")["windows"]
    assert window["id"] == "tests/test_it.py::decode"
    assert [gate["verdict"] for gate in window["gates"]] == ["pass", "fail"]


def test_the_accelerator_of_the_session(project: Any) -> None:
    module(project, "def test_it(llmroof_gpu): assert llmroof_gpu.name == 'h100-sxm5-80gb'\n")
    project.run("--llmroof-gpu=h100").assert_outcomes(passed=1)
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no accelerator is named: --llmroof-gpu=NAME*"])


def test_a_reading_that_fails_is_shown_at_the_line_of_the_test(project: Any) -> None:
    module(
        project,
        f"{MARK}def test_none(llmroof):\n    llmroof['hfu']\n"
        f"{MARK}def test_wrong(llmroof):\n    llmroof['decode.mbuu']\n"
        "@pytest.mark.llmroof(telemetry='before.prom')\n"
        "def test_roof(llmroof):\n    llmroof.roofline.attainable(1)\n",
    )
    result = project.run()
    result.assert_outcomes(failed=3)
    text = result.stdout.str()
    for line in (">   llmroof['hfu']", ">   llmroof['decode.mbuu']", ">   llmroof.roofline.attainable(1)"):
        assert line.replace(">   ", ">       ") in text or line in text
    for internal in ("handle.py", "measure.py", "metrics.py", "windows.py", "functools.py"):
        assert f"{internal}:" not in text


def test_the_repr_of_a_roofline_holds_figures_only(project: Any) -> None:
    module(project, f"{MARK}def test_repr(llmroof):\n    print(repr(llmroof.roofline))\n")
    text = project.run("-s").stdout.str()
    assert "Roofline(peak_flops_per_second=" in text
    assert "ridge_flops_per_byte=295." in text
    assert "function" not in text


def test_a_mark_without_telemetry_says_where_a_mark_names_it(project: Any) -> None:
    module(project, f"@pytest.mark.llmroof(gpu='h100')\n{PASSES}def test_a(): pass\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*write `@pytest.mark.llmroof(telemetry=[[]...])` or give --llmroof-telemetry=*"])
