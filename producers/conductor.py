"""The conductor's core: deltas, responses and verdicts in; the next task, feedback or commit out, as the
protocol says. It also says when a lane's snapshots are needed no more, and when the run has ended. Pure: see
`producers.conduct` for the role.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from simulator.errors import InvariantError
from simulator.events import (
    AnyEvent,
    CommittedEvent,
    DeltaEvent,
    Event,
    LaneFailedEvent,
    ReplayEndedEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentReleasedEvent,
    Subject,
    VerdictEvent,
)
from simulator.fair import FairQueue
from simulator.protocols.questions import Answers
from simulator.protocols.subjects import AnyTrajectory, new_trajectory
from simulator.protocols.tally import Tally
from simulator.protocols.trajectory import newer_record, trajectory_id
from simulator.waits import Missing, missing_delta, missing_of


class _Unbegun(NamedTuple):
    """A trajectory that waits for its turn. `delta` is without its records, which can be large."""

    anchor: Subject
    delta: DeltaEvent


class _LaneState:
    """What the conductor knows of one lane."""

    def __init__(self, lane: str, stream: str) -> None:
        self.lane = lane
        self.stream = stream
        self.last_delta = -1
        self.last_us = 0
        self.released = -1
        self.open: dict[str, AnyTrajectory] = {}
        self.unsettled: Counter[int] = Counter()
        """Segment → trajectories that still hold its snapshot (`branch`: no R1 yet; `shared`: not closed)."""
        self.refused = -1
        """The segment of a delta that could not be taken."""
        self.failed = ""
        """Why nothing more is expected of this lane."""


class Conductor:
    """Events in, events out. One trajectory for each lane and anchor or probe; no more of them are open at once
    than the run's limits say (in isolation `shared`, one a lane), the others wait for their turn.

    `closed`: the trajectories that have ended by what the log holds already. They are not run again,
    whatever is read of them: one that was given up would otherwise take a late answer after a restart. `taken`: the
    ids of what they took; any other answer of theirs came too late, now as before the restart.
    `begun`: trajectory → lane, of those whose T1 it holds; they go on whatever the limit is now, and no other
    takes their place.
    `released`: lane → the newest segment whose snapshot is released by what the log holds.
    """

    def __init__(
        self,
        started: RunStartedEvent,
        anchors: Iterable[Subject],
        *,
        closed: Collection[str] = (),
        begun: Mapping[str, str] | None = None,
        taken: Collection[str] = (),
        released: Mapping[str, int] | None = None,
    ) -> None:
        self.started = started
        self._past = frozenset(closed)
        self._taken = frozenset(taken)
        self._answers = Answers(started, self._past)
        self.shared = started.isolation == "shared"
        self._turns: FairQueue[_Unbegun] = FairQueue(
            started.limits.open_trajectories, per_lane=1 if self.shared else None
        )
        self._resumed = {name: lane for name, lane in (begun or {}).items() if name not in self._past}
        for lane in self._resumed.values():
            self._turns.enter(lane)
        self.anchors_at: dict[tuple[str, int], list[Subject]] = defaultdict(list)
        self._tally = Tally(ablate_commit=started.ablate_commit)
        for anchor in anchors:
            self.anchors_at[anchor.stream, anchor.segment].append(anchor)
            for system in started.systems:
                self._tally.expect(trajectory_id(f"{system}@{anchor.stream}", anchor), anchor)
        self.lanes = {
            f"{system}@{stream}": _LaneState(f"{system}@{stream}", stream)
            for system in started.systems
            for stream in started.streams
        }
        self._lanes_of: dict[str, list[_LaneState]] = defaultdict(list)
        for state in self.lanes.values():
            self._lanes_of[state.stream].append(state)
        for lane, segment in (released or {}).items():
            self.lanes[lane].released = segment
        expected = sum(map(len, self.anchors_at.values())) * len(started.systems)
        self.trajectories = len(started.only) or expected
        """Those of the anchors; questions are counted by themselves."""
        self._only = frozenset(started.only)
        self.finished = 0
        self.verdicts = 0
        self.unjudged = 0
        self._early: dict[str, VerdictEvent] = {}
        """Trajectory → the verdict on an R1 that came before it had begun."""
        self._closed: set[str] = set()
        """Closed, and waiting for its last verdicts."""
        self._replayed = False
        self._ended = False
        self._now_us = 0

    def feed(self, event: AnyEvent) -> list[Event]:
        """What follows from one event, in order. Raises InvariantError, having changed nothing, for an event
        that can't be right."""
        self._replayed |= isinstance(event, ReplayEndedEvent)
        if not isinstance(
            event, DeltaEvent | ResponseEvent | CommittedEvent | VerdictEvent | LaneFailedEvent
        ):
            return []
        state = self.lanes.get(event.lane)
        if state is None:
            raise InvariantError(f"no lane {event.lane} in this run", (event.id,))
        if event.stream != state.stream:
            raise InvariantError(f"{event.lane} is on no stream {event.stream!r}", (event.id,))
        match event:
            case LaneFailedEvent():
                out = self._fail_lane(state, event.reason)
            case DeltaEvent():
                out = self._take_delta(state, event)
            case VerdictEvent():
                trajectory = state.open.get(event.trajectory)
                out = [] if trajectory is None else self._advance(state, trajectory, event)
                self._count(event)
                if trajectory is None and event.metric == "ieu" and not self._tally.closed(event.trajectory):
                    self._early[event.trajectory] = event
            case _:
                out = self._take_answer(state, event)
        if event.lane.partition("@")[0] not in self.started.attached:  # whose clock may be wrong
            self._now_us = max(self._now_us, event.event_time_us)
        return out + self._open_next()

    def _take_delta(self, state: _LaneState, event: DeltaEvent) -> list[Event]:
        if state.failed:
            raise InvariantError(f"{event.lane} had been given up: {state.failed}", (event.id,))
        if event.segment != state.last_delta + 1 or event.segment >= self.started.segments[state.stream]:
            raise InvariantError(
                f"{event.lane}: delta of segment {event.segment} after that of {state.last_delta}",
                (event.id,),
            )
        anchors = self.anchors_at.get((state.stream, event.segment), ())
        ends_us = {anchor.event_time_us for anchor in anchors} or {event.event_time_us}
        if (
            event.as_of != event.segment
            or event.event_time_us < state.last_us
            or ends_us != {event.event_time_us}
        ):
            raise InvariantError(
                f"{event.lane}: delta of segment {event.segment} is as of {event.as_of}, at {event.event_time_us} us",
                (event.id,),
            )
        state.last_delta, state.last_us = event.segment, event.event_time_us
        delta = replace(event, records=())
        out: list[Event] = []
        for anchor in self._asked(state, anchors):
            name = trajectory_id(state.lane, anchor)
            if name in self._past:
                self._end(name)
                continue
            state.unsettled[event.segment] += 1
            if name in self._resumed:
                del self._resumed[name]
                out += self._open(state, anchor, delta)
            else:
                self._turns.put(state.lane, _Unbegun(anchor, delta))
        self._forget_anchors(state.stream, event.segment)
        return out

    def _forget_anchors(self, stream: str, segment: int) -> None:
        """Once every lane has come to them, only open trajectories hold them."""
        lanes = self._lanes_of[stream]
        if all(lane.failed or lane.last_delta >= segment for lane in lanes):
            self.anchors_at.pop((stream, segment), None)

    def _take_answer(self, state: _LaneState, event: ResponseEvent | CommittedEvent) -> list[Event]:
        trajectory = state.open.get(event.trajectory)
        if trajectory is None:
            if event.trajectory in self._past and event.id in self._taken:
                return []
            if isinstance(event, ResponseEvent):
                _check_retrieved(event)
                if (closed := self._answers.take(event)) is not None:
                    return [closed]
            raise InvariantError(f"no open trajectory {event.trajectory}", (event.id,))
        if isinstance(event, ResponseEvent):
            _check_retrieved(event)
        return self._advance(state, trajectory, event)

    def _fail_lane(self, state: _LaneState, reason: str) -> list[Event]:
        """Close what is open on a lane, and all that would have been."""
        if state.failed:
            return []
        state.failed = reason
        out: list[Event] = []
        for trajectory in list(state.open.values()):
            out += self._close(state, trajectory, reason)
        for unbegun in self._turns.drop(state.lane):
            self._settle_one(state, unbegun.anchor.segment)
            out += self._never_begin(state, unbegun.anchor, reason)
        for (stream, segment), anchors in self.anchors_at.items():
            if stream == state.stream and segment > state.last_delta:
                for anchor in self._asked(state, anchors):
                    out += self._never_begin(state, anchor, reason)
        for stream, segment in list(self.anchors_at):
            self._forget_anchors(stream, segment)
        return out

    def _never_begin(self, state: _LaneState, anchor: Subject, reason: str) -> list[Event]:
        trajectory = self._trajectory(state, anchor)
        out = [] if trajectory.id in self._past else trajectory.give_up(reason)
        if trajectory.id in self._resumed:
            del self._resumed[trajectory.id]
            self._turns.done(state.lane)
        self._end(trajectory.id)
        return out

    def give_up(self, trajectory_id: str, lane: str, reason: str) -> list[Event]:
        """Close an open trajectory whose agent does not answer."""
        state = self.lanes[lane]
        trajectory = state.open.get(trajectory_id)
        if trajectory is None:
            return []
        return [*self._close(state, trajectory, reason), *self._open_next()]

    def owing_agents(self) -> Iterator[AnyTrajectory]:
        """The open trajectories whose memory system is to act next."""
        for state in self.lanes.values():
            for trajectory in state.open.values():
                if trajectory.waits_for_agent:
                    yield trajectory

    def owing_deltas(self) -> dict[str, int]:
        """Lane → the segment of the delta that it owes: once all has been replayed, or what it wrote for that segment
        could not be taken."""
        return {
            state.lane: state.last_delta + 1
            for state in self.lanes.values()
            if not state.failed
            and state.last_delta < self.started.segments[state.stream] - 1
            and (self._replayed or state.refused == state.last_delta + 1)
        }

    def refuse(self, event: DeltaEvent) -> None:
        """Somebody's delta was not taken. The replayer may count it, and would wait for ever for the release of its
        segment if nobody gave the lane up."""
        state = self.lanes.get(event.lane)
        if state is not None and event.segment == state.last_delta + 1:
            state.refused = event.segment

    def _trajectory(self, state: _LaneState, anchor: Subject) -> AnyTrajectory:
        return new_trajectory(state.lane, anchor, ablate_commit=self.started.ablate_commit)

    def _asked(self, state: _LaneState, anchors: Iterable[Subject]) -> list[Subject]:
        """Those of some anchors that have a trajectory on this lane: all but in a retry."""
        if not self._only:
            return list(anchors)
        return [anchor for anchor in anchors if trajectory_id(state.lane, anchor) in self._only]

    def _close(self, state: _LaneState, trajectory: AnyTrajectory, reason: str) -> list[Event]:
        if self._holds_snapshot(trajectory):
            self._settle_one(state, trajectory.anchor.segment)
        out = trajectory.give_up(reason)
        self._leave(state, trajectory)
        return out

    def _leave(self, state: _LaneState, trajectory: AnyTrajectory) -> None:
        del state.open[trajectory.id]
        self._turns.done(state.lane)
        self._end(trajectory.id)

    def _end(self, trajectory: str) -> None:
        self._closed.add(trajectory)
        self._early.pop(trajectory, None)
        self._tally.close(trajectory)
        self._finish(trajectory)

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
                    trajectories=self.trajectories + self._answers.questions.total,
                    verdicts=self.verdicts,
                    unjudged=self.unjudged,
                )
            )
        return out

    @property
    def complete(self) -> bool:
        """Every lane has ingested every segment, every trajectory has all its verdicts, every question its answer."""
        ingested = all(
            s.failed or s.last_delta == self.started.segments[s.stream] - 1 for s in self.lanes.values()
        )
        return ingested and self.finished == self.trajectories and not self._answers.left

    def waits_for(self) -> list[Missing]:
        """What must come from agents and judges before anything else can: answers, commits and verdicts of open
        trajectories and, once all has been replayed, deltas."""
        waits = [
            missing_of(trajectory.id, name)
            for state in self.lanes.values()
            for trajectory in state.open.values()
            for name in trajectory.waiting
            if name != "ieu" or "R1" in trajectory.taken  # else the judge waits as well
        ]
        waits += [
            missing_of(trajectory, metric)
            for trajectory in sorted(self._closed)
            for metric in self._tally.missing(trajectory)
        ]
        waits += [missing_delta(lane, segment) for lane, segment in self.owing_deltas().items()]
        return waits

    def _open_next(self) -> list[Event]:
        out: list[Event] = []
        while (turn := self._turns.take()) is not None:
            lane, unbegun = turn
            out += self._open(self.lanes[lane], unbegun.anchor, unbegun.delta)
        return out

    def _open(self, state: _LaneState, anchor: Subject, delta: DeltaEvent) -> list[Event]:
        trajectory = self._trajectory(state, anchor)
        state.open[trajectory.id] = trajectory
        out = self._advance(state, trajectory, delta)
        early = self._early.pop(trajectory.id, None)
        if early is not None and trajectory.id in state.open:
            out += self._advance(state, trajectory, early)
        return out

    def _advance(self, state: _LaneState, trajectory: AnyTrajectory, event: Event) -> list[Event]:
        held = self._holds_snapshot(trajectory)
        out = trajectory.feed(event)
        if held and not self._holds_snapshot(trajectory):
            self._settle_one(state, trajectory.anchor.segment)
        if trajectory.closed:
            self._leave(state, trajectory)
        return out

    def _settle_one(self, state: _LaneState, segment: int) -> None:
        state.unsettled[segment] -= 1
        if state.unsettled[segment] <= 0:
            del state.unsettled[segment]

    def _holds_snapshot(self, trajectory: AnyTrajectory) -> bool:
        return not trajectory.closed and (self.shared or "R1" not in trajectory.taken)

    def _count(self, verdict: VerdictEvent) -> None:
        if not self._tally.add(verdict.trajectory, verdict.metric):
            raise InvariantError(f"two verdicts of {verdict.metric} for {verdict.trajectory}", (verdict.id,))
        if verdict.metric == "ieu":
            self._tally.judge_r1(verdict.trajectory, verdict.outcome)
        self.verdicts += 1
        self.unjudged += verdict.outcome == "unjudged"
        self._finish(verdict.trajectory)

    def _finish(self, trajectory: str) -> None:
        if trajectory in self._closed and self._tally.finished(trajectory):
            self._closed.remove(trajectory)
            self.finished += 1


def _check_retrieved(response: ResponseEvent) -> None:
    """No record that a response rests on is newer than its task: invariant 3."""
    if (record := newer_record(response)) is not None:
        raise InvariantError(
            f"{response.lane}: {response.phase} rests on record {record.id}, which is newer than the "
            "task: its fork saw the future, or its event time is wrong",
            (response.id,),
        )
