"""The roofline of a verbose terminal: where a phase lies, how far below which roof, within the width."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import reports

from pytest_llmroof.report.terminal import summary_lines
from pytest_llmroof.report.text_roofline import roofline_lines

LAST = Path(__file__).parents[2] / "examples" / "release" / "last-release.json"


def last_release() -> dict[str, Any]:
    """A decode window at 79 % of an H100's bandwidth, and a prefill window at 54 % of its arithmetic."""
    document = json.loads(LAST.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def test_phases_lie_where_their_figures_say() -> None:
    lines = roofline_lines(last_release()["windows"], 80)
    assert lines[0] == "roofline of one h100-sxm5-80gb: log FLOP/s over log FLOP/B"
    plot = [line[14:] for line in lines if "|" in line]
    (a_row,) = [row for row, line in enumerate(plot) if "a" in line]
    (b_row,) = [row for row, line in enumerate(plot) if "b" in line]
    a, b = plot[a_row].index("a"), plot[b_row].index("b")
    flat = plot[0].index("_")
    assert a < flat < b  # decode left of the ridge, prefill right of it
    assert lines[1].startswith(" 989 TFLOP/s |")
    assert b_row >= 1
    # Under the roof, not over it: on a's row and above there is a roof to the left of it, or none yet.
    assert all("/" not in line[:a] or line.index("/") >= a - 4 for line in plot[:a_row])
    # 2 * 7.505e9 FLOP x 16 over 17.2 GB: 14 FLOP/B; 38 TFLOP/s of the 48.6 that 3.35 TB/s feed; 54 % of 989 TFLOP/s.
    assert lines[-2].startswith("  a decode: 79.2 % of the memory roof, 14.5 FLOP/B, 38.4 TFLOP/s")
    assert lines[-1].startswith("  b prefill: 54.0 % of the compute roof, ")
    assert "ridge 295 FLOP/B" in "\n".join(lines)


@pytest.mark.parametrize("width", [40, 41, 60, 80, 200])
def test_it_fits(width: int) -> None:
    lines = roofline_lines(last_release()["windows"], width)
    assert lines
    assert max(map(len, lines)) <= width


def test_a_terminal_too_narrow_has_none() -> None:
    assert roofline_lines(last_release()["windows"], 30) == []


def test_only_verbose_runs_show_it() -> None:
    for verbosity, shown in ((-1, False), (0, False), (1, True)):
        assert any("roofline of one" in line for line in summary_lines(last_release(), 100, verbosity)) is shown


def test_hostile_names_stay_on_their_line() -> None:
    document = last_release()
    for window in document["windows"]:
        window["name"] = reports.HOSTILE[10]
    lines = roofline_lines(document["windows"], 100)
    assert not any("\n" in line or line.lstrip().startswith("::") for line in lines)
    assert max(map(len, lines)) <= 100
