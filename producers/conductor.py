"""The conductor: watches deltas, responses and verdicts, and injects the next task, feedback or commit as the
protocol says. It also says when a lane's snapshots are needed no more, and when the run has ended.

Everything it knows is a fold over the log. What it reads and what it writes for that is one transaction.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable

import anyio

from simulator.errors import InvariantError, StallError
from simulator.events import (
    AnchorEvent,
    AnyEvent,
    CommittedEvent,
    DeltaEvent,
    Event,
    Metric,
    Outcome,
    ReadyEvent,
    ReplayEndedEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentReleasedEvent,
    VerdictEvent,
)
from simulator.intake import decode_records, read_to_end
from simulator.log.protocol import Log
from simulator.outbox import positions_after
from simulator.protocols.streammembench import Trajectory, expected_metrics
from simulator.topics import Recorder, Topics

CONDUCTOR_ROLE = "conductor"


class _Verdicts:
    """What was judged of one trajectory so far."""

    __slots__ = ("ieu", "metrics")

    def __init__(self) -> None:
        self.metrics: set[Metric] = set()
        self.ieu: Outcome | None = None


class _LaneState:
    """What the conductor knows of one lane."""

    def __init__(self, lane: str, stream: str) -> None:
        self.lane = lane
        self.stream = stream
        self.last_delta = -1
        self.released = -1
        self.open: dict[str, Trajectory] = {}
        self.unsettled: Counter[int] = Counter()
        """Segment → trajectories that still hold its snapshot (`branch`: no R1 yet; `shared`: not closed)."""
        self.queue: deque[tuple[Trajectory, DeltaEvent]] = deque()
        """Isolation `shared`: trajectories that wait for their turn."""


class Conductor:
    """The pure part: events in, events out. One trajectory for each lane and anchor."""

    def __init__(self, started: RunStartedEvent, anchors: Iterable[AnchorEvent]) -> None:
        self.started = started
        self.shared = started.isolation == "shared"
        self.anchors_at: dict[tuple[str, int], list[AnchorEvent]] = defaultdict(list)
        expected = 0
        for anchor in anchors:
            self.anchors_at[anchor.stream, anchor.segment].append(anchor)
            expected += 1
        self.lanes = {
            f"{system}@{stream}": _LaneState(f"{system}@{stream}", stream)
            for system in started.systems
            for stream in started.streams
        }
        self.trajectories = expected * len(started.systems)
        self.finished = 0
        self.verdicts = 0
        self.unjudged = 0
        self._judged: dict[str, _Verdicts] = defaultdict(_Verdicts)
        self._closed: set[str] = set()
        """Closed, and waiting for its last verdicts."""
        self._replayed = False
        self._ended = False
        self._now_us = 0

    def feed(self, event: AnyEvent) -> list[Event]:
        """What follows from one event, in order. Raises InvariantError for an event that can't be right."""
        self._replayed |= isinstance(event, ReplayEndedEvent)
        if not isinstance(event, DeltaEvent | ResponseEvent | CommittedEvent | VerdictEvent):
            return []
        self._now_us = max(self._now_us, event.event_time_us)
        state = self.lanes.get(event.lane)
        if state is None:
            raise InvariantError(f"no lane {event.lane} in this run", (event.id,))
        out: list[Event] = []
        if isinstance(event, DeltaEvent):
            if event.segment != state.last_delta + 1:
                raise InvariantError(
                    f"{event.lane}: delta of segment {event.segment} after that of {state.last_delta}",
                    (event.id,),
                )
            state.last_delta = event.segment
            for anchor in self.anchors_at.get((state.stream, event.segment), ()):
                trajectory = Trajectory(
                    lane=state.lane, anchor=anchor, ablate_commit=self.started.ablate_commit
                )
                state.unsettled[event.segment] += 1
                state.queue.append((trajectory, event))
        else:
            trajectory_of = state.open.get(event.trajectory)
            if trajectory_of is not None:
                out += self._advance(state, trajectory_of, event)
            elif not isinstance(event, VerdictEvent):
                raise InvariantError(f"no open trajectory {event.trajectory}", (event.id,))
            if isinstance(event, VerdictEvent):
                self._count(event)
            elif isinstance(event, ResponseEvent):
                _check_retrieved(event)
        out += self._open_next(state)
        return out

    def settle(self) -> list[Event]:
        """What follows from all events fed so far taken together: releases of snapshots, and the end of the
        run. Called once for many events, since one release covers all segments before it."""
        out: list[Event] = []
        for state in self.lanes.values():
            held = min(state.unsettled, default=state.last_delta + 1)
            released = min(state.last_delta, held - 1)
            if released > state.released:
                state.released = released
                out.append(
                    SegmentReleasedEvent(
                        id=f"{state.lane}/released/{released}",
                        run=self.started.run,
                        stream=state.stream,
                        event_time_us=self._now_us,
                        as_of=released,
                        causes=(f"{state.lane}/delta/{released}",),
                        lane=state.lane,
                        segment=released,
                    )
                )
        if not self._ended and self.complete:
            self._ended = True
            out.append(
                RunEndedEvent(
                    id="run/ended",
                    run=self.started.run,
                    event_time_us=self._now_us,
                    trajectories=self.trajectories,
                    verdicts=self.verdicts,
                    unjudged=self.unjudged,
                )
            )
        return out

    @property
    def complete(self) -> bool:
        """Every lane has ingested every segment, and every trajectory has all its verdicts."""
        ingested = all(s.last_delta == self.started.segments[s.stream] - 1 for s in self.lanes.values())
        return ingested and self.finished == self.trajectories

    def waits_for(self) -> list[str]:
        """What must come from agents and judges before anything else can, in words: answers, commits and
        verdicts of open trajectories and, once all has been replayed, deltas."""
        waits = [
            f"{', '.join(trajectory.waiting)} of {trajectory.id}"
            for state in self.lanes.values()
            for trajectory in state.open.values()
        ]
        waits += [f"the verdicts of {trajectory}" for trajectory in sorted(self._closed)]
        if self._replayed:
            waits += [
                f"the delta of segment {state.last_delta + 1} of {state.lane}"
                for state in self.lanes.values()
                if state.last_delta < self.started.segments[state.stream] - 1
            ]
        return waits

    def _open_next(self, state: _LaneState) -> list[Event]:
        out: list[Event] = []
        while state.queue and not (self.shared and state.open):
            trajectory, delta = state.queue.popleft()
            state.open[trajectory.id] = trajectory
            out += self._advance(state, trajectory, delta)
        return out

    def _advance(self, state: _LaneState, trajectory: Trajectory, event: Event) -> list[Event]:
        held = self._holds_snapshot(trajectory)
        out = trajectory.feed(event)
        if held and not self._holds_snapshot(trajectory):
            segment = trajectory.anchor.segment
            state.unsettled[segment] -= 1
            if not state.unsettled[segment]:
                del state.unsettled[segment]
        if trajectory.closed:
            del state.open[trajectory.id]
            self._closed.add(trajectory.id)
            self._finish(trajectory.id)
        return out

    def _holds_snapshot(self, trajectory: Trajectory) -> bool:
        return not trajectory.closed and (self.shared or "R1" not in trajectory.taken)

    def _count(self, verdict: VerdictEvent) -> None:
        judged = self._judged[verdict.trajectory]
        if verdict.metric in judged.metrics:
            raise InvariantError(f"two verdicts of {verdict.metric} for {verdict.trajectory}", (verdict.id,))
        judged.metrics.add(verdict.metric)
        if verdict.metric == "ieu":
            judged.ieu = verdict.outcome
        self.verdicts += 1
        self.unjudged += verdict.outcome == "unjudged"
        self._finish(verdict.trajectory)

    def _finish(self, trajectory: str) -> None:
        judged = self._judged[trajectory]
        expected = expected_metrics(judged.ieu, ablate_commit=self.started.ablate_commit)
        if trajectory in self._closed and judged.metrics.issuperset(expected):
            self._closed.remove(trajectory)
            self.finished += 1


