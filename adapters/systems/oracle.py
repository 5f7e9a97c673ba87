"""The upper bound: a memory that is handed the evidence."""

from __future__ import annotations

import copy
from typing import Self

from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.store import Store
from adapters.systems.records import retrieved_record, stored_bytes
from simulator.events import AnchorEvent, MemoryRecord


class OracleMemory:
    """Is handed each segment's evidence statements and answers with exactly the one that the request is
    about, or where a model answers, from it. That is the one of the first anchor, among those of the segments seen so
    far, one of whose two requests equals it; else nothing. Privileged: an upper bound and no competitor. Commits add
    nothing to what it was handed."""

    capabilities = Capabilities(
        privileged=True,
        answers="run",
        exempt={"commit": "it is handed the evidence, and conversations add nothing to it"},
    )

    __slots__ = ("_anchors_asked", "_anchors_of", "_context", "_store")

    def __init__(self, context: LaneContext) -> None:
        self._context = context
        self._store = Store()
        self._anchors_of: dict[int, list[AnchorEvent]] = {}
        self._anchors_asked: dict[str, set[str]] = {}
        for anchor in context.anchors:
            self._anchors_of.setdefault(anchor.segment, []).append(anchor)
            for task in (anchor.initial_task, anchor.followup_task):
                self._anchors_asked.setdefault(task.user_request, set()).add(anchor.anchor)

    async def ingest(self, segment: Segment) -> Delta:
        """Store the evidence statements of the segment's anchors."""
        records = tuple(
            MemoryRecord(
                id=a.anchor, text=a.evidence_statement, event_time_us=segment.observations[-1].event_time_us
            )
            for a in self._anchors_of.get(segment.segment, ())
        )
        self._store.add(records)
        return Delta(records=records, stored_bytes=stored_bytes(records))

    async def answer(self, request: Request) -> Answer:
        """The evidence statement that the request is about."""
        asked = self._anchors_asked.get(request.text, set())
        found = next((record for record in self._store if record.id in asked), None)
        retrieved = () if found is None else (retrieved_record(found, 1.0),)
        if self._context.responder is not None:
            return await self._context.responder.respond(request, retrieved)
        return Answer(text="" if found is None else found.text, retrieved=retrieved)  # no budget, no feedback

    async def commit(self, interaction: Interaction) -> Delta:
        """Nothing to add: the evidence is already there."""
        return Delta()

    def fork(self) -> Self:
        """An isolated copy in O(1)."""
        child = copy.copy(self)
        child._store = self._store.fork()
        return child

    async def aclose(self) -> None:
        """There is nothing to let go of."""
