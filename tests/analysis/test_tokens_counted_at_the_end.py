"""Engines that count tokens when a request ends: a window in which none did was not idle."""

from __future__ import annotations

from pathlib import Path

from benchmark_files import measured, missing
from engine_pages import llamacpp


def test_steps_without_an_ended_request_are_no_idleness(tmp_path: Path) -> None:
    """A real llama-server made 96 steps for 8 requests in 8 s, and counted no token: 542 -> 638, 4,112 -> 4,112."""
    before = llamacpp(1.0, 1_764_417_600.0)
    steps = next(line for line in before.splitlines() if line.startswith("llamacpp:n_decode_total "))
    after = before.replace(steps, f"llamacpp:n_decode_total {float(steps.split()[1]) + 96}")
    pages = [tmp_path / "before.prom", tmp_path / "after.prom"]
    pages[0].write_text(before, encoding="utf-8")
    pages[1].write_text(after.replace("1764417600", "1764417608"), encoding="utf-8")
    reason = missing(measured(*pages), "output.tokens_per_second").reason
    assert reason == "no request ended in this window, and the engine counts tokens only then (96 steps)"
