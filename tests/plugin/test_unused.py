"""Installed and not used: nothing is imported, printed or changed."""

from __future__ import annotations

import pytest

from pytest_llmroof.declarations import REPORTS
from pytest_llmroof.formats import REPORT_WRITERS

#: What a run without gates must not pay for, to its very end.
HEAVY = (
    "numpy", "yaml", "requests", "urllib3", "jsonschema", "junit_xml", "jinja2",
    "pytest_llmroof.assess", "pytest_llmroof.items", "pytest_llmroof.windows", "pytest_llmroof.markers",
    "pytest_llmroof.account", "pytest_llmroof.units", "pytest_llmroof.analysis", "pytest_llmroof.roofline",
    "pytest_llmroof.telemetry", "pytest_llmroof.gates", "pytest_llmroof.report", "pytest_llmroof.resolve",
)  # fmt: skip

WATCH = f"""
import atexit, sys

def tell():
    found = [name for name in {HEAVY!r} if name in sys.modules]
    ours = sorted(name for name in sys.modules if name.startswith("pytest_llmroof"))
    open("modules", "w").write(" ".join(found) + "|" + " ".join(ours))

atexit.register(tell)
"""

#: Only this plugin: others import what we must not.
ALONE = ("--disable-plugin-autoload", "-p", "llmroof", "-p", "no:cacheprovider")


@pytest.mark.parametrize(
    "test",
    [
        "def test_it(): pass\n",
        "def test_it(): assert 0\n",
        "import pytest\n@pytest.mark.skip\ndef test_it(): pass\n",
    ],
)
def test_nothing_is_imported_to_the_end_of_the_session(pytester: pytest.Pytester, test: str) -> None:
    pytester.makeconftest(WATCH)
    pytester.makepyfile(test)
    (pytester.path / "config.yaml").write_text("a: 1")
    result = pytester.runpytest_subprocess(*ALONE)
    result.stdout.no_fnmatch_line("*roof*==*")
    heavy, ours = (pytester.path / "modules").read_text().split("|")
    assert heavy == ""
    assert ours.split() == [
        "pytest_llmroof", "pytest_llmroof.aggregate", "pytest_llmroof.declarations", "pytest_llmroof.hookspecs",
        "pytest_llmroof.options", "pytest_llmroof.plugin",
    ]  # fmt: skip


def test_ini_values_alone_import_nothing_either(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nllmroof_gpu = h100\nllmroof_deployment = tensor_parallel=2\n")
    pytester.makeconftest(WATCH)
    pytester.makepyfile("def test_it(): pass\n")
    assert pytester.runpytest_subprocess(*ALONE).ret == 0
    assert (pytester.path / "modules").read_text().startswith("|")


def test_it_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass\n")
    (pytester.path / "llmroof.yaml").write_text("nonsense: [")
    result = pytester.runpytest_subprocess("-p", "no:llmroof")
    result.assert_outcomes(passed=1)
    result = pytester.runpytest_subprocess("-p", "no:llmroof", "--llmroof-gpu=h100")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_the_endings_of_reports_that_help_names_are_those_there_are() -> None:
    assert REPORTS.split(", ") == list(REPORT_WRITERS)
