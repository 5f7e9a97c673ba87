"""What theory says of a lane: a queue with one server, whose schedule is the one that a load offers."""

from __future__ import annotations

from itertools import pairwise

from producers.arrivals import Arrivals, Load, offer
from producers.datasets import read_dataset

ONE_EACH = "synthetic:wearers=1,segments_per_day=24,observations_per_segment=1,anchors_per_day=0"
SEED = 1


def arrivals_s(kind: Arrivals, per_second: float, count: int) -> list[float]:
    """When the segments of a lane end: the production schedule."""
    load = Load(duration_s=count / per_second, arrivals=kind, observations_per_second=per_second, seed=SEED)
    offered = offer(read_dataset(ONE_EACH).lifelogs, load)
    (lifelog,) = offered.lifelogs.values()
    begin_us = lifelog.segments[0].start_time_us
    return [(span.end_time_us - begin_us) / 1e6 / offered.rate for span in lifelog.segments]


def waits_s(ends_s: list[float], service_s: float) -> list[float]:
    """Lindley's recursion: how long each waits in a queue with one server."""
    waits = [0.0]
    for before, now in pairwise(ends_s):
        waits.append(max(0.0, waits[-1] + service_s - (now - before)))
    return waits
