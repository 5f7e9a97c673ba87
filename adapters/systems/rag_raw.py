"""Retrieval over raw chunks: no extraction and no summary, the baseline of memory systems."""

from __future__ import annotations

import copy
from typing import Literal, Self

import anyio.to_thread

from adapters.embedder import Embedder, default_embedder
from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.responder import extract, query_of
from adapters.store import Store
from adapters.systems.records import interaction_text, retrieved_record, stored_bytes
from simulator.errors import ConfigError
from simulator.events import MemoryRecord

Retrieval = Literal["dense", "bm25", "hybrid"]


class RagRawMemory:
    """Stores chunks of a segment's observations and whole interactions; answers with the top-k of a search.

    `retrieval`: exact dense search, BM25, or both fused by reciprocal rank. `top_k`: records that an answer
    may use; the run's own unless given. `chunk_observations`: observations in a chunk.
    """

    capabilities = Capabilities()

    __slots__ = ("_chunk_observations", "_context", "_embedder", "_store", "_top_k")

    def __init__(
        self,
        context: LaneContext,
        embedder: Embedder | None = None,
        *,
        retrieval: Retrieval = "hybrid",
        top_k: int | None = None,
        chunk_observations: int = 16,
    ) -> None:
        for name, number in (("top_k", top_k), ("chunk_observations", chunk_observations)):
            if number is not None and number < 1:
                raise ConfigError(f"rag_raw: {name} must be at least 1, not {number}")
        self._context = context
        self._embedder = None if retrieval == "bm25" else embedder or default_embedder()
        self._top_k = context.top_k if top_k is None else top_k
        self._chunk_observations = chunk_observations
        self._store = Store(
            dimensions=self._embedder.dimensions if self._embedder else 0, lexical=retrieval != "dense"
        )

    async def prepare(self) -> None:
        """Load the encoder's model."""
        if self._embedder is not None:
            await self._embedder.embed([""])

    async def ingest(self, segment: Segment) -> Delta:
        """Store the segment's chunks."""
        observations, size = segment.observations, self._chunk_observations
        chunks = [observations[start : start + size] for start in range(0, len(observations), size)]
        return await self._add(
            tuple(
                MemoryRecord(
                    id=f"s{segment.segment}/c{number}",
                    text="\n".join(o.text for o in chunk),
                    event_time_us=max(o.event_time_us for o in chunk),
                )
                for number, chunk in enumerate(chunks)
            )
        )

    async def answer(self, request: Request) -> Answer:
        """The records nearest to the request, best first."""
        store = self._store.fork()  # what is there now, whatever is written while the search runs
        query = query_of(request)
        vector = (await self._embedder.embed([query]))[0] if self._embedder else None
        hits = await anyio.to_thread.run_sync(store.search, query, vector, self._top_k)
        retrieved = (retrieved_record(store.record(hit.row), hit.score) for hit in hits)
        return extract(request, retrieved, self._context.word_budget)

    async def commit(self, interaction: Interaction) -> Delta:
        """Store the interaction as one record."""
        text = interaction_text(interaction)
        return await self._add(
            (MemoryRecord(id=f"{interaction.id}/c0", text=text, event_time_us=interaction.event_time_us),)
        )

    async def _add(self, records: tuple[MemoryRecord, ...]) -> Delta:
        vectors = await self._embedder.embed([r.text for r in records]) if self._embedder else None
        self._store.add(records, vectors)
        vector_bytes = 0 if vectors is None else vectors.nbytes
        return Delta(records=records, stored_bytes=stored_bytes(records) + vector_bytes)

    def fork(self) -> Self:
        """An isolated copy in O(1)."""
        child = copy.copy(self)
        child._store = self._store.fork()
        return child

    async def aclose(self) -> None:
        """There is nothing to let go of."""
