"""Latency histograms, by the HdrHistogram library: from a microsecond to a week, three significant digits (an error of
0.1 % at most), a fixed size however many values there are, and mergeable: over lanes, processes and machines.

Needs the extra `egostream[load]`: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Final, Self

import msgspec
from hdrh.histogram import HdrHistogram

HIGHEST_US = 7 * 24 * 3600 * 1_000_000
_DIGITS = 3
_TICKS = 5
"""Lines of the percentile text for each halving of the distance to 100 %, as HdrHistogram's tools have it."""
_ENOUGH: Final = {"p50_us": 2, "p90_us": 10, "p99_us": 100, "p999_us": 1000}
"""Values of which a percentile is more than the greatest."""


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """One histogram in numbers. `clipped`: how many of the `n` values lay outside of its range (below zero, where a
    wall clock was set back) and count as its nearest end. `histogram`: all of it, in HdrHistogram's compressed form."""

    n: int
    clipped: int
    mean_us: float
    p50_us: int
    p90_us: int
    p99_us: int
    p999_us: int
    max_us: int
    histogram: str


def fewest_of(field: str, of: Iterable[Percentiles | None]) -> int | None:
    """How many values the one with the fewest has, where those are too few for this percentile (`p99_us`) to be more
    than the greatest of them; None where all that hold any have enough."""
    fewest = min((numbers.n for numbers in of if numbers is not None), default=None)
    return fewest if fewest is not None and fewest < _ENOUGH.get(field, 0) else None


class Histogram:
    """Whole microseconds."""

    def __init__(self, values_us: Iterable[int] = ()) -> None:
        self._hdr = HdrHistogram(1, HIGHEST_US, _DIGITS)
        self.clipped = 0
        # the library knows them by a thousandth, after merging
        self._sum_us, self._max_us = 0.0, 0
        for value_us in values_us:
            self.record(value_us)

    def record(self, value_us: int) -> None:
        """Count one value."""
        inside_us = min(max(value_us, 0), HIGHEST_US)
        self.clipped += inside_us != value_us
        if not self._hdr.record_value(inside_us):
            raise AssertionError(f"HdrHistogram refused {inside_us} µs, which lies in its range")
        self._sum_us += inside_us
        self._max_us = max(self._max_us, inside_us)

    def add(self, other: Histogram) -> None:
        """Count all that another one has counted."""
        if other.n:
            self._hdr.add(other._hdr)
            self.clipped += other.clipped
            self._sum_us += other._sum_us
            self._max_us = max(self._max_us, other._max_us)

    @property
    def n(self) -> int:
        """How many values there are."""
        return int(self._hdr.get_total_count())

    def percentiles(self) -> Percentiles | None:
        """Its numbers; None when it is empty. Mean and maximum are exact."""
        hdr = self._hdr
        if not self.n:
            return None
        p50, p90, p99, p999 = (int(hdr.get_value_at_percentile(p)) for p in (50, 90, 99, 99.9))
        highest = self._max_us
        return Percentiles(
            n=self.n,
            clipped=self.clipped,
            mean_us=self._sum_us / self.n,
            # the library gives the upper end of a step, which may lie above the highest value
            p50_us=min(p50, highest),
            p90_us=min(p90, highest),
            p99_us=min(p99, highest),
            p999_us=min(p999, highest),
            max_us=highest,
            histogram=hdr.encode().decode(),
        )

    def middle_and_tail(self) -> tuple[int, int] | None:
        """p50 and p99 alone, at a tenth of what all numbers take; None when it is empty."""
        if not self.n:
            return None
        found = self._hdr.get_percentile_to_value_dict((50, 99))
        return min(int(found[50]), self._max_us), min(int(found[99]), self._max_us)

    @classmethod
    def of(cls, numbers: Percentiles) -> Self:
        """The histogram behind the numbers: of another process, to be merged."""
        found = cls()
        found._hdr.decode_and_add(numbers.histogram)
        found.clipped = numbers.clipped
        found._sum_us, found._max_us = numbers.mean_us * numbers.n, numbers.max_us
        return found

    def at(self, percent: float) -> int:
        """The microseconds that this many of a hundred values don't exceed; 0 without a value."""
        return min(int(self._hdr.get_value_at_percentile(percent)), self._max_us)

    def curve(self) -> list[tuple[float, int]]:
        """Share of the values, from 0 to 1, and the microseconds that so many don't exceed, at each of the steps of
        the percentile text; empty without a value."""
        if not self.n:
            return []
        found = self._hdr.get_percentile_iterator(_TICKS)
        return [
            (item.percentile_level_iterated_to / 100, min(int(item.value_iterated_to), self._max_us))
            for item in found
        ]

    def hgrm(self) -> bytes:
        """HdrHistogram's percentile text, in microseconds, as its plotters read it; empty without a value."""
        text = io.BytesIO()
        if self.n:
            self._hdr.output_percentile_distribution(text, 1, _TICKS)
        return text.getvalue()
