"""A notebook: each line that was seen or said is a note, and a line that comes again is the same note, newer.

Its notes lie in a SQLite file with a full-text index, in the folder that egostream gives it; a trajectory's branch is a
copy of that folder.
"""

import re
import sqlite3
from collections.abc import Iterable

from egostream import (
    Answer,
    Capabilities,
    ConfigError,
    Delta,
    Interaction,
    LaneContext,
    MemoryRecord,
    Request,
    RetrievedRecord,
    Segment,
    respond,
)

_TOKEN = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (number INTEGER PRIMARY KEY, text TEXT UNIQUE, event_time_us INT);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(tokens);
"""
_SEARCH = """
SELECT number, text, event_time_us, -bm25(words) AS score FROM words JOIN notes ON notes.number = words.rowid
WHERE words MATCH ? ORDER BY score DESC, number DESC LIMIT ?
"""


class NotebookMemory:
    """Keeps each line once, in SQLite, and answers with the best by BM25.

    `top_k`: notes that an answer may use; the run's own unless given.
    """

    capabilities = Capabilities(fork="copy", answers="run")

    def __init__(self, context: LaneContext, *, top_k: int | None = None) -> None:
        if top_k is not None and top_k < 1:
            raise ConfigError(f"notebook: top_k must be at least 1, not {top_k}")
        assert context.directory is not None  # since it declares fork="copy"
        self.context, self.directory = context, context.directory
        self.top_k = top_k or context.top_k
        self.db = sqlite3.connect(self.directory / "notebook.db")  # new, or a copy of another memory's
        self.db.executescript(_SCHEMA)

    async def ingest(self, segment: Segment) -> Delta:
        return self.write((o.text, o.event_time_us) for o in segment.observations)

    async def commit(self, interaction: Interaction) -> Delta:
        said = "\n".join(f"{turn.role}: {turn.text}" for turn in interaction.turns)
        return self.write([(said, interaction.event_time_us)])

    async def answer(self, request: Request) -> Answer:
        words = {
            f'"{token}"' for turn in request.history[-1:] for token in _tokens(turn.text)
        }  # on R_F: the feedback
        words |= {f'"{token}"' for token in _tokens(request.text)}
        rows = self.db.execute(_SEARCH, (" OR ".join(sorted(words)), self.top_k)).fetchall() if words else []
        found = [
            RetrievedRecord(id=f"n{number}", text=text, event_time_us=time_us, score=score)
            for number, text, time_us, score in rows
        ]
        return await respond(self.context, request, found)  # by a model, where the run has one

    def write(self, lines: Iterable[tuple[str, int]]) -> Delta:
        """One note for each different line; the delta says which are new and which only came again."""
        records, stored_bytes = {}, 0
        with self.db:  # all of it, or nothing
            for text, time_us in lines:
                known = self.db.execute("SELECT number FROM notes WHERE text = ?", (text,)).fetchone()
                if known is None:
                    values = (text, time_us)
                    number = self.db.execute(
                        "INSERT INTO notes (text, event_time_us) VALUES (?, ?)", values
                    ).lastrowid
                    self.db.execute(
                        "INSERT INTO words (rowid, tokens) VALUES (?, ?)", (number, " ".join(_tokens(text)))
                    )
                    stored_bytes += len(text.encode())
                    op = "add"
                else:
                    (number,) = known
                    self.db.execute("UPDATE notes SET event_time_us = ? WHERE number = ?", (time_us, number))
                    op = records[number].op if number in records else "update"
                records[number] = MemoryRecord(id=f"n{number}", text=text, event_time_us=time_us, op=op)
        return Delta(records=tuple(records.values()), stored_bytes=stored_bytes)

    async def flush(self) -> None:
        """Nothing to do: each write is committed, and SQLite keeps no more than this file."""

    async def aclose(self) -> None:
        self.db.close()


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text.lower())
