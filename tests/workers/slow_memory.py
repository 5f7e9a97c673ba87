"""A memory system that takes its time, so that a kill hits it at work. What it says is the same each time."""

from __future__ import annotations

import uuid
import zlib
from pathlib import Path

import anyio
from msgspec.structs import replace

from adapters.memory import Answer, Delta, Interaction, LaneContext, Request, Segment
from tests.roles.systems import Ledger

OPEN_SEGMENTS = 4
"""Of a gated memory."""


class SlowMemory(Ledger):
    """Its first answer to every second question is no answer, so that half of all trajectories are revised. Each
    answer rests on all that it sees, so that a lane that was rebuilt wrongly shows. With `spoilt`, some calls
    fail, each time the same ones."""

    def __init__(self, context: LaneContext, *, ms: int = 20, spoilt: bool = False) -> None:
        super().__init__(context)
        self.delay_s = ms / 1000
        self.spoilt = spoilt

    async def ingest(self, segment: Segment) -> Delta:
        await anyio.sleep(self.delay_s)
        self._spoil(f"ingest {segment.stream} {segment.segment}", 13)
        return await super().ingest(segment)

    async def answer(self, request: Request) -> Answer:
        await anyio.sleep(2 * self.delay_s)
        self._spoil(f"{request.phase} {request.text} {len(self.records)}", 7)
        answer = await super().answer(request)
        if request.phase == "R1" and zlib.crc32(request.text.encode()) % 2:
            return Answer(text="I don't know", retrieved=answer.retrieved)
        if request.phase == "R_F":
            return Answer(text=request.history[-1].text, retrieved=answer.retrieved)
        return answer

    async def commit(self, interaction: Interaction) -> Delta:
        await anyio.sleep(self.delay_s)
        self._spoil(f"commit {interaction.id}", 7)
        return await super().commit(interaction)

    def _spoil(self, what: str, one_in: int) -> None:
        if self.spoilt and zlib.crc32(what.encode()) % one_in == 0:
            raise RuntimeError(f"{what}: spoilt")


class Restless(SlowMemory):
    """Its records have other ids each time, and its answers don't say what they rest on: so nothing but its deltas
    shows that a lane that was rebuilt has another memory."""

    async def answer(self, request: Request) -> Answer:
        return replace(await super().answer(request), retrieved=())

    def _keep(self, name: str, text: str, event_time_us: int) -> Delta:
        return super()._keep(f"{name}/{uuid.uuid4()}", text, event_time_us)


class Gated(SlowMemory):
    """Does not ingest its fifth segment before there is the file `gate`; that it waits, another beside it says."""

    def __init__(self, context: LaneContext, *, gate: str, ms: int = 20) -> None:
        super().__init__(context, ms=ms)
        self.gate = Path(gate)

    async def ingest(self, segment: Segment) -> Delta:
        if segment.segment == OPEN_SEGMENTS and not self.gate.exists():
            self.gate.with_name(f"{self.gate.name}.{segment.stream}").touch()
            while not self.gate.exists():  # noqa: ASYNC110 - another process makes it
                await anyio.sleep(0.05)
        return await super().ingest(segment)


class GatedRestless(Restless, Gated):
    """Both."""