def _check_retrieved(response: ResponseEvent) -> None:
    """No record that a response rests on is newer than its task: invariant 3."""
    for record in response.retrieved:
        if record.event_time_us > response.event_time_us:
            raise InvariantError(
                f"{response.lane}: {response.phase} rests on record {record.id}, which is newer than the "
                "task: its fork saw the future, or its event time is wrong",
                (response.id,),
            )


async def conduct(log: Log, started: RunStartedEvent, *, stall_timeout_s: float = 1800.0) -> RunEndedEvent:
    """Conduct a run to its end. `stall_timeout_s`: how long nothing may come while an answer, a verdict or
    (after the replay) a delta is owed; longer than an agent's and a judge's own deadlines.

    Raises:
        InvariantError: an agent or judge wrote what the protocol does not allow.
        FencedError: another conductor took over.
        StallError: nothing came for too long; names what is owed.
    """
    topics = Topics.of(started.run)
    recorder = Recorder.for_run(started)
    anchors = [
        event
        async for record in read_to_end(log, [topics.anchors])
        for event, _ in decode_records(started.run, [record])[0]
        if isinstance(event, AnchorEvent)
    ]
    conductor = Conductor(started, anchors)
    # Anchors and control are read for the end of the replay, and to bury what can't be decoded there: every
    # other role reads them as well, and one must do it.
    sources = [topics.deltas, topics.responses, topics.verdicts, topics.anchors, topics.control]
    async with log.subscribe(sources, group=f"{started.run}.{CONDUCTOR_ROLE}") as subscription:
        ready = ReadyEvent(
            id=f"ready/{CONDUCTOR_ROLE}", run=started.run, event_time_us=0, role=CONDUCTOR_ROLE
        )
        await log.append([recorder.record(ready)])
        moved_s = anyio.current_time()
        while True:
            records = await subscription.poll(max_records=2000)
            if records:
                moved_s = anyio.current_time()
            elif anyio.current_time() - moved_s > stall_timeout_s and (waits := conductor.waits_for()):
                shown = "; ".join(waits[:5]) + (f"; and {len(waits) - 5} more" if len(waits) > 5 else "")
                raise StallError(f"conductor: nothing came for {stall_timeout_s:g} s; it waits for {shown}")
            events, dead = decode_records(started.run, records)
            out: list[Event] = list(dead)
            for event, _ in events:
                out += conductor.feed(event)
            out += conductor.settle()
            if out:  # else the offsets go with the next output: a write only for them would double the writes
                offsets = positions_after(records)
                await subscription.transact([recorder.record(event) for event in out], offsets)
            for written in out:
                if isinstance(written, RunEndedEvent):
                    return written
