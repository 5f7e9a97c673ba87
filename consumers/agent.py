"""The agent role: drives one memory system over the streams of its partitions, one lane a stream.

It subscribes to observations, tasks, feedback, commits and control, and to nothing else: the gold never
reaches it. Ingest is sequential within a lane; lanes run side by side; trajectories run on branches, many at
once, while ingest goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import anyio
from anyio.abc import TaskGroup, TaskStatus

from adapters.memory import MemorySystem, Segment
from adapters.metering import metered
from consumers.calls import CallLimit, Rank
from consumers.history import LaneHistory, read_histories
from consumers.homes import Isolating
from consumers.lane import Lane
from consumers.questioned import QuestionedLane
from simulator.errors import InvariantError
from simulator.events import (
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    FeedbackEvent,
    LaneEvent,
    LaneRebuiltEvent,
    LoadCutShortEvent,
    Means,
    ObservationEvent,
    ReadyEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
)
from simulator.intake import decode_records, followed, read_events
from simulator.log.protocol import Log, StoredRecord, TopicPartition
from simulator.outbox import Outbox, Ticket
from simulator.ownership import Ownership
from simulator.topics import Recorder, Topics, partition_of, wall_us
from simulator.waits import agent_role

OpenMemory = Callable[[str, str], MemorySystem]
"""(lane, stream) → a new, empty memory system."""

_Work = tuple[Segment, str, Ticket, int]
"""(segment, id of the event that closed it, ticket, when that was read)"""

_ALIVE_S = 1.0
"""How often an agent says that it is there while all it does is in the log already."""


async def run_agent(
    log: Log,
    started: RunStartedEvent,
    system: str,
    open_memory: OpenMemory,
    *,
    isolating: Isolating | None = None,
    calls: CallLimit | None = None,
    call_timeout_s: float = 600.0,
    process: str = "",
    forks: bool = False,
) -> None:
    """Run one system's agent, or one of several that share its lanes, until the run ends.

    Args:
        log: the run's log.
        started: the run's first event.
        system: the system's label; its lanes are `<system>@<stream>`.
        open_memory: makes the memory of a new lane; called for the lanes of the agent's partitions before it
            says that it is ready, so that no loading of a model counts as the latency of an ingest.
        isolating: how branches are made in isolation `branch`; None for a system that forks.
        calls: lets ingests, answers and commits run, so many at once; by default as many as the run's limits say.
        call_timeout_s: after this long, an ingest, answer or commit has failed.
        process: a name, where several share the lanes of a load: each then says, whenever that changes, which
            partitions it drives.
        forks: a load's questions are answered on forks of the memory, which are cheap; else in turn with the ingest.

    Raises:
        InvariantError: the log holds what can't be (a gap in a segment, a task before its delta).
        ConfigError: `open_memory` raised it.
    """
    calls = calls or CallLimit(started.limits.calls_in_flight)
    forks = forks and started.questions is not None
    await _Agent(log, started, system, open_memory, isolating, calls, call_timeout_s, process, forks).run()


class _Inbox:
    """Segments that wait for their ingest. Unbounded on purpose: the replayer's `hold` bounds what waits here, and a
    bound here would make one slow lane stop the trajectories of all the others. So it is with tasks: no more than the
    run's open trajectories wait. Nothing to close: a lane may end while segments still come in."""

    def __init__(self) -> None:
        self._waiting: deque[_Work] = deque()
        self._wake = anyio.Event()

    def put(self, work: _Work) -> None:
        self._waiting.append(work)
        self._wake.set()

    async def get(self) -> _Work:
        while not self._waiting:
            self._wake = anyio.Event()
            await self._wake.wait()
        return self._waiting.popleft()


class _RunningLane(NamedTuple):
    lane: Lane
    inbox: _Inbox
    tasks: TaskGroup


