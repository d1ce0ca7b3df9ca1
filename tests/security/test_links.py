"""Links in folders that are named: followed inside, never out, by the readers of telemetry and of profiles alike."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from planted import short_gaps
from timelines import write_kineto
from vllm_pages import write_pages

from pytest_llmroof.assess import assess
from pytest_llmroof.gates.build import window_spec


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of a server, and a trace outside of it."""
    folder = tmp_path / "recording"
    write_pages(folder)
    write_kineto(short_gaps(), tmp_path / "outside.pt.trace.json")
    return folder


def verdict(base: Path, gate: str) -> tuple[str, tuple[str, ...]]:
    """The word on a gate over the recording, and what was not read of it."""
    spec = window_spec({"telemetry": "recording", "gates": [gate]}, id="w", name="w", base=base)
    found = assess(spec)
    assert found.facts is not None
    return found.verdicts[0].word, found.facts.window.unread


@pytest.mark.parametrize("target", ["../outside.pt.trace.json", "{base}/outside.pt.trace.json"])
def test_a_profile_outside_is_not_read(recording: Path, tmp_path: Path, target: str) -> None:
    (recording / "rank0.pt.trace.json").symlink_to(target.format(base=tmp_path))
    word, unread = verdict(tmp_path, "timeline.busy >= 1%")
    assert word == "no data"
    assert unread == ("recording/rank0.pt.trace.json: a link that leads out of the recording",)


def test_a_profile_inside_is_read(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.pt.trace.json").rename(recording / "it.pt.trace.json")
    assert verdict(tmp_path, "timeline.busy >= 1%") == ("pass", ())


def test_what_is_no_file_is_not_waited_for(recording: Path, tmp_path: Path) -> None:
    os.mkfifo(recording / "pipe.json")
    (recording / "device.json").symlink_to("/dev/zero")
    (recording / "circle").symlink_to("circle")
    word, unread = verdict(tmp_path, "output.tokens_per_second >= 1")
    assert word == "pass"
    assert "recording/pipe.json: not a regular file" in unread
    assert sum("a link that leads out" in line for line in unread) == 1
