"""The replayer: publishes lifelogs as timed events, by the clock that all roles share.

Everything that is due goes into the log in one append, so that a high rate costs few of them and a batch is
there whole or not at all. The clock may be paused, resumed, or run at another rate meanwhile. A jump forward
makes all that lies before its target due at once, a jump back makes what follows wait: streams are gapless,
so neither leaves out or repeats anything. To replay only a part, give `start_us` and `end_us`.

A replay that was cut short goes on where the log ends, given the same inputs. One replays; others that were started
stand by, and the next goes on when it is gone.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from producers.ahead import AppendAhead, append_ahead
from producers.lanes import Lanes, ReplayOptions
from producers.lifelog import Lifelog
from producers.pacing import Lateness, LatenessMeter
from producers.tenure import Appends, work_alone
from producers.timeline import Part, Stretch, Upcoming, stretches
from simulator.clock import Clock, Wake
from simulator.errors import ConfigError, InvariantError
from simulator.events import (
    Event,
    ObservationEvent,
    ReplayEndedEvent,
    SegmentClosedEvent,
    StreamEndedEvent,
)
from simulator.intake import decode_records, read_to_end
from simulator.log.protocol import Log, Record
from simulator.topics import Recorder, wall_us
from simulator.waits import REPLAYER_ROLE

_PROGRESS_S = 0.1
_GAP_S = 0.002
"""At a finite rate, appends are at least so far apart: what is due meanwhile goes with the next. Each costs a thread's
turn or a request, so at 5,000 observations a second one for each pair of them took a core and was later for it."""


class ReplayStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay did. `simulated_s` of event time took `wall_s`, of which time was held for `held_s`.
    `lateness` covers the events that were due at a time, that is at a finite rate; held time moves due times,
    and so is no lateness. `max_lag_segments`: the most closed segments that a lane still owed when the next
    one opened; `max_unreleased_segments`: the most that it had not released."""

    observations: int
    segments: int
    events: int
    simulated_s: float
    wall_s: float
    held_s: float
    offered_rate: float
    lateness: Lateness | None
    max_lag_segments: int
    max_unreleased_segments: int

    @property
    def achieved_rate(self) -> float:
        """Simulated seconds per real second, held time included."""
        return self.simulated_s / self.wall_s if self.wall_s else math.inf


class ReplayProgress(NamedTuple):
    """How far a replay is. `lateness_us` is that of the last event; None at an infinite rate."""

    observations: int
    total: int
    event_time_us: int
    lateness_us: int | None


OnProgress = Callable[[ReplayProgress], None]


async def replay(
    log: Log,
    recorder: Recorder,
    lifelogs: Sequence[Lifelog],
    clock: Clock,
    options: ReplayOptions | None = None,
    *,
    progress: OnProgress | None = None,
) -> ReplayStats:
    """Publish lifelogs until every stream has ended. The clock is set to the first event when that may go
    out.

    `progress` is called at most ten times a second, and at the end. Raises ConfigError when no segment is in
    range, and StallError, naming roles or lanes, when they are not ready or do not move in time. When
    cancelled, what was published is whole batches.
    """
    options = options or ReplayOptions()
    if options.loop < 1:
        raise ConfigError(f"a replay is repeated once or more often, not {options.loop} times")
    parts = {lifelog.stream: Part.of(lifelog, options.start_us, options.end_us) for lifelog in lifelogs}
    total = options.loop * sum(len(part.seqs) for part in parts.values())
    if not total:
        raise ConfigError("nothing to replay: no whole segment lies between start and end")

    async def alone(into: Appends) -> ReplayStats:
        upcoming = Upcoming(
            stretches(
                lifelogs, recorder.run, start_us=options.start_us, end_us=options.end_us, loop=options.loop
            )
        )
        async with log.subscribe((topics.control, topics.deltas)) as feed:
            lanes = Lanes(into, recorder, feed, parts, options)
            await lanes.wait_ready()
            published, ended = await _published(log, recorder)
            return await _Replay(into, recorder, clock, options, lanes, upcoming, total, progress).run(
                parts, published, ended=ended
            )

    topics = recorder.topics
    guarded = (topics.observations, topics.control)
    return await work_alone(log, f"{recorder.run}.{REPLAYER_ROLE}", topics.control, guarded, alone)


