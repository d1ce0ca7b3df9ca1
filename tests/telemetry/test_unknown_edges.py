"""Pages without the gauge of running requests: what was in flight at the window's ends is unknown, and not none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from engine_pages import llamacpp, sglang, write
from vllm_pages import write_pages

from pytest_llmroof.assess import assess
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.verdict import Verdict

BOTH = ("before.prom", "after.prom")


def verdicts(folder: Path, gates: list[str]) -> Sequence[Verdict]:
    keys = {"telemetry": list(BOTH), "gates": gates, "gpu": "h100", "model": "llama-3.1-8b"}
    return assess(window_spec(keys, id="w", name="w", base=folder)).verdicts


def cut(folder: Path, pages: Sequence[str], *names: str) -> None:
    for page in pages:
        lines = (folder / page).read_text().splitlines(keepends=True)
        (folder / page).write_text("".join(line for line in lines if not line.startswith(names)))


@pytest.mark.parametrize("pages", [BOTH, BOTH[:1], BOTH[1:]])
def test_prompts_in_flight_are_unknown(tmp_path: Path, pages: Sequence[str]) -> None:
    # 64 prompts of 1000 tokens in the 50 s that SGLang did not idle: 1280 tokens a second, and none was in flight.
    write(tmp_path, sglang)
    gates = ["prefill.tokens_per_second >= 1200", "prefill.tokens_per_second >= 1400"]
    assert [(one.word, one.approximate) for one in verdicts(tmp_path, gates)] == [("pass", False), ("fail", False)]
    cut(tmp_path, pages, "sglang:num_running_reqs")
    found = verdicts(tmp_path, gates)
    # Up to all of them may have been computed before; a lower end alone makes the failure approximate only
    # where more than were counted may have been computed after the last first token.
    assert found[0].word == "pass"
    assert (found[0].approximate, found[1].approximate) == ("before.prom" in pages, "after.prom" in pages)
    assert all("running requests" in str(one.settle) for one in found if one.approximate and "after.prom" in pages)


def test_outputs_that_count_at_their_end_are_unknown(tmp_path: Path) -> None:
    # 5000 tokens in 60 s. Nothing ran at either end: 83.3 a second, exactly.
    write(tmp_path, partial(llamacpp, prompt=5000))
    gates = ["output.tokens_per_second >= 80", "output.tokens_per_second >= 90"]
    assert [(one.word, one.approximate) for one in verdicts(tmp_path, gates)] == [("pass", False), ("fail", False)]
    cut(tmp_path, BOTH, "llamacpp:requests_processing")
    assert [(one.word, one.approximate) for one in verdicts(tmp_path, gates)] == [("pass", True), ("fail", True)]


def test_an_engine_whose_gauge_is_gone_from_the_first_page_did_not_begin_as_it_ended(tmp_path: Path) -> None:
    # 12 requests run at both ends: it was busy for all of the window. Where the first page does not say so, two scrapes
    # say nothing of idle time.
    write_pages(tmp_path, running=12.0)
    gates = ["prefill.tokens_per_second >= 1e-3"]
    assert "busy time (the window: requests were in the engine" in method(verdicts(tmp_path, gates))
    cut(tmp_path, BOTH[:1], "vllm:num_requests_running", "vllm:num_requests_waiting")
    assert "two scrapes say nothing of idle time" in method(verdicts(tmp_path, gates))


def method(found: Sequence[Verdict]) -> str:
    return str(getattr(found[0].outcome, "method", ""))
