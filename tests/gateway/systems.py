"""A memory system that asks over HTTP, and swallows whatever its model fails at."""

from __future__ import annotations

import itertools
from typing import Self

import openai

from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.responder import respond
from simulator.events import MemoryRecord, RetrievedRecord, Usage


class Careless:
    """Keeps what a model makes of each segment, and goes on with an empty note where that fails."""

    def __init__(self, context: LaneContext, *, model: str) -> None:
        assert context.gateway is not None
        self._context = context
        self._gateway = context.gateway
        self._name = context.lane
        self._branches = itertools.count()
        self._records: tuple[MemoryRecord, ...] = ()

    @staticmethod
    def capabilities(*, model: str) -> Capabilities:
        return Capabilities(gateway=True, answers="run", model=model)

    async def ingest(self, segment: Segment) -> Delta:
        number = segment.segment
        async with self._gateway.stage(self._name, "ingest", segment=number) as stage:
            text = await self._noted(segment.text)
        return self._keep(f"s{number}/m0", text, segment.end_time_us, stage.usage)

    async def commit(self, interaction: Interaction) -> Delta:
        async with self._gateway.stage(self._name, "commit") as stage:
            text = await self._noted("\n".join(turn.text for turn in interaction.turns))
        return self._keep(f"{interaction.id}/m0", text, interaction.event_time_us, stage.usage)

    async def answer(self, request: Request) -> Answer:
        retrieved = [
            RetrievedRecord(id=r.id, text=r.text, event_time_us=r.event_time_us, score=1.0)
            for r in self._records
        ]
        return await respond(self._context, request, retrieved)

    def fork(self) -> Self:
        child = type(self)(self._context, model="")
        child._name = f"{self._name}/{next(self._branches)}"
        child._records = self._records
        return child

    async def aclose(self) -> None:
        pass

    async def _noted(self, text: str) -> str:
        async with openai.AsyncOpenAI(base_url=self._gateway.url_of(self._name), api_key="none") as client:
            try:
                said = await client.chat.completions.create(
                    model="gpt-4o-mini", messages=[{"role": "user", "content": text}]
                )
            except openai.OpenAIError:
                return ""
        return said.choices[0].message.content or ""

    def _keep(self, id: str, text: str, event_time_us: int, usage: Usage) -> Delta:
        record = MemoryRecord(id=id, text=text, event_time_us=event_time_us)
        self._records = (*self._records, record)
        return Delta(records=(record,), stored_bytes=len(text.encode()), usage=usage)
