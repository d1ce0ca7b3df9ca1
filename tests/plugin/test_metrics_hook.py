"""The hook that adds metrics: gated, listed and reported like the package's own, and never a pass where it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import runs
from vllm_pages import write_pages

CONFTEST = """
from pytest_llmroof.extend import Metric, NoData, Value

def tokens_per_request(window):
    finished = window.counters.get("requests_finished")
    if not finished:
        return NoData("no request finished in this window", "widen the window")
    tokens = window.counters["generation_tokens"] / finished
    return Value(tokens, low=tokens - 1, high=tokens + 1, source="lab", method="tokens over requests", samples=3)

def pytest_llmroof_metrics(config):
    return {"lab.tokens_per_request": Metric("tokens", "generated tokens of a request", tokens_per_request)}
"""
GATES = """
windows:
  lab:
    phase: decode
    telemetry: [before.prom, after.prom]
    gates:
      - lab.tokens_per_request >= 20
      - gate: lab.tokens_per_request >= 20tokens
        per: replica
      - lab.tokens_per_request >= 1e6
"""
FUNCTION = """
from pytest_llmroof.extend import Metric, NoData, Value

def measure(window):
    {body}

def pytest_llmroof_metrics(config):
    return {{"lab.it": Metric("count", "what the lab counts", measure)}}
"""


@pytest.fixture(autouse=True)
def _window(pytester: pytest.Pytester) -> None:
    write_pages(pytester.path)


def gates(pytester: pytest.Pytester, text: str = GATES) -> None:
    pages = sorted(path.name for path in pytester.path.glob("*.prom"))
    (pytester.path / "llmroof.yaml").write_text(text.replace("before.prom, after.prom", ", ".join(pages)))


def said(result: pytest.RunResult) -> str:
    return " ".join((result.stdout.str() + result.stderr.str()).split())


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_gates_of_a_file_and_the_report(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    pytester.makeconftest(CONFTEST)
    gates(pytester)
    result = runs.run(pytester, "--llmroof-report=report.json", *workers)
    result.assert_outcomes(passed=2, failed=1)
    text = said(result)
    assert "expected lab.tokens_per_request >= 1 000 000 tok" in text
    assert "generated tokens of a request: 1015 tok; at least 1 000 000 tok was asked" in text
    document = json.loads((pytester.path / "report.json").read_text())
    window = document["windows"][0]
    measured = window["measurements"]["lab.tokens_per_request"]
    assert measured["high"] - measured["low"] == pytest.approx(2)
    assert (measured["source"], measured["method"], measured["unit"]) == ("lab", "tokens over requests", "tokens")
    assert [gate["verdict"] for gate in window["gates"]] == ["pass", "pass", "fail"]


def test_marks_fixtures_and_the_command_line(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pages = sorted(path.name for path in pytester.path.glob("*.prom"))
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.llmroof(telemetry={pages!r}, phase="decode")
        @pytest.mark.llmroof_gate("lab.tokens_per_request >= 20")
        def test_it(llmroof):
            assert "lab.tokens_per_request" in set(llmroof)
            assert llmroof["lab.tokens_per_request"].samples == 3
            llmroof.check("lab.tokens_per_request < 1e6")
        """
    )
    telemetry = [f"--llmroof-telemetry={page}" for page in pages]
    result = runs.run(pytester, *telemetry, "--llmroof-gate=lab.tokens_per_request >= 20tok")
    result.assert_outcomes(passed=2)


def test_the_list(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    result = runs.run(pytester, "--llmroof-list=metrics")
    result.stdout.re_match_lines([r"lab\.tokens_per_request +tokens +generated tokens of a request"])


def test_a_wrong_name_offers_the_right_one(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    gates(pytester, GATES.replace("lab.tokens_per_request >= 20\n", "lab.tokens_per_requests >= 20\n"))
    assert "did you mean 'lab.tokens_per_request'" in said(runs.run(pytester))


def test_a_session_leaves_nothing_behind(pytester: pytest.Pytester) -> None:
    """In one process: the second session does not know the first one's metric, however often it was parsed."""
    pytester.makeconftest(CONFTEST)
    gates(pytester)
    runs.run(pytester).assert_outcomes(passed=2, failed=1)
    pytester.makeconftest("")
    result = runs.run(pytester)
    assert "unknown metric 'lab.tokens_per_request'" in said(result)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return 1 / 0", "its function in conftest.py raised ZeroDivisionError: division by zero"),
        ("return window.counters['nothing']", "raised KeyError: 'nothing'"),
        ("import pytest; pytest.skip('not today')", "raised Skipped: not today"),
        ("return 3", "gave int, and not a Value or NoData of pytest_llmroof.extend"),
        ("return Value('3')", "value, low and high are numbers"),
        ("return Value(float('nan'))", "a finite value inside its interval is expected"),
        ("return Value(3, low=4)", "a finite value inside its interval is expected"),
        ("return Value(3, samples=1.5)", "gave samples 1.5: a whole number is expected"),
        ("window.counters['x'] = 1", "raised TypeError"),
        ("return window.measured('lab.it')", "lab.it is a metric of conftest.py, and none of the package's own"),
        ("return window.measured('decode.mbuu')", "did you mean 'decode.mbu'"),
        ("return NoData('the lab is closed', 'come back tomorrow')", "the lab is closed; come back tomorrow"),
        ("return window.measured('decode.mbu')", "no accelerator is named"),
    ],
)
def test_what_goes_wrong_in_a_function_is_no_data(pytester: pytest.Pytester, body: str, reason: str) -> None:
    pytester.makeconftest(FUNCTION.format(body=body))
    gates(pytester, GATES.partition("    gates:")[0] + "    gates: [lab.it >= 0, decode.step_time <= 10s]\n")
    result = runs.run(pytester)
    result.assert_outcomes(passed=1, failed=1)
    text = said(result)
    assert reason in text
    assert "NO DATA" in text
    assert "Traceback" not in text
    assert "site-packages" not in text


