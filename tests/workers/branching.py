"""One memory three times, the same but for how its branches are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from adapters.memory import Capabilities, Delta, Interaction, LaneContext, Segment
from simulator.events import MemoryRecord, Usage
from tests.workers.slow_memory import SlowMemory

INGEST_TOKENS = 7


class Forking(SlowMemory):
    def __init__(self, context: LaneContext, *, ms: int = 0, spoilt: bool = False) -> None:
        super().__init__(context, ms=ms, spoilt=spoilt)

    async def ingest(self, segment: Segment) -> Delta:
        return replace(await super().ingest(segment), usage=Usage(prompt_tokens=INGEST_TOKENS))


class Copying(Forking):
    """Keeps its records in JSON lines, of which the last are in memory until it is flushed. Nothing is appended to
    what a former instance left, without showing: the file is read once, when it is made."""

    capabilities = Capabilities(fork="copy")
    fork: Any = None

    def __init__(self, context: LaneContext, *, ms: int = 0, spoilt: bool = False) -> None:
        super().__init__(context, ms=ms, spoilt=spoilt)
        assert context.directory is not None
        self.directory = context.directory
        self.unwritten: list[MemoryRecord] = []
        self.busy = False
        if self.file.exists():
            lines = self.file.read_bytes().splitlines()
            self.records = tuple(msgspec.json.decode(line, type=MemoryRecord) for line in lines)

    @property
    def file(self) -> Path:
        return self.directory / "deep" / "records.jsonl"

    async def ingest(self, segment: Segment) -> Delta:
        assert not self.busy
        self.busy = True  # whoever copies it now, copies half of a segment
        try:
            return await super().ingest(segment)
        finally:
            self.busy = False

    async def commit(self, interaction: Interaction) -> Delta:
        assert not self.busy
        return await super().commit(interaction)

    async def flush(self) -> None:
        assert not self.busy
        self.file.parent.mkdir(exist_ok=True)
        with self.file.open("ab") as file:
            file.writelines(msgspec.json.encode(record) + b"\n" for record in self.unwritten)
        self.unwritten = []

    def _keep(self, name: str, text: str, event_time_us: int) -> Delta:
        delta = super()._keep(name, text, event_time_us)
        self.unwritten += delta.records
        return delta


class Replaying(Forking):
    """Can't be copied."""

    capabilities = Capabilities(fork="replay")
    fork: Any = None


class Changeable(Replaying):
    """Names its records anew each time."""

    made = 0

    def _keep(self, name: str, text: str, event_time_us: int) -> Delta:
        Changeable.made += 1
        return super()._keep(f"{name}/{Changeable.made}", text, event_time_us)


class Uncopyable(Copying):
    """From its third record on, its folder holds a link that leads nowhere."""

    async def flush(self) -> None:
        await super().flush()
        link = self.directory / "deep" / "link"
        if len(self.records) >= 3 and not link.is_symlink():
            link.symlink_to("nowhere")


class Elsewhere(Copying):
    """Keeps its memory where it likes, and so all its instances in one place."""

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.directory = self.directory.parent