class _Agent:
    def __init__(
        self,
        log: Log,
        started: RunStartedEvent,
        system: str,
        open_memory: OpenMemory,
        isolating: Isolating | None,
        calls: CallLimit,
        call_timeout_s: float,
        process: str,
        forks: bool,
    ) -> None:
        self.log = log
        self.started = started
        self.system = system
        self.open_memory = open_memory
        self.isolating = isolating
        self.call_timeout_s = call_timeout_s
        self.process = process
        self.forks = forks
        self.calls = calls
        self.topics = Topics.of(started.run)
        self.recorder = Recorder.for_run(started)
        self.partition = partition_of(started.streams, started.partitions)
        self.lanes: dict[str, _RunningLane] = {}
        self.segment_tickets: dict[str, Ticket] = {}
        self.closed: dict[str, set[str]] = {}
        """Lane → trajectories that have ended."""
        self.released: dict[str, int] = {}
        self.rebuilds: dict[str, int] = {}
        """Lane → how often its memory was built again."""
        self.said_s = 0.0
        """When it last said that it is there."""
        # All agents read the same records: one of them buries what can't be used, so that it is buried once.
        self._buries = system == started.systems[0]

    async def run(self) -> None:
        topics = [topic for topic in self.topics.for_agents if topic != self.topics.control]
        group = f"{self.started.run}.{agent_role(self.system)}"
        async with (
            self.log.subscribe(topics, group=group) as subscription,
            anyio.create_task_group() as tasks,
        ):
            self.ownership = Ownership(subscription, topics)
            self.outbox = Outbox(subscription, self.recorder)
            tasks.start_soon(self.outbox.flush_forever)
            tasks.start_soon(self._follow_control, tasks)
            await self._rebalance(*self.ownership.change(), tasks)
            await self._say_ready()
            while True:
                records = await subscription.poll(max_records=2000)
                gained, lost = self.ownership.change()
                if gained or lost:
                    await self._rebalance(gained, lost, tasks)
                    if self.process:
                        await self._say_ready()
                    records = self.ownership.kept(records, gained)
                self._take(records, wall_us())

    async def _say_ready(self) -> None:
        self.said_s = anyio.current_time()
        role = agent_role(self.system)
        means: Means | None = "fork" if self.forks else None
        if self.started.isolation == "branch":
            means = "fork" if self.isolating is None else self.isolating.means
        ready = ReadyEvent(id=f"ready/{role}", run=self.started.run, event_time_us=0, role=role, means=means)
        shares: dict[str, str] = {}
        if self.process:
            partitions = sorted({self.partition[stream] for stream in self.lanes})
            shares = {"process": self.process, "partitions": ",".join(map(str, partitions))}
        await self.log.append([self.recorder.record(ready, **shares)])

    async def _say_alive(self) -> None:
        """Rebuilding a lane can take as long as all its ingests did, and writes nothing: without a word, the others
        would take it for a stall."""
        if anyio.current_time() - self.said_s >= _ALIVE_S:
            await self._say_ready()

    async def _rebalance(self, gained: frozenset[int], lost: frozenset[int], tasks: TaskGroup) -> None:
        """Give up the lanes of partitions that went elsewhere, and rebuild those of partitions that came."""
        for stream in [s for s in self.lanes if self.partition[s] in lost]:
            self.lanes.pop(stream).tasks.cancel_scope.cancel()
            self.segment_tickets.pop(stream, None)
        if not await self.outbox.rebalance(self.ownership, gained, lost):
            return
        streams = [s for s in self.started.streams if self.partition[s] in gained]
        await self._read_control()
        names = {stream: f"{self.system}@{stream}" for stream in streams}
        known = (self.closed, self.released, self.rebuilds)
        histories = await read_histories(self.log, self.started, *known, names.values())
        for stream, name in names.items():
            await tasks.start(self._run_lane, stream, name, histories[name])

    async def _run_lane(
        self, stream: str, name: str, history: LaneHistory, *, task_status: TaskStatus[None]
    ) -> None:
        """Everything of one lane runs in one task group, so that the lane can go as a whole."""
        memory = self.open_memory(name, stream)
        run, isolation = self.started.run, self.started.isolation
        given = (name, stream, run, memory, isolation, self.call_timeout_s, history, self.isolating)
        asked = self.started.questions is not None
        lane = QuestionedLane(*given, forks=self.forks) if asked else Lane(*given)
        inbox = _Inbox()
        try:
            async with anyio.create_task_group() as tasks:
                self.lanes[stream] = _RunningLane(lane, inbox, tasks)
                await lane.prepare()
                tasks.start_soon(self._ingest, lane, inbox)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            await lane.aclose()

    def _take(self, records: Sequence[StoredRecord], read_us: int) -> None:
        offsets, lanes = self.outbox.offsets, self.lanes
        events, dead = decode_records(self.started.run, records)
        if self._buries:
            for letter in dead:
                self.outbox.put(letter)
        for event, record in events:
            if type(event) is ObservationEvent:  # by far the most frequent: nothing but this happens to it
                lane = lanes[event.stream].lane if event.stream in lanes else self._no_stream(event)
                if not lane.open_observations:
                    tp = TopicPartition(record.topic, record.partition)
                    self.segment_tickets[event.stream] = offsets.begin(tp, record.offset)
                lane.open_observations.append(event)
            elif isinstance(event, SegmentClosedEvent):
                lane = lanes[event.stream].lane if event.stream in lanes else self._no_stream(event)
                segment = lane.close_segment(event)
                ticket = self.segment_tickets.pop(event.stream)
                lanes[event.stream].inbox.put((segment, event.id, ticket, read_us))
            elif isinstance(event, TaskEvent | FeedbackEvent | CommitEvent) and (
                running := self._running(event)
            ):
                ticket = offsets.begin(TopicPartition(record.topic, record.partition), record.offset)
                running.tasks.start_soon(self._work, running.lane, event, ticket, read_us)
        offsets.reached_all(records)

    def _no_stream(self, event: ObservationEvent | SegmentClosedEvent) -> Lane:
        raise InvariantError(f"no stream {event.stream} in this partition of this run", (event.id,))

    async def _ingest(self, lane: Lane, inbox: _Inbox) -> None:
        while True:
            segment, closed_id, ticket, read_us = await inbox.get()
            await lane.settle()
            async with lane.alone(), self.calls.turn(lane.lane, Rank.INGEST):
                began_us = wall_us()
                with metered() as meter:
                    delta = await lane.ingest(segment, closed_id)
                self._say_rebuilt(lane, ticket)
                ended_us = wall_us()
                # at once, and before the delta is out: who has read it may ask
                stamps = {"snapshot_us": wall_us()} if lane.keep_newest(segment) else {}
            if delta is None:
                self.outbox.offsets.done(ticket)
                await self._say_alive()
            else:
                self.outbox.put(
                    delta,
                    ticket,
                    read_us=read_us,
                    began_us=began_us,
                    ended_us=ended_us,
                    **meter.headers(),
                    **stamps,
                )

    async def _work(
        self, lane: Lane, event: TaskEvent | FeedbackEvent | CommitEvent, ticket: Ticket, read_us: int
    ) -> None:
        result: ResponseEvent | CommittedEvent | None = None
        await lane.turn(event)
        new = isinstance(event, TaskEvent) and event.phase == "T1"
        async with lane.alone(), self.calls.turn(event.lane, Rank.NEW if new else Rank.UNDER_WAY):
            isolating_us = wall_us()
            await lane.isolate(event)
            began_us = wall_us()
            with metered() as meter:
                if isinstance(event, TaskEvent):
                    result = await lane.answer_task(event)
                elif isinstance(event, CommitEvent):
                    result = await lane.commit(event)
                elif event.type == "revise":
                    result = await lane.answer_feedback(event)
            self._say_rebuilt(lane, ticket)
            ended_us = wall_us()
        if result is None:
            self.outbox.offsets.done(ticket)
            await self._say_alive()
        else:
            stamps = {
                "read_us": read_us,
                "isolating_us": isolating_us,
                "began_us": began_us,
                "ended_us": ended_us,
            }
            if (first_s := lane.first_token_s(result.id)) is not None:
                # another machine measured it, perhaps: no token came after the whole answer
                stamps["first_token_us"] = min(began_us + round(first_s * 1e6), ended_us)
            self.outbox.put(result, ticket, **stamps, **meter.headers())

    def _say_rebuilt(self, lane: Lane, ticket: Ticket) -> None:
        """Before any other task can go on: what it writes is then in the log no sooner than this."""
        for event in lane.rebuilt():
            self.outbox.put(event, owner=ticket[0].partition)

    async def _follow_control(self, tasks: TaskGroup) -> None:
        async for event, _ in followed(self.log, self.started.run, [self.topics.control]):
            self._note(event)
            # Closing may take its time, and must not delay the end of the run.
            if isinstance(event, SegmentReleasedEvent) and (running := self._running(event)):
                running.tasks.start_soon(running.lane.release, event.segment)
            elif isinstance(event, TrajectoryClosedEvent) and (running := self._running(event)):
                running.tasks.start_soon(running.lane.end_trajectory, event.trajectory)
            elif isinstance(event, RunEndedEvent | LoadCutShortEvent):
                await self.outbox.flush()
                tasks.cancel_scope.cancel()

    def _running(self, event: LaneEvent) -> _RunningLane | None:
        """The lane of an event, if it is one of ours and runs here."""
        running = self.lanes.get(event.stream)
        return running if running is not None and running.lane.lane == event.lane else None

    async def _read_control(self) -> None:
        """Know all that the control topic says by now: the follower may be behind."""
        async for event, _ in read_events(self.log, self.started.run, [self.topics.control]):
            self._note(event)

    def _note(self, event: AnyEvent) -> None:
        if isinstance(event, SegmentReleasedEvent):
            self.released[event.lane] = max(self.released.get(event.lane, -1), event.segment)
        elif isinstance(event, LaneRebuiltEvent):
            self.rebuilds[event.lane] = max(self.rebuilds.get(event.lane, 0), event.rebuild)
        elif isinstance(event, TrajectoryClosedEvent) and event.lane.partition("@")[0] == self.system:
            self.closed.setdefault(event.lane, set()).add(event.trajectory)
