"""Paths as users write them: what no file can be called is their error, wherever it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.sources import path_from, there
from pytest_llmroof.resolve import resolve

NONE = ("~nobody-is-called-so/x", "a\0b", "\ud800", "x" * 256, "x/" * 3000)


@pytest.mark.parametrize("written", NONE)
@pytest.mark.parametrize("suffix", ["", ".json", ".gguf", ".yaml"])
def test_no_file_can_be_called_so(written: str, suffix: str, tmp_path: Path) -> None:
    for keys in ({"gpu": written + suffix}, {"model": written + suffix}, {"telemetry": written + suffix},
                 {"telemetry": {"url": "http://h/", "token_file": written + suffix}},
                 {"telemetry": {"url": "http://h/", "cert": [written + suffix, "k"]}}):  # fmt: skip
        with pytest.raises(ConfigError) as refused:
            resolve(window_spec(keys, id="w", name="w", base=tmp_path))
        assert "no file can be called so" in str(refused.value) or "unknown" in str(refused.value) or (
            "control characters" in str(refused.value)
        )


@pytest.mark.parametrize("option", ["report", "baseline", "record"])
def test_an_option_that_names_one_is_a_usage_error(option: str, pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(f"--llmroof-{option}={'x' * 256}.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--llmroof-{option}: *no file can be called so*"])


def test_any_other_is_one(tmp_path: Path) -> None:
    assert path_from(tmp_path, "a/../b é") == tmp_path / "a/../b é"
    assert not there(tmp_path / "a")
    assert there(tmp_path)
    assert there(tmp_path / ("x" * 300))  # nobody can tell: who reads it says why not
