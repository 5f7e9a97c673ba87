"""The lower bound: no memory."""

from __future__ import annotations

from typing import Self

from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.responder import respond


class NullMemory:
    """Stores nothing and retrieves nothing; what it knows is what the conversation says."""

    capabilities = Capabilities(
        answers="run",
        exempt=dict.fromkeys(
            ("retrieval", "chinese", "single", "large", "commit"), "it keeps nothing, being the lower bound"
        ),
    )

    __slots__ = ("_context",)

    def __init__(self, context: LaneContext) -> None:
        self._context = context

    async def ingest(self, segment: Segment) -> Delta:
        """Forget the segment."""
        return Delta()

    async def answer(self, request: Request) -> Answer:
        """Answer from the conversation alone."""
        return await respond(self._context, request, ())

    async def commit(self, interaction: Interaction) -> Delta:
        """Forget the interaction."""
        return Delta()

    def fork(self) -> Self:
        """There is nothing to copy."""
        return type(self)(self._context)

    async def aclose(self) -> None:
        """There is nothing to let go of."""
