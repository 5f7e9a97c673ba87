"""What the processes of a load used: a pure fold over the samples that they wrote."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from simulator.log.protocol import Headers
from simulator.topics import wall_of

MOST_POINTS: Final = 600


class UsePoint(msgspec.Struct, frozen=True, kw_only=True):
    """What one process, with its children, used in the time before a moment of the load."""

    at_s: float
    cpu: float
    rss_bytes: int
    loop_lag_us: int


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
    points: tuple[UsePoint, ...] = ()


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


def used(
    process: str, samples: Sequence[Sample], begin_us: float, end_us: float, zero_us: float | None = None
) -> ProcessUse:
    """What one process used from the last sample before the load began to the first after it ended. A process that
    waits for others to begin, or for the end, would seem to use less; without two samples in that time, all count.
    `zero_us`: from when on its points count the time; None: it has none."""
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
        points=() if zero_us is None else tuple(_points(samples, zero_us)),
    )


def _points(samples: Sequence[Sample], zero_us: float) -> Iterator[UsePoint]:
    """One for each sample after the first, or for several, if that would be too many."""
    step = math.ceil(len(samples) / MOST_POINTS)
    for place in range(step, len(samples), step):
        before, now = samples[place - step], samples[place]
        if now.at_us <= before.at_us:
            continue  # a clock that was set back: there is no share of no time
        used_us = now.cpu_us - before.cpu_us
        children_us = now.children_cpu_us - before.children_cpu_us
        between = samples[place - step + 1 : place + 1]
        yield UsePoint(
            at_s=(now.at_us - zero_us) / 1e6,
            cpu=(max(0, used_us) + max(0, children_us)) / (now.at_us - before.at_us),
            rss_bytes=max(sample.rss_bytes + sample.children_rss_bytes for sample in between),
            loop_lag_us=max(sample.loop_lag_us for sample in between),
        )
