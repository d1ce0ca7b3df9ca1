"""Each family and each series of every engine's pages, gone; each figure of some, none: no gate passes of it.

A gate is a quarter beyond what the whole window claims, so that a pass would rest on what is not there. All windows and
single lines, too: `python tests/fuzz/losses.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.losses import accepted, changes, gated, losses, passes, windows

#: One of each engine, in the middle of its life; the others are for the long run.
ENGINES = ("vllm", "sglang", "sglang with drafts", "llama.cpp with slots", "tgi", "trtllm", "lmdeploy", "dynamo")


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_passes_of_a_loss(tmp_path: Path, engine: str) -> None:
    pages = windows()[engine]
    spec = gated(pages, tmp_path)
    assert len(spec.gates) > 50
    assert passes(spec, pages, tmp_path) == []
    found = {loss.what: passes(spec, loss.pages, tmp_path) for loss in losses(pages, families=True)}
    assert {what: told for what, told in found.items() if told and not accepted(what)} == {}
    assert len(found) > 20


@pytest.mark.parametrize("engine", ["llama.cpp with slots", "tgi"])
@pytest.mark.parametrize("figure", ["NaN", "-1", "+Inf"])
def test_nothing_passes_of_a_figure_that_is_none(tmp_path: Path, engine: str, figure: str) -> None:
    pages = windows()[engine]
    spec = gated(pages, tmp_path)
    found = {change.what: passes(spec, change.pages, tmp_path) for change in changes(pages, (figure,))}
    assert {what: told for what, told in found.items() if told} == {}
