"""Advice of the packaged data, as a release checklist says it: what to do, and no command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_llmroof.data import load
from pytest_llmroof.report.commands import without_commands


@pytest.mark.parametrize(
    ("advice", "plain"),
    [
        ("add a profile: nsys profile -t cuda ..., then nsys export", "add a profile"),
        ("idle gaps: add a profile: torch -o '{\"a\": 1}'", "idle gaps: add a profile"),
        ("nothing tells: a profile would; add one: start vllm serve ... -x; sleep 5; curl -X POST http://h/s",
         "nothing tells: a profile would; add one"),
        ("measure it alone (long prompts, one token): llmroof_probe.prefill(...), or vllm bench serve --n 1 ...",
         "measure it alone (long prompts, one token)"),
        ("start the server with drafts (vllm serve ... --speculative-config) or leave the gate out",
         "start the server with drafts or leave the gate out"),
        ("give the pages a clock ((date '+# at %s'; curl -sf http://h/m) > before.prom) or write `duration:`",
         "give the pages a clock or write `duration:`"),
        ("record an exporter (with ProfilerMetrics: gpu_prof_a, gpu_prof_b): python -m x --out=r",
         "record an exporter (with ProfilerMetrics: gpu_prof_a, gpu_prof_b)"),
        # Nothing of these is a command.
        ("have it scrape more often: 10 samples and more", "have it scrape more often: 10 samples and more"),
        ("http://host:8000/metrics answered 401: give `headers:`; it asks for a login",
         "http://host:8000/metrics answered 401: give `headers:`; it asks for a login"),
        ("goodput(ttft<=1s): half of each (of 3) is not told", "goodput(ttft<=1s): half of each (of 3) is not told"),
        ("an unclosed ( bracket: here", "an unclosed ( bracket: here"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_to_do_is_kept_and_the_command_is_not(advice: str, plain: str) -> None:
    assert without_commands(advice) == plain


def texts(data: Any) -> Iterator[str]:
    """Every text of some data."""
    if isinstance(data, dict):
        for each in data.values():
            yield from texts(each)
    elif isinstance(data, str):
        yield data


def test_no_packaged_advice_keeps_a_command() -> None:
    advice = [
        *texts(load("measuring.yaml")["remedies"]), *texts(load("vendors.yaml")["measuring"]),
        *(f"what it shows: {text}" for text in texts(load("scenarios.yaml")["instruments"])),
        *(f"what it shows: {text}" for text in texts(load("vendors.yaml")["instruments"])),
    ]  # fmt: skip
    assert sum(bool(re.search(r"\s--?[a-z]", text)) for text in advice) >= 20
    for text in advice:
        plain = without_commands(text)
        assert len(plain) >= 10, text
        assert not re.search(r"\s--?[a-z](?!lmroof-(?:gpu|model)=)|curl |\.\.\.\)", plain), plain
        assert plain.count("(") == plain.count(")"), plain


def test_long_advice_takes_no_time() -> None:
    assert without_commands("(" * 5000 + "a: b " * 5000).endswith("a: b ")
