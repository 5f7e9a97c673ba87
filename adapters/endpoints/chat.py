"""A language model behind an OpenAI-compatible endpoint: cached, tried again, and read as our types."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from adapters.endpoints.cache import Cache, Entry, key_for
from adapters.endpoints.caller import Caller, Done
from adapters.endpoints.flights import Flights
from adapters.endpoints.http import Wire
from adapters.endpoints.parsing import UnfitError, json_text, parse, schema_of
from adapters.endpoints.tally import Tally, cost_of
from adapters.endpoints.wire import Reply, chat_body, sampling, schema_text, wanted_schema
from adapters.http_client import shown
from adapters.model import Ask, Message, ModelUsage, Said
from simulator.errors import ModelError

T = TypeVar("T")

REPAIRS = 2
"""How often a model is asked again after an answer that is none."""
QUOTED_CHARACTERS = 4_000


class Endpoint:
    """A `Model` for one role: what several roles ask of one model is limited together and counted apart.

    `offline`: nothing is asked; what the cache does not have raises ModelError. Equal asks at one time are one call.
    """

    def __init__(
        self,
        caller: Caller,
        wire: Wire,
        tally: Tally,
        *,
        cache: Cache | None,
        flights: Flights[Said],
        offline: bool,
    ) -> None:
        self._caller = caller
        self._settings = caller.settings
        self._wire = wire
        self._tally = tally
        self._cache = cache
        self._flights = flights
        self._offline = offline
        self.name = caller.settings.name

    async def ask(self, ask: Ask) -> Said:
        """What the model says: not empty, not cut off, and bare JSON where the ask's `extra` wants that. Raises
        ModelError."""
        text, said = await self._ask(ask, partial(_text, wanted_schema(ask)))
        return msgspec.structs.replace(said, text=text)

    async def ask_for(self, ask: Ask, kind: type[T]) -> tuple[T, Said]:
        """The same as a struct. An answer that doesn't fit goes back to the model with what is wrong with it, twice;
        then it raises ModelError."""
        asked = msgspec.structs.replace(ask, schema=schema_of(kind))
        return await self._ask(asked, lambda said: parse(said.text, kind))

    async def _ask(self, ask: Ask, fits: Callable[[Said], T]) -> tuple[T, Said]:
        """Raises ModelError."""
        self._tally.calls += 1
        key = self.key(ask)
        try:
            said, own = await self._flights.once(key, lambda: self._answer(key, ask, fits))
            value = fits(said)
        except ModelError as error:
            self._tally.failed += error.failure != "offline"
            self._tally.missing += error.failure == "offline"
            raise
        except UnfitError as error:  # another kind with the same schema, stricter than that says
            self._tally.failed += 1
            raise ModelError(self._caller.label, "nonsense", str(error)) from error
        if not own:
            said = msgspec.structs.replace(said, usage=_free(said.usage))
        self._tally.cached += said.usage.cached
        return value, said

    def key(self, ask: Ask) -> bytes:
        """Where the cache has the answer. The form that is asked for is the configured one, also where the server
        turns out not to have it: that is its own affair, and offline nobody would know."""
        settings = self._settings
        schema = None if ask.schema is None else schema_text(ask.schema)
        structured = None if wanted_schema(ask) is None else settings.structured
        drawn = {**settings.body, **sampling(settings, ask), **ask.extra}
        kind = "whole chat" if ask.whole else "chat"
        return key_for(
            kind, settings.base_url, settings.model, ask.messages, drawn, schema, structured, ask.vote
        )

    async def _answer(self, key: bytes, ask: Ask, fits: Callable[[Said], object]) -> Said:
        """From the cache, or else from the model."""
        entry = (await self._cache.get([key])).get(key) if self._cache else None
        if entry is not None and _fits(cached := _cached(entry, ask), fits):
            return cached
        if self._offline:
            raise ModelError(
                self._caller.label, "offline", "the cache has no answer, and nothing else may be asked"
            )
        said = await self._paid(ask, fits)
        if self._cache is None:
            return said
        usage = said.usage
        fresh = Entry(
            value=_kept(said, ask),
            prompt_tokens=usage.prompt_tokens if usage.tokens_known else None,
            completion_tokens=usage.completion_tokens if usage.tokens_known else None,
        )
        kept = (await self._cache.put(self.name, {key: fresh}, replace=entry is not None))[key]
        return msgspec.structs.replace(_cached(kept, ask), usage=usage)

    async def _paid(self, ask: Ask, fits: Callable[[Said], object]) -> Said:
        """From the model, until it fits."""
        settings, caller = self._settings, self._caller
        further: list[Message] = []
        took = ModelUsage(attempts=0)
        send = self._wire.stream_chat if settings.stream else self._wire.chat
        for asked in range(1, REPAIRS + 2):
            done = await caller.call(
                partial(chat_body, settings, ask, caller.dialect, further),
                send,
                self._tally,
                completion_tokens=sampling(settings, ask).get("max_tokens", 0),
            )
            took = self._count(done, took)
            said = _said(done.reply, ask)
            text, unfit = said.text, _unfit(said, ask, fits)
            if not unfit:
                return msgspec.structs.replace(said, usage=took)
            schema, cut_off = wanted_schema(ask), said.finish == "length"
            if asked > REPAIRS or (cut_off and schema is None):  # cut off again, if it were asked again
                break
            further = _repair(text, unfit, schema) if schema is not None and text.strip() else []
        times = f" ({asked} times)" if asked > 1 else ""
        quoted = f"; it says: {shown(text.encode())}" if text.strip() else ""
        raise ModelError(caller.label, "nonsense", f"{unfit}{times}{quoted}")

    def _count(self, done: Done[Reply], before: ModelUsage) -> ModelUsage:
        """Add one reply to what the call took so far, and to the tally."""
        reply, tally = done.reply, self._tally
        prompt_tokens, completion_tokens = reply.prompt_tokens or 0, reply.completion_tokens or 0
        cost = cost_of(self._settings.price_per_million, prompt_tokens, completion_tokens)
        tally.uncounted += reply.tokens is None
        tally.prompt_tokens += prompt_tokens
        tally.completion_tokens += completion_tokens
        tally.cost += cost
        tally.seconds += done.timing.seconds
        return ModelUsage(
            prompt_tokens=before.prompt_tokens + prompt_tokens,
            completion_tokens=before.completion_tokens + completion_tokens,
            tokens_known=before.tokens_known and reply.tokens is not None,
            cost=before.cost + cost,
            seconds=done.timing.seconds,
            first_token_s=done.timing.first_token_s,
            attempts=before.attempts + done.attempts,
        )


class _Whole(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the cache keeps the answer to a whole ask."""

    text: str
    finish: str = "stop"
    tool_calls: tuple[dict[str, Any], ...] = ()


