"""The agent role: drives one memory system over the streams of its partitions, one lane a stream.

It subscribes to observations, tasks, feedback, commits and control, and to nothing else: the gold never
reaches it. Ingest is sequential within a lane; lanes run side by side; trajectories run on branches, many at
once, while ingest goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from adapters.memory import MemorySystem, Segment
from consumers.lane import Lane
from simulator.errors import InvariantError
from simulator.events import (
    CommitEvent,
    CommittedEvent,
    FeedbackEvent,
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
from simulator.intake import decode_records
from simulator.log.protocol import Log, StoredRecord, TopicPartition
from simulator.outbox import Outbox, Ticket
from simulator.topics import Recorder, Topics, wall_us

OpenMemory = Callable[[str, str], MemorySystem]
"""(lane, stream) → a new, empty memory system."""

_Work = tuple[Segment, str, Ticket]


def agent_role(system: str) -> str:
    """The name under which a system's agent says `ready`."""
    return f"agent.{system}"


async def run_agent(
    log: Log,
    started: RunStartedEvent,
    system: str,
    open_memory: OpenMemory,
    *,
    calls_in_flight: int = 64,
    call_timeout_s: float = 600.0,
) -> None:
    """Run one system's agent until the run ends.

    Args:     log: the run's log.     started: the run's first event.     system: the system's label; its
    lanes are `<system>@<stream>`.     open_memory: makes the memory of a new lane; called for all lanes of
    the agent's partitions before it says         that it is ready, so that no loading of a model counts as
    the latency of an ingest.     calls_in_flight: how many answers and commits run at once.
    call_timeout_s: after this long, an ingest, answer or commit has failed.

    Raises:
        InvariantError: the log holds what can't be (a gap in a segment, a task before its delta).
        ConfigError: `open_memory` raised it.
    """
    await _Agent(log, started, system, open_memory, calls_in_flight, call_timeout_s).run()


