"""Exact binomial bounds on the rank of a percentile, without a statistics package.

Of n independent observations, the number X that lie at or below the true q-quantile is binomial(n, q), whatever the
distribution (the argument of Clopper and Pearson 1934, turned from a share to an order statistic). So the observations
at ranks l and u enclose the quantile where P(X < l) and P(X >= u) are at most half of what is left of the confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

CONFIDENCE: Final = 0.95
#: Beyond this many observations the interval is narrower than any bucket: the cost of exactness is capped here.
_LARGEST: Final = 1_000_000
_TINY: Final = 1e-300


@lru_cache(maxsize=4096)
def ranks(observations: int, quantile: float) -> tuple[int, int]:
    """Ranks ``(l, u)``, counted from 1, whose order statistics enclose the quantile with 95 % confidence.

    ``l`` is 0 where no observation bounds it from below, ``u`` is ``observations + 1`` where none does from above.
    """
    n = observations
    tail = (1 - CONFIDENCE) / 2
    # The largest l with P(X <= l - 1) <= tail, and the least u with P(X <= u - 1) >= 1 - tail.
    low = _first(n, lambda k: binomial_cdf(k, n, quantile) > tail)
    high = _first(n, lambda k: binomial_cdf(k, n, quantile) >= 1 - tail) + 1
    # P(X <= n) is 1, but the n-th observation bounds the quantile only if P(X <= n - 1) is large enough.
    return low, high


def rank_shares(observations: float, quantile: float) -> tuple[float, float]:
    """The ranks as shares of the observations: ``0.0`` and ``math.inf`` where there is no bound."""
    n = max(1, min(_LARGEST, math.floor(observations)))
    low, high = ranks(n, quantile)
    return low / n, (math.inf if high > n else high / n)


def needed(quantile: float) -> int:
    """The least number of observations whose largest bounds the quantile from above: p99 needs 368."""
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(quantile))


def binomial_cdf(successes: int, trials: int, probability: float) -> float:
    """P(X <= successes) of a binomial, through the incomplete beta function: I_{1-p}(n - k, k + 1)."""
    if successes < 0:
        return 0.0
    if successes >= trials:
        return 1.0
    return incomplete_beta(trials - successes, successes + 1, 1 - probability)


def _first(n: int, holds: Callable[[int], bool]) -> int:
    """The least k in 0..n for which a monotonic test holds, n where it holds nowhere below."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast below the mean only
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * _beta_fraction(a, b, x) / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, evaluated forwards (modified Lentz)."""
    c, d = 1.0, 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _nonzero(1.0 + term * d)
            c = _nonzero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
