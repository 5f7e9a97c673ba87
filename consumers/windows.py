"""Counts that grow with nothing but their own size: a histogram with fixed bounds, and what the newest seconds held."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from typing import Final

import msgspec

BOUNDS_US: Final = tuple(
    round(seconds * 1e6)
    for seconds in (
        *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
        *(1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600),
    )
)
"""Upper ends of the buckets, themselves inside: from a millisecond to six hours. One bucket more holds the rest."""

WINDOW_S: Final = 10
_STEP_US: Final = 500_000
_STEPS: Final = WINDOW_S * 1_000_000 // _STEP_US
_WINDOW_US: Final = WINDOW_S * 1_000_000


class Counted(msgspec.Struct, frozen=True):
    """What a histogram held at a moment: how many values in each bucket (not cumulative), and their sum."""

    counts: tuple[int, ...]
    sum_us: int

    @property
    def n(self) -> int:
        """How many values there are."""
        return sum(self.counts)


class Buckets:
    """A histogram of whole microseconds. A value below zero, where a wall clock was set back, counts as zero."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_US) + 1)
        self._sum_us = 0

    def record(self, value_us: int) -> None:
        """Count one value."""
        inside_us = max(value_us, 0)
        self._counts[bisect_left(BOUNDS_US, inside_us)] += 1
        self._sum_us += inside_us

    def counted(self) -> Counted:
        """What it holds now."""
        return Counted(tuple(self._counts), self._sum_us)


class RateWindow:
    """How many there were per second of the newest 10, in steps of half a second. Stamps of other machines may be
    wrong: what lies in the future is not counted before its time, and forgotten if that is far."""

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self._first: int | None = None

    def add(self, at_us: int, count: int = 1) -> None:
        """Count so many at a wall time."""
        self._steps[at_us // _STEP_US] += count

    def per_s(self, now_us: int) -> float | None:
        """By the whole steps that ended before now; None before the first of them has. Time doesn't go back."""
        end = now_us // _STEP_US
        if self._first is None:
            self._first = min(self._steps, default=None)
        for step in [one for one in self._steps if not end - _STEPS <= one <= end + _STEPS]:
            del self._steps[step]
        if self._first is None or (begin := max(end - _STEPS, self._first)) >= end:
            return None
        return sum(self._steps[step] for step in range(begin, end)) / ((end - begin) * _STEP_US / 1e6)


class RecentTimes:
    """The values of the newest 10 seconds, whole."""

    def __init__(self) -> None:
        self._values: list[tuple[int, int]] = []

    def add(self, at_us: int, value_us: int) -> None:
        """Keep a value that came at a wall time."""
        self._values.append((at_us, value_us))

    def values(self, now_us: int) -> list[int]:
        """Those of the 10 seconds before now, sorted. Time doesn't go back."""
        begin_us, end_us = now_us - _WINDOW_US, now_us + _WINDOW_US
        self._values = [pair for pair in self._values if begin_us <= pair[0] <= end_us]
        return sorted(value_us for at_us, value_us in self._values if at_us <= now_us)


def percentile(ordered: list[int], percent: float) -> int | None:
    """The smallest value that so many per cent of them don't exceed; None of none."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
