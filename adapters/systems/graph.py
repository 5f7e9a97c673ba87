"""A graph memory: entities and relations that a model extracts, beside the text that they come from."""

from __future__ import annotations

import copy
from functools import partial
from typing import Final, Self, TypeVar

import anyio.to_thread
import msgspec

from adapters.embedder import Embedder, default_embedder
from adapters.graph_merge import Extracted, Merge, one_line
from adapters.knowledge_graph import Graph, Node
from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.metering import added, estimated_tokens, spent
from adapters.model import Ask, Message
from adapters.prompt import ADAPTER_PROMPTS, load_prompt
from adapters.responder import query_of, respond
from adapters.systems.asking import all_of
from adapters.systems.records import interaction_text, retrieved_record, stored_bytes
from simulator.errors import ConfigError, ModelError
from simulator.events import Usage
from simulator.eventtime import format_event_time

GRAPH_EXTRACT_PROMPT: Final = "graph_extract_v1"
GRAPH_SUMMARY_PROMPT: Final = "graph_summary_v1"
NO_DESCRIPTION: Final = "its answers hold no description"

T = TypeVar("T")


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a model makes of a long description."""

    description: str


class GraphMemory:
    """Stores a graph of entities and relations that a model extracts, and the text itself; answers with what is near
    the request and what hangs together with that.

    It follows the graph memory that RealMem compares (Hu et al. 2026, arXiv 2601.01280): one chunk a segment, merging
    by name, descriptions that accumulate (here with their times), dense search for entities and chunks, one step along
    the graph.

    `model`: the configured model that extracts, and that shortens a description of more than `description_tokens`
    tokens; temperature 0 and the run's seed. `observations`: so many in one chunk, for models with a short context; by
    default, all of a segment. `embedder`, `top_k`: as in rag_raw. A segment that fails is not stored, not even in part.
    """

    __slots__ = (
        "_context",
        "_description_tokens",
        "_embedder",
        "_extract_prompt",
        "_graph",
        "_model",
        "_observations",
        "_summary_prompt",
        "_top_k",
    )

    def __init__(
        self,
        context: LaneContext,
        encoder: Embedder | None = None,
        *,
        model: str = "",
        embedder: str = "",
        top_k: int | None = None,
        observations: int | None = None,
        description_tokens: int = 500,
    ) -> None:
        if not model:
            raise ConfigError("graph needs a model: --system graph:model=NAME, a model of --models")
        numbers = {"top_k": top_k, "observations": observations, "description_tokens": description_tokens}
        for name, number in numbers.items():
            if number is not None and number < 1:
                raise ConfigError(f"graph: {name} must be at least 1, not {number}")
        self._context = context
        self._model = context.model(model)
        self._embedder = context.embedder(embedder) if embedder else encoder or default_embedder()
        self._top_k = context.top_k if top_k is None else top_k
        self._observations = observations
        self._description_tokens = description_tokens
        self._extract_prompt = load_prompt(ADAPTER_PROMPTS, GRAPH_EXTRACT_PROMPT, context.language)
        self._summary_prompt = load_prompt(ADAPTER_PROMPTS, GRAPH_SUMMARY_PROMPT, context.language)
        self._graph = Graph(self._embedder.dimensions)

    @staticmethod
    def capabilities(*, model: str = "", embedder: str = "", **_: object) -> Capabilities:
        """What the options declare."""
        prompts = (GRAPH_EXTRACT_PROMPT, GRAPH_SUMMARY_PROMPT)
        return Capabilities(answers="run", model=model, prompts=prompts, embedder=embedder)

    async def prepare(self) -> None:
        """Load the encoder's model."""
        await self._embedder.embed([""])

    async def ingest(self, segment: Segment) -> Delta:
        """Merge what the segment says into the graph. Raises ModelError and EncoderError, and then stores nothing."""
        observations = segment.observations
        size = self._observations or max(1, len(observations))
        parts = [observations[start : start + size] for start in range(0, len(observations), size)]
        chunks = [
            (
                "\n".join(o.text for o in part),
                part[0].event_time_us,
                max(o.event_time_us for o in part),
            )
            for part in parts
        ]
        return await self._take(f"s{segment.segment}", chunks)

    async def commit(self, interaction: Interaction) -> Delta:
        """Merge what the interaction says into the graph. Raises as `ingest` does."""
        said_us = interaction.event_time_us
        return await self._take(interaction.id, [(interaction_text(interaction), said_us, said_us)])

    async def answer(self, request: Request) -> Answer:
        """Answer from what is found for the request."""
        graph = self._graph.fork()  # what is there now, whatever is written while the search runs
        (vector,) = await self._embedder.embed([query_of(request)])
        found = await anyio.to_thread.run_sync(graph.search, vector, self._top_k)
        retrieved = (retrieved_record(node.record, score) for node, score in found)
        return await respond(self._context, request, retrieved)

    def fork(self) -> Self:
        """An isolated copy in O(1)."""
        child = copy.copy(self)
        child._graph = self._graph.fork()
        return child

    async def aclose(self) -> None:
        """There is nothing to let go of."""

    async def _take(self, origin: str, chunks: list[tuple[str, int, int]]) -> Delta:
        """`chunks`: text, event time of its beginning, and of its newest observation."""
        found = await all_of([partial(self._extract, text, began_us) for text, began_us, _ in chunks])
        merge = Merge(self._graph, origin)
        for (text, _, newest_us), (extracted, _) in zip(chunks, found, strict=True):
            merge.add(text, extracted, newest_us)
        long = [
            node
            for node in merge.written.values()
            if estimated_tokens(node.description) > self._description_tokens
        ]
        summaries = await all_of([partial(self._summarise, node) for node in long])
        for node, (description, _) in zip(long, summaries, strict=True):
            merge.describe(node.key, description)
        usage = added(*(usage for _, usage in found), *(usage for _, usage in summaries))
        return msgspec.structs.replace(await self._write(tuple(merge.written.values())), usage=usage)

    async def _extract(self, text: str, event_time_us: int) -> tuple[Extracted, Usage]:
        messages = self._extract_prompt.messages(time=format_event_time(event_time_us), chunk=text)
        return await self._ask_for(messages, Extracted, "its answers hold no entities and relations")

    async def _summarise(self, node: Node) -> tuple[str, Usage]:
        messages = self._summary_prompt.messages(about=node.name, descriptions=node.description)
        summary, usage = await self._ask_for(messages, Summary, NO_DESCRIPTION)
        if not (description := one_line(summary.description)):
            raise ModelError(self._model.name, "nonsense", NO_DESCRIPTION)
        return description, usage

    async def _ask_for(self, messages: tuple[Message, ...], kind: type[T], otherwise: str) -> tuple[T, Usage]:
        ask = Ask(messages=messages, temperature=0.0, seed=self._context.seed)
        try:
            value, said = await self._model.ask_for(ask, kind)
        except ModelError as error:
            if error.failure != "nonsense":
                raise
            # What it said may be quoted there, and reasons travel where agents read
            raise ModelError(error.model, error.failure, otherwise) from error
        return value, spent(said.usage)

    async def _write(self, nodes: tuple[Node, ...]) -> Delta:
        if not nodes:
            return Delta()
        vectors = await self._embedder.embed([node.record.text for node in nodes])
        before = [stored.record for node in nodes if (stored := self._graph.get(node.key)) is not None]
        self._graph.add(nodes, vectors)
        records = tuple(node.record for node in nodes)
        new = len(records) - len(before)
        grown = stored_bytes(records) - stored_bytes(before)
        return Delta(records=records, stored_bytes=grown + new * vectors[0].nbytes)
