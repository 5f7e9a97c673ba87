"""What a handful of measurements can tell: exact intervals that assume no shape of the noise. Pure.

Both hold at the level that they state, or above it, however few the measurements are; where they are too few for any
interval at the level asked for, there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
"""Of the chance of an event."""
LEAST_LEVEL = 0.9
"""Of a median: five values give 0.9375, four no more than 0.875."""
_MOST_AS_POWERS = 500
"""Beyond, the number of ways soon fits no float."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """Ends, both inside, and how often at least such an interval holds what it is of."""

    low: float
    high: float
    level: float


def chance(times: int, of: int, level: float = LEVEL) -> Interval:
    """Clopper and Pearson's interval of the chance of an event that happened so many times. Raises ValueError for
    counts that can't be."""
    if not 0 <= times <= of or of == 0:
        raise ValueError(f"{times} of {of}")
    tail = (1 - level) / 2

    def at_least(p: float) -> float:
        return 1 - _binomial_cdf(times - 1, of, p)

    def at_most(p: float) -> float:
        return _binomial_cdf(times, of, p)

    return Interval(
        low=0.0 if times == 0 else _where(lambda p: at_least(p) >= tail),
        high=1.0 if times == of else _where(lambda p: at_most(p) < tail),
        level=level,
    )


def of_median(values: Sequence[float], least_level: float = LEAST_LEVEL) -> Interval | None:
    """The narrowest interval of the median, from one of the values to another, whose level is at least `least_level`;
    None where the values are too few.

    It is that of the sign test: each value lies below the median of what it was drawn from as likely as above, so the
    median lies between the k-th lowest and the k-th highest of n unless fewer than k lie on one side of it, which
    has twice the probability that a fair coin falls heads fewer than k times in n.
    """
    ordered, n = sorted(values), len(values)
    best = None
    for k in range(1, n // 2 + 1):
        level = 1 - 2 * _binomial_cdf(k - 1, n, 0.5)
        if level < least_level:
            break
        best = Interval(low=ordered[k - 1], high=ordered[n - k], level=level)
    return best


def _binomial_cdf(times: int, of: int, p: float) -> float:
    if p >= 1:
        return float(times >= of)
    if of <= _MOST_AS_POWERS:
        return math.fsum(math.comb(of, k) * p**k * (1 - p) ** (of - k) for k in range(times + 1))
    k = np.arange(times + 1)
    return float(np.exp(_log_ways(of)[: times + 1] + k * math.log(p) + (of - k) * math.log1p(-p)).sum())


@lru_cache(maxsize=8)
def _log_ways(of: int) -> NDArray[np.float64]:
    """Logarithms of in how many ways k can be chosen of so many, for each k."""
    factorials: NDArray[np.float64] = np.array([math.lgamma(k + 1) for k in range(of + 1)])
    ways: NDArray[np.float64] = factorials[of] - factorials - factorials[::-1]
    return ways


def _where(holds: Callable[[float], bool]) -> float:
    """Where a statement about a chance, false for the lowest, begins to hold."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return (low + high) / 2
