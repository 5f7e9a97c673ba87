"""Your own memory system that keeps all it knows in a folder, here a SQLite file, and can't fork.

Run it with `egostream run --data PATH --system examples.directory_memory:NotesOnDisk --out RUN`. Each trajectory gets
its memory by a copy of the folder.
"""

import sqlite3

from egostream import (
    Answer,
    Capabilities,
    Delta,
    Interaction,
    LaneContext,
    MemoryRecord,
    Request,
    RetrievedRecord,
    Segment,
)


class NotesOnDisk:
    capabilities = Capabilities(fork="copy")

    def __init__(self, context: LaneContext) -> None:
        assert context.directory is not None  # since it declares fork="copy"
        self.context, self.directory = context, context.directory
        self.db = sqlite3.connect(self.directory / "notes.db")  # new, or a copy of another memory's
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, text TEXT, event_time_us INT)"
        )

    async def ingest(self, segment: Segment) -> Delta:
        lines = [
            MemoryRecord(id=o.id, text=o.text, event_time_us=o.event_time_us) for o in segment.observations
        ]
        return self.keep(*lines)

    async def answer(self, request: Request) -> Answer:
        asked = set(request.text.lower().split())
        notes = self.db.execute("SELECT id, text, event_time_us FROM notes ORDER BY rowid DESC").fetchall()
        best = sorted(notes, key=lambda n: -len(asked & set(n[1].lower().split())))[: self.context.top_k]
        used = tuple(RetrievedRecord(id=n[0], text=n[1], event_time_us=n[2]) for n in best)
        return Answer(text="\n".join(r.text for r in used), retrieved=used)

    async def commit(self, interaction: Interaction) -> Delta:
        text = "\n".join(f"{turn.role}: {turn.text}" for turn in interaction.turns)
        return self.keep(MemoryRecord(id=interaction.id, text=text, event_time_us=interaction.event_time_us))

    def keep(self, *records: MemoryRecord) -> Delta:
        rows = [(r.id, r.text, r.event_time_us) for r in records]
        self.db.executemany("INSERT INTO notes VALUES (?, ?, ?)", rows)
        return Delta(records=records, stored_bytes=sum(len(r.text.encode()) for r in records))

    async def flush(self) -> None:
        self.db.commit()  # all that the file is to hold when it is copied

    async def aclose(self) -> None:
        self.db.close()
