"""Memory systems that break one demand each, and the whole one that they are made of."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

from msgspec.structs import replace

from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.model import Ask, Message
from simulator.errors import ModelError
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
        fork = type(self).__new__(type(self))
        fork.__dict__.update(self.__dict__)
        return fork

    async def aclose(self) -> None:
        pass


class NewestFirst(Whole):
    """Finds what is new, whatever is asked."""

    def score(self, record: MemoryRecord, asked: set[str]) -> float:
        return 0.0


class AddsTwice(Whole):
    """Names its newest record again with each segment."""

    async def ingest(self, segment: Segment) -> Delta:
        last = self.kept[-1:]
        delta = await super().ingest(segment)
        return replace(delta, records=last + delta.records)


class UpdatesUnknown(Whole):
    async def ingest(self, segment: Segment) -> Delta:
        delta = await super().ingest(segment)
        return Delta(records=tuple(replace(r, op="update") for r in delta.records))


class Secretive(Whole):
    """Leaves the last record of a segment out of its delta."""

    async def ingest(self, segment: Segment) -> Delta:
        delta = await super().ingest(segment)
        return replace(delta, records=delta.records[:-1]) if len(delta.records) > 1 else delta


class Rewrites(Whole):
    """Finds other texts than it said it keeps."""

    def search(self, text: str) -> list[RetrievedRecord]:
        return [replace(r, text=f"{r.text} ") for r in super().search(text)]


class Boastful(Whole):
    """Claims a record that it doesn't keep."""

    async def ingest(self, segment: Segment) -> Delta:
        delta = await super().ingest(segment)
        claimed = replace(delta.records[0], id=f"s{segment.segment}/all", text=segment.text)
        return replace(delta, records=(*delta.records, claimed))


class Generous(Whole):
    """Rests answers on all that it has."""

    async def answer(self, request: Request) -> Answer:
        best = self.search(request.text)
        return Answer(text="\n".join(r.text for r in best), retrieved=tuple(best))


class AsciiOnly(Whole):
    def record_of(self, o: ObservationEvent) -> MemoryRecord:
        return replace(super().record_of(o), text=o.text.encode("ascii", "replace").decode())


class WantsTwo(Whole):
    """A lone observation has no context, it thinks."""

    async def ingest(self, segment: Segment) -> Delta:
        return await super().ingest(segment) if len(segment.observations) > 1 else Delta()


class Cuts(Whole):
    """Reads the first hundred observations of a segment."""

    async def ingest(self, segment: Segment) -> Delta:
        return await super().ingest(replace(segment, observations=segment.observations[:100]))


class NeedsOne(Whole):
    def search(self, text: str) -> list[RetrievedRecord]:
        found = super().search(text)
        assert found[0]
        return found


class Mixes(Whole):
    """All memories that are open see what each of them ingests, but for forks."""

    open: ClassVar[list[Mixes]] = []

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.open.append(self)

    async def ingest(self, segment: Segment) -> Delta:
        delta = await super().ingest(segment)
        for other in self.open:
            if other is not self and self in self.open:
                other.keep(*delta.records)
        return delta

    async def aclose(self) -> None:
        if self in self.open:
            self.open.remove(self)


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


class Swallows(Asks):
    """What its model can't write is not kept, and nobody hears of it."""

    async def write(self, text: str, event_time_us: int) -> str:
        try:
            return await super().write(text, event_time_us)
        except ModelError:
            return ""


class StoresHalf(Asks):
    """Keeps what it wrote before its model failed."""

    async def ingest(self, segment: Segment) -> Delta:
        records: tuple[MemoryRecord, ...] = ()
        for o in segment.observations:
            text = await self.write(o.text, o.event_time_us)
            records += self.keep(replace(self.record_of(o), text=text)).records
        return Delta(records=records)

    def record_of(self, o: ObservationEvent) -> MemoryRecord:
        return replace(super().record_of(o), id=f"{o.id}/{len(self.kept)}")


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


class ShrugsIt(AsksVectors):
    """Finds nothing where it can't search."""

    async def answer(self, request: Request) -> Answer:
        try:
            return await super().answer(request)
        except ModelError:
            return Answer(text="")


class DatesPrompts(Asks):
    def prompt(self, text: str) -> str:
        return f"<today>{datetime.now(UTC):%Y-%m-%d}</today>\n{text}"


class Undeclared(Asks):
    """Asks a model that it does not declare."""

    capabilities = Capabilities()


class OwnAnswers(Whole):
    """Says that the run answers, and answers by itself."""

    capabilities = Capabilities(answers="run")


class LeaksThread(Whole):
    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        END.clear()
        threading.Thread(target=END.wait, daemon=True).start()


class LeaksFile(Whole):
    files: ClassVar[list[Any]] = []

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.files.append(open(__file__))  # noqa: SIM115


class LeaksTask(Whole):
    tasks: ClassVar[list[asyncio.Task[None]]] = []

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.tasks.append(asyncio.get_running_loop().create_task(asyncio.sleep(3600)))


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


class KeepsBack(OnDisk):
    """Its newest records are in memory alone."""

    def written(self) -> tuple[MemoryRecord, ...]:
        return self.kept[:-4]


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


class StartsAnew(Server):
    """Starts another process where its own is gone, and says nothing of what was in it."""

    def send(self, *records: MemoryRecord) -> list[dict[str, Any]]:
        try:
            return super().send(*records)
        except (BrokenPipeError, ValueError):
            self.process.communicate()
            self.process = self.start()
            return super().send(*records)


class LeaksProcess(Server):
    left: ClassVar[list[subprocess.Popen[str]]] = []

    async def aclose(self) -> None:
        self.left.append(self.process)


END = threading.Event()


def clear() -> None:
    """Let go of what was left behind."""
    END.set()
    for file in LeaksFile.files:
        file.close()
    for task in LeaksTask.tasks:
        task.cancel()
    for process in LeaksProcess.left:
        process.kill()
        process.communicate()
    for left in (LeaksFile.files, LeaksTask.tasks, LeaksProcess.left):
        left.clear()


WHOLE: tuple[type[Whole], ...] = (Whole, Asks, AsksVectors, OnDisk, Server)

BROKEN: dict[type[Whole], str] = {
    NewestFirst: "retrieval",
    AddsTwice: "delta",
    UpdatesUnknown: "delta",
    Secretive: "delta",
    Rewrites: "delta",
    Boastful: "kept",
    Generous: "top_k",
    AsciiOnly: "chinese",
    WantsTwo: "single",
    Cuts: "large",
    NeedsOne: "nothing",
    Mixes: "lanes",
    ForksLate: "fork",
    SharesCommits: "commit",
    Deaf: "commit",
    Commits1Late: "commit",
    StampsNow: "times",
    StampsLate: "times",
    WritesYear: "times",
    DatesPrompts: "times",
    Warms: "answers",
    CountsCalls: "answers",
    DrawsIds: "rebuild",
    StartsAnew: "kill",
    Swallows: "outage",
    StoresHalf: "outage",
    ShrugsIt: "outage",
    LeaksThread: "close",
    LeaksFile: "close",
    LeaksTask: "close",
    LeaksProcess: "close",
    KeepsBack: "capabilities",
    Undeclared: "capabilities",
    OwnAnswers: "capabilities",
}
"""Each, and the one case that it fails."""
