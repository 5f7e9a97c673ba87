"""Retrieval over raw chunks: no extraction and no summary, the baseline of memory systems."""

from __future__ import annotations

from adapters.embedder import Embedder
from adapters.memory import Capabilities, Delta, Interaction, LaneContext, Segment
from adapters.systems.records import interaction_text
from adapters.systems.retrieval import Retrieval, RetrievalMemory
from simulator.errors import ConfigError
from simulator.events import MemoryRecord


class RagRawMemory(RetrievalMemory):
    """Stores chunks of a segment's observations and whole interactions; answers with the top-k of a search.

    `retrieval`: exact dense search, BM25, or both fused by reciprocal rank. `embedder`: the configured embeddings model
    that makes the vectors; by default an encoder of our own that needs none. `top_k`: records that an answer may use;
    the run's own unless given. `chunk_observations`: observations in a chunk.
    """

    __slots__ = ("_chunk_observations",)

    def __init__(
        self,
        context: LaneContext,
        encoder: Embedder | None = None,
        *,
        retrieval: Retrieval = "hybrid",
        embedder: str = "",
        top_k: int | None = None,
        chunk_observations: int = 16,
    ) -> None:
        if chunk_observations < 1:
            raise ConfigError(f"rag_raw: chunk_observations must be at least 1, not {chunk_observations}")
        super().__init__(context, encoder, retrieval=retrieval, embedder=embedder, top_k=top_k)
        self._chunk_observations = chunk_observations

    @staticmethod
    def capabilities(*, embedder: str = "", **_: object) -> Capabilities:
        """What the options declare."""
        return Capabilities(answers="run", embedder=embedder)

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

    async def commit(self, interaction: Interaction) -> Delta:
        """Store the interaction as one record."""
        text = interaction_text(interaction)
        return await self._add(
            (MemoryRecord(id=f"{interaction.id}/c0", text=text, event_time_us=interaction.event_time_us),)
        )
