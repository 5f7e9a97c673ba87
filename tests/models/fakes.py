"""A model without a server: it says what a function gives, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adapters.endpoints.parsing import UnfitError, parse
from adapters.model import Ask, ModelUsage, Said
from simulator.errors import ModelError

T = TypeVar("T")
Says = Callable[[Ask], str | ModelError]


class FakeModel:
    def __init__(self, name: str = "fake", says: Says = lambda ask: "said") -> None:
        self.name = name
        self.says = says
        self.asks: list[Ask] = []

    async def ask(self, ask: Ask) -> Said:
        self.asks.append(ask)
        said = self.says(ask)
        if isinstance(said, ModelError):
            raise said
        return Said(text=said, usage=ModelUsage(prompt_tokens=10, completion_tokens=2, seconds=0.5))

    async def ask_for(self, ask: Ask, kind: type[T]) -> tuple[T, Said]:
        said = await self.ask(ask)
        try:
            return parse(said.text, kind), said
        except UnfitError as error:
            raise ModelError(self.name, "nonsense", f"{error}: {said.text}") from error

    def prompts(self) -> list[str]:
        return ["\n".join(message.content for message in ask.messages) for ask in self.asks]


def down(reason: str = "can't connect") -> ModelError:
    return ModelError("fake", "unavailable", reason)
