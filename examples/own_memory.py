"""Your own memory system: it keeps the longest lines of each segment.

Run it with `egostream run --data PATH --system examples.own_memory:LongestLines --out RUN`, or with an
option: `--system examples.own_memory:LongestLines:per_segment=5`.
"""

from egostream import Answer, Delta, Interaction, LaneContext, MemoryRecord, Request, RetrievedRecord, Segment


class LongestLines:
    def __init__(self, context: LaneContext, per_segment: int = 20) -> None:
        self.context, self.per_segment = context, per_segment
        self.kept: tuple[MemoryRecord, ...] = ()

    async def ingest(self, segment: Segment) -> Delta:
        longest = sorted(segment.observations, key=lambda o: -len(o.text))[: self.per_segment]
        records = [MemoryRecord(id=o.id, text=o.text, event_time_us=o.event_time_us) for o in longest]
        return self.keep(*records)

    async def answer(self, request: Request) -> Answer:
        asked = set(request.text.lower().split())
        ranked = sorted(self.kept, key=lambda r: -len(asked & set(r.text.lower().split())))
        best = ranked[: self.context.top_k]
        used = tuple(RetrievedRecord(id=r.id, text=r.text, event_time_us=r.event_time_us) for r in best)
        return Answer(text="\n".join(r.text for r in used), retrieved=used)

    async def commit(self, interaction: Interaction) -> Delta:
        text = "\n".join(f"{turn.role}: {turn.text}" for turn in interaction.turns)
        return self.keep(MemoryRecord(id=interaction.id, text=text, event_time_us=interaction.event_time_us))

    def keep(self, *records: MemoryRecord) -> Delta:
        self.kept += records  # a new tuple: forks go on with theirs
        return Delta(records=records, stored_bytes=sum(len(r.text.encode()) for r in records))

    def fork(self) -> "LongestLines":
        fork = LongestLines(self.context, self.per_segment)
        fork.kept = self.kept
        return fork

    async def aclose(self) -> None:
        self.kept = ()
