"""YAML on a command line or in an ini value: what a gate file may hold, and nothing that multiplies or runs."""

from __future__ import annotations

import pytest

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.inline import LONGEST, inline_value
from pytest_llmroof.options import scalar

BOMB = "{a: &a [x, x], b: &b [*a, *a], c: [*b, *b]}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BOMB, "an alias"),
        ("[" * 3000, "nested more than 24 levels deep"),
        ("{a: " * 3000, "nested more than 24 levels deep"),
        ("!!python/object/apply:os.system [true]", "a tag"),
        ("!!timestamp soon", "a tag"),
        ("!!bool maybe", "a tag"),
        ("0x_", "a number that is none"),
        ("9" * 5000, "a number that is none"),
        ("x" * (LONGEST + 1), f"longer than {LONGEST} characters"),
        ("{url: [}", "expected"),
        ("a\0b", ""),
    ],
)
def test_what_is_no_plain_value_is_an_error_that_does_not_repeat_it(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        inline_value(text)
    assert problem in refused.value.problem
    assert text not in refused.value.problem


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4), ("fp8", "fp8"), ("{url: 'http://h', timeout: 10s}", {"url": "http://h", "timeout": "10s"}),
        ("2026-11-29", "2026-11-29"), ("2001-13-40", "2001-13-40"), ("", None),
    ],
)  # fmt: skip
def test_plain_values_and_times_as_they_are_written(text: str, value: object) -> None:
    assert inline_value(text) == value


@pytest.mark.parametrize("text", ["2001-13-40", "0x_", "[" * 3000, "!!bool maybe"])
def test_a_key_whose_value_cannot_be_read_has_it_as_text(text: str) -> None:
    """What the key takes is then said of it, as of any other text."""
    assert scalar(f"tensor_parallel={text}") == ("tensor_parallel", text)
