"""All of the stream, the newest in sight: what a long context without retrieval would hold."""

from __future__ import annotations

import copy
from typing import Self

from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.responder import respond
from adapters.store import Store
from adapters.systems.records import interaction_text, retrieved_record, stored_bytes
from simulator.events import MemoryRecord


class FullContextMemory:
    """Stores every observation as a record, so that a delta is the raw segment, and every interaction as one
    more; answers with the newest records first, as many as the word budget holds."""

    capabilities = Capabilities(
        answers="run", exempt={"top_k": "it shows all that it holds, as far as the word budget goes"}
    )

    __slots__ = ("_context", "_store")

    def __init__(self, context: LaneContext) -> None:
        self._context = context
        self._store = Store()

    async def ingest(self, segment: Segment) -> Delta:
        """Store the segment's observations."""
        return self._add(
            tuple(
                MemoryRecord(id=f"o{o.seq}", text=o.text, event_time_us=o.event_time_us)
                for o in segment.observations
            )
        )

    async def answer(self, request: Request) -> Answer:
        """The newest records, newest first."""
        newest = (retrieved_record(record) for record in reversed(self._store))
        return await respond(self._context, request, newest)

    async def commit(self, interaction: Interaction) -> Delta:
        """Store the interaction as one record."""
        text = interaction_text(interaction)
        return self._add(
            (MemoryRecord(id=f"{interaction.id}/c0", text=text, event_time_us=interaction.event_time_us),)
        )

    def _add(self, records: tuple[MemoryRecord, ...]) -> Delta:
        self._store.add(records)
        return Delta(records=records, stored_bytes=stored_bytes(records))

    def fork(self) -> Self:
        """An isolated copy in O(1)."""
        child = copy.copy(self)
        child._store = self._store.fork()
        return child

    async def aclose(self) -> None:
        """There is nothing to let go of."""
