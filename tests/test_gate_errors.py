"""A slice of benchmarks/gates_measured.py: plain verdicts on loads whose truth is known."""

from __future__ import annotations

from itertools import chain

import pytest
from drawn import Spread
from gate_errors import MOST_WRONG, OF_THE_WINDOW, Setting, measured, rates


def test_a_lognormal_s_percentiles_by_hand() -> None:
    # Mean 1, variation 1: sigma^2 = ln 2, median 1 / sqrt(2), p97.5 = exp(-ln 2 / 2 + 1.96 x 0.8326) = 3.616.
    spread = Spread(1.0, 1.0)
    assert spread.percentile(0.5) == pytest.approx(2**-0.5)
    assert spread.percentile(0.975) == pytest.approx(3.616, rel=1e-3)


def test_plain_verdicts_are_seldom_wrong_and_those_near_the_truth_are_left_open() -> None:
    settings = [Setting("requests", 100, 0.10), Setting("histogram", 20, 0.03), Setting("fine histogram", 100, 0.50)]
    found = list(chain.from_iterable(measured(setting, 15, seed=7) for setting in settings))
    single = [one for one in found if one.windows == 1]
    percentiles = rates([one for one in single if one.metric not in OF_THE_WINDOW], "load")
    assert percentiles["false alarm"] + percentiles["miss"] <= MOST_WRONG
    # At the truth itself nothing can be told.
    at_the_truth = rates([one for one in single if one.metric not in OF_THE_WINDOW and one.off == 0], "load")
    assert at_the_truth["approximate"] > 0.85
    far = rates([one for one in single if one.setting.source == "requests" and abs(one.off) == 0.20], "load")
    assert far["right"] > 0.8
    means = rates([one for one in single if one.metric in OF_THE_WINDOW], "window")
    assert means["false alarm"] + means["miss"] == 0
    repeated = rates([one for one in found if one.windows > 1 and one.metric in OF_THE_WINDOW], "load")
    assert repeated["false alarm"] + repeated["miss"] <= MOST_WRONG
