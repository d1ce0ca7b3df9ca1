"""The hook that adds serving engines, and the list of engines."""

from __future__ import annotations

import pytest
import runs

CONFTEST = """
def pytest_llmroof_readers(config):
    return {"lab-engine": {
        "title": "Lab engine",
        "prefixes": ["lab_"],
        "labels": {"model": ["model"]},
        "conventions": ["itl_per_step"],
        "counters": {"prompt_tokens": ["tokens_in"], "generation_tokens": ["tokens_out"],
                     "steps": [{"name": "batch_size", "part": "count"}]},
        "histograms": {"itl": [{"name": "gap_ms", "scale": 0.001}]},
        "cannot": [{"metrics": ["ttft"], "reason": "the lab engine counts no first tokens",
                    "remedy": "ask its operator"}],
    }}
"""
GATES = """
windows:
  lab:
    phase: decode
    telemetry: [before.prom, after.prom]
    gates: [decode.step_time <= 21ms, decode.batch >= 8, output.tokens_per_second >= 90, ttft.p99 <= 1s]
"""


def page(clock: float, steps: int) -> str:
    """Ten sequences a step, 20 ms between outputs."""
    return (
        f"# scraped_at {clock}\n"
        f'lab_tokens_in_total{{model="m"}} 100\nlab_tokens_out_total{{model="m"}} {steps * 10}\n'
        f'lab_batch_size_count{{model="m"}} {steps}\nlab_gap_ms_count{{model="m"}} {steps * 10}\n'
        f'lab_gap_ms_sum{{model="m"}} {steps * 10 * 20}\n'
    )


@pytest.fixture
def scrapes(pytester: pytest.Pytester) -> None:
    (pytester.path / "before.prom").write_text(page(1_795_975_800, 50))
    (pytester.path / "after.prom").write_text(page(1_795_975_810, 150))


@pytest.mark.usefixtures("scrapes")
def test_an_engine_of_a_conftest_is_gated(pytester: pytest.Pytester) -> None:
    """100 steps of ten sequences: 1,000 tokens in 10 s."""
    pytester.makeconftest(CONFTEST)
    (pytester.path / "llmroof.yaml").write_text(GATES)
    result = runs.run(pytester)
    result.assert_outcomes(passed=3, failed=1)
    text = " ".join(result.stdout.str().split())
    assert "the lab engine counts no first tokens" in text
    assert "ask its operator" in text


@pytest.mark.usefixtures("scrapes")
def test_without_the_hook_the_page_is_nobody_s(pytester: pytest.Pytester) -> None:
    (pytester.path / "llmroof.yaml").write_text(GATES)
    result = runs.run(pytester)
    result.assert_outcomes(failed=4)
    text = " ".join(result.stdout.str().split())
    assert "metrics of no serving engine that is known here (it holds lab_tokens_in_total" in text
    assert "SGLang" in text
    assert "llama.cpp" in text


@pytest.mark.usefixtures("scrapes")
def test_command_line_gates_and_tests_see_it_too(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.llmroof(telemetry=["before.prom", "after.prom"], phase="decode")
        @pytest.mark.llmroof_gate("decode.batch >= 9.9")
        def test_batch():
            pass
        """
    )
    options = ("--llmroof-telemetry=before.prom", "--llmroof-telemetry=after.prom", "--llmroof-gate=decode.batch >= 9")
    result = runs.run(pytester, *options)
    result.assert_outcomes(passed=2)


def test_a_wrong_entry_is_named_before_anything_runs(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.replace('"generation_tokens"', '"generated_tokens"'))
    (pytester.path / "llmroof.yaml").write_text(GATES)
    result = runs.run(pytester)
    text = " ".join((result.stdout.str() + result.stderr.str()).split())
    assert result.ret != 0
    assert "pytest_llmroof_readers: engine 'lab-engine': counters: unknown key 'generated_tokens'" in text
    assert "did you mean 'generation_tokens'" in text
    assert "Traceback" not in text


def test_the_list_of_engines(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    result = runs.run(pytester, "--llmroof-list=engines")
    assert result.ret == 0
    lines = {line.split("  ")[0]: line for line in result.stdout.lines}
    assert set(lines) >= {"vllm", "sglang", "llama.cpp", "trtllm", "lmdeploy", "tgi", "dynamo", "lab-engine"}
    assert "metrics lab_*; gives itl, decode steps, batch by steps; cannot tell ttft" in lines["lab-engine"]
    assert "cannot tell ttft, tpot, itl, e2e, queue" in lines["llama.cpp"]


def test_the_list_names_a_wrong_entry(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.replace('"prefixes": ["lab_"],', ""))
    result = runs.run(pytester, "--llmroof-list=engines")
    assert result.ret == 4
    text = result.stdout.str() + result.stderr.str()
    assert "pytest_llmroof_readers: engine 'lab-engine': prefixes" in text
    assert "Traceback" not in text
