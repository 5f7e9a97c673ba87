"""The conductor's role: runs the core over the log.

Everything it knows is a fold over the log. It begins at the first record, passes over what was published before it
took over, and goes on; what it reads and what it writes for that is one transaction. One conducts; others that were
started stand by. What an attached agent writes
out of place goes to the dead-letter topic, and what it owes for too long is given up, so that somebody else's program
can spoil its own results and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeGuard

import anyio
import msgspec
import structlog

from producers.conductor import Conductor
from simulator.errors import FencedError, InvariantError, StallError
from simulator.events import (
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DeadLetterEvent,
    DeltaEvent,
    Event,
    FeedbackEvent,
    LaneEvent,
    LaneFailedEvent,
    ReadyEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentReleasedEvent,
    TakenEvent,
    TaskEvent,
    TrajectoryClosedEvent,
)
from simulator.intake import dead_letter, decode_records, read_events, read_subjects
from simulator.log.protocol import Log, StoredRecord, header_of
from simulator.outbox import positions_after
from simulator.ownership import Ownership
from simulator.protocols.trajectory import INPUTS, about, input_of, name_of
from simulator.topics import Recorder, Topics, partition_of, wall_us
from simulator.waits import CONDUCTOR_ROLE, stalled

_log = structlog.get_logger(__name__)


async def conduct(
    log: Log,
    started: RunStartedEvent,
    *,
    stall_timeout_s: float = 1800.0,
) -> RunEndedEvent:
    """Conduct a run to its end, from wherever its log is.

    Args:
        log: the run's log.
        started: the run's first event.
        stall_timeout_s: how long nothing may come while an answer, a verdict or (after the replay) a delta is owed;
            longer than an agent's and a judge's own deadlines.

    Raises:
        InvariantError: one of our own agents or judges wrote what the protocol does not allow.
        StallError: nothing came for too long; names what is owed.
    """
    return await _Conducting(log, started, stall_timeout_s).run()


class _Past(msgspec.Struct):
    """What the log holds already of what a conductor writes."""

    published: set[str] = msgspec.field(default_factory=set)
    closed: set[str] = msgspec.field(default_factory=set)
    begun: dict[str, str] = msgspec.field(default_factory=dict)
    taken: set[str] = msgspec.field(default_factory=set)
    """Ids of the answers that its events rest on: each that was taken led to one."""
    said_taken: set[str] = msgspec.field(default_factory=set)
    """Ids of what attached agents wrote of which it says that it was taken."""
    buried: set[tuple[str, int, int]] = msgspec.field(default_factory=set)
    """Where what was buried stands: what came too late does so again, though it is read sooner now."""
    released: dict[str, int] = msgspec.field(default_factory=dict)
    ended: RunEndedEvent | None = None


class _Conducting:
    def __init__(self, log: Log, started: RunStartedEvent, stall_timeout_s: float) -> None:
        self.log = log
        self.started = started
        self.stall_timeout_s = stall_timeout_s
        self.answer_timeout_s = started.answer_timeout_s
        self.topics = Topics.of(started.run)
        self.recorder = Recorder.for_run(started)
        self.attached = frozenset(started.attached)
        self.partition = partition_of(started.streams, started.partitions)
        self.asked_s: dict[str, float] = {}
        """What an attached agent owes → when it was asked for it."""
        self.said_taken: set[str] = set()
        """Ids of what attached agents wrote: the first time that it was taken counts."""
        self.look_s = 0.0
        """When to look for what is overdue again."""

    async def run(self) -> RunEndedEvent:
        """One life after the other: each ends with the run, or when another conductor has been at work."""
        topics = self.topics
        # Anchors and control are read for the end of the replay, and to bury what can't be decoded there: every
        # other role reads them as well, and one must do it.
        sources = [topics.deltas, topics.responses, topics.verdicts, topics.anchors, topics.control]
        group = f"{self.started.run}.{CONDUCTOR_ROLE}"
        async with self.log.subscribe(sources, group=group, exclusive=True) as self.subscription:
            self.ownership = Ownership(self.subscription, sources)
            while True:
                gained, _ = self.ownership.change()
                if gained and await self.ownership.take_over(gained):
                    try:
                        return await self._live()
                    except FencedError as error:
                        _log.warning("conductor_superseded", reason=str(error))
                await self.subscription.poll()  # stand by

    async def _live(self) -> RunEndedEvent:
        """Conduct until the run ends. Raises FencedError when the partitions go, or went and came back."""
        past = await self._past()
        if past.ended is not None:
            return past.ended
        anchors = await read_subjects(self.log, self.started.run)
        self.conductor = Conductor(
            self.started,
            anchors,
            closed=past.closed,
            taken=past.taken,
            begun=past.begun,
            released=past.released,
        )
        self.asked_s = {}
        self.said_taken = past.said_taken
        ended = await self._rebuild(past)
        ready = ReadyEvent(
            id=f"ready/{CONDUCTOR_ROLE}", run=self.started.run, event_time_us=0, role=CONDUCTOR_ROLE
        )
        await self.log.append([self.recorder.record(ready)])
        moved_s = anyio.current_time()
        while ended is None:
            records = await self._poll()
            read_us = wall_us()
            if records:
                moved_s = anyio.current_time()
            else:
                self._check_stall(moved_s)
            out = self._feed(records)
            out += self._give_up_overdue()
            ended = await self._publish(out, records, read_us=read_us)
        return ended

    async def _poll(self) -> Sequence[StoredRecord]:
        records = await self.subscription.poll(max_records=2000)
        gained, lost = self.ownership.change()
        if gained or lost:
            self.ownership.put_off(gained)
            raise FencedError("another conductor has been at work")
        return records

    async def _past(self) -> _Past:
        topics, past = self.topics, _Past()
        written = [topics.tasks, topics.feedback, topics.commits, topics.control, topics.dead]
        async for event, _ in read_events(self.log, self.started.run, written):
            past.published.add(event.id)
            if isinstance(event, TaskEvent | FeedbackEvent | CommitEvent | TrajectoryClosedEvent):
                past.taken.update(event.causes)
            if isinstance(event, DeadLetterEvent):
                past.buried.add((event.topic, event.partition, event.offset))
            elif isinstance(event, TaskEvent) and event.phase == "T1" and self.started.questions is None:
                past.begun[event.trajectory] = event.lane
            elif isinstance(event, TakenEvent):
                past.said_taken.update(event.causes)
            elif isinstance(event, TrajectoryClosedEvent):
                past.closed.add(event.trajectory)
            elif isinstance(event, SegmentReleasedEvent):
                past.released[event.lane] = max(past.released.get(event.lane, -1), event.segment)
            elif isinstance(event, RunEndedEvent):
                past.ended = event
        return past

    async def _rebuild(self, past: _Past) -> RunEndedEvent | None:
        """Feed what the log holds now in causal order (deltas as they come, then each trajectory's inputs in theirs:
        topics have no order between them) and publish what had not been."""
        subscription = self.subscription
        ends = await self.log.end_offsets({tp.topic for tp in subscription.assignment})
        out: list[Event] = []
        later: list[StoredRecord] = []
        last: dict[tuple[str, int], StoredRecord] = {}
        left = {tp for tp, end in ends.items() if end > 0}
        while left:
            records = await self._poll()
            last.update({(record.topic, record.partition): record for record in records})
            deltas = [record for record in records if header_of(record.headers, "kind") == b"delta"]
            later += [record for record in records if header_of(record.headers, "kind") != b"delta"]
            out += self._feed(deltas, past.buried)
            left = {tp for tp in left if await subscription.position(tp) < ends[tp]}
        out += self._feed(sorted(later, key=self._stage), past.buried)
        fresh = [event for event in out if event.id not in past.published]
        return await self._publish(fresh, list(last.values()))

    def _stage(self, record: StoredRecord) -> int:
        for event, _ in decode_records(self.started.run, [record])[0]:
            try:
                name = input_of(event)
            except InvariantError:  # refused when it is fed
                break
            if name is not None:
                return INPUTS.index(name)
        return len(INPUTS)

    def _feed(
        self, records: Iterable[StoredRecord], buried: Collection[tuple[str, int, int]] = ()
    ) -> list[Event]:
        """What follows from some records. What can't be decoded, or is out of place and by an attached agent, is
        buried; `buried`: where what was stands."""
        events, dead = decode_records(self.started.run, records)
        out: list[Event] = list(dead)
        for event, record in events:
            if buried and (record.topic, record.partition, record.offset) in buried:
                if self._is_attached(event) and isinstance(event, DeltaEvent):
                    self.conductor.refuse(event)
                continue
            try:
                if isinstance(event, LaneEvent) and record.topic != self.topics.control:
                    self._check_place(event, record)
                follows = self.conductor.feed(event)
            except InvariantError as error:
                if not self._is_attached(event):
                    raise
                if isinstance(event, DeltaEvent):
                    self.conductor.refuse(event)
                out.append(dead_letter(self.started.run, record, str(error)))
            else:
                out += [*self._said_taken(event, record), *follows]
        return out + self.conductor.settle()

    def _said_taken(self, event: AnyEvent, record: StoredRecord) -> list[Event]:
        """Judges wait for this with what an attached agent wrote: they can't know what is buried."""
        if not self._is_attached(event) or isinstance(event, CommittedEvent):
            return []
        if not self.conductor.trajectories or event.id in self.said_taken:
            return []  # a load: nothing is judged. Or it is there again.
        self.said_taken.add(event.id)
        return [
            TakenEvent(
                **about(event, f"{event.id}/taken"),
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )
        ]

    def _check_place(self, event: LaneEvent, record: StoredRecord) -> None:
        """In another partition its order among its lane's is unknown, and it is for another judge than they. Under
        another id it would count as what others wrote, or not at all."""
        if self._is_attached(event) and event.id != name_of(event):
            raise InvariantError(
                f"what {event.lane} says here must have the id {name_of(event)}", (event.id,)
            )
        if self.partition.get(event.stream) != record.partition:
            raise InvariantError(f"{event.lane} is not in partition {record.partition}", (event.id,))

    def _is_attached(self, event: Event) -> TypeGuard[DeltaEvent | ResponseEvent | CommittedEvent]:
        """Whether an attached agent wrote this. Events of lanes that no system here has are nobody's of ours."""
        if not isinstance(event, DeltaEvent | ResponseEvent | CommittedEvent):
            return False
        system = event.lane.partition("@")[0]
        return system in self.attached or (bool(self.attached) and system not in self.started.systems)

    def _give_up_overdue(self) -> list[Event]:
        """Close the trajectories whose attached agent has not answered in time. The replayer gives up lanes that write
        no delta; this gives up those that write none that can be taken."""
        now_s = anyio.current_time()
        if not self.attached or now_s < self.look_s:  # it looks at all that is open
            return []
        self.look_s = now_s + min(1.0, self.answer_timeout_s / 10)
        owing = {
            f"{t.id}/{len(t.taken)}": t
            for t in self.conductor.owing_agents()
            if t.lane.partition("@")[0] in self.attached
        }
        deltas = {
            f"{lane}/delta/{segment}": lane
            for lane, segment in self.conductor.owing_deltas().items()
            if lane.partition("@")[0] in self.attached
        }
        self.asked_s = {key: self.asked_s.get(key, now_s) for key in (*owing, *deltas)}
        out: list[Event] = []
        for key, lane in deltas.items():
            if now_s - self.asked_s[key] > self.answer_timeout_s:
                failed = LaneFailedEvent(
                    id=f"{lane}/failed",
                    run=self.started.run,
                    event_time_us=0,
                    stream=lane.partition("@")[2],
                    lane=lane,
                    reason=f"the agent wrote no delta that can be taken for {self.answer_timeout_s:g} s",
                )
                out += [failed, *self.conductor.feed(failed)]
        for key, trajectory in owing.items():
            if now_s - self.asked_s[key] > self.answer_timeout_s:
                owed = ", ".join(name for name in trajectory.waiting if name != "ieu")
                reason = f"no {owed} within {self.answer_timeout_s:g} s"
                out += self.conductor.give_up(trajectory.id, trajectory.lane, reason)
        return out + self.conductor.settle() if out else []

    async def _publish(
        self, out: list[Event], records: Iterable[StoredRecord], **wall_times_us: int
    ) -> RunEndedEvent | None:
        if out:  # else the offsets go with the next output: a write only for them would double the writes
            offsets = positions_after(list(records))
            await self.subscription.transact(
                [self.recorder.record(event, **wall_times_us) for event in out], offsets
            )
        return next((event for event in out if isinstance(event, RunEndedEvent)), None)

    def _check_stall(self, moved_s: float) -> None:
        if anyio.current_time() - moved_s <= self.stall_timeout_s:
            return
        if waits := self.conductor.waits_for():
            raise StallError(stalled(CONDUCTOR_ROLE, self.stall_timeout_s, waits))
