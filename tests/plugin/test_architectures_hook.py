"""The hook that adds architectures: a config.json of a model type that the package does not know."""

from __future__ import annotations

import json

import pytest
import runs
from vllm_pages import write_pages

CONFIG = {
    "model_type": "lab_llm", "width": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "torch_dtype": "bfloat16",
}  # fmt: skip
#: Embedding and head 1000 x 64 each, two layers of 4 x 64 x 64 (attention) + 3 x 64 x 128 (MLP) + 2 x 64 (norms), and
#: the last norm: 128,000 + 2 x (16,384 + 24,576 + 128) + 64 = 210,240.
PARAMETERS = 210_240
NAMES = '{"like": "llama", "defaults": {"vocab_size": 1000}, "names": {"hidden_size": ["width"]}}'
FUNCTION = '{"like": "llama", "keys": lambda file: {**file, "hidden_size": file["width"], "vocab_size": 1000}}'
GATES = """
model: lab/config.json
gpu: h100
windows:
  lab:
    phase: decode
    telemetry: [before.prom, after.prom]
    gates: [decode.intensity >= 0, decode.step_time <= 10s]
"""


@pytest.fixture(autouse=True)
def _files(pytester: pytest.Pytester) -> None:
    pages = ", ".join(path.name for path in write_pages(pytester.path, model="lab"))
    (pytester.path / "lab").mkdir()
    (pytester.path / "lab" / "config.json").write_text(json.dumps(CONFIG))
    (pytester.path / "llmroof.yaml").write_text(GATES.replace("before.prom, after.prom", pages))


def conftest(pytester: pytest.Pytester, entry: str) -> None:
    pytester.makeconftest(f'pytest_llmroof_architectures = lambda config: {{"lab_llm": {entry}}}\n')


def said(result: pytest.RunResult) -> str:
    return " ".join((result.stdout.str() + result.stderr.str()).split())


def test_without_the_hook_it_is_no_data(pytester: pytest.Pytester) -> None:
    result = runs.run(pytester)
    result.assert_outcomes(passed=1, failed=1)
    assert "model_type 'lab_llm' is not understood" in said(result)


@pytest.mark.parametrize("entry", [NAMES, FUNCTION], ids=["names", "function"])
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_model_of_a_plugin_is_computed_with(pytester: pytest.Pytester, entry: str, workers: tuple[str, ...]) -> None:
    conftest(pytester, entry)
    result = runs.run(pytester, "--llmroof-report=report.json", *workers)
    result.assert_outcomes(passed=2)
    window = json.loads((pytester.path / "report.json").read_text())["windows"][0]
    assert window["model"]["parameters"] == PARAMETERS


def test_a_session_leaves_nothing_behind(pytester: pytest.Pytester) -> None:
    conftest(pytester, NAMES)
    runs.run(pytester).assert_outcomes(passed=2)
    pytester.makeconftest("")
    runs.run(pytester).assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("lambda file: file['widths']", "`keys` of conftest.py raised KeyError: 'widths'"),
        ("lambda file: __import__('pytest').skip('no')", "`keys` of conftest.py raised Skipped: no"),
        ("lambda file: 3", "`keys` of conftest.py gave int, not a mapping of keys"),
    ],
)
def test_a_function_that_fails_is_no_data(pytester: pytest.Pytester, function: str, problem: str) -> None:
    conftest(pytester, f'{{"like": "llama", "keys": {function}}}')
    result = runs.run(pytester)
    result.assert_outcomes(passed=1, failed=1)
    text = said(result)
    assert "NO DATA" in text
    assert problem in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("3", "expected a mapping with like, defaults, names, keys, not int"),
        ('{"as": "llama"}', "unknown key 'as'"),
        ('{"like": "lama"}', "like: expected the model_type of a known family, not 'lama' (did you mean 'llama'"),
        ('{"like": "llama", "defaults": 3}', "defaults: expected a mapping"),
        ('{"like": "llama", "names": {"hidden_size": "width"}}', "names: expected a mapping of the family's keys"),
        ('{"like": "llama", "keys": {}}', "keys: expected a function of a config's keys, not dict"),
    ],
)
def test_a_wrong_entry_is_a_usage_error(pytester: pytest.Pytester, entry: str, problem: str) -> None:
    conftest(pytester, entry)
    result = runs.run(pytester, "--llmroof-gpu=h100")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = said(result)
    assert "pytest_llmroof_architectures: conftest.py: 'lab_llm': " in text
    assert problem in text
    assert "Traceback" not in text


def test_the_catalogue_stays_what_it_is(pytester: pytest.Pytester) -> None:
    plain = runs.run(pytester, "--llmroof-list=models").stdout.str()
    pytester.makeconftest('pytest_llmroof_architectures = lambda config: {"llama": {"like": "qwen3"}}\n')
    file = pytester.path / "llmroof.yaml"
    file.write_text(file.read_text().replace("lab/config.json", "llama-3.1-8b"))
    assert runs.run(pytester, "--llmroof-list=models").stdout.str() == plain
    runs.run(pytester, "--llmroof-report=report.json")
    window = json.loads((pytester.path / "report.json").read_text())["windows"][0]
    assert window["model"]["parameters"] == 8_030_261_248
