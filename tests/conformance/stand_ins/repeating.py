"""Memory systems that keep or find other things when the same is done again, or at another time."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import Counter
from datetime import UTC, datetime

from msgspec.structs import replace

from adapters.memory import Answer, LaneContext, Request
from simulator.events import MemoryRecord, ObservationEvent
from tests.conformance.stand_ins.whole import Asks, Whole


class StampsNow(Whole):
    now_us = time.time_ns() // 1000

    def record_of(self, o: ObservationEvent) -> MemoryRecord:
        return replace(super().record_of(o), event_time_us=self.now_us)


class StampsLate(Whole):
    """By the end of what an observation belongs to, say, and not by the observation."""

    def record_of(self, o: ObservationEvent) -> MemoryRecord:
        return replace(super().record_of(o), event_time_us=o.event_time_us + 1_000_000)


class WritesYear(Whole):
    def record_of(self, o: ObservationEvent) -> MemoryRecord:
        return replace(super().record_of(o), text=f"{o.text} ({datetime.now(UTC):%Y})")


class Warms(Whole):
    """What is found often is ranked higher, as a heat."""

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.heat: Counter[str] = Counter()

    async def answer(self, request: Request) -> Answer:
        answer = await super().answer(request)
        self.heat.update(r.id for r in answer.retrieved[:1])
        return answer

    def score(self, record: MemoryRecord, asked: set[str]) -> float:
        return super().score(record, asked) + self.heat[record.id] / 1000


class CountsCalls(Whole):
    """Draws ids from a counter that questions move."""

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.numbers = itertools.count()

    async def answer(self, request: Request) -> Answer:
        next(self.numbers)
        return await super().answer(request)

    def record_of(self, o: ObservationEvent) -> MemoryRecord:
        return replace(super().record_of(o), id=f"n{next(self.numbers)}")


class DrawsIds(Whole):
    def record_of(self, o: ObservationEvent) -> MemoryRecord:
        return replace(super().record_of(o), id=uuid.uuid4().hex)


class DatesPrompts(Asks):
    def prompt(self, text: str) -> str:
        return f"<today>{datetime.now(UTC):%Y-%m-%d}</today>\n{text}"
