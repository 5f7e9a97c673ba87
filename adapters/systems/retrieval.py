"""What systems that answer by a search share: the store, its forks, the search and the answer."""

from __future__ import annotations

import copy
from typing import Literal, Self

import anyio.to_thread

from adapters.embedder import Embedder, default_embedder
from adapters.memory import Answer, Delta, LaneContext, Request
from adapters.responder import query_of, respond
from adapters.store import Store
from adapters.systems.records import retrieved_record, stored_bytes
from simulator.errors import ConfigError
from simulator.events import MemoryRecord

Retrieval = Literal["dense", "bm25", "hybrid"]


class RetrievalMemory:
    """Records that are searched: exact dense search, BM25, or both fused by reciprocal rank. `embedder`: the configured
    model that makes the vectors; without a name it is `encoder`, or else the default one. `top_k`: records that an
    answer may use; the run's own unless given. What is stored is for subclasses to say."""

    __slots__ = ("_context", "_embedder", "_store", "_top_k")

    def __init__(
        self,
        context: LaneContext,
        encoder: Embedder | None,
        *,
        retrieval: Retrieval,
        embedder: str,
        top_k: int | None,
    ) -> None:
        if top_k is not None and top_k < 1:
            raise ConfigError(f"top_k must be at least 1, not {top_k}")
        if embedder and retrieval == "bm25":
            raise ConfigError("retrieval=bm25 has no vectors: leave embedder away")
        self._context = context
        if embedder:
            encoder = context.embedder(embedder)
        self._embedder = None if retrieval == "bm25" else encoder or default_embedder()
        self._top_k = context.top_k if top_k is None else top_k
        self._store = Store(
            dimensions=self._embedder.dimensions if self._embedder else 0, lexical=retrieval != "dense"
        )

    async def prepare(self) -> None:
        """Load the encoder's model."""
        if self._embedder is not None:
            await self._embedder.embed([""])

    async def answer(self, request: Request) -> Answer:
        """Answer from the records nearest to the request."""
        store = self._store.fork()  # what is there now, whatever is written while the search runs
        query = query_of(request)
        vector = (await self._embedder.embed([query]))[0] if self._embedder else None
        hits = await anyio.to_thread.run_sync(store.search, query, vector, self._top_k)
        retrieved = (retrieved_record(store.record(hit.row), hit.score) for hit in hits)
        return await respond(self._context, request, retrieved)

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
