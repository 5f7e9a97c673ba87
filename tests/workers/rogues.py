"""Agents of somebody else's, over the log alone: one that behaves, and those that don't."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import anyio
import msgspec
from msgspec.structs import replace

from simulator.events import (
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    Event,
    FeedbackEvent,
    MemoryRecord,
    ObservationEvent,
    ReadyEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    encode,
)
from simulator.intake import decode_records
from simulator.log.protocol import Log, Record
from simulator.topics import Recorder, Topics
from simulator.workers import run_on

LABEL = "rogue"


class Behaved:
    """Keeps each segment's text whole, and answers with the newest; does all that is asked, at once."""

    def __init__(self) -> None:
        self.log: Log
        self.started: RunStartedEvent
        self.seen: dict[str, list[ObservationEvent]] = defaultdict(list)
        self.said: dict[tuple[str, int], str] = {}

    async def run(self, url: str) -> None:
        """Take part in the run of a log, until it ends."""
        async with run_on(url, "any", 60) as (self.log, self.started):
            self.recorder = Recorder.for_run(self.started)
            self.topics = Topics.of(self.started.run)
            async with (
                self.log.subscribe(self.topics.for_agents) as subscription,
                anyio.create_task_group() as self.tasks,
            ):
                role = f"agent.{LABEL}"
                await self.write(
                    ReadyEvent(id=f"ready/{role}", run=self.started.run, event_time_us=0, role=role)
                )
                while True:
                    for event, _ in decode_records(self.started.run, await subscription.poll())[0]:
                        if isinstance(event, RunEndedEvent):
                            self.tasks.cancel_scope.cancel()
                            return
                        self.take(event)
                        if (answer := self.answer(event)) is not None:
                            await self.reply(event, answer)

    def take(self, event: Event) -> None:
        if isinstance(event, ObservationEvent):
            self.seen[event.stream].append(event)
        elif isinstance(event, SegmentClosedEvent):
            self.said[event.stream, event.segment] = "\n".join(o.text for o in self.seen.pop(event.stream))

    def answer(self, event: Event) -> Event | None:
        if isinstance(event, SegmentClosedEvent):
            lane, text = f"{LABEL}@{event.stream}", self.said[event.stream, event.segment]
            record = MemoryRecord(id=event.id, text=text, event_time_us=event.event_time_us)
            return DeltaEvent(
                id=f"{lane}/delta/{event.segment}",
                run=event.run,
                event_time_us=event.event_time_us,
                stream=event.stream,
                as_of=event.segment,
                causes=(event.id,),
                lane=lane,
                segment=event.segment,
                records=(record,),
            )
        if not isinstance(event, TaskEvent | FeedbackEvent | CommitEvent) or not event.lane.startswith(
            f"{LABEL}@"
        ):
            return None
        cause = {
            "run": event.run,
            "event_time_us": event.event_time_us,
            "stream": event.stream,
            "as_of": event.as_of,
            "causes": (event.id,),
            "lane": event.lane,
            "trajectory": event.trajectory,
            "step": event.step + 1,
        }
        if isinstance(event, CommitEvent):
            return msgspec.convert(
                {**cause, "id": f"{event.trajectory}/committed", "kind": "committed"}, CommittedEvent
            )
        if isinstance(event, FeedbackEvent) and event.type == "affirm":
            return None
        phase = "R_F" if isinstance(event, FeedbackEvent) else "R1" if event.phase == "T1" else "R2"
        text = self.said[event.stream, event.as_of or 0]
        given = {
            **cause,
            "id": f"{event.trajectory}/{phase}",
            "phase": phase,
            "text": text,
            "kind": "response",
        }
        return msgspec.convert(given, ResponseEvent)

    async def reply(self, event: Event, answer: Event) -> None:
        await self.write(answer)

    async def write(self, *events: Event) -> None:
        await self.log.append([self.recorder.record(event) for event in events])

    async def write_value(self, value: bytes, topic: str = "responses", partition: int = 0) -> None:
        name = getattr(self.topics, topic)
        await self.log.append([Record(name, b"key", value, 0, (("kind", b"response"),), partition)])


class Silent(Behaved):
    """Says nothing after `ready`."""

    async def reply(self, event: Event, answer: Event) -> None:
        pass


class Dies(Behaved):
    """Is gone after a while."""

    def __init__(self, replies: int = 15) -> None:
        super().__init__()
        self.replies = replies

    async def reply(self, event: Event, answer: Event) -> None:
        self.replies -= 1
        if self.replies < 0:
            self.tasks.cancel_scope.cancel()
            await anyio.lowlevel.checkpoint()
        await self.write(answer)