def _said(reply: Reply, ask: Ask) -> Said:
    calls = reply.tool_calls if ask.whole else ()
    return Said(text=reply.text, finish=reply.finish or "stop", tool_calls=calls)


def _text(schema: dict[str, Any] | None, said: Said) -> str:
    """Raises UnfitError."""
    return said.text if schema is None or said.tool_calls else json_text(said.text, schema)


def _kept(said: Said, ask: Ask) -> bytes:
    if not ask.whole:
        return said.text.encode()
    return msgspec.json.encode(_Whole(text=said.text, finish=said.finish, tool_calls=said.tool_calls))


def _fits(said: Said, fits: Callable[[Said], object]) -> bool:
    try:
        fits(said)
    except UnfitError:
        return False
    return True


def _cached(entry: Entry, ask: Ask) -> Said:
    usage = ModelUsage(
        prompt_tokens=entry.prompt_tokens or 0,
        completion_tokens=entry.completion_tokens or 0,
        tokens_known=entry.prompt_tokens is not None and entry.completion_tokens is not None,
    )
    whole = msgspec.json.decode(entry.value, type=_Whole) if ask.whole else _Whole(text=entry.value.decode())
    return Said(text=whole.text, finish=whole.finish, tool_calls=whole.tool_calls, usage=_free(usage))


def _free(usage: ModelUsage) -> ModelUsage:
    """What an answer that is there takes."""
    return msgspec.structs.replace(usage, cached=True, cost=0.0, seconds=0.0, first_token_s=None, attempts=0)


def _unfit(said: Said, ask: Ask, fits: Callable[[Said], object]) -> str:
    """Why this is no answer; empty if it is one. Raises nothing but what ends the call."""
    as_asked = ask.whole and ask.max_tokens is not None and wanted_schema(ask) is None
    if said.finish == "length" and not (as_asked and said.text.strip()):
        begun = "" if said.text.strip() else " before it began"
        return f"the answer was cut off{begun}: max_tokens is too low"
    if not (said.text.strip() or said.tool_calls):
        return "an empty answer"
    try:
        fits(said)
    except UnfitError as error:
        return f"an answer that doesn't fit: {error}"
    return ""


def _repair(text: str, unfit: str, schema: dict[str, Any]) -> list[Message]:
    """The answer and what is wrong with it: the same question alone would have the same answer at temperature 0."""
    wanted = "Reply again, briefly, with one JSON value that fits this schema, and nothing else:"
    return [
        Message(role="assistant", content=text[:QUOTED_CHARACTERS]),
        Message(role="user", content=f"That can't be used: {unfit}. {wanted}\n{schema_text(schema)}"),
    ]
