"""A memory system that takes its time, so that a kill hits it at work. What it says is the same each time."""

from __future__ import annotations

import zlib

import anyio

from adapters.memory import Answer, Delta, Interaction, LaneContext, Request, Segment
from tests.roles.systems import Ledger


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
