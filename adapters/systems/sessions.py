"""Rankings of whole segments as memory systems: RealMem's baselines, whose segments are sessions."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, Self

import anyio.to_thread

from adapters.embedder import Embedder, default_embedder
from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.ranking import Hit
from adapters.responder import query_of, respond
from adapters.sessions import SessionIndex
from adapters.store import Store
from adapters.systems.records import interaction_text, retrieved_record, stored_bytes
from simulator.errors import ConfigError
from simulator.events import MemoryRecord, ObservationEvent

Ranking = Literal["recency", "bm25", "dense", "hybrid"]

_SPEAKER: Final = re.compile(r"[^:：\n]{1,40}(?:: |：)")
_VECTOR_ITEM_BYTES: Final = 4


class SessionMemory:
    """One record for each segment, and one for each interaction, as a whole; ranked as `adapters.sessions` says.

    What is ranked by are the turns without their speakers, who are in the records' texts.
    """

    __slots__ = ("_context", "_embedder", "_index", "_store", "_top_k")

    ranking: ClassVar[Ranking]

    def __init__(
        self, context: LaneContext, encoder: Embedder | None = None, *, top_k: int | None = None
    ) -> None:
        if top_k is not None and top_k < 1:
            raise ConfigError(f"top_k must be at least 1, not {top_k}")
        self._context = context
        self._embedder = encoder
        self._top_k = context.top_k if top_k is None else top_k
        self._store = Store()
        self._index = SessionIndex(dimensions=encoder.dimensions if encoder else 0)

    async def prepare(self) -> None:
        """Load the encoder's model."""
        if self._embedder is not None:
            await self._embedder.embed([""])

    async def ingest(self, segment: Segment) -> Delta:
        """Store the segment as one record; one without observations is none."""
        if not segment.observations:
            return Delta()
        record = MemoryRecord(
            id=f"s{segment.segment}",
            text=segment.text,
            event_time_us=max(o.event_time_us for o in segment.observations),
        )
        return await self._add(record, [said(observation) for observation in segment.observations])

    async def answer(self, request: Request) -> Answer:
        """Answer from the segments that rank first."""
        # what is there now, whatever is written while the search runs
        store, index, query = self._store.fork(), self._index.fork(), query_of(request)
        vector = (await self._embedder.embed([query]))[0] if self._embedder else None

        def rank() -> list[Hit]:
            if self.ranking == "recency":
                return SessionIndex.recency(len(store), self._top_k)
            if vector is None:
                return index.lexical(query, len(index), self._top_k)
            if self.ranking == "dense":
                return index.dense(vector, len(index), self._top_k)
            return index.fused(query, vector, len(index), self._top_k)

        hits = await anyio.to_thread.run_sync(rank)
        retrieved = tuple(retrieved_record(store.record(hit.row), hit.score) for hit in hits)
        return await respond(self._context, request, retrieved)

    async def commit(self, interaction: Interaction) -> Delta:
        """Store the interaction as one record."""
        record = MemoryRecord(
            id=interaction.id, text=interaction_text(interaction), event_time_us=interaction.event_time_us
        )
        return await self._add(record, [turn.text for turn in interaction.turns])

    async def _add(self, record: MemoryRecord, turns: Sequence[str]) -> Delta:
        vectors = await self._embedder.embed(turns) if self._embedder else None
        if self.ranking != "recency":
            self._index.add(turns, vectors)
        self._store.add([record])
        vector_bytes = self._embedder.dimensions * _VECTOR_ITEM_BYTES if self._embedder else 0
        return Delta(records=(record,), stored_bytes=stored_bytes([record]) + vector_bytes)

    def fork(self) -> Self:
        """An isolated copy in O(1)."""
        child = copy.copy(self)
        child._store = self._store.fork()
        child._index = self._index.fork()
        return child

    async def aclose(self) -> None:
        """There is nothing to let go of."""


class RecencyMemory(SessionMemory):
    """Stores whole segments; answers with the newest, whatever is asked. `top_k`: how many an answer may name; the
    run's own unless given."""

    capabilities = Capabilities(answers="run", exempt={"retrieval": "it names the newest, whatever is asked"})
    ranking = "recency"
    __slots__ = ()


class Bm25Memory(SessionMemory):
    """Stores whole segments; answers with the first by BM25 over stemmed English terms. `top_k`: as in recency."""

    capabilities = Capabilities(answers="run", exempt={"chinese": "its terms are stemmed English"})
    ranking = "bm25"
    __slots__ = ()


class DenseMemory(SessionMemory):
    """Stores whole segments; answers with those the mean of whose observations' vectors is nearest. `embedder`: the
    configured embeddings model that makes the vectors; by default an encoder of our own that needs none. `top_k`: as in
    recency."""

    ranking: ClassVar[Ranking] = "dense"
    __slots__ = ()

    def __init__(
        self,
        context: LaneContext,
        encoder: Embedder | None = None,
        *,
        embedder: str = "",
        top_k: int | None = None,
    ) -> None:
        # each turn is embedded, all of a segment's in one call; what is kept is the mean of its vectors
        if embedder:
            encoder = context.embedder(embedder)
        super().__init__(context, encoder or default_embedder(), top_k=top_k)

    @staticmethod
    def capabilities(*, embedder: str = "", **_: object) -> Capabilities:
        """What the options declare."""
        return Capabilities(answers="run", embedder=embedder)


class HybridMemory(DenseMemory):
    """Stores whole segments; answers with the first by bm25 and dense, fused by reciprocal rank. `embedder`, `top_k`:
    as in dense."""

    ranking = "hybrid"
    __slots__ = ()


def said(observation: ObservationEvent) -> str:
    """What an observation says, without its speaker. Only speech has one, `NAME: ...` on its first line; what is said
    without a speaker and begins like that loses those words, which nothing in the text tells apart."""
    if observation.source != "dialog":
        return observation.text
    match = _SPEAKER.match(observation.text)
    return observation.text[match.end() :] if match else observation.text
