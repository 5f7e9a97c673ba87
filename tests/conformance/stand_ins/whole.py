"""Memory systems that keep every demand: the plain one, and those with a model, a folder or a process of their own."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.model import Ask, Message
from simulator.events import MemoryRecord, ObservationEvent, RetrievedRecord
from simulator.text import tokens


class Whole:
    """Keeps every observation, and ranks by shared words, the newest of equals first."""

    capabilities: Any = Capabilities()

    def __init__(self, context: LaneContext) -> None:
        self.context = context
        self.kept: tuple[MemoryRecord, ...] = ()

    async def ingest(self, segment: Segment) -> Delta:
        return self.keep(*(self.record_of(o) for o in segment.observations))

    def record_of(self, o: ObservationEvent) -> MemoryRecord:
        return MemoryRecord(id=o.id, text=o.text, event_time_us=o.event_time_us)

    async def answer(self, request: Request) -> Answer:
        best = self.search(request.text)[: self.context.top_k]
        return Answer(text="\n".join(r.text for r in best), retrieved=tuple(best))

    def search(self, text: str) -> list[RetrievedRecord]:
        asked = set(tokens(text))
        found = [
            RetrievedRecord(id=r.id, text=r.text, event_time_us=r.event_time_us, score=self.score(r, asked))
            for r in reversed(self.kept)
        ]
        return sorted(found, key=lambda r: -r.score)

    def score(self, record: MemoryRecord, asked: set[str]) -> float:
        return float(len(asked & set(tokens(record.text))))

    async def commit(self, interaction: Interaction) -> Delta:
        text = "\n".join(f"{turn.role}: {turn.text}" for turn in interaction.turns)
        return self.keep(MemoryRecord(id=interaction.id, text=text, event_time_us=interaction.event_time_us))

    def keep(self, *records: MemoryRecord) -> Delta:
        self.kept += records
        return Delta(records=records)

    def fork(self) -> Self:
        return copy.copy(self)

    async def aclose(self) -> None:
        pass


class Asks(Whole):
    """A model writes what it keeps, with one call for each observation."""

    capabilities = Capabilities(model="writer")

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.model = context.model("writer")

    async def ingest(self, segment: Segment) -> Delta:
        texts = [await self.write(o.text, o.event_time_us) for o in segment.observations]
        records = [
            replace(self.record_of(o), text=text)
            for o, text in zip(segment.observations, texts, strict=True)
            if text
        ]
        return self.keep(*records)

    async def write(self, text: str, event_time_us: int) -> str:
        said = await self.model.ask(Ask(messages=(Message(role="user", content=self.prompt(text)),)))
        return said.text

    def prompt(self, text: str) -> str:
        return text


class AsksLate(Asks):
    """Keeps what is said as it is, and once it holds so many records, has the oldest written anew."""

    full = 20

    async def ingest(self, segment: Segment) -> Delta:
        records = [self.record_of(o) for o in segment.observations]
        if len(self.kept) >= self.full:
            oldest = self.kept[0]
            text = await self.write(oldest.text, oldest.event_time_us)
            records.append(replace(oldest, id=f"{segment.segment}/anew", text=text))
        return self.keep(*records)


class NeverAsks(AsksLate):
    """Declares a model for what does not come."""

    full = 1000


class AsksVectors(Whole):
    """Embeds questions by a configured model."""

    capabilities = Capabilities(embedder="vectors")

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.embedder = context.embedder("vectors")

    async def ingest(self, segment: Segment) -> Delta:
        await self.embedder.embed([o.text for o in segment.observations])
        return await super().ingest(segment)

    async def answer(self, request: Request) -> Answer:
        await self.embedder.embed([request.text])
        return await super().answer(request)


class OnDisk(Whole):
    """Keeps its records in a folder."""

    capabilities = Capabilities(fork="copy")
    fork: Any = None

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        assert context.directory is not None
        self.directory = context.directory
        if self.file.exists():
            self.kept = tuple(MemoryRecord(**row) for row in json.loads(self.file.read_text()))

    @property
    def file(self) -> Path:
        return self.directory / "records.json"

    async def flush(self) -> None:
        rows = [{"id": r.id, "text": r.text, "event_time_us": r.event_time_us} for r in self.written()]
        self.file.write_text(json.dumps(rows))

    def written(self) -> tuple[MemoryRecord, ...]:
        return self.kept


SERVER = """
import json, sys
records = []
for line in sys.stdin:
    new = json.loads(line)
    records.extend(new)
    print(json.dumps(records), flush=True)
"""


class Server(Whole):
    """Its records are in a process of its own; a call whose process is gone fails."""

    capabilities = Capabilities(fork="replay")
    fork: Any = None

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, *records: MemoryRecord) -> list[dict[str, Any]]:
        rows = [{"id": r.id, "text": r.text, "event_time_us": r.event_time_us} for r in records]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(rows) + "\n")
        self.process.stdin.flush()
        given: list[dict[str, Any]] = json.loads(self.process.stdout.readline())
        return given

    def keep(self, *records: MemoryRecord) -> Delta:
        self.send(*records)
        return Delta(records=records)

    def search(self, text: str) -> list[RetrievedRecord]:
        self.kept = tuple(MemoryRecord(**row) for row in self.send())
        return super().search(text)

    async def aclose(self) -> None:
        self.process.kill()
        self.process.communicate()