def test_a_function_may_ask_for_the_package_s_metrics(pytester: pytest.Pytester) -> None:
    body = "return Value(window.measured('decode.batch').value / window.deployment.gpus)"
    pytester.makeconftest(FUNCTION.format(body=body))
    gates(pytester, GATES.partition("    gates:")[0] + "    gates: [lab.it >= 1]\n")
    runs.run(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('["x"]', "gave list: expected a mapping of names to Metric"),
        ('{"lab": it}', "'lab': a name is words in lower case joined by dots"),
        ('{"decode.lab": it}', "names that begin with 'decode' are pytest-llmroof's own"),
        ('{"lab.it": 3}', "expected a Metric of pytest_llmroof.extend, not int"),
        ('{"lab.it": Metric("second", "m", f)}', "unknown unit 'second' (did you mean 'seconds'"),
        ('{"lab.it": Metric("count", "", f)}', "meaning: expected a phrase"),
        ('{"lab.it": Metric("count", "m", 3)}', "measure: expected a function of a WindowView, not int"),
        ('{"lab.it": Metric("count", "m", f, needs="gpu")}', "needs: expected a tuple of gpu, model, not 'gpu'"),
        ('{"lab.it": Metric("count", "m", f, family="all")}', "family: expected one of decode"),
        ('{"lab.it": it, "lab.other": 1 / 0}', "raised ZeroDivisionError: division by zero (line 4)"),
        ('__import__("pytest").skip("no", allow_module_level=True)', "raised Skipped: no (line "),
    ],
)
def test_a_wrong_metric_is_a_usage_error_that_names_the_plugin(
    pytester: pytest.Pytester, entry: str, problem: str
) -> None:
    pytester.makeconftest(
        "from pytest_llmroof.extend import Metric\n"
        "f = lambda window: None\n"
        'it = Metric("count", "m", f)\n'
        f"pytest_llmroof_metrics = lambda config: {entry}\n"
    )
    gates(pytester, GATES.partition("    gates:")[0] + "    gates: [decode.step_time <= 10s]\n")
    results = [runs.run(pytester, *more) for more in ((), ("--llmroof-gpu=h100",), ("--llmroof-list=metrics",))]
    for result in results:
        assert result.ret != 0
        text = said(result)
        assert "pytest_llmroof_metrics: conftest.py" in text
        assert problem in text
        assert "Traceback" not in text
    assert results[1].ret == results[2].ret == pytest.ExitCode.USAGE_ERROR


def test_two_plugins_with_one_name(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.syspathinsert()
    (pytester.path / "labplugin.py").write_text(CONFTEST)
    gates(pytester)
    text = said(runs.run(pytester, "-p", "labplugin"))
    assert "both add a metric 'lab.tokens_per_request': rename one" in text
    assert "labplugin" in text


def test_a_conftest_of_a_folder_comes_in_time(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("inner")
    (folder / "conftest.py").write_text(CONFTEST)
    pages = sorted(pytester.path.glob("*.prom"))
    for page in pages:
        page.rename(folder / page.name)
    (folder / "llmroof.yaml").write_text(
        GATES.replace("before.prom, after.prom", ", ".join(page.name for page in pages))
    )
    (pytester.path / "test_first.py").write_text("def test_it(llmroof_gpu): pass\n")
    result = runs.run(pytester, "--llmroof-gpu=h100")
    result.assert_outcomes(passed=3, failed=1)


def test_needs_say_what_is_missing(pytester: pytest.Pytester) -> None:
    conftest = FUNCTION.format(body="raise AssertionError('never called')").replace(
        "measure)}", 'measure, needs=("gpu",))}'
    )
    pytester.makeconftest(conftest)
    gates(pytester, GATES.partition("    gates:")[0] + "    gates: [lab.it >= 0]\n")
    text = said(runs.run(pytester))
    assert "no accelerator is named" in text
    assert "never called" not in text


def test_extend_is_light(pytester: pytest.Pytester) -> None:
    """A conftest that offers metrics costs a session without gates next to nothing."""
    ours = "sorted(name for name in sys.modules if name.startswith('pytest_llmroof'))"
    script = f"import sys, pytest_llmroof.extend; print({ours})"
    (pytester.path / "light.py").write_text(script)
    printed = pytester.runpython(Path("light.py")).stdout.str()
    assert "pytest_llmroof.extend" in printed
    rooms = ("analysis", "units", "telemetry", "gates", "roofline", "windows", "plugin")
    assert not [room for room in rooms if f"pytest_llmroof.{room}" in printed]
