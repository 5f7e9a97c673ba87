"""A memory system of one's own, attached to a run from another process: it needs `egostream` and nothing else of it.

It keeps the sentences of each segment that name somebody or something, and answers with those that share most words
with the question.
"""

from __future__ import annotations

import re

from egostream import Answer, Delta, Interaction, LaneContext, MemoryRecord, Request, RetrievedRecord, Segment


class NamesMemory:
    """Called as `NamesMemory(context, **options)`, once for each wearer."""

    def __init__(self, context: LaneContext, *, per_segment: int = 20) -> None:
        self.context, self.per_segment = context, per_segment
        self.kept: tuple[MemoryRecord, ...] = ()

    async def ingest(self, segment: Segment) -> Delta:
        named = [o for o in segment.observations if re.search(r"(?<=\w )[A-Z]\w+", o.text)]
        records = [MemoryRecord(id=o.id, text=o.text, event_time_us=o.event_time_us) for o in named]
        return self._keep(*records[-self.per_segment :])

    async def answer(self, request: Request) -> Answer:
        asked = set(re.findall(r"\w+", request.text.lower()))
        ranked = sorted(self.kept, key=lambda r: -len(asked.intersection(re.findall(r"\w+", r.text.lower()))))
        used = ranked[: self.context.top_k]
        found = tuple(RetrievedRecord(id=r.id, text=r.text, event_time_us=r.event_time_us) for r in used)
        return Answer(text="\n".join(r.text for r in used), retrieved=found)

    async def commit(self, interaction: Interaction) -> Delta:
        text = "\n".join(turn.text for turn in interaction.turns)
        return self._keep(MemoryRecord(id=interaction.id, text=text, event_time_us=interaction.event_time_us))

    def _keep(self, *records: MemoryRecord) -> Delta:
        self.kept += records  # a new tuple: forks go on with theirs
        return Delta(records=records, stored_bytes=sum(len(r.text.encode()) for r in records))

    def fork(self) -> NamesMemory:
        fork = NamesMemory(self.context, per_segment=self.per_segment)
        fork.kept = self.kept
        return fork

    async def aclose(self) -> None:
        self.kept = ()
