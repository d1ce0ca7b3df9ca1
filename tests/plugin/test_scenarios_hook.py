"""The hook that adds scenarios and remedies: named where their condition holds, and never in the way where it fails."""

from __future__ import annotations

import json

import pytest
import runs
from vllm_pages import write_pages

CONFTEST = """
from pytest_llmroof.extend import Found, Remedy, Scenario

def condition(window, diagnosis):
    {body}

def pytest_llmroof_scenarios(config):
    return {{
        "LAB-NUMA": Scenario(
            "weights on the wrong socket", "the host is far from its GPU", condition,
            remedies=(
                Remedy("Pin the server", "numactl --cpunodebind=0", effect="step time halves"),
                Remedy("Never", "not here", applies=lambda window, diagnosis: window.deployment.gpus > 1000),
            ),
        ),
        "A": [Remedy("Ask the lab", "The lab has larger cards.")],
    }}
"""
HOLDS = "return Found(f'{window.counters[\"generation_tokens\"]:.0f} tokens, {diagnosis.of}', 'numastat', 'high')"
GATES = """
gpu: h100
model: llama-3.1-70b
deployment: {tensor_parallel: 4}
windows:
  lab:
    phase: decode
    telemetry: [PAGES]
    gates: [decode.mbu >= 99%]
"""


@pytest.fixture(autouse=True)
def _files(pytester: pytest.Pytester) -> None:
    pages = ", ".join(path.name for path in write_pages(pytester.path))
    (pytester.path / "llmroof.yaml").write_text(GATES.replace("PAGES", pages))


def said(result: pytest.RunResult) -> str:
    return " ".join((result.stdout.str() + result.stderr.str()).split())


def report(pytester: pytest.Pytester) -> dict[str, object]:
    window = json.loads((pytester.path / "report.json").read_text())["windows"][0]
    found: dict[str, object] = window["diagnosis"]
    return found


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_scenario_of_a_plugin_is_named(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    pytester.makeconftest(CONFTEST.format(body=HOLDS))
    result = runs.run(pytester, "--llmroof-report=report.json", "--llmroof-report=report.html", *workers)
    result.assert_outcomes(failed=1)
    text = said(result)
    assert "scenario LAB-NUMA: weights on the wrong socket" in text
    assert "the host is far from its GPU" in text
    assert "28424 tokens, decode (numastat)" in text
    assert "REMEDIATION 1. Pin the server -> step time halves" in text
    assert "Never" not in text
    diagnosis = report(pytester)
    assert (diagnosis["scenario"], diagnosis["confidence"]) == ("LAB-NUMA", "high")
    assert "weights on the wrong socket" in (pytester.path / "report.html").read_text()


def test_where_the_condition_does_not_hold_nothing_changes(pytester: pytest.Pytester) -> None:
    runs.run(pytester, "--llmroof-report=report.json")
    plain = report(pytester)
    pytester.makeconftest(CONFTEST.format(body="return None"))
    runs.run(pytester, "--llmroof-report=report.json")
    assert report(pytester) == plain


def test_a_remedy_is_added_to_a_letter(pytester: pytest.Pytester) -> None:
    runs.run(pytester, "--llmroof-report=report.json")
    letters = str(report(pytester)["scenario"]).split(" or ")
    body = CONFTEST.format(body="return None").replace('"A": [', f'"{letters[0]}": [')
    pytester.makeconftest(body)
    runs.run(pytester, "--llmroof-report=report.json")
    remedies = report(pytester)["remedies"]
    assert isinstance(remedies, list)
    assert remedies[-1] == {
        "title": "Ask the lab", "detail": "The lab has larger cards.", "effect": "", "metric": None, "low": None,
        "high": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return 1 / 0", "the condition of LAB-NUMA in conftest.py raised ZeroDivisionError: division by zero"),
        ("import pytest; pytest.skip('no')", "the condition of LAB-NUMA in conftest.py raised Skipped: no"),
        ("return True", "the condition of LAB-NUMA in conftest.py gave bool, not Found or None"),
    ],
)
def test_a_condition_that_fails_is_said_and_the_gate_still_fails(
    pytester: pytest.Pytester, body: str, problem: str
) -> None:
    pytester.makeconftest(CONFTEST.format(body=body))
    result = runs.run(pytester)
    result.assert_outcomes(failed=1)
    text = said(result)
    assert problem in text
    assert "LAB-NUMA: weights" not in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('{"lab": it}', "'lab': a key is a letter of A, B, C, D, E, F, G, or capitals like 'LAB-NUMA'"),
        ('{"LAB": 3}', "'LAB': expected a Scenario of pytest_llmroof.extend, not int"),
        ('{"A": it}', "'A': expected a list of Remedy of pytest_llmroof.extend"),
        ('{"LAB": Scenario("", "w", f)}', "'LAB': title: expected a phrase, not ''"),
        ('{"LAB": Scenario("t", "w", 3)}', "'LAB': condition: expected a function, not int"),
        ('{"C": [Remedy("t", "")]}', "'C': remedy: detail: expected a phrase, not ''"),
        ('{"C": [Remedy("t", "d", applies=True)]}', "'C': remedy 't': effect is a phrase, applies a function or None"),
    ],
)
def test_a_wrong_entry_is_a_usage_error(pytester: pytest.Pytester, entry: str, problem: str) -> None:
    pytester.makeconftest(
        "from pytest_llmroof.extend import Remedy, Scenario\n"
        "f = lambda window, diagnosis: None\n"
        'it = Scenario("t", "w", f)\n'
        f"pytest_llmroof_scenarios = lambda config: {entry}\n"
    )
    result = runs.run(pytester, "--llmroof-gpu=h100")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = said(result)
    assert "pytest_llmroof_scenarios: conftest.py: " in text
    assert problem in text
    assert "Traceback" not in text


def test_the_list_and_what_is_left_behind(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.format(body="return None"))
    pytester.runpytest_inprocess("--llmroof-list=scenarios").stdout.fnmatch_lines(
        ["A *memory-bandwidth-bound decode", "LAB-NUMA  weights on the wrong socket"]
    )
    pytester.makeconftest("")
    pytester.runpytest_inprocess("--llmroof-list=scenarios").stdout.no_fnmatch_line("*LAB*")
