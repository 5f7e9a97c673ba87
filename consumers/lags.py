"""How far the lanes of a run are behind, now: the segments' part of `consumers.gauges`, each event in constant time.

The stages are those of `consumers.latency`, and so are the latencies, once a run is over. A release says that a delta
had been read only in a run without trajectories, where nothing else holds it up: elsewhere there is no stage
`remembered`, and a segment counts as remembered when its delta was written.

Stamps by another clock than the replayer's (headers say whose) are left out: by how much that is off is known once a
load is over, and `consumers.latency` then corrects them.

Topics may come in any order between each other. What is kept of a segment goes when every lane has settled it: when
both its end and the lane's delta were read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from consumers.windows import Buckets, Counted, RateWindow, RecentTimes, percentile
from simulator.events import DeltaEvent, RunStartedEvent, SegmentClosedEvent, SegmentReleasedEvent
from simulator.log.protocol import Headers
from simulator.topics import boot_of, wall_of

STAGES: Final = ("published", "read", "begun", "ended", "written", "remembered")
"""Of a segment, each as the time since due: see `consumers.latency`."""


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """What was published of one stream. `expected`: segments that there will be."""

    observations: int
    segments: int
    expected: int
    event_time_us: int


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
    """One lane: its segments by what became of them, and what it lacks of what was published."""

    system: str
    stream: str
    remembered: int
    failed: int
    given_up: bool
    lag_segments: int
    lag_observations: int
    lag_event_time_s: float


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """10 seconds, all lanes together: achieved, the newest, by when it was remembered; offered, the newest of which
    anything was published, by when it was due. `late_us`: how long after it was due the newest observation was
    published: by how much the replay is late itself."""

    offered_observations_per_s: float | None
    offered_segments_per_s: float | None
    achieved_observations_per_s: float | None
    achieved_segments_per_s: float | None
    late_us: int | None
    latencies: int
    p50_us: int | None
    p99_us: int | None


class _Segment(msgspec.Struct, frozen=True):
    due_us: int | None
    published_us: int | None
    event_time_us: int
    first_seq: int
    last_seq: int


class _Result(msgspec.Struct, frozen=True):
    failed: bool
    times_us: tuple[int | None, ...]
    """Read, begun, ended, written."""
    boot: str
    """Whose clock these are by."""


class _Stream(msgspec.Struct):
    lanes: tuple[_Lane, ...]
    observations: int = 0
    segments: int = 0
    ends: dict[int, _Segment] = msgspec.field(default_factory=dict)
    """Ends of segments that some lane has yet to settle."""
    first_us: int | None = None
    """Where its first segment begins."""
    end_us: int = 0
    event_time_us: int = 0
    last_seq: int = -1


class _Lane(msgspec.Struct):
    system: str
    stream: str
    deltas: int = 0
    """The next that is to come: they come in order."""
    results: deque[_Result] = msgspec.field(default_factory=deque)
    """Deltas of segments whose end was not read yet."""
    settled: int = 0
    remembered: int = 0
    failed: int = 0
    known_us: int | None = None
    """Event time up to which it remembers."""
    known_seq: int = -1
    releases: deque[tuple[int, int | None, str]] = msgspec.field(default_factory=deque)
    """(segment, when it was read, by whose clock) of those that may cover a segment that is yet to settle."""
    awaiting: deque[tuple[int, _Segment]] = msgspec.field(default_factory=deque)
    """Settled segments whose release was not read yet."""
    given_up: bool = False


class Lags:
    """What was published and remembered. `remembered` hears each latency from due to remembered, in microseconds."""

    def __init__(self, started: RunStartedEvent, remembered: Callable[[int], None]) -> None:
        self._heard = remembered
        self._systems = len(started.systems)
        self._expected = started.segments
        lanes = [_Lane(system, stream) for system in started.systems for stream in started.streams]
        self._lanes = {f"{lane.system}@{lane.stream}": lane for lane in lanes}
        self._streams = {
            stream: _Stream(tuple(lane for lane in lanes if lane.stream == stream))
            for stream in started.streams
        }
        self._by_release = started.anchors == 0
        self._boot: str | None = None
        """Whose clock the replayer has: known once the run's first event was read. Empty: all are by one."""
        self.conductor_apart = False
        """Whether a conductor has another."""
        stages = STAGES if self._by_release else STAGES[:-1]
        self._latency = {(system, stage): Buckets() for system in started.systems for stage in stages}
        self._due, self._due_segments = RateWindow(), RateWindow()
        self._done, self._done_segments = RateWindow(), RateWindow()
        self._took = RecentTimes()
        self.begun_us: int | None = None
        """When the first observation was due, or published if none is due by a clock."""
        self._newest_us = 0
        """When the newest was."""
        self._late_us: int | None = None

    # --- what comes in --------------------------------------------------------------------------------------

    def began(self, boot: str) -> None:
        """Take the run's first event in: by whose clock it is stamped."""
        self._boot = boot
        for lane in self._lanes.values():
            self._settle(lane)

    def observed(self, stream: str, event_time_us: int, due_us: int | None, published_us: int | None) -> bool:
        """Take an observation in. `due_us`: None where none is due by a clock. False of no stream here."""
        found = self._streams.get(stream)
        if found is None:
            return False
        found.observations += 1
        if event_time_us > found.event_time_us:
            found.event_time_us = event_time_us
        at_us = published_us if due_us is None else due_us
        if at_us is not None:
            self._due.add(at_us)
            if self.begun_us is None or at_us < self.begun_us:
                self.begun_us = at_us
            if at_us > self._newest_us:
                self._newest_us = at_us
                if due_us is not None and published_us is not None:
                    self._late_us = max(0, published_us - due_us)
        return True

    def closed(self, event: SegmentClosedEvent, headers: Headers) -> None:
        """Take the end of a segment in."""
        stream = self._streams.get(event.stream)
        if stream is None:
            return
        segment = _Segment(
            wall_of(headers, "due_us"),
            wall_of(headers),
            event.event_time_us,
            event.first_seq,
            event.last_seq,
        )
        stream.segments += 1
        stream.first_us = event.start_time_us if stream.first_us is None else stream.first_us
        stream.end_us = event.event_time_us
        stream.event_time_us = max(stream.event_time_us, event.event_time_us)
        stream.last_seq = event.last_seq
        if segment.due_us is not None:
            self._due_segments.add(segment.due_us)
        if stream.lanes:
            stream.ends[event.segment] = segment
            for lane in stream.lanes:
                self._settle(lane)

    def delta(self, event: DeltaEvent, headers: Headers) -> bool:
        """Take a delta in. False of one that is not its lane's next: an attached agent wrote it, and it is buried."""
        lane = self._lanes.get(event.lane)
        if lane is None or event.segment != lane.deltas:
            return False
        lane.deltas += 1
        names = ("read_us", "began_us", "ended_us", "wall_us")
        times_us = tuple(wall_of(headers, name) for name in names)
        lane.results.append(_Result(event.error is not None, times_us, boot_of(headers)))
        self._settle(lane)
        return True

    def released(self, event: SegmentReleasedEvent, headers: Headers) -> None:
        """Take a release in."""
        if self._by_release and (lane := self._lanes.get(event.lane)) is not None:
            boot = boot_of(headers)
            self.conductor_apart |= self._boot is not None and not self._is_ours(boot)
            lane.releases.append((event.segment, wall_of(headers, "read_us"), boot))
            self._release(lane)

    def give_up(self, lane: str) -> None:
        """Nothing waits for this lane any more."""
        if (found := self._lanes.get(lane)) is not None:
            found.given_up = True

    def _settle(self, lane: _Lane) -> None:
        """Go through the segments of which both the end and the delta are known now."""
        if self._boot is None:
            return  # the run's first event is in another topic, and was not read yet
        stream = self._streams[lane.stream]
        while lane.results and (segment := stream.ends.get(lane.settled)) is not None:
            result, number = lane.results.popleft(), lane.settled
            lane.settled += 1
            lane.known_us, lane.known_seq = segment.event_time_us, segment.last_seq
            if all(one.settled > number for one in stream.lanes):
                del stream.ends[number]
            if result.failed:
                lane.failed += 1
                continue
            lane.remembered += 1
            times_us = result.times_us if self._is_ours(result.boot) else (None,) * len(result.times_us)
            if segment.due_us is not None:
                for stage, at_us in zip(STAGES, (segment.published_us, *times_us), strict=False):
                    if at_us is not None:
                        self._latency[lane.system, stage].record(at_us - segment.due_us)
            if self._by_release:
                lane.awaiting.append((number, segment))
            elif (written_us := times_us[-1]) is not None:
                self._remembered(segment, written_us)
        self._release(lane)

    def _release(self, lane: _Lane) -> None:
        """A release covers all segments before it: a delta had been read by the first release at or after it."""
        while lane.releases:
            number, read_us, boot = lane.releases[0]
            while lane.awaiting and lane.awaiting[0][0] <= number:
                _, segment = lane.awaiting.popleft()
                if read_us is None or not self._is_ours(boot):
                    continue
                if segment.due_us is not None:
                    self._latency[lane.system, "remembered"].record(read_us - segment.due_us)
                self._remembered(segment, read_us)
            if number >= lane.settled:
                break  # it covers what is to come
            lane.releases.popleft()

    def _is_ours(self, boot: str) -> bool:
        return not self._boot or boot == self._boot

    def _remembered(self, segment: _Segment, at_us: int) -> None:
        self._done.add(at_us, segment.last_seq - segment.first_seq + 1)
        self._done_segments.add(at_us)
        if segment.due_us is not None:
            late_us = max(0, at_us - segment.due_us)
            self._took.add(at_us, late_us)
            self._heard(late_us)

    # --- what it comes to -----------------------------------------------------------------------------------

    def latency(self) -> dict[tuple[str, ...], Counted]:
        """(system, stage) → how long since due."""
        return {labels: buckets.counted() for labels, buckets in self._latency.items()}

    def streams(self) -> dict[str, StreamState]:
        """By name."""
        return {
            name: StreamState(
                observations=stream.observations,
                segments=stream.segments,
                expected=self._expected.get(name, 0),
                event_time_us=stream.event_time_us,
            )
            for name, stream in self._streams.items()
        }

    def lanes(self) -> tuple[LaneState, ...]:
        """System by system, in the order of the streams."""
        return tuple(map(self._lane, self._lanes.values()))

    def _lane(self, lane: _Lane) -> LaneState:
        stream = self._streams[lane.stream]
        known_us = lane.known_us if lane.known_us is not None else stream.first_us
        return LaneState(
            system=lane.system,
            stream=lane.stream,
            remembered=lane.remembered,
            failed=lane.failed,
            given_up=lane.given_up,
            lag_segments=stream.segments - lane.settled,
            lag_observations=stream.last_seq - lane.known_seq,
            lag_event_time_s=0.0 if known_us is None else (stream.end_us - known_us) / 1e6,
        )

    def recent(self, now_us: int, *, replayed: bool) -> Recent:
        """The 10 seconds before a wall time. `replayed`: nothing further is offered."""
        took_us = self._took.values(now_us)
        # A replay that can't keep its own pace offers as much as ever, only later: what is due by now it has not
        # published yet, and that would look like nothing.
        until_us = now_us if replayed else min(now_us, self._newest_us)

        def offered(window: RateWindow) -> float | None:
            per_s = window.per_s(until_us)
            return None if per_s is None else max(1, self._systems) * per_s  # each system gets all of it

        return Recent(
            offered_observations_per_s=offered(self._due),
            offered_segments_per_s=offered(self._due_segments),
            achieved_observations_per_s=self._done.per_s(now_us),
            achieved_segments_per_s=self._done_segments.per_s(now_us),
            late_us=self._late_us,
            latencies=len(took_us),
            p50_us=percentile(took_us, 50),
            p99_us=percentile(took_us, 99),
        )