async def _published(log: Log, recorder: Recorder) -> tuple[Counter[str], bool]:
    """How many events of each stream are in the log, and whether the replay has ended there: one that was cut short
    goes on after them."""
    counts: Counter[str] = Counter()
    ended = False
    async for record in read_to_end(log, (recorder.topics.observations,)):
        events, _ = decode_records(recorder.run, (record,))
        counts.update(event.stream for event, _ in events)
    if counts:
        async for record in read_to_end(log, (recorder.topics.control,)):
            events, _ = decode_records(recorder.run, (record,))
            ended |= any(isinstance(event, ReplayEndedEvent) for event, _ in events)
    return counts, ended


class _Replay:
    """One replay under way."""

    def __init__(
        self,
        log: Appends,
        recorder: Recorder,
        clock: Clock,
        options: ReplayOptions,
        lanes: Lanes,
        upcoming: Upcoming,
        total: int,
        progress: OnProgress | None,
    ) -> None:
        self._log = log
        self._recorder = recorder
        self._clock = clock
        self._options = options
        self._lanes = lanes
        self._upcoming = upcoming
        self._total = total
        self._progress = progress
        self._told_s = -math.inf
        self._gates: dict[str, int] = {}
        """Stream → the segment that its next observation opens."""
        self._taken = _Taken()
        self._lateness = LatenessMeter()
        self._held_s = 0.0
        self._held_until_s = -math.inf
        self._published_s = -math.inf

    async def run(self, parts: Mapping[str, Part], published: Counter[str], *, ended: bool) -> ReplayStats:
        clock, real, taken, upcoming = self._clock, self._clock.real, self._taken, self._upcoming
        self._gates = {stream: part.segments.start for stream, part in parts.items()}
        self._pass_over(published)
        before = msgspec.structs.replace(taken)
        first_us = upcoming.head.event_time_us if upcoming.head else taken.event_time_us
        clock.jump(first_us)
        began_s = real.now()
        async with append_ahead(self._log, self._options.max_batch) as ahead:
            while (event := upcoming.head) is not None:
                if await clock.sleep_until(event.event_time_us) is Wake.WOKEN:
                    continue
                if self._is_gated(event):
                    await self._pass_gate(event.stream)
                    continue  # the clock may have been set meanwhile, as during each wait below
                if ahead.full:
                    await ahead.room()
                elif clock.rate == math.inf:
                    await self._publish_ahead(ahead)
                elif (gap_s := self._gap_s(event)) > 0:
                    await real.wait(anyio.Event(), gap_s)
                else:
                    await self._publish_timed(ahead)
        await self._lanes.finish({stream: part.segments.stop - 1 for stream, part in parts.items()})
        if not ended:
            await self._end()
        wall_s = real.now() - began_s
        return ReplayStats(
            observations=taken.observations - before.observations,
            segments=taken.segments - before.segments,
            events=taken.events - before.events,
            simulated_s=(taken.event_time_us - first_us) / 1e6,
            wall_s=wall_s,
            held_s=self._held_s,
            offered_rate=clock.rate,
            lateness=self._lateness.summary(),
            max_lag_segments=self._lanes.max_lag,
            max_unreleased_segments=self._lanes.max_unreleased,
        )

    def _pass_over(self, published: Counter[str]) -> None:
        """Pass over what is in the log already: a beginning of each stream. Where a batch was cut short (Kafka
        writes each partition by itself), some streams are further than others, and those go on first."""
        left = Counter(published)
        behind: list[Stretch] = []
        while left.total() and (head := self._upcoming.head):
            if left[head.stream]:
                passed = self._upcoming.take(math.inf, left[head.stream])
                left[head.stream] -= len(passed)
                self._take(passed)
            else:
                behind.append(self._upcoming.take(math.inf, sys.maxsize))
        if left.total():
            raise InvariantError(
                "the log holds another replay than this one, so this one can't go on there",
                [stretch[0].id for stretch in behind[:1]],
            )
        self._upcoming.put_back(behind)

    def _is_gated(self, event: Event) -> bool:
        return type(event) is ObservationEvent and event.stream in self._gates

    async def _pass_gate(self, stream: str) -> None:
        held_s = await self._lanes.open(stream, self._gates[stream], self._clock)
        del self._gates[stream]
        if held_s:
            self._held_s += held_s
            self._held_until_s = self._clock.real.now()

    def _gap_s(self, event: Event) -> float:
        """How long an event may wait for others, at a finite rate: not if it is late already."""
        due_s = self._clock.due_wall(event.event_time_us)
        return min(self._published_s, due_s) + _GAP_S - self._clock.real.now()

    def _due(self, most: int, is_open: Callable[[str, int], bool]) -> Stretch:
        """The next events of one stream that are due; none where a gate may be shut."""
        event, horizon_us = self._upcoming.head, self._clock.horizon_us
        if event is None or event.event_time_us > horizon_us:
            return []
        if self._is_gated(event):
            if not is_open(event.stream, self._gates[event.stream]):
                return []
            del self._gates[event.stream]
        due = self._upcoming.take(horizon_us, most)
        self._take(due)
        self._clock.advance(self._taken.event_time_us)
        return due

    def _take(self, events: Stretch) -> None:
        taken, last = self._taken, events[-1]
        taken.events += len(events)
        taken.event_time_us = max(taken.event_time_us, last.event_time_us)
        taken.observations += len(events)
        if type(last) is not ObservationEvent:
            taken.observations -= 1
        if type(last) is SegmentClosedEvent:
            taken.segments += 1
            self._gates[last.stream] = last.segment + 1
        elif type(last) is StreamEndedEvent:
            taken.ended += (last.id,)

    async def _publish_ahead(self, ahead: AppendAhead) -> None:
        """At an infinite rate: encode a full batch while the log takes in the one before."""
        await self._lanes.hear()
        records: list[Record] = []
        now_us = wall_us()
        while due := self._due(self._options.max_batch - len(records), self._lanes.open_in_batch):
            records += self._recorder.records(due, wall_us=now_us)
            if len(records) == self._options.max_batch:
                break
            await checkpoint()  # the append under way is to reach the network or its thread
        if not records:
            return  # the clock was set meanwhile
        await ahead.append(records, partial(self._tell, self._so_far(None), last=self._upcoming.head is None))

    async def _publish_timed(self, ahead: AppendAhead) -> None:
        """At a finite rate: all that is due, whether or not what was due before is in the log yet."""
        batch: list[Event] = []
        while due := self._due(self._options.max_batch - len(batch), self._lanes.open_as_known):
            batch += due
            if len(batch) == self._options.max_batch:
                break
        clock, real = self._clock, self._clock.real
        # time stood still while it was held: nothing was due before that ended
        due_s = [max(clock.due_wall(event.event_time_us), self._held_until_s) for event in batch]
        now_us, now_s = wall_us(), real.now()
        self._published_s = now_s
        due_us = (now_us - round((now_s - due) * 1e6) for due in due_s)
        records = self._recorder.due_records(batch, due_us, wall_us=now_us)
        so_far, last = self._so_far(None), self._upcoming.head is None

        def in_the_log() -> None:
            late_us = self._lateness.add(due_s, real.now())
            self._tell(so_far._replace(lateness_us=late_us), last=last)

        await ahead.append(records, in_the_log)

    async def _end(self) -> None:
        ended = ReplayEndedEvent(
            id="replay/ended",
            run=self._recorder.run,
            event_time_us=self._taken.event_time_us,
            causes=self._taken.ended,
            observations=self._taken.observations,
        )
        await self._log.append([self._recorder.record(ended)])

    def _so_far(self, lateness_us: int | None) -> ReplayProgress:
        return ReplayProgress(self._taken.observations, self._total, self._taken.event_time_us, lateness_us)

    def _tell(self, progress: ReplayProgress, *, last: bool) -> None:
        if self._progress is None:
            return
        now_s = self._clock.real.now()
        if now_s - self._told_s >= _PROGRESS_S or last:
            self._told_s = now_s
            self._progress(progress)


class _Taken(msgspec.Struct):
    """What was taken from the timeline so far."""

    events: int = 0
    observations: int = 0
    segments: int = 0
    event_time_us: int = 0
    ended: tuple[str, ...] = ()
