"""Advice: what to do and the command for it stay apart from the data to the reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_llmroof.advice import Advice, AnyAdvice, as_advice, behind, command, plain
from pytest_llmroof.data import load

PROFILE = Advice("add a profile", "nsys profile -t cuda ..., then nsys export")


def test_both_are_said_one_after_the_other() -> None:
    assert str(PROFILE) == "add a profile: nsys profile -t cuda ..., then nsys export"
    assert (plain(PROFILE), command(PROFILE)) == ("add a profile", PROFILE.command)


def test_advice_without_a_command_is_its_text() -> None:
    assert (plain("leave the gate out"), command("leave the gate out")) == ("leave the gate out", None)
    assert as_advice("leave the gate out") == "leave the gate out"
    assert as_advice({"text": PROFILE.text, "command": PROFILE.command}) == PROFILE


@pytest.mark.parametrize("advice", [PROFILE, "add a profile"])
def test_words_before_it_leave_the_command_apart(advice: AnyAdvice) -> None:
    led = behind("idle gaps: ", advice)
    assert (plain(led), command(led)) == ("idle gaps: add a profile", command(advice))


def advised(data: Any) -> Iterator[AnyAdvice]:
    """Every advice of some data."""
    if isinstance(data, dict) and data.keys() == {"text", "command"}:
        yield as_advice(data)
    elif isinstance(data, dict):
        for each in data.values():
            yield from advised(each)
    elif isinstance(data, str):
        yield data


def packaged() -> Iterator[AnyAdvice]:
    """All advice of the packaged data."""
    measuring, vendors = load("measuring.yaml"), load("vendors.yaml")
    for data in (
        measuring["remedies"], measuring["remedies_of_engines"], vendors["measuring"], vendors["instruments"],
        load("scenarios.yaml")["instruments"], load("ncu.yaml")["remedies"],
        [tool["remedies"] for tool in load("benchmarks.yaml")["tools"].values() if "remedies" in tool],
    ):  # fmt: skip
        for each in data if isinstance(data, list) else [data]:
            yield from advised(each)


def test_engines_that_have_words_of_their_own_are_engines() -> None:
    measuring = load("measuring.yaml")
    words = measuring["remedies_of_engines"]
    assert words.keys() <= {*load("engines.yaml"), "other"}
    assert words["other"].keys() <= measuring["remedies"].keys()
    assert all(own.keys() <= words["other"].keys() for own in words.values())


def test_no_packaged_text_holds_a_command() -> None:
    found = list(packaged())
    assert sum(command(advice) is not None for advice in found) >= 30
    for advice in found:
        text = plain(advice)
        assert len(text) >= 10, text
        # Options that a text may name: those of pytest, and a server's that is to be left out.
        assert not re.search(r"\s--?[a-z](?!lmroof-(?:gpu|model)=|isable-radix)|curl |\.\.\.", text), text
        assert not text.endswith((".", ":", ";", " ")), text
