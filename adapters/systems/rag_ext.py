"""Retrieval over facts that a model extracts: what is kept is what the model found worth keeping."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from adapters.embedder import Embedder
from adapters.memory import Capabilities, Delta, Interaction, LaneContext, Segment
from adapters.metering import added, spent
from adapters.model import Ask, Message
from adapters.prompt import ADAPTER_PROMPTS, load_prompt
from adapters.systems.asking import all_of
from adapters.systems.records import interaction_text
from adapters.systems.retrieval import Retrieval, RetrievalMemory
from simulator.errors import ConfigError, ModelError
from simulator.events import MemoryRecord, Usage
from simulator.eventtime import format_event_time

EXTRACT_PROMPT: Final = "extract_v1"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a model extracts from one text."""

    facts: list[str]


class RagExtMemory(RetrievalMemory):
    """Stores facts that a model extracts from each segment and each interaction; answers with the top-k of a search.

    `model`: the configured model that extracts, at temperature 0 and the run's seed. `observations`: so many in one
    call, for models with a short context; by default, all of a segment. `retrieval`, `embedder`, `top_k`: as in
    rag_raw. A segment whose extraction fails is not stored at all, not even in part.
    """

    __slots__ = ("_model", "_observations", "_prompt")

    def __init__(
        self,
        context: LaneContext,
        encoder: Embedder | None = None,
        *,
        model: str = "",
        retrieval: Retrieval = "hybrid",
        embedder: str = "",
        top_k: int | None = None,
        observations: int | None = None,
    ) -> None:
        if not model:
            raise ConfigError("rag_ext needs a model: --system rag_ext:model=NAME, a model of --models")
        if observations is not None and observations < 1:
            raise ConfigError(f"rag_ext: observations must be at least 1, not {observations}")
        super().__init__(context, encoder, retrieval=retrieval, embedder=embedder, top_k=top_k)
        self._model = context.model(model)
        self._observations = observations
        self._prompt = load_prompt(ADAPTER_PROMPTS, EXTRACT_PROMPT, context.language)

    @staticmethod
    def capabilities(*, model: str = "", embedder: str = "", **_: object) -> Capabilities:
        """What the options declare."""
        return Capabilities(answers="run", model=model, prompts=(EXTRACT_PROMPT,), embedder=embedder)

    async def ingest(self, segment: Segment) -> Delta:
        """Store the facts of the segment. Raises ModelError and EncoderError, and then stores nothing."""
        observations = segment.observations
        size = self._observations or max(1, len(observations))
        parts = [observations[start : start + size] for start in range(0, len(observations), size)]
        found = await all_of(
            [partial(self._extract, "\n".join(o.text for o in part), part[0].event_time_us) for part in parts]
        )
        facts = [
            (fact, max(o.event_time_us for o in part))
            for part, (texts, _) in zip(parts, found, strict=True)
            for fact in texts
        ]
        return await self._keep(f"s{segment.segment}", facts, added(*(usage for _, usage in found)))

    async def commit(self, interaction: Interaction) -> Delta:
        """Store the facts of the interaction. Raises as `ingest` does."""
        texts, usage = await self._extract(interaction_text(interaction), interaction.event_time_us)
        return await self._keep(interaction.id, [(t, interaction.event_time_us) for t in texts], usage)

    async def _extract(self, text: str, event_time_us: int) -> tuple[list[str], Usage]:
        messages: tuple[Message, ...] = self._prompt.messages(
            time=format_event_time(event_time_us), seen=text
        )
        ask = Ask(messages=messages, temperature=0.0, seed=self._context.seed)
        try:
            facts, said = await self._model.ask_for(ask, Facts)
        except ModelError as error:
            if error.failure != "nonsense":
                raise
            # What it said may be quoted there, and reasons travel where agents read
            raise ModelError(error.model, error.failure, "its answers hold no list of facts") from error
        return [" ".join(fact.split()) for fact in facts.facts], spent(said.usage)

    async def _keep(self, origin: str, facts: list[tuple[str, int]], usage: Usage) -> Delta:
        newest: dict[str, int] = {}
        for text, event_time_us in facts:  # what is said twice is one fact, as new as where it was said last
            if text:
                newest[text] = max(newest.get(text, 0), event_time_us)
        records = tuple(
            MemoryRecord(id=f"{origin}/f{number}", text=text, event_time_us=event_time_us)
            for number, (text, event_time_us) in enumerate(newest.items())
        )
        if not records:
            return Delta(usage=usage)
        return msgspec.structs.replace(await self._add(records), usage=usage)
