"""No text sends a user to an option that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pytest_llmroof

_PACKAGE = Path(pytest_llmroof.__file__).parent


def test_every_option_that_a_text_names_exists(pytester: pytest.Pytester) -> None:
    declared = set(re.findall(r"--llmroof-[a-z-]+", pytester.runpytest("--help").stdout.str()))
    assert "--llmroof-gpu" in declared
    named = {
        option: path.name
        for path in (*_PACKAGE.rglob("*.py"), *_PACKAGE.rglob("*.yaml"), *_PACKAGE.rglob("*.json"))
        for option in re.findall(r"--llmroof-[a-z]+(?:-[a-z]+)*", path.read_text(encoding="utf-8"))
    }
    assert {option: file for option, file in named.items() if option not in declared} == {}
