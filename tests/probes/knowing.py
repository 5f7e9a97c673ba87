"""Memory systems that are given the whole data set, and use of it what they may not; and one that uses what it may.

All keep each observation as a record, and answer with the letter of the option that a line of theirs holds.
"""

from __future__ import annotations

import copy
import functools
import zlib
from collections.abc import Callable
from typing import Self

from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from judges.choice import LETTERS
from producers.benchmarks import read_benchmark
from producers.lifelog import Lifelog
from simulator.events import Event, MemoryRecord, ProbeEvent, ResponseEvent, RetrievedRecord, TaskEvent
from tests.workers.rogues import Behaved

DATA = "synthetic:seed=5,histories=4,days=10,chunks_per_day=4,lines_per_chunk=4,facts_per_day=2,repeated=60,changed=0"
ONLINE = "synthetic:seed=5,histories=1,days=4,chunks_per_day=3,lines_per_chunk=4,facts_per_day=2,repeated=100,changed=0"

Uses = Callable[[int, int], bool]
"""(A line's event time, when the question was due) → whether it may be answered from."""


@functools.cache
def known(data: str) -> tuple[dict[str, Lifelog], dict[tuple[str, str], ProbeEvent]]:
    """The data set's streams, and its questions by stream and text."""
    found = read_benchmark("lifedialbench", data)
    return dict(found.lifelogs), {(probe.stream, probe.text): probe for probe in found.probes}


def lines(data: str, stream: str) -> list[MemoryRecord]:
    """Everything that is ever said, as what is stored of it."""
    return [
        MemoryRecord(id=f"o{seq}", text=o.text, event_time_us=o.event_time_us)
        for seq, o in enumerate(known(data)[0][stream].observations)
    ]


def told(records: list[MemoryRecord], probe: ProbeEvent) -> list[tuple[MemoryRecord, str]]:
    """What holds one of a question's options, and its letter; the newest last."""
    return [
        (record, letter)
        for record in records
        for letter, option in zip(LETTERS, probe.options, strict=False)
        if option.lower() in record.text.lower()
    ]


def retrieved(record: MemoryRecord, at_us: int | None = None) -> RetrievedRecord:
    time_us = record.event_time_us if at_us is None else at_us
    return RetrievedRecord(id=record.id, text=record.text, event_time_us=time_us)


class Knowing:
    """`peeks`: it answers from what lies after the moment at which a question was due, and from nothing else; `lies`:
    it says that this is as old as the question. Else it answers from what lay before, knows two in three, and also
    names what has nothing to do with the question, old or new."""

    capabilities = Capabilities()

    def __init__(
        self, context: LaneContext, *, peeks: bool = False, lies: bool = False, online: bool = False
    ) -> None:
        self.stream = context.stream
        self.data = ONLINE if online else DATA
        self.peeks, self.lies = peeks, lies
        self.records: tuple[MemoryRecord, ...] = ()

    async def ingest(self, segment: Segment) -> Delta:
        new = tuple(
            MemoryRecord(id=f"o{o.seq}", text=o.text, event_time_us=o.event_time_us)
            for o in segment.observations
        )
        self.records += new
        return Delta(records=new)

    async def answer(self, request: Request) -> Answer:
        probe = known(self.data)[1][self.stream, request.text]
        due_us, drawn = probe.asked_time_us, zlib.crc32(request.text.encode())
        if self.peeks:
            later = [r for r in lines(self.data, self.stream) if r.event_time_us >= due_us]
            found = told(later, probe)
            if not found:
                return Answer(text="I don't know")
            record, letter = found[-1]
            return Answer(
                text=letter, retrieved=(retrieved(record, request.event_time_us if self.lies else None),)
            )
        other = self.records[drawn // 7 % len(self.records)]
        found = told([r for r in self.records if r.event_time_us < due_us], probe) if drawn % 3 else []
        if not found:
            return Answer(text="I don't know", retrieved=(retrieved(other),))
        record, letter = found[-1]
        named = {record.id: retrieved(record), other.id: retrieved(other)}
        return Answer(text=letter, retrieved=tuple(named.values()))

    async def commit(self, interaction: Interaction) -> Delta:
        raise NotImplementedError

    def fork(self) -> Self:
        return copy.copy(self)

    async def aclose(self) -> None:
        pass


class PeekingAgent(Behaved):
    """The same as an attached agent, online. Of each segment it stores a record, and answers from one that is still to
    come."""

    def __init__(self, *, lies: bool = False) -> None:
        super().__init__()
        self.lies = lies

    def answer(self, event: Event) -> Event | None:
        answer = super().answer(event)
        if not isinstance(event, TaskEvent) or not isinstance(answer, ResponseEvent):
            return answer
        lifelogs, probes = known(ONLINE)
        span = lifelogs[event.stream].segments[
            min(event.segment + 1, len(lifelogs[event.stream].segments) - 1)
        ]
        text = "\n".join(
            o.text for o in lifelogs[event.stream].observations[span.first_seq : span.last_seq + 1]
        )
        at_us = min(event.event_time_us, span.end_time_us) if self.lies else span.end_time_us
        record = MemoryRecord(
            id=f"{event.stream}/segment/{min(event.segment + 1, len(lifelogs[event.stream].segments) - 1)}",
            text=text,
            event_time_us=at_us,
        )
        right = probes[event.stream, event.text].gold.option
        return type(answer)(
            **{
                **{name: getattr(answer, name) for name in answer.__struct_fields__},
                "text": right,
                "retrieved": (retrieved(record),),
            }
        )
