"""Two groups of windows compared: the 95 % interval of their ratio, by Welch's test on logarithms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from pytest_llmroof.analysis.binomial import CONFIDENCE, incomplete_beta
from pytest_llmroof.bounded import Bounded

_BISECTIONS: Final = 200


def log_spread(values: Sequence[float]) -> float | None:
    """The standard deviation of the values' logarithms; None of fewer than two, or where one is not above 0."""
    if len(values) < 2 or min(values) <= 0:
        return None
    return statistics.stdev(map(math.log, values))


def ratio_interval(ratio: float, here: Sequence[float], there: Sequence[float]) -> Bounded | None:
    """The ratio of two groups' values with its 95 % interval; None where no noise is known.

    Welch 1947 on logarithms. A side of one window is taken to be as noisy as the other side: what is left is the
    interval in which one further window of that side is expected.
    """
    spreads = [log_spread(here), log_spread(there)]
    if ratio <= 0 or min((*here, *there), default=0.0) <= 0:
        return None
    if spreads[0] is None and spreads[1] is None:
        return None
    parts = []
    for spread, other, size in ((spreads[0], spreads[1], len(here)), (spreads[1], spreads[0], len(there))):
        used = spread if spread is not None else other
        assert used is not None
        parts.append(used * used / size)
    variance = sum(parts)
    if variance == 0:
        return Bounded.exactly(ratio)
    if spreads[0] is None or spreads[1] is None:
        freedom = float(max(len(here), len(there)) - 1)  # one estimate of the noise serves both sides
    else:
        freedom = variance**2 / (parts[0] ** 2 / (len(here) - 1) + parts[1] ** 2 / (len(there) - 1))
    reach = math.exp(min(student_quantile(freedom) * math.sqrt(variance), 700.0))
    return Bounded(ratio, ratio / reach, ratio * reach)


@lru_cache(maxsize=1024)
def student_quantile(freedom: float) -> float:
    """The t that |T| of so many degrees of freedom (at least 1) exceeds with 5 % probability: 4.303 for two."""
    freedom = max(1.0, freedom)
    tail = 1 - CONFIDENCE
    low, high = 0.0, 1.0e3
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        # P(|T| > t) = I_x(v / 2, 1 / 2) at x = v / (v + t^2) (DLMF 8.17).
        if incomplete_beta(freedom / 2, 0.5, freedom / (freedom + middle * middle)) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2
