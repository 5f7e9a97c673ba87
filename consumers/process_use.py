"""What the processes of a load used: a pure fold over the samples that they wrote."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from simulator.log.protocol import Headers
from simulator.topics import wall_of


class ProcessUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one process used, by its samples: processor seconds per second, resident memory, and how late its event
    loop came to a timer (the longest of each sample; `loop_lag_p50_us` is the median of those). Children are the
    processes that it started, such as a text encoder's."""

    process: str
    samples: int
    cpu: float
    children_cpu: float
    rss_max_bytes: int
    children_rss_max_bytes: int
    loop_lag_p50_us: int
    loop_lag_max_us: int


class Sample(msgspec.Struct, frozen=True):
    """What a process said at one moment."""

    at_us: int
    cpu_us: int
    children_cpu_us: int
    rss_bytes: int
    children_rss_bytes: int
    loop_lag_us: int

    @classmethod
    def of(cls, headers: Headers) -> Sample | None:
        """By a record's headers; None where they don't say all of it."""
        found = [wall_of(headers, name) for name in ("wall_us", *cls.__struct_fields__[1:])]
        return None if None in found else cls(*(value or 0 for value in found))


_at = attrgetter("at_us")


def used(process: str, samples: Sequence[Sample], begin_us: float, end_us: float) -> ProcessUse:
    """What one process used from the last sample before the load began to the first after it ended. A process that
    waits for others to begin, or for the end, would seem to use less; without two samples in that time, all count."""
    samples = sorted(samples, key=_at)
    first_at = max(0, bisect_right(samples, begin_us, key=_at) - 1)
    within = samples[first_at : bisect_left(samples, end_us, key=_at) + 1]
    samples = within if len(within) > 1 else samples
    first, last = samples[0], samples[-1]
    span_us = last.at_us - first.at_us
    lags_us = sorted(sample.loop_lag_us for sample in samples)

    def share(used_us: int) -> float:
        return max(0, used_us) / span_us if span_us > 0 else 0.0

    return ProcessUse(
        process=process,
        samples=len(samples),
        cpu=share(last.cpu_us - first.cpu_us),
        # a child that ended is in none of the later samples
        children_cpu=share(last.children_cpu_us - first.children_cpu_us),
        rss_max_bytes=max(sample.rss_bytes for sample in samples),
        children_rss_max_bytes=max(sample.children_rss_bytes for sample in samples),
        loop_lag_p50_us=lags_us[(len(lags_us) - 1) // 2],
        loop_lag_max_us=lags_us[-1],
    )
