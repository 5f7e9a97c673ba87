"""Answers by a model: what was retrieved → prompt → answer, with one budget in tokens for all systems."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from adapters.memory import Answer, Request
from adapters.metering import estimated_tokens, first_token_s, spent
from adapters.model import Ask, Message, Model
from adapters.prompt import ADAPTER_PROMPTS, PromptLanguage, load_prompt
from simulator.events import RetrievedRecord
from simulator.eventtime import format_event_time

ANSWER_PROMPT: Final = "answer_v1"
_NOTHING: Final = {"en": "(none)", "zh": "（无）"}


class ModelResponder:
    """Answers by one model at temperature 0 and the run's seed, as long as the endpoint's `max_tokens` lets them be.

    `token_budget`: tokens, by `estimated_tokens`, that the records in a prompt may have together: one budget for all
    systems, since a memory that hands over more would otherwise be compared with others on other terms. Whole records,
    best first, while they fit; the first that does not fit is cut at the budget. R_F is asked with the conversation so
    far.
    """

    def __init__(self, model: Model, *, token_budget: int, seed: int, language: PromptLanguage) -> None:
        self._model = model
        self._token_budget = token_budget
        self._seed = seed
        self._prompt = load_prompt(ADAPTER_PROMPTS, ANSWER_PROMPT, language)
        self.name: str = f"{model.name}; {self._prompt}; temperature=0"

    async def respond(self, request: Request, retrieved: Iterable[RetrievedRecord]) -> Answer:
        """Ask the model. Raises ModelError."""
        shown, used = self._within_budget(retrieved)
        first = request.history[0].text if request.history else request.text
        system, user = self._prompt.messages(
            memories="\n".join(shown) or _NOTHING[self._prompt.language],
            now=format_event_time(request.event_time_us),
            request=first,
        )
        said_before = (Message(role=turn.role, content=turn.text) for turn in request.history[1:])
        messages = (system, user, *said_before)
        ask = Ask(messages=messages, temperature=0.0, seed=self._seed)
        said = await self._model.ask(ask)
        return Answer(
            text=said.text.strip(),
            retrieved=tuple(used),
            usage=spent(said.usage),
            first_token_s=first_token_s(said.usage),
        )

    def _within_budget(self, retrieved: Iterable[RetrievedRecord]) -> tuple[list[str], list[RetrievedRecord]]:
        shown: list[str] = []
        used: list[RetrievedRecord] = []
        left = self._token_budget
        for record in retrieved:
            text = f"[{format_event_time(record.event_time_us)}] {record.text}"
            cut = _first_tokens(text, left)
            if cut:
                shown.append(cut)
                used.append(record)
            left -= estimated_tokens(text)
            if left <= 0:
                break
        return shown, used


def _first_tokens(text: str, count: int) -> str:
    """The text's beginning that has so many tokens by `estimated_tokens`."""
    content = text.encode()
    return text if len(content) <= 4 * count else content[: 4 * count].decode(errors="ignore")