class _Agent:
    def __init__(
        self,
        log: Log,
        started: RunStartedEvent,
        system: str,
        open_memory: OpenMemory,
        calls_in_flight: int,
        call_timeout_s: float,
    ) -> None:
        self.log = log
        self.started = started
        self.system = system
        self.open_memory = open_memory
        self.call_timeout_s = call_timeout_s
        self.limiter = anyio.CapacityLimiter(calls_in_flight)
        self.topics = Topics.of(started.run)
        self.recorder = Recorder.for_run(started)
        self.lanes: dict[str, Lane] = {}
        self.queues: dict[str, tuple[MemoryObjectSendStream[_Work], MemoryObjectReceiveStream[_Work]]] = {}
        self.segment_tickets: dict[str, Ticket] = {}
        self._lane_names: set[str] = set()
        # All agents read the same records: one of them buries what can't be used, so that it is buried once.
        self._buries = system == started.systems[0]

    async def run(self) -> None:
        data_topics = [topic for topic in self.topics.for_agents if topic != self.topics.control]
        role = agent_role(self.system)
        try:
            async with (
                self.log.subscribe(data_topics, group=f"{self.started.run}.{role}") as subscription,
                anyio.create_task_group() as tasks,
            ):
                self.outbox = Outbox(subscription, self.recorder)
                tasks.start_soon(self.outbox.flush_forever)
                tasks.start_soon(self._follow_control, tasks)
                partitions = {tp.partition for tp in subscription.assignment}
                for index, stream in enumerate(self.started.streams):
                    if index % self.started.partitions in partitions:
                        self._open_lane(stream, tasks)
                ready = ReadyEvent(id=f"ready/{role}", run=self.started.run, event_time_us=0, role=role)
                await self.log.append([self.recorder.record(ready)])
                while True:
                    self._take(await subscription.poll(max_records=2000), tasks)
        finally:
            for stream, lane in self.lanes.items():
                for end in self.queues[stream]:
                    end.close()
                await lane.aclose()

    def _take(self, records: Sequence[StoredRecord], tasks: TaskGroup) -> None:
        offsets, lanes = self.outbox.offsets, self.lanes
        events, dead = decode_records(self.started.run, records)
        if self._buries:
            for letter in dead:
                self.outbox.put(letter)
        for event, record in events:
            if type(event) is ObservationEvent:  # by far the most frequent: nothing but this happens to it
                lane = lanes.get(event.stream) or self._join_stream(event, tasks)
                if not lane.open_observations:
                    tp = TopicPartition(record.topic, record.partition)
                    self.segment_tickets[event.stream] = offsets.begin(tp, record.offset)
                lane.open_observations.append(event)
            elif isinstance(event, SegmentClosedEvent):
                lane = lanes.get(event.stream) or self._join_stream(event, tasks)
                segment = lane.close_segment(event)
                ticket = self.segment_tickets.pop(event.stream)
                self.queues[event.stream][0].send_nowait((segment, event.id, ticket))
            elif (
                isinstance(event, TaskEvent | FeedbackEvent | CommitEvent) and event.lane in self._lane_names
            ):
                ticket = offsets.begin(TopicPartition(record.topic, record.partition), record.offset)
                tasks.start_soon(self._work, lanes[event.stream], event, ticket)
        offsets.reached_all(records)

    def _join_stream(self, event: ObservationEvent | SegmentClosedEvent, tasks: TaskGroup) -> Lane:
        """The lane of a stream whose partition came to this agent after it had started."""
        if event.stream not in self.started.segments:
            raise InvariantError(f"no stream {event.stream} in this run", (event.id,))
        return self._open_lane(event.stream, tasks)

    def _open_lane(self, stream: str, tasks: TaskGroup) -> Lane:
        name = f"{self.system}@{stream}"
        memory = self.open_memory(name, stream)
        lane = Lane(name, stream, self.started.run, memory, self.started.isolation, self.call_timeout_s)
        self.lanes[stream] = lane
        self._lane_names.add(name)
        # Unbounded on purpose: the replayer's `hold` bounds what waits here, and a bound here would make one
        # slow lane stop the trajectories of all the others.
        send, receive = anyio.create_memory_object_stream[_Work](math.inf)
        self.queues[stream] = (send, receive)
        tasks.start_soon(self._ingest, lane, receive)
        return lane

    async def _ingest(self, lane: Lane, queue: MemoryObjectReceiveStream[_Work]) -> None:
        async for segment, closed_id, ticket in queue:
            began_us = wall_us()
            delta = await lane.ingest(segment, closed_id)
            self.outbox.put(delta, ticket, began_us=began_us, ended_us=wall_us())

    async def _work(self, lane: Lane, event: TaskEvent | FeedbackEvent | CommitEvent, ticket: Ticket) -> None:
        if isinstance(event, FeedbackEvent) and event.type == "affirm":
            self.outbox.offsets.done(ticket)
            return
        async with self.limiter:
            began_us = wall_us()
            result: ResponseEvent | CommittedEvent
            if isinstance(event, TaskEvent):
                result = await lane.answer_task(event)
            elif isinstance(event, FeedbackEvent):
                result = await lane.answer_feedback(event)
            else:
                result = await lane.commit(event)
            self.outbox.put(result, ticket, began_us=began_us, ended_us=wall_us())

    async def _follow_control(self, tasks: TaskGroup) -> None:
        async with self.log.subscribe([self.topics.control]) as subscription:
            while True:
                for event, _ in decode_records(self.started.run, await subscription.poll())[0]:
                    # Closing may take its time, and must not delay the end of the run.
                    if isinstance(event, SegmentReleasedEvent) and event.lane in self._lane_names:
                        tasks.start_soon(self.lanes[event.stream].release, event.segment)
                    elif isinstance(event, TrajectoryClosedEvent) and event.lane in self._lane_names:
                        tasks.start_soon(self.lanes[event.stream].end_trajectory, event.trajectory)
                    elif isinstance(event, RunEndedEvent):
                        await self.outbox.flush()
                        tasks.cancel_scope.cancel()
