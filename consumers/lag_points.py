"""How far a load's lanes are behind, over time: a pure fold over when segments became due and were remembered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from operator import attrgetter
from statistics import fmean, median
from typing import Final

import msgspec

MOST_POINTS: Final = 600


class LagPoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far the lanes were behind at a moment: segments that were due and not remembered, the observations in them,
    and how much event time the lane that is furthest behind lacked. `due_observations` and `remembered_observations`:
    of all segments that had been due and had been remembered until then. `mean_segments`: over the time since the point
    before, of which a moment may show anything (where segments are due at such moments, always one more)."""

    at_s: float
    segments: int
    observations: int
    event_time_s: float
    mean_segments: float = 0.0
    due_observations: int = 0
    remembered_observations: int = 0


class Due(msgspec.Struct, frozen=True):
    """When a segment was due and published, and what of life is in it."""

    due_us: int
    published_us: int | None
    event_time_us: int
    start_time_us: int
    observations: int


class Change(msgspec.Struct, frozen=True):
    """A segment of one lane became due (`sign` 1), or was remembered or had failed (-1)."""

    at_us: int
    sign: int
    lane: str
    segment: Due
    failed: bool = False


at_moment = attrgetter("at_us")
"""For sorting changes."""


def growth_of(changes: Iterable[Change]) -> float | None:
    """See `LatencyReport.growth`."""
    took: dict[str, list[tuple[int, int]]] = {}
    for change in changes:
        if change.sign < 0 and not change.failed:
            took.setdefault(change.lane, []).append((change.segment.due_us, change.at_us))
    found: list[float] = []
    for pairs in took.values():
        quarter = len(pairs) // 4
        if quarter < 2:
            continue
        pairs.sort()
        second, last = pairs[quarter : 2 * quarter], pairs[-quarter:]
        between_us = fmean(due for due, _ in last) - fmean(due for due, _ in second)
        if between_us > 0:
            late_us = median(end - due for due, end in last) - median(end - due for due, end in second)
            found.append(late_us / between_us)
    return max(found, default=None)


def lag_over_time(changes: Sequence[Change]) -> tuple[tuple[LagPoint, ...], LagPoint, float]:
    """The lag each tenth of a second (or more, if that would be too many points), the greatest of each, and how long it
    took. `changes` by their time."""
    nothing = LagPoint(at_s=0.0, segments=0, observations=0, event_time_s=0.0)
    if not changes:
        return (), nothing, 0.0
    first_us, span_s = changes[0].at_us, (changes[-1].at_us - changes[0].at_us) / 1e6
    # in whole tenths, which add up to times that can be read
    steps_ds = (step * 10**power for power in count() for step in (1, 2, 5))
    step_ds = next(step for step in steps_ds if step * MOST_POINTS >= span_s * 10)
    points: list[LagPoint] = []
    segments = observations = due = remembered = 0
    waited_s = last_s = 0.0  # segments × seconds since the last point, and until when
    newest: dict[str, int] = {}
    """Lane → event time up to which its segments were due."""
    known: dict[str, int] = {}
    """Lane → event time up to which it remembered."""
    highest = [0, 0, 0.0]

    def behind_s(lane: str) -> float:
        return max(0, newest[lane] - known[lane]) / 1e6

    def point(at_s: float) -> LagPoint:
        return LagPoint(
            at_s=at_s,
            segments=segments,
            observations=observations,
            event_time_s=max((behind_s(lane) for lane in newest), default=0.0),
            mean_segments=waited_s / (at_s - points[-1].at_s) if points and at_s > points[-1].at_s else 0.0,
            due_observations=due,
            remembered_observations=remembered,
        )

    for change in changes:
        at_s = (change.at_us - first_us) / 1e6
        while (next_s := len(points) * step_ds / 10) < at_s:
            waited_s += segments * (next_s - last_s)
            points.append(point(next_s))
            waited_s, last_s = 0.0, next_s
        waited_s += segments * (at_s - last_s)
        last_s = at_s
        lane, segment = change.lane, change.segment
        segments += change.sign
        observations += change.sign * segment.observations
        if change.sign > 0:
            due += segment.observations
            newest[lane] = max(newest.get(lane, 0), segment.event_time_us)
            known.setdefault(lane, segment.start_time_us)
        else:
            remembered += 0 if change.failed else segment.observations
            known[lane] = max(known.get(lane, 0), segment.event_time_us)
        if lane in newest:  # else its clock was set back: remembered before it was due
            now = (segments, observations, behind_s(lane))
            highest = [max(pair) for pair in zip(highest, now, strict=True)]
    points.append(point(span_s))
    greatest = LagPoint(
        at_s=span_s, segments=int(highest[0]), observations=int(highest[1]), event_time_s=highest[2]
    )
    return tuple(points), greatest, span_s
