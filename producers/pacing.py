"""What paces a replay besides the clock: how far the lanes are, and how late events were. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from simulator.events import DeltaEvent, Event, Isolation, LaneFailedEvent, SegmentReleasedEvent
from simulator.waits import Missing, missing_delta, missing_release


class LaneProgress:
    """How far each lane is, folded from deltas and released segments; says when a segment may be published.

    A delta with an error counts as well: that segment is over for its lane. `first_segment` is where each
    stream's replay begins. `max_unreleased`: how many closed segments a lane may not have released, None for any
    number; in isolation `shared` it is 1.
    """

    def __init__(
        self,
        lanes: Mapping[str, Sequence[str]],
        *,
        isolation: Isolation = "branch",
        max_ahead: int = 128,
        max_unreleased: int | None = None,
        first_segment: Mapping[str, int] | None = None,
    ) -> None:
        first = first_segment or {}
        self._lanes = {stream: tuple(names) for stream, names in lanes.items()}
        self._delta = {
            lane: first.get(stream, 0) - 1 for stream, names in self._lanes.items() for lane in names
        }
        self._released = dict(self._delta)
        self._failed: set[str] = set()
        if isolation == "shared":
            max_unreleased = 1
        self._max_ahead = max_ahead
        self._max_unreleased = sys.maxsize if max_unreleased is None else max_unreleased

    def apply(self, event: Event) -> bool:
        """Take an event in; whether it brought one of the declared lanes further."""
        match event:
            case DeltaEvent():
                seen = self._delta
            case SegmentReleasedEvent():
                seen = self._released
            case LaneFailedEvent():
                self._failed.add(event.lane)
                return True
            case _:
                return False
        if event.segment <= seen.get(event.lane, event.segment):
            return False
        if isinstance(event, DeltaEvent) and event.segment != seen[event.lane] + 1:
            return False  # out of order: the conductor refuses it
        seen[event.lane] = event.segment
        return True

    def may_publish(self, stream: str, segment: int) -> bool:
        """Whether the observations of a segment may be published: every lane's delta of `segment - max_ahead`
        is there, and every lane has released the segment `max_unreleased` before."""
        return not (self.owing_before(stream, segment) or self.holding_before(stream, segment))

    def waits_for(self, stream: str, segment: int) -> list[Missing]:
        """What a segment's observations wait for; empty when they may be published."""
        return [
            *(missing_delta(lane, self._delta[lane] + 1) for lane in self.owing_before(stream, segment)),
            *(
                missing_release(lane, self._released[lane] + 1)
                for lane in self.holding_before(stream, segment)
            ),
        ]

    def owing_before(self, stream: str, segment: int) -> list[str]:
        """The lanes whose delta a segment's observations wait for, for its own sake or since no release comes without
        it."""
        ahead, held = segment - self._max_ahead, segment - self._max_unreleased
        return [
            lane
            for lane in self._alive(stream)
            if self._delta[lane] < ahead or (self._released[lane] < held and self._delta[lane] < held)
        ]

    def holding_before(self, stream: str, segment: int) -> list[str]:
        """The lanes that owe no delta, and whose trajectories hold so many segments that a segment's observations wait
        for a release."""
        needed = segment - self._max_unreleased
        return [n for n in self._alive(stream) if self._released[n] < needed <= self._delta[n]]

    def owing(self, last_segments: Mapping[str, int]) -> list[str]:
        """The lanes that owe a delta up to and including the last segment of their streams."""
        return [
            lane
            for stream, last in last_segments.items()
            for lane in self._alive(stream)
            if self._delta[lane] < last
        ]

    def _alive(self, stream: str) -> list[str]:
        return [lane for lane in self._lanes.get(stream, ()) if lane not in self._failed]

    def lag(self, stream: str, segment: int) -> int:
        """How many of the segments before `segment` the slowest lane of the stream still owes; 0 without
        lanes."""
        return max((segment - 1 - self._delta[lane] for lane in self._alive(stream)), default=0)

    def unreleased(self, stream: str, segment: int) -> int:
        """How many of the segments before `segment` a lane of the stream has not released, at most; 0 without
        lanes."""
        return max((segment - 1 - self._released[lane] for lane in self._alive(stream)), default=0)


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """From the moment when events were due to the moment when they were in the log, in microseconds."""

    n: int
    p50_us: int
    p90_us: int
    p99_us: int
    max_us: int


class LatenessMeter:
    """Collects lateness, exactly: eight bytes an event."""

    def __init__(self) -> None:
        self._late_us: list[npt.NDArray[np.int64]] = []

    def add(self, due_s: Iterable[float], published_s: float) -> int:
        """One batch, in real seconds; gives the lateness of its last event in microseconds."""
        late_us = np.rint((published_s - np.fromiter(due_s, float)) * 1e6).astype(np.int64)
        self._late_us.append(late_us)
        return int(late_us[-1])

    def summary(self) -> Lateness | None:
        """Count, percentiles and maximum; None when nothing was due at a time."""
        if not self._late_us:
            return None
        late_us = np.concatenate(self._late_us)
        p50, p90, p99, highest = (int(p) for p in np.percentile(late_us, (50, 90, 99, 100)))
        return Lateness(n=len(late_us), p50_us=p50, p90_us=p90, p99_us=p99, max_us=highest)
