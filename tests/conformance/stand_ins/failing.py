"""Memory systems that fail badly where their model or their process does, or leave something behind."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from typing import Any, ClassVar

from msgspec.structs import replace

from adapters.memory import Answer, Delta, LaneContext, Request, Segment
from simulator.errors import ModelError
from simulator.events import MemoryRecord, ObservationEvent
from tests.conformance.stand_ins.whole import Asks, AsksLate, AsksVectors, Server, Whole


class Swallows(Asks):
    """What its model can't write is not kept, and nobody hears of it."""

    async def write(self, text: str, event_time_us: int) -> str:
        try:
            return await super().write(text, event_time_us)
        except ModelError:
            return ""


class SwallowsLate(AsksLate, Swallows):
    """Keeps an empty record where nothing could be written, and nobody hears of it."""


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


class ShrugsIt(AsksVectors):
    """Finds nothing where it can't search."""

    async def answer(self, request: Request) -> Answer:
        try:
            return await super().answer(request)
        except ModelError:
            return Answer(text="")


class StartsAnew(Server):
    """Starts another process where its own is gone, and says nothing of what was in it."""

    def send(self, *records: MemoryRecord) -> list[dict[str, Any]]:
        try:
            return super().send(*records)
        except (BrokenPipeError, ValueError):
            self.process.communicate()
            self.process = self.start()
            return super().send(*records)


END = threading.Event()


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


class LeaksProcess(Server):
    left: ClassVar[list[subprocess.Popen[str]]] = []

    async def aclose(self) -> None:
        self.left.append(self.process)


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
