"""Answers from whole segments (RealMem's sessions) in place of the records that were found: `--value session`.

A memory ranks its own records either way, and that ranking is what is measured; what an answer is made from are the
segments in which they lie, each once, where its best record stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from adapters.memory import Answer, Copyable, Delta, Interaction, MemorySystem, Preparable, Request, Segment
from simulator.events import RetrievedRecord
from simulator.eventtime import segment_of


class SessionTexts:
    """The segments that a lane has ingested. Append-only, and shared by all branches: what is looked up is only where
    records lie that a branch has found."""

    def __init__(self) -> None:
        self._ends_us: list[int] = []
        self._texts: list[str] = []

    def add(self, segment: Segment) -> None:
        """Take the next segment; one that is there (a branch that ingests again) changes nothing."""
        if segment.segment == len(self._ends_us):
            self._ends_us.append(segment.end_time_us)
            self._texts.append(segment.text)

    def whole(self, retrieved: Iterable[RetrievedRecord], now_us: int) -> list[RetrievedRecord]:
        """The segments of some records, as records. What lies in none that has ended by now (a conversation, or a
        record with the time at which the newest segment ended) stays as it is: other branches may have gone on."""
        under_way = segment_of(now_us, self._ends_us)
        found: dict[str, RetrievedRecord] = {}
        for record in retrieved:
            segment = segment_of(record.event_time_us, self._ends_us)
            if segment >= under_way:
                found.setdefault(record.id, record)
                continue
            session = RetrievedRecord(
                id=f"s{segment}",
                text=self._texts[segment],
                event_time_us=record.event_time_us,
                score=record.score,
            )
            found.setdefault(session.id, session)
        return list(found.values())


class SessionValued:
    """A memory system whose segments are kept as well, for its answers."""

    def __init__(self, memory: MemorySystem, texts: SessionTexts) -> None:
        self._memory = memory
        self._texts = texts

    async def prepare(self) -> None:
        """Let it load what it needs."""
        if isinstance(self._memory, Preparable):
            await self._memory.prepare()

    async def ingest(self, segment: Segment) -> Delta:
        """Keep the segment, and let the memory take it in."""
        self._texts.add(segment)
        return await self._memory.ingest(segment)

    async def answer(self, request: Request) -> Answer:
        """As the memory answers."""
        return await self._memory.answer(request)

    async def commit(self, interaction: Interaction) -> Delta:
        """As the memory takes it in."""
        return await self._memory.commit(interaction)

    def fork(self) -> SessionValued:
        """A branch."""
        return SessionValued(self._memory.fork(), self._texts)

    async def aclose(self) -> None:
        """Let it go."""
        await self._memory.aclose()

    @property
    def directory(self) -> Path:
        """Of a memory that is copied; AttributeError for others, so that this is not taken for one."""
        if isinstance(self._memory, Copyable):
            return self._memory.directory
        raise AttributeError("directory")

    async def flush(self) -> None:
        """Of a memory that is copied."""
        assert isinstance(self._memory, Copyable)  # nobody else is asked to
        await self._memory.flush()
