"""Memory systems whose branches are not apart, and those that are not what they declare."""

from __future__ import annotations

from typing import Self

from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from simulator.events import MemoryRecord, RetrievedRecord
from tests.conformance.stand_ins.whole import Asks, OnDisk, Whole


class ForksLate(Whole):
    """A fork copies its parent once it is used, or a conversation is committed: later than it was made."""

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.parent: ForksLate | None = None
        self.forks: list[ForksLate] = []

    def fork(self) -> Self:
        fork = type(self)(self.context)
        fork.parent = self
        self.forks.append(fork)
        return fork

    def _copy(self) -> None:
        if self.parent is not None:
            self.parent._copy()
            self.kept, self.parent = self.parent.kept, None

    async def ingest(self, segment: Segment) -> Delta:
        self._copy()
        return await super().ingest(segment)

    async def answer(self, request: Request) -> Answer:
        self._copy()
        return await super().answer(request)

    async def commit(self, interaction: Interaction) -> Delta:
        for memory in (self, *self.forks):
            memory._copy()
        return await super().commit(interaction)


class SharesCommits(Whole):
    """Forks keep what they ingest apart, and not what is committed."""

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.said: list[MemoryRecord] = []

    async def commit(self, interaction: Interaction) -> Delta:
        delta = await super().commit(interaction)
        self.said.extend(delta.records)
        return delta

    def search(self, text: str) -> list[RetrievedRecord]:
        own, self.kept = self.kept, tuple({r.id: r for r in (*self.kept, *self.said)}.values())
        try:
            return super().search(text)
        finally:
            self.kept = own


class Deaf(Whole):
    """Takes no conversation in."""

    async def commit(self, interaction: Interaction) -> Delta:
        return Delta()


class Commits1Late(Whole):
    """A conversation shows once another call has come, as with a buffer that is written in the background."""

    buffer: tuple[MemoryRecord, ...] = ()

    async def commit(self, interaction: Interaction) -> Delta:
        delta = await super().commit(interaction)
        self.kept, self.buffer = self.kept[:-1], delta.records
        return delta

    async def ingest(self, segment: Segment) -> Delta:
        self.kept, self.buffer = self.kept + self.buffer, ()
        return await super().ingest(segment)


class Undeclared(Asks):
    """Asks a model that it does not declare."""

    capabilities = Capabilities()


class OwnAnswers(Whole):
    """Says that the run answers, and answers by itself."""

    capabilities = Capabilities(answers="run")


class KeepsBack(OnDisk):
    """Its newest records are in memory alone."""

    def written(self) -> tuple[MemoryRecord, ...]:
        return self.kept[:-4]