class Deaf(Behaved):
    """Writes its deltas, and answers nothing."""

    async def reply(self, event: Event, answer: Event) -> None:
        if isinstance(answer, DeltaEvent):
            await self.write(answer)


class Late(Behaved):
    """Answers in the moment in which it is not waited for any more."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Event] = {}

    def answer(self, event: Event) -> Event | None:
        if isinstance(event, TrajectoryClosedEvent):
            return self.kept.pop(event.trajectory, None)
        return super().answer(event)

    async def reply(self, event: Event, answer: Event) -> None:
        if isinstance(event, SegmentClosedEvent | TrajectoryClosedEvent):
            await self.write(answer)
        elif isinstance(answer, ResponseEvent | CommittedEvent):
            self.kept[answer.trajectory] = answer


class Hasty(Behaved):
    """Answers T2 with T1, when nobody has asked it, and again once it is asked."""

    async def reply(self, event: Event, answer: Event) -> None:
        await self.write(answer)
        if isinstance(answer, ResponseEvent) and answer.phase == "R1":
            ahead = replace(answer, id=f"{answer.trajectory}/R2", phase="R2", step=7, text="whatever you ask")
            await self.write(ahead)


class Twice(Behaved):
    """Says everything twice, the second time something else."""

    async def reply(self, event: Event, answer: Event) -> None:
        await self.write(answer, *self.other(answer))

    def other(self, answer: Event) -> Sequence[Event]:
        if isinstance(answer, ResponseEvent):
            return (replace(answer, text="or not"), replace(answer, id=f"{answer.id}/again", text="or else"))
        return (answer,)


class Rubbish(Behaved):
    """Sends what makes no sense before each thing that does; `only`: and then not the thing itself, but for its
    first deltas."""

    def __init__(self, *, only: bool = False, deltas: int = 3) -> None:
        super().__init__()
        self.only = only
        self.deltas = deltas

    async def reply(self, event: Event, answer: Event) -> None:
        number = self.recorder.record(answer).partition or 0
        topic = "deltas" if isinstance(answer, DeltaEvent | CommittedEvent) else "responses"
        for value in (
            b"\xff{no JSON",
            b'{"kind":"guess","id":"g"}',
            encode(replace(answer, run="run-other")),
        ):
            await self.write_value(value, topic, number)
        # in another lane's partition, and on a topic where it does not belong
        await self.write_value(encode(answer), topic, (number + 1) % self.started.partitions)
        await self.write_value(encode(answer), "verdicts", number)
        await self.write(*self.nonsense(answer))
        if self.only and not (isinstance(answer, DeltaEvent) and answer.segment < self.deltas):
            return
        await self.write(answer)

    def nonsense(self, answer: Event) -> list[Event]:
        others = [stream for stream in self.started.streams if stream != answer.stream]
        wrong: list[Event] = [
            replace(answer, as_of=(answer.as_of or 0) + 1),
            replace(answer, stream=others[0]),
        ]
        wrong += [replace(answer, lane="ghost@" + answer.stream), replace(answer, event_time_us=-1)]
        if isinstance(answer, DeltaEvent):
            wrong += [
                replace(answer, segment=answer.segment + 5, as_of=answer.segment + 5, id=f"{answer.id}/x"),
                replace(answer, segment=10**9, as_of=10**9, id=f"{answer.id}/y"),
                self._response(answer, "R1", f"{answer.lane}/s{answer.segment + 1}/e0"),
            ]
        elif isinstance(answer, ResponseEvent):
            wrong += [
                replace(answer, trajectory=f"{answer.lane}/s99/e9"),
                replace(answer, step=77),
            ]
            if answer.phase == "R1":
                wrong.append(replace(answer, phase="R_F", step=3, id=f"{answer.trajectory}/R_F"))
        return wrong

    def _response(self, delta: DeltaEvent, phase: str, trajectory: str) -> ResponseEvent:
        """An answer to what nobody has asked yet."""
        return ResponseEvent(
            id=f"{trajectory}/{phase}",
            run=delta.run,
            event_time_us=delta.event_time_us,
            stream=delta.stream,
            as_of=delta.segment + 1,
            lane=delta.lane,
            trajectory=trajectory,
            step=1,
            phase="R1",
            text="whatever",
        )
